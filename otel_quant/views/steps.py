"""The steps of runs: which of them are shown, and one list of columns for `show`, a notebook and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from otel_quant.recordings import summary
from otel_quant.recordings.model import (
    STATES,
    WORST_FIRST,
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    Recording,
    number,
)
from otel_quant.recordings.steps import PlacedStep, placed_steps
from otel_quant.schema import semconv
from otel_quant.schema.figures import MEMORY, RESOURCES, Figure, Part
from otel_quant.schema.quantities import QUANTITIES
from otel_quant.schema.units import counted, cut, duration_text
from otel_quant.views.document import ONE, Column, Row, Table

# --- which are shown ----------------------------------------------------------------------

MOST_STEPS: Final = 250
"""Steps that are shown: the table, the chart and the file stay readable."""


def most_telling(steps: Sequence[PlacedStep], most: int = MOST_STEPS) -> list[PlacedStep]:
    """Returns the steps to show: those that did not end well, then the longest, in their order."""

    def rank(at: int) -> tuple[bool, float, int]:
        each = steps[at]
        # Microseconds are noise: of equal ones the first.
        return each.step.state == "ended", -round(each.duration, 6), each.depth

    return [steps[at] for at in sorted(sorted(range(len(steps)), key=rank)[:most])]


class Subject(NamedTuple):
    """The process whose steps are shown, or several that ran one after another, with those steps."""

    name: str  # The process in words: ``rank 3``, ``process 4711``
    runs: Sequence[RecordedRun]  # Its runs, in the order of their starts
    steps: Sequence[PlacedStep]  # All of their steps, in order of time
    why: str = ""  # Why it is shown rather than another; empty if there is no other


def process_name(run: RecordedRun) -> str:
    """Returns a run's process in words."""
    return f"rank {run.rank}" if run.rank is not None else f"process {run.process}"


def memory_limit(recording: Recording) -> float | None:
    """Returns the limit of memory in force, in bytes; None if it is not known."""
    limit = summary.limit(recording)
    return None if limit is None else limit.value


def by_process(recording: Recording) -> dict[str, list[RecordedRun]]:
    """Returns the runs of each process, in the order of their starts."""
    processes: dict[str, list[RecordedRun]] = {}
    for run in recording.runs:
        processes.setdefault(run.process, []).append(run)
    return processes


def subject_of(recording: Recording) -> Subject:
    """Returns the process whose steps tell most: the first that did not end well, else the longest.

    Workers of another process that is recorded come after it. Processes that ran one after
    another, as a shell script starts them, are shown as one: each has done a part of the work.
    """
    processes = by_process(recording)
    if not processes:
        return Subject("", (), ())
    pids = {run.pid for run in recording.runs if run.pid is not None}
    above = [runs for runs in processes.values() if runs[0].parent_pid not in pids]
    if _one_after_another(above, recording.duration):
        above = [[run for runs in above for run in runs]]
    runs, why = _most_telling(above or list(processes.values()), recording.duration)
    return Subject(process_name(runs[0]), runs, placed_steps(runs, recording.duration), why)


def _one_after_another(processes: list[list[RecordedRun]], until: float) -> bool:
    processes.sort(key=lambda runs: runs[0].start)
    return all(_end(before, until) <= after[0].start for before, after in pairwise(processes))


def _most_telling(
    processes: Sequence[list[RecordedRun]], until: float
) -> tuple[list[RecordedRun], str]:
    if len(processes) == 1:
        return processes[0], ""
    for state in WORST_FIRST[:-1]:
        stopped = [runs for runs in processes if any(run.state == state for run in runs)]
        if stopped and state != "running":
            first = min(stopped, key=lambda runs: _end(runs, until))
            return first, f"the first of {len(stopped):,} that {STATES[state].of_several}"
        if stopped:
            break
    longest = max(processes, key=lambda runs: _end(runs, until) - runs[0].start)
    return longest, f"the slowest of {len(processes):,}"


def _end(runs: Sequence[RecordedRun], until: float) -> float:
    return max(until if run.end is None else run.end for run in runs)


