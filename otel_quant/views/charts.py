"""Charts: what the page's script draws of them, and the outline without it, which paper has too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from otel_quant.recordings.model import State
from otel_quant.schema.units import BY_UNIT, clock_text, digits_text, size

Values: TypeAlias = tuple[float | None, ...]
Unit: TypeAlias = str  # `bytes`, `bytes/s`, `cores`, or the UCUM unit of a figure

Style: TypeAlias = Literal["main", "second", "stacked", "lowest"]
"""How a series is drawn: the figure itself, one beside it, a share, the lower edge."""

_STEPS: Final[Mapping[Unit, float]] = {"bytes": 1000, "bytes/s": 1000}
_SMALLEST: Final = 0.01
"""What the numbers of the page are multiples of: whole numbers take less of the file."""

_NEAR: Final = 0.3
"""Share of the limit from which on it is drawn; below it the curve would be a line on the floor."""


_FLAT: Final = 0.02  # Share of a chart's height below which a change is next to none


class ChartSeries(NamedTuple):
    """One series of a chart."""

    label: str  # Its name
    values: Values  # One value for each time of the chart; None where nothing was read
    style: Style = "main"  # How it is drawn


class Mark(NamedTuple):
    """A point with a label."""

    label: str
    time: float  # Seconds since the recording began
    value: float


class Band(NamedTuple):
    """A step behind the curves."""

    name: str
    start: float  # Seconds since the recording began
    end: float
    row: int  # From 0; a step within another, or beside one of its depth, has a further row
    depth: int  # Steps around it
    state: State


class Chart(NamedTuple):
    """A chart over the time of a recording."""

    id: str  # Identifier in the page
    title: str  # What it shows
    unit: Unit  # Unit of its values
    times: Sequence[float]  # Seconds since the recording began, ascending
    series: Sequence[ChartSeries]  # Its series; stacked ones from the bottom
    limit: float | None = None  # The limit in force, in the unit of the values
    mark: Mark | None = None  # Its highest value
    summary: str = ""  # What it shows in one sentence, for who cannot see it
    note: str = ""  # What has to be known to read it
    every: float | None = None  # Seconds of one bucket; None if the times are not evenly spaced
    is_large: bool = False  # Whether it is the page's main chart, with the names of the steps

    @property
    def is_flat(self) -> bool:
        """Whether it shows next to no change, for which little room is enough."""
        known = [[value for value in each.values if value is not None] for each in self.series]
        changes = (max(values) - min(values) for values in known if values)
        return not self.is_large and max(changes, default=0.0) <= _FLAT * self.top

    @property
    def top(self) -> float:
        """Highest value of the scale. It has the limit unless the curve would be flat below it."""
        stacked = [each.values for each in self.series if each.style == "stacked"]
        sums = (sum(filter(None, row)) for row in zip(*stacked, strict=True))
        values = chain.from_iterable(each.values for each in self.series)
        marked = self.mark.value if self.mark is not None else 0.0
        highest: float = max(chain(filter(None, values), sums, (marked, 0.0)))
        if self.limit is not None and highest >= _NEAR * self.limit:
            return 1.06 * max(highest, self.limit)
        return 1.12 * highest or 1.0


# --- for the page's script ----------------------------------------------------------------


def chart_data(chart: Chart) -> dict[str, object]:
    """Returns a chart as the page's script reads it."""
    step = _STEPS.get(chart.unit, _SMALLEST)
    data: dict[str, object] = {
        "id": chart.id, "unit": chart.unit, "step": step, "top": chart.top,
        "large": chart.is_large, "flat": chart.is_flat,
    }  # fmt: skip
    series = [
        each._replace(values=tuple(it if it is None else round(it / step) for it in each.values))
        for each in chart.series
    ]
    data["series"] = [each._asdict() for each in series]
    if chart.every is None or not chart.times:
        data["times"] = [round(time, 3) for time in chart.times]
    else:
        data["start"], data["every"] = round(chart.times[0], 3), round(chart.every, 6)
        data["count"] = len(chart.times)
    if chart.limit is not None:
        data["limit"] = {"label": "limit", "value": chart.limit}
    if chart.mark is not None:
        data["mark"] = chart.mark._replace(time=round(chart.mark.time, 3))._asdict()
    return data


def band_data(bands: Sequence[Band]) -> list[Any]:
    """Returns bands as the page's script reads them."""
    return [each._replace(start=round(each.start, 3), end=round(each.end, 3)) for each in bands]


