"""The columns of a run's steps: how each figure is computed, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from otel_quant.recordings import summary
from otel_quant.recordings.model import (
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    Recording,
    number,
)
from otel_quant.recordings.steps import placed_steps
from otel_quant.schema import semconv
from otel_quant.schema.figures import MEMORY, RESOURCES, Figure, Part

_MIB: Final = 1 << 20
_DECIMALS: Final = 9  # of seconds, as in the profile


@dataclass(slots=True)
class Row:
    """A step, or a checkpoint that belongs to none."""

    name: str
    depth: int  # Steps around it
    step: RecordedStep | None = None  # None for a checkpoint
    first: RecordedCheckpoint | None = None  # At its start; of a checkpoint, itself
    last: RecordedCheckpoint | None = None  # At its end


class ShownRun:
    """A run, and what its steps come to."""

    def __init__(self, recording: Recording, run: RecordedRun) -> None:
        self.recording, self.run = recording, run
        self.steps = summary.StepSummary(recording, run)
        self.limit = summary.limit(recording, run)
        self.rows = list(self._rows())

    @property
    def seconds(self) -> float:
        """How long it took, as far as is known: to its last checkpoint if it has not ended."""
        if self.run.end is not None:
            return self.run.end - self.run.start
        return self.run.checkpoints[-1].time - self.run.start if self.run.checkpoints else 0.0

    def _rows(self) -> Iterator[Row]:
        rows = {
            each.step.index: Row(each.step.name, each.depth, each.step)
            for each in placed_steps([self.run], self.recording.duration)
        }
        for point in self.run.checkpoints:
            row = rows.get(point.step) if point.step is not None else None
            if point.phase == "point":
                yield Row(point.name, 0 if row is None else row.depth + 1, None, point, point)
            elif row is not None and point.phase == "end":
                row.last = point
            elif row is not None:
                row.first = point
                yield row
        yield from (row for row in rows.values() if row.first is None)


Value: TypeAlias = Callable[[ShownRun, Row], Any]
"""Computes a figure of a row; None if it is not known."""


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a step."""

    key: str  # Its name in JSON and CSV
    heading: str  # Its name in the table; empty if it is not in the table
    unit: str  # Its unit there; empty for none
    value: Value  # Computes it
    shown: Callable[[Any], str]  # Formats it for the table
    unless: str = ""  # Key of another column; if that column is in the table, this one is left out


def mebibytes(size: float | None) -> float | None:
    """Returns bytes in MiB, with the digits that a profile has."""
    return None if size is None else round(size / _MIB, 2)


def _amount(figure: Figure, value: float | None) -> float | None:
    return mebibytes(value) if figure.unit == "By" else value


def _part(figure: Figure, part: Part) -> Callable[[ShownRun, Row], float | None]:
    name, checkpoint = figure.attribute(part), f"quant.checkpoint.{figure.checkpoint}"

    def value(shown: ShownRun, row: Row) -> float | None:
        found = number(row.step.attributes, name) if row.step is not None else None
        if found is None and figure.checkpoint:
            before, after = (
                None if point is None else number(point.attributes, checkpoint)
                for point in (row.first, row.last if row.step is not None else None)
            )
            change = None if before is None or after is None else after - before
            found = before if part == "start" else after if part == "end" else change
        return _amount(figure, found)

    return value


def _peak(figure: Figure) -> Value:
    def value(shown: ShownRun, row: Row) -> float | None:
        if row.step is None:
            return None
        return _amount(figure, shown.steps.value(row.step, f"{figure.name}.peak"))

    return value


def _seen(figure: Figure) -> Value:
    start = _part(figure, "start")

    def value(shown: ShownRun, row: Row) -> float | None:
        if row.step is None:
            return start(shown, row)
        return _amount(figure, shown.steps.seen(row.step, f"{figure.name}.peak"))

    return value


def _share_of_limit(shown: ShownRun, row: Row) -> float | None:
    if shown.limit is None or row.step is None:
        return None
    used = shown.steps.value(row.step, summary.MEMORY_PEAK) or shown.steps.seen(row.step)
    return None if used is None else round(used / shown.limit.value, 4)


