"""The steps of runs: which of them are shown, and one list of columns for `show`, a notebook and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from otel_quant.recordings import summary
from otel_quant.recordings.model import (
    STATES,
    WORST_FIRST,
    PlacedStep,
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    Recording,
    StepPath,
    covered,
    number,
    steps_in,
)
from otel_quant.schema import semconv
from otel_quant.schema.catalog import QUANTITIES
from otel_quant.schema.figures import MEMORY, RESOURCES, Figure, Part
from otel_quant.schema.units import counted, cut, duration_text
from otel_quant.views.document import ONE, Cell, Column, Quantity, Row, Table

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
    above.sort(key=lambda runs: runs[0].start)
    if all(
        end_of(one, recording.duration) <= next_one[0].start for one, next_one in pairwise(above)
    ):
        above = [[run for runs in above for run in runs]]
    runs, why = _most_telling(above or list(processes.values()), recording.duration)
    return Subject(process_name(runs[0]), runs, steps_in(recording, runs), why)


def _most_telling(
    processes: Sequence[list[RecordedRun]], until: float
) -> tuple[list[RecordedRun], str]:
    if len(processes) == 1:
        return processes[0], ""
    for state in WORST_FIRST[:-1]:
        stopped = [runs for runs in processes if any(run.state == state for run in runs)]
        if stopped and state != "running":
            first = min(stopped, key=lambda runs: end_of(runs, until))
            several = f"the first of {len(stopped):,} that {STATES[state].of_several}"
            return first, several if len(stopped) > 1 else f"which {STATES[state].verb}"
        if stopped:
            break
    longest = max(processes, key=lambda runs: end_of(runs, until) - runs[0].start)
    return longest, f"the slowest of {len(processes):,}"


def end_of(runs: Sequence[RecordedRun], until: float) -> float:
    """Returns when the last of some runs ended; of one that has no end, `until`."""
    known = (run.gone if run.end is None else run.end for run in runs)
    return max(until if end is None else end for end in known)


# --- their rows ---------------------------------------------------------------------------

_DECIMALS: Final = 9  # of seconds, as in the profile
_LONGEST_NAME: Final = 120
_LONGEST_STATE: Final = 160

_SPARE: Final = ("MEM START", "GPU START", "MEM END", "GPU END", "START", "READ", "OF LIMIT")
"""Columns that a narrow terminal does without."""


@dataclass(slots=True)
class StepRow:
    """A step, a checkpoint that belongs to none, or time without a step."""

    of: ShownRun
    name: str
    start: float | None  # Seconds since the recording began
    seconds: float | None = None  # How long it took, or has taken so far
    depth: int = 0  # Steps around it
    step: RecordedStep | None = None  # None if it is none
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
            chain.from_iterable(each.attributes for each in run.checkpoints)
        )
        self.rows = list(self._rows(placed))

    @property
    def seconds(self) -> float:
        """How long it took, as far as is known: to its last checkpoint if it has not ended."""
        if self.run.end is not None:
            return self.run.end - self.run.start
        return self.run.checkpoints[-1].time - self.run.start if self.run.checkpoints else 0.0

    def _rows(self, placed: Sequence[PlacedStep] | None) -> Iterator[StepRow]:
        every = steps_in(self.recording, [self.run]) if placed is None else placed
        rows = {
            each.step.index: StepRow(
                self, each.step.name, each.step.start, each.duration, each.depth, each.step
            )
            for each in every
            if each.run is self.run
        }
        for point in self.run.checkpoints:
            row = rows.get(point.step) if point.step is not None else None
            if point.phase == "point":
                if placed is None:
                    depth = 0 if row is None else row.depth + 1
                    yield StepRow(
                        self, point.name, point.time, depth=depth, first=point, last=point
                    )
            elif row is not None and point.phase == "end":
                row.last = point
            elif row is not None:
                row.first = point
                yield row
        yield from (row for row in rows.values() if row.first is None)


Value: TypeAlias = Callable[[StepRow], Any]
"""Computes a figure of a row, in bytes and seconds; None if it is not known."""


def _part(figure: Figure, part: Part) -> Value:
    name, checkpoint = figure.attribute(part), semconv.CHECKPOINT_PREFIX + figure.checkpoint

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
    return None if row.start is None else round(row.start - row.of.run.start, _DECIMALS)


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
"""The end of a column's name for programs, as in Quark's file, and its unit in tables."""


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
    (column, figure)
    for resource in RESOURCES
    for figure in resource.figures
    if figure.heading
    for column in _columns_of(figure)
)

COLUMNS: Final = (
    _column("start_secs", "START", "s", _start),
    _column("duration_secs", "TIME", "s", _duration),
    _column("duration_share", "", "1", _share_of_time),
    *(column for column, _ in _FIGURES),
)
"""The figures that every run may have, in the order of the table."""


def columns_of(run: ShownRun) -> list[Column[StepRow]]:
    """Returns the columns in which a row has a value; columns of the program's own metrics come last."""
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
        if value and (with_seen or not has_peak) and any(value(row) is not None for row in rows):
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


# --- their table --------------------------------------------------------------------------


