"""Curves as columns of equal length: the curves of all processes on one axis of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from otel_quant.export.recording.curve import Level, Number, RecordedCurve
from otel_quant.schema import series

Values: TypeAlias = tuple[float | None, ...]

LAUNCHER: Final = "launcher"
"""Name of the launcher's curve; it has all processes."""

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
        """Returns how fast a total rose in each bucket, per second."""
        known_end = (until - self.start) / self.every
        rates: list[float | None] = []
        known, since = 0.0, 0
        for at, value in enumerate(self.last.get(name, ())):
            if value is None:
                rates.append(None)
                continue
            end = known_end if at < known_end < at + 1 else at + 1
            rates.append(max(0.0, value - known) / ((end - since) * self.every))
            known, since = value, at + 1
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
