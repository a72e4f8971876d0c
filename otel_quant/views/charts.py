"""Charts as data: curves as columns, what the page's script draws, and the outline without it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from otel_quant.export.recording.curve import Level, Number, RecordedCurve
from otel_quant.recordings.model import State
from otel_quant.schema import series
from otel_quant.schema.units import clock_text, count_text, cut, digits_text, size
from otel_quant.views.shown_steps import ROWS, ShownStep

Values: TypeAlias = tuple[float | None, ...]

LAUNCHER: Final = "launcher"
"""Name of the launcher's curve; it has all processes."""

_SMOOTHED: Final = 4
"""Buckets over which a rate is taken, or those of a second if these are more."""

_CELLS: Final = 10_000
_FEWEST, _MOST = 200, 1_200
"""Points of a chart: as many as a wide screen has, fewer where there are many series, so that the
report of any run stays small."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest value of a level, exactly as it was read."""

    value: float  # The value
    time: float  # When it was read, in seconds since the recording began


@dataclass(frozen=True, slots=True)
class Grid:
    """Curves as columns."""

    start: float  # When the first bucket begins, in seconds since the recording began
    every: float  # Seconds of one bucket
    count: int  # Number of buckets
    # Lowest value of each level in each bucket; None where nothing was read
    lowest: Mapping[str, Values] = field(default_factory=dict)
    highest: Mapping[str, Values] = field(default_factory=dict)  # Highest value likewise
    # Last value likewise, of levels and of totals
    last: Mapping[str, Values] = field(default_factory=dict)
    # When the highest value of a level in a bucket was read, in seconds since the recording
    # began; without those of curves that were added up
    highest_at: Mapping[str, Values] = field(default_factory=dict)
    # Highest value of each level and when it was read
    peaks: Mapping[str, Peak] = field(default_factory=dict)
    parts: int = 1  # Number of curves that were added up

    @property
    def times(self) -> tuple[float, ...]:
        """The middle of each bucket, in seconds since the recording began."""
        return tuple(self.start + (at + 0.5) * self.every for at in range(self.count))

    def rate(self, name: str, until: float) -> Values:
        """Returns how fast a total rose until the end of each bucket, per second.

        It is taken over some buckets: readings that are evenly spaced fall now once, now twice into one.
        A total counts from the beginning of the recording, which may be before the first bucket.
        """
        known_end = (until - self.start) / self.every
        least = max(_SMOOTHED, 1.0 / self.every)
        rates: list[float | None] = []
        known = deque([(-self.start / self.every, 0.0)])  # end of a bucket, and the total then
        for at, value in enumerate(self.last.get(name, ())):
            if value is None:
                rates.append(None)
                continue
            end = known_end if at < known_end < at + 1 else at + 1
            while len(known) > 1 and end - known[1][0] >= least:
                known.popleft()
            since, before = known[0]
            rates.append(max(0.0, value - before) / ((end - since) * self.every))
            known.append((end, value))
        return tuple(rates)