def step_table(
    recording: Recording,
    runs: Sequence[RecordedRun],
    most: int | None = MOST_STEPS,
    caption: str = "Steps",
    *,
    with_rates: bool = False,
    links: Mapping[StepPath, str] | None = None,
) -> Table:
    """Returns the steps of runs; of more than ``most`` those that did not end well, then the longest.

    With rates it has what a profile does not know: CPU time, and samples a second. Links are where on a
    page the names of steps lead to.
    """
    steps = steps_in(recording, runs)
    link_of = {id(each.step): (links or {}).get(each.path, "") for each in steps}
    points = sum(point.phase == "point" for run in runs for point in run.checkpoints)
    notes, shown_steps = [], None
    if most is not None and len(steps) + points > most:
        shown_steps = most_telling(steps, most)
        kept = {id(each) for each in shown_steps}
        longest = max((each.duration for each in steps if id(each) not in kept), default=0.0)
        notes.append(
            f"{counted(len(steps) - len(kept), 'step')} of {len(steps):,} left out, the shortest: "
            f"none took more than {duration_text(longest)}."
        )
    shown_runs = [ShownRun(recording, run, shown_steps) for run in runs]
    rows = [row for run in shown_runs for row in run.rows]
    if steps and len(runs) == len(recording.runs):
        rows = _with_gaps(rows, steps, shown_runs[0])
    custom = dict.fromkeys(each for run in shown_runs for each in _custom_columns(run))
    rates = _RATES if with_rates else ()
    columns = _known((*_SHOWN, *rates, *custom, _STATE), rows)
    if any(column.heading.endswith(" SEEN") for column in columns):
        has_reading = any(run.last and run.end is None for run in runs)
        between = " and in the last reading" if has_reading else ", not between them"
        notes.append(f"SEEN is the highest at the checkpoints{between}.")
    return Table.of(
        columns,
        rows,
        row=lambda row, cells: Row(
            cells,
            row.depth,
            row.step.state if row.step else "ended",
            link=link_of.get(id(row.step), ""),
        ),
        id="steps",
        caption=caption,
        note=" ".join(notes),
    )


def _with_gaps(
    rows: Sequence[StepRow], steps: Sequence[PlacedStep], run: ShownRun
) -> list[StepRow]:
    """Adds the time in which no step was open, so that the times add up to the run's."""

    def gap(name: str, start: float | None, seconds: float) -> list[StepRow]:
        is_seen = seconds >= _LEAST_GAP * run.recording.duration > 0
        return [StepRow(run, name, start, seconds)] if is_seen else []

    first, last = min(each.step.start for each in steps), max(each.end for each in steps)
    return [
        *gap(BEFORE, 0.0, first),
        *rows,
        *gap("(between steps)", None, last - first - covered(steps)),
        *gap("(after the last step)", last, run.recording.duration - last),
    ]


BEFORE: Final = "(before the first step)"
_LEAST_GAP: Final = 0.001
"""Share of the run's time below which a time without a step is not shown."""


def _state_text(row: StepRow) -> str | None:
    if row.step is None:
        return None
    state, error = STATES[row.step.state].cell, row.step.error
    if row.step.state == "lost" and not row.of.recording.path.is_dir():
        return "open"  # a file does not show whether its process is alive
    if error is None:
        return state
    return f"{state}: {error}{f': {row.step.error_message}' if row.step.error_message else ''}"


def _share_of_recording(row: StepRow) -> float | None:
    total = row.of.recording.duration
    return row.seconds / total if row.seconds is not None and total else None


def _seen_of_open_steps(column: Column[StepRow], figure: Figure) -> Column[StepRow]:
    """Returns the column of a peak, which of a step that is open is at least what was seen."""
    peak, seen = column.value, _seen(figure)
    if not column.heading.endswith(" PEAK") or peak is None:
        return column

    def value(row: StepRow) -> Cell:
        found = peak(row)
        is_open = row.step is not None and row.step.end is None
        at_least = seen(row) if found is None and is_open else None
        return found if at_least is None else Quantity(at_least, before="≥ ")

    return column._replace(value=value)


_STATE: Final = Column[StepRow]("STATE", None, _state_text, longest=_LONGEST_STATE)
_NOT_SHOWN: Final = frozenset({"cpu_memory_delta_mb", "gpu_memory_start_mb", "gpu_memory_end_mb"})
_HAVE_A_COLUMN: Final = {"TIME", *(column.heading for column, _ in _FIGURES)}

_SHOWN: Final[tuple[Column[StepRow], ...]] = (
    Column("STEP", None, lambda row: cut(row.name, _LONGEST_NAME)),
    _column("", "START", "s", lambda row: row.start, title="since the recording began"),
    _column("", "TIME", "s", lambda row: row.seconds),
    _column("", "", "1", _share_of_recording, title="share of the recording's time"),
    *(
        _seen_of_open_steps(column, figure)
        for column, figure in _FIGURES
        if column.key not in _NOT_SHOWN
    ),
    Column(
        "SAMPLES", "", lambda row: row.step.samples if row.step else None, title="calibration samples: batches", spare=1, absent="-"
    ),
)  # fmt: skip

_RATES: Final = tuple(
    _column("", each.heading.removesuffix("/S"), each.unit, _quantity(each.name), title=each.brief)
    for each in QUANTITIES
    if each.heading and each.is_of_steps and each.heading not in _HAVE_A_COLUMN
)