# --- their rows ---------------------------------------------------------------------------

_DECIMALS: Final = 9  # of seconds, as in the profile
_LONGEST_NAME: Final = 120
_LONGEST_STATUS: Final = 72
_LONGEST_ERROR: Final = 200

_SPARE: Final = ("MEM START", "GPU START", "MEM END", "GPU END", "START", "READ", "OF LIMIT")
"""Columns that a narrow terminal does without."""


@dataclass(slots=True)
class StepRow:
    """A step, or a checkpoint that belongs to none."""

    of: ShownRun
    name: str
    depth: int  # Steps around it
    placed: PlacedStep | None = None  # None for a checkpoint
    step: RecordedStep | None = None  # None for a checkpoint
    first: RecordedCheckpoint | None = None  # At its start; of a checkpoint, itself
    last: RecordedCheckpoint | None = None  # At its end


class ShownRun:
    """A run with rows of all its steps and other checkpoints, or of some of its steps alone."""

    def __init__(
        self, recording: Recording, run: RecordedRun, placed: Sequence[PlacedStep] | None = None
    ) -> None:
        self.recording, self.run = recording, run
        self.steps = summary.StepSummary(recording, run)
        self.limit = summary.limit(recording, run)
        # The names of all attributes of its checkpoints
        self.checkpoint_names = dict.fromkeys(
            name for each in run.checkpoints for name in each.attributes
        )
        self.rows = list(self._rows(placed))

    @property
    def seconds(self) -> float:
        """How long it took, as far as is known: to its last checkpoint if it has not ended."""
        if self.run.end is not None:
            return self.run.end - self.run.start
        return self.run.checkpoints[-1].time - self.run.start if self.run.checkpoints else 0.0

    def _rows(self, placed: Sequence[PlacedStep] | None) -> Iterator[StepRow]:
        every = placed_steps([self.run], self.recording.duration) if placed is None else placed
        rows = {
            each.step.index: StepRow(self, each.step.name, each.depth, each, each.step)
            for each in every
        }
        for point in self.run.checkpoints:
            row = rows.get(point.step) if point.step is not None else None
            if point.phase == "point":
                if placed is None:
                    depth = 0 if row is None else row.depth + 1
                    yield StepRow(self, point.name, depth, None, None, point, point)
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


def columns_of(run: ShownRun) -> list[Column[StepRow]]:
    """Returns the columns in which a row has a value; those of the program's own metrics come last."""
    return _known((*COLUMNS, *_custom_columns(run)), run.rows, with_seen=True)


def _known(
    columns: Iterable[Column[StepRow]], rows: Sequence[StepRow], *, with_seen: bool = False
) -> list[Column[StepRow]]:
    """Returns what is known; what was seen at checkpoints only where no peak is known."""
    found: list[Column[StepRow]] = []
    for column in columns:
        peak = column.heading.replace(" SEEN", " PEAK")
        has_peak = peak != column.heading and any(peak == each.heading for each in found)
        value = column.value
        if value is None or (has_peak and not with_seen):
            continue
        if any(value(row) is not None for row in rows):
            found.append(column)
    return found


def _custom_columns(run: ShownRun) -> Iterator[Column[StepRow]]:
    for name in run.checkpoint_names:
        if name.startswith(semconv.CUSTOM_PREFIX):
            key = name.removeprefix(semconv.CUSTOM_PREFIX)
            yield Column(key, "", _custom(name), key, absent="-")


def _custom(name: str) -> Value:
    def value(row: StepRow) -> Any:
        point = row.last or row.first
        return None if point is None else point.attributes.get(name)

    return value


# --- their tables -------------------------------------------------------------------------


def _table(columns: Sequence[Column[StepRow]], rows: Sequence[StepRow], **fields: Any) -> Table:
    """Returns a table of what is known."""
    return Table.of(
        _known(columns, rows),
        rows,
        row=lambda row, cells: Row(cells, row.depth, row.step.state if row.step else "ended"),
        id="steps",
        **fields,
    )