def grid_of(curves: Mapping[str, RecordedCurve], began_ns: int) -> Grid | None:
    """Returns curves on one axis of time, coarse enough for a chart.

    The launcher's curve has everything. Without one the curves of the processes are added up.
    """
    if LAUNCHER in curves and curves[LAUNCHER].curve.buckets:
        chosen = [curves[LAUNCHER]]
    else:
        chosen = [curve for curve in curves.values() if curve.curve.buckets]
    if not chosen:
        return None
    spans = [_span(curve, began_ns) for curve in chosen]
    start, end = min(first for first, _ in spans), max(last for _, last in spans)
    every = max(curve.curve.length for curve in chosen) / 1000
    points = _points(chosen)
    every *= max(1, -int(-((end - start) / every) // points))
    count = max(1, int((end - start) / every + 0.999))
    parts = [_columns(curve, began_ns, start, every, count) for curve in chosen]
    return parts[0] if len(parts) == 1 else _sum(parts)


def _span(curve: RecordedCurve, began_ns: int) -> tuple[float, float]:
    offset, length = (curve.began_ns - began_ns) / 1e9, curve.curve.length / 1000
    positions = curve.curve.buckets
    return offset + min(positions) * length, offset + (max(positions) + 1) * length


def _points(curves: Iterable[RecordedCurve]) -> int:
    names = {
        name
        for curve in curves
        for bucket in curve.curve.buckets.values()
        for name in (*bucket.levels, *bucket.totals)
    }
    return max(_FEWEST, min(_MOST, _CELLS // (len(names) + 2)))


def _columns(curve: RecordedCurve, began_ns: int, start: float, every: float, count: int) -> Grid:
    offset, length = (curve.began_ns - began_ns) / 1e9, curve.curve.length / 1000
    levels: dict[str, list[Level | None]] = {}
    totals: dict[str, list[Number | None]] = {}
    for position in sorted(curve.curve.buckets):
        bucket = curve.curve.buckets[position]
        # From the middle of the bucket, so that no rounding puts it into the one before.
        at = min(count - 1, int((offset + (position + 0.5) * length - start) / every))
        for name, level in bucket.levels.items():
            column = levels.setdefault(name, [None] * count)
            known = column[at]
            if known is None:
                column[at] = Level(level.lowest, level.highest, level.last, level.at)
            else:
                known.merge(level)
        for name, value in bucket.totals.items():
            totals.setdefault(name, [None] * count)[at] = value
    peaks = {
        name: max((level for level in column if level is not None), key=lambda level: level.highest)
        for name, column in levels.items()
    }
    return Grid(
        start,
        every,
        count,
        lowest={name: _part(column, "lowest") for name, column in levels.items()},
        highest={name: _part(column, "highest") for name, column in levels.items()},
        last={name: _part(column, "last") for name, column in levels.items()}
        | {name: tuple(column) for name, column in totals.items()},
        highest_at={
            name: tuple(None if level is None else offset + level.at / 1000 for level in column)
            for name, column in levels.items()
        },
        peaks={
            name: Peak(level.highest, offset + level.at / 1000) for name, level in peaks.items()
        },
    )


def _part(column: Iterable[Level | None], part: str) -> Values:
    return tuple(None if level is None else getattr(level, part) for level in column)


def _sum(parts: list[Grid]) -> Grid:
    """Adds up the last values of curves: only those were there at one time, the highest were not."""
    first = parts[0]
    levels = dict.fromkeys(name for part in parts for name in part.highest)
    last = {}
    for name in dict.fromkeys(name for part in parts for name in part.last):
        columns = [part.last[name] for part in parts if name in part.last]
        last[name] = _added([_held(column, name in levels) for column in columns], name)
    peaks = {}
    for name in levels:
        value, at = max((value, -at) for at, value in enumerate(last[name]) if value is not None)
        peaks[name] = Peak(value, first.start + (0.5 - at) * first.every)
    values = {name: last[name] for name in levels}
    return Grid(first.start, first.every, first.count, values, values, last, {}, peaks, len(parts))


def _held(values: Values, ends: bool) -> Values:
    """Returns values that stay until the next one; a level ends with its last, a total never."""
    known = [at for at, value in enumerate(values) if value is not None]
    until = known[-1] if known and ends else len(values)
    held: list[float | None] = []
    for at, value in enumerate(values):
        held.append(held[-1] if value is None and held and at < until else value)
    return tuple(held)


def _added(columns: list[Values], name: str) -> Values:
    """Adds columns up; of what each process reads of the same device or folder, takes the most."""
    gpu = series.gpu_of(name)
    is_shared = name == series.CACHE or (gpu is not None and gpu[1] == series.USED)
    rows = ([value for value in row if value is not None] for row in zip(*columns, strict=True))
    return tuple(None if not row else max(row) if is_shared else sum(row) for row in rows)


Unit = Literal["bytes", "bytes/s", "cores", "samples"]
Style = Literal["main", "second", "stacked", "lowest"]
"""How a series is drawn: the figure itself, one beside it, a share of it, the lower edge of it."""

Json: TypeAlias = dict[str, object]

_STEPS: Final[dict[Unit, float]] = {"bytes": 1000, "bytes/s": 1000, "cores": 0.01, "samples": 1}
"""What the numbers of the page are multiples of: whole numbers take less of the file."""

_LONGEST_LABEL: Final = 80


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a chart."""

    label: str  # Its name
    values: Values  # One value for each time of the chart; None where nothing was read
    style: Style = "main"  # How it is drawn


@dataclass(frozen=True, slots=True)
class Line:
    """A level that is drawn across a chart."""

    label: str  # What it is
    value: float  # Its value


@dataclass(frozen=True, slots=True)
class Mark:
    """A point with a label."""

    label: str  # What it is
    time: float  # Seconds since the recording began
    value: float  # Its value


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart over the time of a recording."""

    id: str  # Identifier in the page
    title: str  # What it shows
    unit: Unit  # Unit of its values
    times: Sequence[float]  # Seconds since the recording began, ascending
    series: tuple[Series, ...]  # Its series; stacked ones from the bottom
    limit: Line | None = None  # The limit in force
    mark: Mark | None = None  # Its highest value
    summary: str = ""  # What it shows in one sentence, for who cannot see it
    note: str = ""  # What has to be known to read it
    every: float | None = None  # Seconds of one bucket; None if the times are not evenly spaced
    is_large: bool = False  # Whether it is the page's main chart, with the names of the steps

    @property
    def top(self) -> float:
        """Highest value of the scale. It has the limit unless the curve would be flat below it."""
        highest = max(
            (value for series in self.series for value in series.values if value is not None),
            default=0.0,
        )
        stacked = [series.values for series in self.series if series.style == "stacked"]
        if stacked:
            rows = zip(*stacked, strict=True)
            highest = max(highest, *(sum(value or 0.0 for value in row) for row in rows))
        if self.mark is not None:
            highest = max(highest, self.mark.value)
        if self.limit is not None and highest >= _NEAR * self.limit.value:
            return 1.06 * max(highest, self.limit.value)
        return 1.12 * highest or 1.0


_NEAR: Final = 0.3
"""Share of the limit from which on it is drawn; below it the curve would be a line on the floor."""


def chart_data(chart: Chart) -> Json:
    """Returns a chart as the page's script reads it."""
    step = _STEPS[chart.unit]
    data: Json = {
        "id": chart.id,
        "unit": chart.unit,
        "step": step,
        "top": chart.top,
        "large": chart.is_large,
        "series": [
            {
                "label": series.label,
                "style": series.style,
                "values": [
                    None if value is None else round(value / step) for value in series.values
                ],
            }
            for series in chart.series
        ],
    }
    if chart.every is None or len(chart.times) == 0:
        data["times"] = [round(time, 3) for time in chart.times]
    else:
        data["start"], data["every"] = round(chart.times[0], 3), round(chart.every, 6)
        data["count"] = len(chart.times)
    if chart.limit is not None:
        data["limit"] = {"label": chart.limit.label, "value": chart.limit.value}
    if chart.mark is not None:
        data["mark"] = {
            "label": chart.mark.label,
            "time": round(chart.mark.time, 3),
            "value": chart.mark.value,
        }
    return data


def band_data(steps: Sequence[ShownStep]) -> list[list[object]]:
    """Returns the bands of steps: name, start, end, row, depth and state of each."""
    return [
        [
            cut(each.step.name, _LONGEST_LABEL),
            round(each.step.start, 3),
            round(each.end, 3),
            each.row,
            each.depth,
            each.state,
        ]
        for each in steps
    ]


WIDTH: Final = 1000
HEIGHT: Final = 200
_POINTS: Final = 400
_PAUSE: Final = 2.0
"""Seconds: a busy machine delays a reading; only a longer pause is a gap."""

_NARROWEST: Final = 0.15
_MOST_BANDS: Final = 120
_MOST_BANDS_BESIDE: Final = 12
"""In each of the smaller charts, of which there may be some twenty."""


@dataclass(frozen=True, slots=True)
class OutlineBand:
    """The band of a step. Places are shares of the width, in percent."""

    name: str  # The step
    left: float  # Where it begins
    width: float  # How wide it is
    row: int  # Its row, from 0
    state: State  # How it stands


@dataclass(frozen=True, slots=True)
class Tick:
    """A value on an axis."""

    text: str  # The value with its unit
    place: float  # Where it is, in percent of the width, or of the height from the top


@dataclass(frozen=True, slots=True)
class Outline:
    """A chart as paths in a box of ``WIDTH`` by ``HEIGHT``."""

    area: str  # The main series down to the floor; empty if there is none
    line: str  # Its upper edge
    second: tuple[str, ...]  # The upper edges of the series beside it
    limit: float | None  # Height of the limit line in percent from the top; None if it is not drawn
    bands: tuple[OutlineBand, ...]  # The steps' bands
    rows: int  # Rows of bands
    x_ticks: tuple[Tick, ...]  # Times
    y_ticks: tuple[Tick, ...]  # Values


def outline_of(chart: Chart, steps: Sequence[ShownStep], until: float) -> Outline:
    """Returns the outline of a chart."""
    main = next((each for each in chart.series if each.style == "main"), None)
    top = chart.top
    line = "" if main is None else _path(chart, main.values, until, top)
    bands = tuple(_bands(steps, until, _MOST_BANDS if chart.is_large else _MOST_BANDS_BESIDE))
    limit = None
    if chart.limit is not None and chart.limit.value <= top:
        limit = 100 * (1 - chart.limit.value / top)
    return Outline(
        area=_closed(line),
        line=line,
        second=tuple(
            _path(chart, each.values, until, top) for each in chart.series if each.style == "second"
        ),
        limit=limit,
        bands=bands if chart.is_large else tuple(band for band in bands if band.row == 0),
        rows=max((band.row + 1 for band in bands), default=0) if chart.is_large else 0,
        x_ticks=tuple(Tick(clock_text(share * until), 100 * share) for share in _QUARTERS),
        y_ticks=tuple(
            Tick(value_text(value, chart.unit), 100 * (1 - value / top))
            for value in _round_values(top)
            if limit is None or 100 * (1 - value / top) - limit > _APART
        ),
    )


_QUARTERS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_TICKS: Final = 3
_APART: Final = 10
"""Percent of the height: a tick nearer to the limit would be written over it."""


def _round_values(top: float) -> Iterator[float]:
    """Yields up to three round values between 0 and the top of a scale."""
    step = top / (_TICKS + 1)
    power = 10.0 ** math.floor(math.log10(step))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step)
    value = step
    while value < 0.9 * top:
        yield value
        value += step


def value_text(value: float, unit: Unit) -> str:
    """Returns a value of a chart with its unit."""
    match unit:
        case "bytes":
            return size(value)
        case "bytes/s":
            return f"{size(value)}/s"
        case "cores":
            return f"{digits_text(value)} cores"
        case "samples":
            return count_text(value)


def _path(chart: Chart, values: Values, until: float, top: float) -> str:
    """Returns a polyline through the highest value of each stretch; a gap begins a new one."""
    times, every = chart.times, math.inf if chart.every is None else chart.every
    stretch = max(1, -(-len(values) // _POINTS))
    parts: list[str] = []
    before: float | None = None
    for first in range(0, len(values), stretch):
        found = [
            (value, time)
            for value, time in zip(
                values[first : first + stretch], times[first : first + stretch], strict=True
            )
            if value is not None
        ]
        if not found:
            continue
        value, time = max(found)
        is_new = before is None or time - before > max(_PAUSE, 2 * stretch * every)
        x, y = WIDTH * time / until if until else 0.0, HEIGHT * (1 - value / top)
        parts.append(f"{'M' if is_new else 'L'}{x:.0f} {y:.0f}")
        before = time
    return "".join(parts)


def _closed(line: str) -> str:
    """Returns the area between a line and the floor."""
    closed = ""
    for part in filter(None, line.split("M")):
        points = part.split("L")
        first, last = points[0].split()[0], points[-1].split()[0]
        closed += f"M{first} {HEIGHT}L{'L'.join(points)}L{last} {HEIGHT}Z"
    return closed


def _bands(steps: Sequence[ShownStep], until: float, most: int) -> Iterator[OutlineBand]:
    if not until:
        return
    widest = sorted(
        (step for step in steps if step.row < ROWS),
        key=lambda step: (step.state == "ended", -step.duration),
    )
    for each in sorted(widest[:most], key=lambda step: (step.row, step.step.start)):
        width = 100 * each.duration / until
        if width < _NARROWEST and each.state == "ended":
            continue
        left = 100 * each.step.start / until
        width = round(max(width, _NARROWEST), 2)
        yield OutlineBand(
            cut(each.step.name, _LONGEST_LABEL), round(left, 2), width, each.row, each.state
        )
