"""The steps of runs as rows of a table: one list of columns for `show`, a notebook and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from otel_quant.recordings import summary
from otel_quant.recordings.model import (
    STATES,
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    Recording,
    number,
)
from otel_quant.recordings.steps import placed_steps
from otel_quant.recordings.summary import BY_NAME
from otel_quant.schema import semconv
from otel_quant.schema.figures import MEMORY, QUANTITIES, RESOURCES, Figure, Part
from otel_quant.schema.units import counted, cut, duration_text
from otel_quant.views.document import ONE, Cell, Column, Row, Table
from otel_quant.views.shown_steps import ShownStep, Subject, most_telling

_DECIMALS: Final = 9  # of seconds, as in the profile
_LONGEST_NAME: Final = 120
_LONGEST_STATUS: Final = 72
_LONGEST_ERROR: Final = 200
_MOST_NAMES: Final = 3

_SPARE: Final = ("MEM START", "GPU START", "MEM END", "GPU END", "START", "READ", "OF LIMIT")
"""Columns that a narrow terminal does without."""


@dataclass(slots=True)
class StepRow:
    """A step, or a checkpoint that belongs to none."""

    of: ShownRun
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
        # The names of all attributes of its checkpoints
        self.checkpoint_names = {name for each in run.checkpoints for name in each.attributes}
        self.rows = list(self._rows())

    @property
    def seconds(self) -> float:
        """How long it took, as far as is known: to its last checkpoint if it has not ended."""
        if self.run.end is not None:
            return self.run.end - self.run.start
        return self.run.checkpoints[-1].time - self.run.start if self.run.checkpoints else 0.0

    def _rows(self) -> Iterator[StepRow]:
        rows = {
            each.step.index: StepRow(self, each.step.name, each.depth, each.step)
            for each in placed_steps([self.run], self.recording.duration)
        }
        for point in self.run.checkpoints:
            row = rows.get(point.step) if point.step is not None else None
            if point.phase == "point":
                depth = 0 if row is None else row.depth + 1
                yield StepRow(self, point.name, depth, None, point, point)
            elif row is not None and point.phase == "end":
                row.last = point
            elif row is not None:
                row.first = point
                yield row
        yield from (row for row in rows.values() if row.first is None)


Value: TypeAlias = Callable[[StepRow], Any]
"""Computes a figure of a row, in bytes and seconds; None if it is not known."""


def _part(figure: Figure, part: Part) -> Value:
    name, checkpoint = figure.attribute(part), f"quant.checkpoint.{figure.checkpoint}"

    def at(point: RecordedCheckpoint | None) -> float | None:
        return None if point is None else number(point.attributes, checkpoint)

    def value(row: StepRow) -> float | None:
        found = number(row.step.attributes, name) if row.step is not None else None
        if found is not None or checkpoint not in row.of.checkpoint_names:
            return found
        before, after = at(row.first), at(row.last if row.step is not None else None)
        change = None if before is None or after is None else after - before
        return before if part == "start" else after if part == "end" else change

    return value


def _quantity(name: str) -> Value:
    return lambda row: None if row.step is None else row.of.steps.value(row.step, name)


def _seen(figure: Figure) -> Value:
    start = _part(figure, "start")

    def value(row: StepRow) -> float | None:
        if row.step is None:
            known: float | None = start(row)
            return known
        return row.of.steps.seen(row.step, f"{figure.name}.peak")

    return value


def _share_of_limit(row: StepRow) -> float | None:
    steps, limit = row.of.steps, row.of.limit
    if limit is None or row.step is None:
        return None
    used = steps.value(row.step, summary.MEMORY_PEAK) or steps.seen(row.step)
    return None if used is None else round(used / limit.value, 4)


def _start(row: StepRow) -> float | None:
    at = row.step.start if row.step is not None else row.first.time if row.first else None
    return None if at is None else round(at - row.of.run.start, _DECIMALS)


def _duration(row: StepRow) -> float | None:
    if row.step is None or row.step.end is None:
        return None
    return round(row.step.end - row.step.start, _DECIMALS)


def _share_of_time(row: StepRow) -> float | None:
    seconds, total = _duration(row), row.of.seconds
    return round(seconds / total, 4) if seconds is not None and total else None


def status_of(row: StepRow) -> str:
    """Returns how a row stands: ``ok``, ``open``, the exception that ended it."""
    if row.step is None:
        return "point"
    return "open" if row.step.end is None else row.step.error or "ok"


def message_of(row: StepRow) -> str | None:
    """Returns the message of that exception."""
    return row.step.error_message if row.step is not None else None


_UNITS: Final = {"By": ("_mb", ONE), "s": ("_secs", ONE), "1": ("_share", ONE)}
"""The end of a column's name for programs, which is that of Quark's file, and its unit in tables."""


def _column(
    key: str, heading: str, unit: str, value: Value, digits: int | None = None, **more: Any
) -> Column[StepRow]:
    spare = 1 + _SPARE.index(heading) if heading in _SPARE else 0
    more = {"shown_in": ONE, "absent": "-", "spare": spare, **more}
    return Column(heading, unit, value, key, digits=digits, **more)


def _columns_of(figure: Figure) -> Iterator[Column[StepRow]]:
    """Yields the columns of a figure that has a heading."""
    suffix, _ = _UNITS.get(figure.unit, ("", ""))
    name = figure.column.key if figure.column is not None else figure.name.replace(".", "_")
    stem, heading, unit = name.removesuffix(suffix), figure.heading, figure.unit
    if figure.is_total:
        yield _column(f"{stem}{suffix}", heading, unit, _part(figure, "delta"), title=figure.brief)
        return
    peak = _quantity(f"{figure.name}.peak")
    if figure.parts == ("peak",):
        yield _column(f"{stem}_peak{suffix}", heading, unit, peak, title=figure.brief)
        return
    parts: list[tuple[Part, str]] = [("start", "START"), ("end", "END")]
    for part, word in parts:
        yield _column(f"{stem}_{part}{suffix}", f"{heading} {word}", unit, _part(figure, part))
    if figure in MEMORY.figures:
        delta = _part(figure, "delta")
        yield _column(f"{stem}_delta{suffix}", f"{heading} +/-", unit, delta, is_signed=True)
    yield _column(f"{stem}_peak{suffix}", f"{heading} PEAK", unit, peak)
    yield _column(f"{stem}_seen{suffix}", f"{heading} SEEN", unit, _seen(figure))
    if figure in MEMORY.figures:
        yield _column(f"{stem}_limit_share", "OF LIMIT", "1", _share_of_limit)


_FIGURES: Final = tuple(
    column
    for resource in RESOURCES
    for figure in resource.figures
    if figure.heading
    for column in _columns_of(figure)
)

COLUMNS: Final = (
    _column("start_secs", "START", "s", _start),
    _column("duration_secs", "TIME", "s", _duration),
    _column("duration_share", "", "1", _share_of_time),
    *_FIGURES,
)
"""The figures that every run may have, in the order of the table."""

STATUS: Final = Column[StepRow]("STATUS", longest=_LONGEST_STATUS)
_STEP: Final = Column[StepRow]("STEP", key="step")


Known: TypeAlias = tuple[Column[StepRow], list[Any]]
"""A column with the figure of each row."""


def columns_of(run: ShownRun, *, with_seen: bool = True) -> list[Known]:
    """Returns the columns in which a row has a value; those of the program's own metrics come last."""
    custom = dict.fromkeys(
        name
        for point in run.run.checkpoints
        for name in point.attributes
        if name.startswith(semconv.CUSTOM_PREFIX)
    )
    return _known((*COLUMNS, *map(_custom_column, custom)), run.rows, with_seen=with_seen)