def run_table(recording: Recording, run: RecordedRun, most: int | None = None) -> Table:
    """Returns the steps of a run; with ``most`` those that did not end well, then the longest."""
    count = len(run.steps) + sum(each.phase == "point" for each in run.checkpoints)
    kept = None
    if most is not None and count > most:
        kept = most_telling(placed_steps([run], recording.duration), most)
    shown = ShownRun(recording, run, kept)
    columns = (_STEP, *COLUMNS, *_custom_columns(shown), _STATUS)
    table = _table(columns, shown.rows, caption="Steps")
    left_out = count - len(shown.rows)
    notes = [f"(shorter steps that are left out: {left_out:,})"] if left_out else []
    if any(column.heading.endswith(" SEEN") for column in table.columns):
        last = " and in the last reading" if run.last and run.end is None else ""
        between = "" if last else ", not between them"
        notes.append(f"(SEEN is the highest at the checkpoints{last}{between})")
    return table._replace(note="\n".join(notes))


def step_table(recording: Recording, subject: Subject) -> Table:
    """Returns the steps of what a report is about."""
    shown = most_telling(subject.steps)
    kept = {id(each.step) for each in shown}
    rows = {
        id(row.step): row
        for run in subject.runs
        for row in ShownRun(recording, run, [each for each in shown if each.run is run]).rows
    }
    cut_steps = [each.duration for each in subject.steps if id(each.step) not in kept]
    note = ""
    if cut_steps:
        note = (
            f"{counted(len(cut_steps), 'step')} of {len(subject.steps):,} left out, the shortest: "
            f"none took more than {duration_text(max(cut_steps))}."
        )
    caption = f"Steps of {subject.name}, {subject.why}" if subject.why else "Steps"
    return _table(_IN_REPORT, [rows[id(each.step)] for each in shown], caption=caption, note=note)


def _status_text(row: StepRow) -> str:
    message = message_of(row)
    return f"{status_of(row)}: {message}" if message else status_of(row)


_STEP: Final = Column[StepRow]("STEP", None, lambda row: row.name, "step")
_STATUS: Final = Column[StepRow]("STATUS", None, _status_text, longest=_LONGEST_STATUS)

# --- in the report ------------------------------------------------------------------------


def _state_text(row: StepRow) -> str | None:
    if row.step is None:
        return None
    state, error = STATES[row.step.state].cell, row.step.error
    if error is None:
        return state
    message = f": {row.step.error_message}" if row.step.error_message else ""
    return cut(f"{state}: {error}{message}", _LONGEST_ERROR)


def _share_of_recording(row: StepRow) -> float | None:
    total = row.of.recording.duration
    return row.placed.duration / total if row.placed is not None and total else None


_NOT_IN_REPORT: Final = frozenset(
    {"cpu_memory_delta_mb", "gpu_memory_start_mb", "gpu_memory_end_mb"}
)
_HAVE_A_COLUMN: Final = {"TIME", *(column.heading for column in _FIGURES)}

_IN_REPORT: Final[tuple[Column[StepRow], ...]] = (
    Column("Step", None, lambda row: cut(row.name, _LONGEST_NAME)),
    Column("State", None, _state_text),
    Column("START", "s", lambda row: row.step.start if row.step else None, shown_in=ONE),
    Column("TIME", "s", lambda row: row.placed.duration if row.placed else None, shown_in=ONE),
    Column("", "1", _share_of_recording, shown_in=ONE, title="share of the recording's time"),
    *(column for column in _FIGURES if column.key not in _NOT_IN_REPORT),
    Column(
        "SAMPLES", "", lambda row: row.step.samples if row.step else None,
        title="calibration samples: batches",
    ),
    *(
        Column(
            each.heading.removesuffix("/S"), each.unit, _quantity(each.name),
            shown_in=ONE, title=each.brief,
        )
        for each in QUANTITIES
        if each.heading and each.is_of_steps and each.heading not in _HAVE_A_COLUMN
    ),
)  # fmt: skip