def _start(shown: ShownRun, row: Row) -> float | None:
    at = row.step.start if row.step is not None else row.first.time if row.first else None
    return None if at is None else round(at - shown.run.start, _DECIMALS)


def _duration(shown: ShownRun, row: Row) -> float | None:
    if row.step is None or row.step.end is None:
        return None
    return round(row.step.end - row.step.start, _DECIMALS)


def _share_of_time(shown: ShownRun, row: Row) -> float | None:
    seconds, total = _duration(shown, row), shown.seconds
    return round(seconds / total, 4) if seconds is not None and total else None


def _status(shown: ShownRun, row: Row) -> str:
    if row.step is None:
        return "point"
    return "open" if row.step.end is None else row.step.error or "ok"


def _message(shown: ShownRun, row: Row) -> str | None:
    return row.step.error_message if row.step is not None else None


def _fixed(digits: int, scale: int = 1) -> Callable[[Any], str]:
    return lambda value: f"{scale * value:.{digits}f}" if isinstance(value, int | float) else "-"


def _signed(value: Any) -> str:
    return f"{value:+.2f}" if isinstance(value, int | float) else "-"


_UNITS: Final = {"By": ("_mb", "MiB"), "s": ("_secs", "s"), "1": ("_share", "")}


def _columns_of(figure: Figure) -> Iterator[Column]:
    """Yields the columns of a figure that has a heading."""
    suffix, unit = _UNITS.get(figure.unit, ("", figure.unit.strip("{}")))
    name = figure.column.key if figure.column is not None else figure.name.replace(".", "_")
    stem, heading = name.removesuffix(suffix), figure.heading
    if figure.is_total:
        yield Column(f"{stem}{suffix}", heading, unit, _part(figure, "delta"), _fixed(2))
        return
    parts: list[tuple[Part, str]] = [("start", "START"), ("end", "END")]
    for part, word in parts:
        yield Column(
            f"{stem}_{part}{suffix}", f"{heading} {word}", unit, _part(figure, part), _fixed(1)
        )
    if figure in MEMORY.figures:
        change = f"{stem}_delta{suffix}"
        yield Column(change, f"{heading} +/-", unit, _part(figure, "delta"), _signed)
    peak = f"{stem}_peak{suffix}"
    yield Column(peak, f"{heading} PEAK", unit, _peak(figure), _fixed(1))
    seen = f"{stem}_seen{suffix}"
    yield Column(seen, f"{heading} SEEN", unit, _seen(figure), _fixed(1), unless=peak)
    if figure in MEMORY.figures:
        share = f"{stem}_limit_share"
        yield Column(share, "OF LIMIT", "%", _share_of_limit, _fixed(1, 100))


COLUMNS: Final[tuple[Column, ...]] = (
    Column("start_secs", "START", "s", _start, _fixed(2)),
    Column("duration_secs", "TIME", "s", _duration, _fixed(2)),
    Column("duration_share", "TIME", "%", _share_of_time, _fixed(1, 100)),
    *(
        column
        for resource in RESOURCES
        for figure in resource.figures
        if figure.heading
        for column in _columns_of(figure)
    ),
)
"""The figures that every run may have, in the order of the table."""

MESSAGE: Final = Column("error_message", "", "", _message, str)
STATUS: Final = Column("status", "STATUS", "", _status, str)


def columns_of(shown: ShownRun) -> list[tuple[Column, list[Any]]]:
    """Returns the columns in which a row has a value, with the value of each row.

    Those of the program's own metrics and the status come last.
    """
    custom = dict.fromkeys(
        name
        for point in shown.run.checkpoints
        for name in point.attributes
        if name.startswith(semconv.CUSTOM_PREFIX)
    )
    found = []
    for column in (*COLUMNS, *map(_custom_column, custom), MESSAGE, STATUS):
        values = [column.value(shown, row) for row in shown.rows]
        if column is STATUS or any(value is not None for value in values):
            found.append((column, values))
    return found


def _custom_column(name: str) -> Column:
    def value(shown: ShownRun, row: Row) -> Any:
        point = row.last or row.first
        return None if point is None else point.attributes.get(name)

    key = name.removeprefix(semconv.CUSTOM_PREFIX)
    return Column(key, key, "", value, lambda value: "-" if value is None else str(value))