def _known(
    columns: Iterable[Column[StepRow]], rows: Sequence[StepRow], *, with_seen: bool = False
) -> list[Known]:
    """Returns the columns in which a row has a value.

    Without `with_seen` what was seen at checkpoints is left out where the peak is known.
    """
    found: list[Known] = []
    for column in columns:
        peak = column.heading.replace(" SEEN", " PEAK")
        if (
            not with_seen
            and peak != column.heading
            and any(peak == each.heading for each, _ in found)
        ):
            continue
        values = [_of(column, row) for row in rows]
        if any(value is not None for value in values):
            found.append((column, values))
    return found


def _of(column: Column[StepRow], row: StepRow) -> Any:
    assert column.value is not None
    return column.value(row)


def _custom_column(name: str) -> Column[StepRow]:
    def value(row: StepRow) -> Any:
        point = row.last or row.first
        return None if point is None else point.attributes.get(name)

    key = name.removeprefix(semconv.CUSTOM_PREFIX)
    return Column(key, "", value, key, absent="-")


def run_table(run: ShownRun, most: int | None = None) -> Table:
    """Returns the steps of a run; with ``most`` those that did not end well, then the longest."""
    rows = run.rows
    kept: Sequence[int] = range(len(rows))
    if most is not None and len(rows) > most:

        def rank(at: int) -> tuple[bool, float]:
            step = rows[at].step
            if step is None:
                return True, 0.0
            return step.state == "ended", step.start - (step.end or step.start)

        kept = sorted(sorted(kept, key=rank)[:most])
    columns = columns_of(run, with_seen=False)
    left_out = len(rows) - len(kept)
    notes = [f"(shorter steps that are left out: {left_out:,})"] if left_out else []
    if any(column.heading.endswith(" SEEN") for column, _ in columns):
        last = " and in the last reading" if run.run.last and run.run.end is None else ""
        between = "" if last else ", not between them"
        notes.append(f"(SEEN is the highest at the checkpoints{last}{between})")
    return Table(
        (_STEP, *(column for column, _ in columns), STATUS),
        [
            Row(
                (rows[at].name, *(values[at] for _, values in columns), _status_text(rows[at])),
                rows[at].depth,
                each.state if (each := rows[at].step) else "ended",
            )
            for at in kept
        ],
        id="steps",
        caption="Steps",
        note="\n".join(notes),
    )