# --- without it ---------------------------------------------------------------------------

_WIDTH: Final = 1000
_HEIGHT: Final = 200
_POINTS: Final = 400
_PAUSE: Final = 2.0  # Seconds: a busy machine delays a reading; only a longer pause is a gap
_ROWS: Final = 6  # Rows of bands in the large chart; steps that are nested deeper have none
_QUARTERS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_APART: Final = 10  # Percent of the height: a tick nearer to the limit would be written over it

Tick: TypeAlias = tuple[str, float]
"""A value on an axis, and its place in percent: of the width, or of the height from the top."""


class Outline(NamedTuple):
    """A chart as paths in a box of 1000 by 200, and what stands around it."""

    area: str  # The main series down to the floor; empty if there is none
    line: str  # Its upper edge
    second: Sequence[str]  # The upper edges of the series beside it
    limit: float | None  # Height of the limit line in percent from the top; None if it is not drawn
    bands: Sequence[Band]
    rows: int  # Rows of bands
    until: float  # Where the axis of time ends, in seconds
    x_ticks: Sequence[Tick]  # Times
    y_ticks: Sequence[Tick]  # Values


def outline_of(chart: Chart, steps: Sequence[Band], until: float) -> Outline:
    """Returns the outline of a chart."""
    top, limit, lowest = chart.top, None, 0.0
    if chart.limit is not None and chart.limit <= top:
        limit = _from_top(chart.limit, top)
        lowest = limit + _APART
    main = [*chain.from_iterable(_paths(chart, "main", until))]
    bands = [band for band in steps if chart.is_large and band.row < _ROWS]
    ticks = [] if chart.is_flat else [share * top for share in _QUARTERS[1:-1]]
    text = _TEXTS.get(chart.unit, digits_text)
    behind = _BEHIND.get(chart.unit, f" {chart.unit.strip('{}')}")
    return Outline(
        area="".join(f"{_path([_floor(line[0]), *line, _floor(line[-1])])}Z" for line in main),
        line="".join(map(_path, main)),
        second=["".join(map(_path, lines)) for lines in _paths(chart, "second", until)],
        limit=limit,
        bands=bands,
        rows=max((band.row + 1 for band in bands), default=0),
        until=until,
        x_ticks=[
            (clock_text(share * until) if until >= 4 else f"{share * until:.3g} s", 100 * share)
            for share in _QUARTERS  # of a few seconds, two would be the same
        ],
        y_ticks=[
            (f"{text(v)}{behind}", _from_top(v, top)) for v in ticks if _from_top(v, top) > lowest
        ],
    )


_TEXTS: Final[Mapping[Unit, Callable[[float], str]]] = {**BY_UNIT, "bytes": size, "bytes/s": size}
_BEHIND: Final[Mapping[Unit, str]] = {"bytes/s": "/s", **dict.fromkeys((*BY_UNIT, "bytes"), "")}
"""What writes a value of the axis, and what stands behind it; of any other unit its digits and the unit."""


def _from_top(value: float, top: float) -> float:
    """Returns the height of a value, in percent from the top."""
    return 100 * (1 - value / top)


def _paths(chart: Chart, style: Style, until: float) -> Iterator[list[list[str]]]:
    """Yields the lines of each series of a style."""
    shown = (each.values for each in chart.series if each.style == style)
    return (list(_lines(chart, values, until)) for values in shown)


def _path(points: Sequence[str]) -> str:
    return f"M{'L'.join(points)}"


def _floor(point: str) -> str:
    return f"{point.split()[0]} {_HEIGHT}"


def _lines(chart: Chart, values: Values, until: float) -> Iterator[list[str]]:
    """Yields lines through the highest value of each stretch; a gap begins a new one."""
    stretch, top = max(1, -(-len(values) // _POINTS)), chart.top
    longest = max(_PAUSE, math.inf if chart.every is None else 2 * stretch * chart.every)
    line: list[str] = []
    before = -math.inf
    for first in range(0, len(values), stretch):
        part = slice(first, first + stretch)
        pairs = zip(values[part], chart.times[part], strict=True)
        known = [(value, time) for value, time in pairs if value is not None]
        if not known:
            continue
        value, time = max(known)
        if line and time - before > longest:
            yield line
            line = []
        x, y = _WIDTH * time / until if until else 0.0, _HEIGHT * (1 - value / top)
        line.append(f"{x:.0f} {y:.0f}")
        before = time
    if line:
        yield line
