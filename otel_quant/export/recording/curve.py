"""A curve of bounded size: figures over the time of a run, in buckets of equal length.

A level (memory in use) keeps in each bucket its lowest, highest and last value and when the highest
was read. So the highest value of the run and its time stay exact, however often neighbouring
buckets are merged. A total (bytes written) only rises: its last value is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Number: TypeAlias = int | float

Cells: TypeAlias = list[Number | None]
"""One bucket as numbers: its position, then the parts of each series."""

PARTS: Final = ("min", "max", "last", "at")
"""The parts of a level in a bucket. ``at`` is when the highest value was read, in milliseconds since
the curve began."""


@dataclass(slots=True)
class Level:
    """A level within one bucket."""

    lowest: Number  # Lowest value
    highest: Number  # Highest value
    last: Number  # Last value
    at: int  # When the highest was read, in milliseconds since the curve began

    def add(self, value: Number, at: int) -> None:
        """Adds a value that is newer than the others."""
        if value > self.highest:
            self.highest, self.at = value, at
        if value < self.lowest:
            self.lowest = value
        self.last = value

    def merge(self, later: Level) -> None:
        """Adds the values of the next bucket."""
        if later.highest > self.highest:
            self.highest, self.at = later.highest, later.at
        self.lowest = min(self.lowest, later.lowest)
        self.last = later.last


@dataclass(slots=True)
class Bucket:
    """The figures of one stretch of time."""

    position: int  # Number of the bucket; it begins at ``position`` times the length of a bucket
    levels: dict[str, Level] = field(default_factory=dict)  # Its levels, by name
    totals: dict[str, Number] = field(default_factory=dict)  # The last value of each total, by name

    def merge(self, later: Bucket) -> None:
        """Adds the figures of a later bucket."""
        for name, level in later.levels.items():
            known = self.levels.get(name)
            if known is None:
                self.levels[name] = level
            else:
                known.merge(level)
        self.totals |= later.totals


class Curve:
    """Buckets of equal length, oldest first; a bucket without a reading is left out."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.buckets: dict[int, Bucket] = {}

    def summary(self) -> dict[str, Number]:
        """Returns the highest value of each level and the last of each total, by name."""
        found: dict[str, Number] = {}
        for bucket in self.buckets.values():
            for name, level in bucket.levels.items():
                found[name] = max(level.highest, found.get(name, level.highest))
            found |= bucket.totals
        return found

    def add(self, at: int, levels: Mapping[str, Number], totals: Mapping[str, Number]) -> Bucket:
        """Adds a reading."""
        position = at // self.length
        bucket = self.buckets.get(position)
        if bucket is None:
            bucket = self.buckets[position] = Bucket(position)
        for name, value in levels.items():
            level = bucket.levels.get(name)
            if level is None:
                bucket.levels[name] = Level(value, value, value, at)
            else:
                level.add(value, at)
        if totals:
            bucket.totals |= totals
        return bucket

    def halve(self) -> None:
        """Merges every two neighbouring buckets: half as many, each twice as long."""
        self.length *= 2
        merged: dict[int, Bucket] = {}
        for bucket in self.buckets.values():
            bucket.position //= 2
            known = merged.get(bucket.position)
            if known is None:
                merged[bucket.position] = bucket
            else:
                known.merge(bucket)
        self.buckets = merged


def columns_of(levels: Iterable[str], totals: Iterable[str]) -> list[str]:
    """Returns the names of a bucket's cells."""
    return ["position", *(f"{name}.{part}" for name in levels for part in PARTS), *totals]


def cells_of(bucket: Bucket, levels: Iterable[str], totals: Iterable[str]) -> Cells:
    """Returns a bucket as numbers, in the order of :func:`columns_of`; None for a missing one."""
    cells: Cells = [bucket.position]
    for name in levels:
        level = bucket.levels.get(name)
        if level is None:
            cells += (None, None, None, None)
        else:
            cells += (level.lowest, level.highest, level.last, level.at)
    cells += (bucket.totals.get(name) for name in totals)
    return cells


def reader_of(columns: Sequence[str]) -> Callable[[Sequence[Number | None]], Bucket]:
    """Returns a function that reads what :func:`cells_of` has written."""
    place = {name: number for number, name in enumerate(columns)}
    names = [name.removesuffix(".at") for name in columns if name.endswith(".at")]
    missing = {"position", *(f"{name}.{part}" for name in names for part in PARTS)} - place.keys()
    if missing:
        raise ValueError(f"no columns {', '.join(sorted(missing))}")
    levels = [(name, [place[f"{name}.{part}"] for part in PARTS]) for name in names]
    in_levels = {"position", *(f"{name}.{part}" for name in names for part in PARTS)}
    totals = [(name, number) for name, number in place.items() if name not in in_levels]
    position = place["position"]

    def read(cells: Sequence[Number | None]) -> Bucket:
        at = cells[position]
        if at is None or len(cells) != len(place):
            raise TypeError(f"{len(cells)} figures; expected {len(place)}, and a position")
        bucket = Bucket(int(at))
        for name, (lowest, highest, last, when) in levels:
            level = cells[lowest], cells[highest], cells[last], cells[when]
            if None not in level:
                bucket.levels[name] = Level(*level)  # type: ignore[arg-type]  # none is None
        for name, number in totals:
            total = cells[number]
            if total is not None:
                bucket.totals[name] = total
        return bucket

    return read