def _status_text(row: StepRow) -> str:
    message = message_of(row)
    return f"{status_of(row)}: {message}" if message else status_of(row)


# --- in the report ------------------------------------------------------------------------

_NOT_IN_REPORT: Final = frozenset(
    {"cpu_memory_delta_mb", "gpu_memory_start_mb", "gpu_memory_end_mb"}
)
_SHOWN: Final = frozenset({summary.DURATION, summary.MEMORY_SEEN}) | {
    figure.attribute("delta" if figure.is_total else "peak").removeprefix(semconv.PREFIX)
    for resource in RESOURCES
    for figure in resource.figures
    if figure.heading
}
"""Quantities that have a column already."""


def _more(name: str, heading: str, title: str) -> Column[StepRow]:
    return Column(heading, BY_NAME[name].unit, _quantity(name), shown_in=ONE, title=title)


_IN_REPORT: Final[tuple[Column[StepRow], ...]] = (
    *(column for column in _FIGURES if column.key not in _NOT_IN_REPORT),
    _more(summary.CPU_TIME, "CPU", "CPU time, user and system")._replace(digits=1),
    Column(
        "SAMPLES", "", lambda row: row.step.samples if row.step else None,
        title="calibration samples: batches",
    ),
    _more(summary.SAMPLE_RATE, "SAMPLES", "samples a second"),
    *(
        _more(each.name, each.heading, each.brief)
        for each in QUANTITIES
        if each.heading and each.is_of_steps
        and each.name not in _SHOWN | {summary.CPU_TIME, summary.SAMPLE_RATE}
    ),
)  # fmt: skip


def step_table(recording: Recording, subject: Subject) -> Table:
    """Returns the steps of what a report is about."""
    shown = most_telling(subject.steps)
    runs = {id(run): ShownRun(recording, run) for run in subject.runs}
    rows = {(key, row.step.index): row for key, run in runs.items() for row in run.rows if row.step}
    pairs = [(each, rows[id(each.run), each.step.index]) for each in shown]
    figures = _known(_IN_REPORT, [row for _, row in pairs])
    total = recording.duration
    share = Column[Any]("", "1", shown_in=ONE, title="share of the recording's time")
    columns = (
        Column[Any]("Step", key="step"), Column[Any]("State", key="state"),
        Column[Any]("START", "s", shown_in=ONE), Column[Any]("TIME", "s", shown_in=ONE),
        *([share] if total else []), *(column for column, _ in figures),
    )  # fmt: skip

    def cells(at: int, each: ShownStep) -> Iterator[Cell]:
        yield cut(each.step.name, _LONGEST_NAME)
        yield _state_text(each)
        yield each.step.start
        yield each.duration
        if total:
            yield each.duration / total
        yield from (values[at] for _, values in figures)

    return Table(
        columns,
        [Row(tuple(cells(at, each)), each.depth, each.state) for at, each in enumerate(shown)],
        id="steps",
        caption=f"Steps of {subject.name}, {subject.why}" if subject.why else "Steps",
        note=_left_out(subject.steps, {(id(each.run), each.step.index) for each in shown}),
    )


def _state_text(each: ShownStep) -> str:
    state, error = STATES[each.state].cell, each.step.error
    if error is None:
        return state
    message = f": {each.step.error_message}" if each.step.error_message else ""
    return cut(f"{state}: {error}{message}", _LONGEST_ERROR)


def _left_out(every: Sequence[ShownStep], shown: set[tuple[int, int]]) -> str:
    """Returns what is cut, with its number: the shortest steps that ended well."""
    count = len(every) - len(shown)
    if not count:
        return ""
    cut_steps = [each for each in every if (id(each.run), each.step.index) not in shown]
    names = Counter(each.step.name for each in cut_steps).most_common(_MOST_NAMES)
    most = ", ".join(f"{cut(name, 40)} ({number:,})" for name, number in names)
    seconds = sum(each.duration for each in cut_steps if each.depth == 0)
    longest = max(each.duration for each in cut_steps)
    total = f", together {duration_text(seconds)} at the top level" if seconds else ""
    return (
        f"{counted(count, 'step')} of {len(every):,} left out, the shortest: none took more than "
        f"{duration_text(longest)}{total}. Most of them: {most}."
    )
