"""The steps of runs: which of them are shown, and one list of columns for `show`, a notebook and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from operator import attrgetter
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from otel_quant.recordings import model, summary
from otel_quant.recordings.failures import has_ended, is_unfinished
from otel_quant.recordings.gpus import bracket_of, shows_all_programs
from otel_quant.recordings.outside import outside_of
from otel_quant.recordings.reader import split_of
from otel_quant.recordings.summary import outermost_runs
from otel_quant.schema import figures, semconv
from otel_quant.schema.catalog import QUANTITIES
from otel_quant.schema.code_lines import AFTER, BEFORE, BETWEEN, Amounts
from otel_quant.schema.dataclass import dataclass
from otel_quant.schema.units import counted, cut, duration_text
from otel_quant.views.document import ONE, Cell, Column, Row, Table, UnitCell, known
from otel_quant.views.text import listed, phrase, plain, share_of

# --- which are shown ----------------------------------------------------------------------

MOST_STEPS: Final = 250  # Steps that are shown: the table, the chart and the file stay readable


def most_telling(
    steps: Sequence[model.PlacedStep], most: int = MOST_STEPS
) -> list[model.PlacedStep]:
    """Returns the steps to show: those that did not end well, then the longest, in their order."""

    def rank(at: int) -> tuple[bool, float, int]:
        each = steps[at]
        # Microseconds are noise: of equal ones the first.
        return each.step.state == "ended", -round(each.duration, 6), each.depth

    return [steps[at] for at in sorted(sorted(range(len(steps)), key=rank)[:most])]


class ShownProcess(NamedTuple):
    """The process whose steps are shown, or several that ran one after another, with those steps."""

    name: str  # The process in words: ``rank 3``, ``process 4711``
    runs: Sequence[model.RecordedRun]  # Its runs, in the order of their starts
    steps: Sequence[model.PlacedStep]  # All of their steps, in order of time
    why: str = ""  # Why it is shown rather than another; empty if there is no other


def process_name(recording: model.Recording, run: model.RecordedRun) -> str:
    """Returns a run's process in words: the rank, a worker of a recorded process, else by its script or its id."""
    return recording.once(("name", run.process), lambda: _process_name(recording, run))


def is_worker(recording: model.Recording, run: model.RecordedRun) -> bool:
    """Whether a process was forked by the program, which may have no run of its own, or spawned as a worker."""
    is_known = recording.launcher not in (None, run.parent_pid)
    is_forked = is_known and _script(run.attributes) == _script(recording.origin)
    return is_forked or OF_WORKERS in str(run.attributes.get(semconv.PROCESS_COMMAND_LINE))


def _process_name(recording: model.Recording, run: model.RecordedRun) -> str:
    others = [each for each in recording.runs if each.process != run.process]
    above = [each for each in others if each.pid == run.parent_pid is not None]
    if run.rank is not None and all(each.rank != run.rank for each in above):
        return f"rank {run.rank}"  # a worker has the rank of the process that has started it
    script = _script(run.attributes)
    if above or is_worker(recording, run):
        return f"worker {run.process}"
    scripts = [_script(each.attributes) for each in outermost_runs(recording)]
    is_own = run.parent_pid == recording.launcher is not None or scripts.count(script) == 1
    is_stage = is_own and script.endswith((".py", ".ipynb")) and len(recording.runs) > 1
    pid, _, number = run.process.partition("-")  # of a program that has called `exec`
    after = f" after exec{f' #{number}' if number > '1' else ''}" if number else ""
    return f"{script if is_stage else f'process {pid}'}{after}"


OF_WORKERS: Final = "--multiprocessing-fork"
"""An argument of workers that `multiprocessing` has spawned."""


def _script(attributes: model.Attributes) -> str:
    command = str(attributes.get(semconv.PROCESS_COMMAND_LINE, ""))
    return PurePath(model.script_of(command) or "").name


def memory_limit(recording: model.Recording, run: model.RecordedRun | None = None) -> float | None:
    """Returns the limit of memory in force, in bytes; None if it is not known."""
    limit = summary.limit(recording, run)
    return limit and limit.value


def by_process(recording: model.Recording) -> dict[str, list[model.RecordedRun]]:
    """Returns the runs of each process, in the order of their starts."""
    processes: dict[str, list[model.RecordedRun]] = {}
    for run in recording.runs:
        processes.setdefault(run.process, []).append(run)
    return processes


def subject_of(recording: model.Recording) -> ShownProcess:
    """Returns the process whose steps tell most: the first that did not end well, else the longest.

    Workers of another process that is recorded come after it. Processes that ran one after
    another, as a shell script starts them, are shown as one: each has done a part of the work.
    """
    processes = by_process(recording)
    if not processes:
        return ShownProcess("", (), ())
    pids = {run.pid for run in recording.runs if run.pid is not None}
    above = [runs for runs in processes.values() if runs[0].parent_pid not in pids]
    above.sort(key=lambda runs: runs[0].start)
    until = recording.duration
    if all(end_of(one, until) <= after[0].start for one, after in pairwise(above)):
        above = [list(chain(*above))]
    every = above or list(processes.values())
    with_steps = [runs for runs in every if any(run.steps for run in runs)]
    runs, why = _most_telling(with_steps or every, until)
    name, steps = process_name(recording, runs[0]), model.steps_in(recording, runs)
    return ShownProcess(name, runs, steps, why)


_STOPPED: Final = tuple(each for each in model.WORST_FIRST if each not in ("running", "ended"))


def _most_telling(
    processes: Sequence[list[model.RecordedRun]], until: float
) -> tuple[list[model.RecordedRun], str]:
    if len(processes) == 1:
        return processes[0], ""
    for state in _STOPPED:
        stopped = [runs for runs in processes if any(run.state == state for run in runs)]
        if stopped:
            first = min(stopped, key=lambda runs: end_of(runs, until))
            several = f"the first of {len(stopped):,} that {model.STATES[state].of_several}"
            return first, several if len(stopped) > 1 else f"which {model.STATES[state].verb}"
    longest = max(processes, key=lambda runs: end_of(runs, until) - runs[0].start)
    return longest, f"the slowest of {len(processes):,}"


def end_of(runs: Sequence[model.RecordedRun], until: float) -> float:
    """Returns when the last of some runs ended; of one that has no end, `until`."""
    return max(model.known((run.end, run.gone, until))[0] for run in runs)


# --- their rows ---------------------------------------------------------------------------

_DECIMALS: Final = 9  # of seconds, as in the profile
_LONGEST_NAME: Final = 120
_LONGEST_STATE: Final = 40

_SPARE: Final = (
    "MEM START", "GPU START", "MEM END", "GPU END", "START", "READ", "CPU ENERGY", "GPU ENERGY", "OF LIMIT", "SAMPLES", "CHILDREN",
)  # fmt: skip
"""Columns that a narrow terminal does without, those first that say least."""


_NO_POINT: Final = model.RecordedCheckpoint("", 0.0)


@dataclass(slots=True)
class StepTableRow:
    """A step, the time outside of steps, or a checkpoint that belongs to none."""

    of: ShownRun
    name: str
    start: float | None  # Seconds since the recording began
    seconds: float | None = None  # How long it took, or has taken so far
    depth: int = 0  # Steps around it
    step: model.RecordedStep | None = None  # None if it is none
    first: model.RecordedCheckpoint = _NO_POINT  # At its start; of a checkpoint, itself
    last: model.RecordedCheckpoint = _NO_POINT  # At its end


class ShownRun:
    """A run with rows of all its steps and other checkpoints, or of some of its steps alone."""

    def __init__(
        self,
        recording: model.Recording,
        run: model.RecordedRun,
        placed: Sequence[model.PlacedStep] | None = None,
    ) -> None:
        self.recording, self.run = recording, run
        self.steps = summary.StepSummary(recording, run)
        self.limit = memory_limit(recording, run)
        # The names of all attributes of its checkpoints
        named = chain.from_iterable(each.attributes for each in run.checkpoints)
        self.checkpoint_names = dict.fromkeys(named)
        of_outside = [self._row(each) for each in outside_of(recording) if each.run is run]
        self.rows = sorted((*of_outside, *self._rows(placed)), key=_place)
        failed = [each for each in run.steps if each.error]
        if run.error is not None:
            failed = [each for each in failed if has_ended(run, each)]
        else:
            failed = failed[:1] if recording.state == "ended" else []
        # Messages that the first lines have
        self.told = {each.error_message for each in failed}

    @property
    def seconds(self) -> float:
        """How long it took, as far as is known: to its last checkpoint if it has not ended."""
        if self.run.end is not None:
            return self.run.end - self.run.start
        return self.run.checkpoints[-1].time - self.run.start if self.run.checkpoints else 0.0

    def _row(self, each: model.PlacedStep) -> StepTableRow:
        # Of several stretches of time none is its start.
        start = None if each.step.index == BETWEEN else each.step.start
        return StepTableRow(self, each.step.name, start, each.duration, each.depth, each.step)

    def _rows(self, placed: Sequence[model.PlacedStep] | None) -> Iterator[StepTableRow]:
        rows: dict[int | None, StepTableRow] = {}
        for each in model.steps_in(self.recording, [self.run]) if placed is None else placed:
            if each.run is self.run:
                rows[each.step.index] = self._row(each)
        for point in self.run.checkpoints:
            row = rows.get(point.step)
            if point.phase == "point":
                if placed is None:
                    depth = row.depth + 1 if row else 0
                    yield StepTableRow(self, point.name, point.time, depth=depth, first=point)
            elif row and point.phase == "end":
                row.last = point
            elif row:
                row.first = point
                yield row
        yield from (row for row in rows.values() if row.first is _NO_POINT)


_PLACES: Final = {BEFORE: 0, BETWEEN: 2, AFTER: 3}


def _place(row: StepTableRow) -> int:
    """Sorts rows: the time before the steps, steps and checkpoints as they come, the rest of the time."""
    return 1 if row.step is None else _PLACES.get(row.step.index, 1)


_Column: TypeAlias = Column[StepTableRow]

Value: TypeAlias = Callable[[StepTableRow], Any]
"""Computes a figure of a row, in bytes and seconds; None if it is not known."""


def _of_step(value: Callable[[StepTableRow, model.RecordedStep], Any]) -> Value:
    """Returns what computes a value of rows that are steps; of others None."""
    return lambda row: None if row.step is None else value(row, row.step)


def _part(figure: figures.Figure, part: figures.Part) -> Value:
    name, checkpoint = figure.attribute(part), semconv.CHECKPOINT_PREFIX + figure.checkpoint

    def value(row: StepTableRow) -> float | None:
        found = None if row.step is None else model.number(row.step.attributes, name)
        if found is not None or checkpoint not in row.of.checkpoint_names:
            return found
        start, end = (model.number(each.attributes, checkpoint) for each in (row.first, row.last))
        if part != "delta":
            return start if part == "start" else end
        return None if start is None or end is None else end - start

    return value


def _quantity(name: str) -> Value:
    return _of_step(lambda row, step: row.of.steps.value(step, name))


def _seen(figure: figures.Figure) -> Value:
    start, name = _part(figure, "start"), f"{figure.name}.peak"
    return lambda row: row.of.steps.seen(row.step, name) if row.step else start(row)


def _rounded_share(part: float | None, whole: float | None) -> float | None:
    share = share_of(part, whole)
    return share and round(share, 4)


def _of_bracket(end: str) -> Value:
    return _of_step(
        lambda row, step: getattr(bracket_of(row.of.recording, row.of.steps, step), end, 0) or None
    )


@_of_step
def _share_of_limit(row: StepTableRow, step: model.RecordedStep) -> float | None:
    used = row.of.steps.value(step, summary.MEMORY_PEAK) or row.of.steps.seen(step)
    return _rounded_share(used, row.of.limit)


_duration: Final = _of_step(lambda _, step: step.lasted and round(step.lasted, _DECIMALS))


def status_of(row: StepTableRow) -> str:
    """Returns how a row stands: ``ok``, ``open``, the exception that ended it."""
    if row.step is None:
        return "point"
    if row.step.spans:
        return "outside"
    return "open" if row.step.end is None else row.step.error or "ok"


message_of: Final = _of_step(lambda _, step: step.error_message)
"""Returns the message of that exception."""


_ENDS: Final = {"By": "_mb", "s": "_secs", "J": "_joules", "1": "_share"}
"""The end of a column's name for programs, as in Quark's file."""

_BARE_ENDS: Final = _ENDS | {"By": "_bytes", "s": "_seconds"}  # Where sizes are in bytes


def _column(
    key: str, heading: str, unit: str, value: Value, digits: int | None = None, **more: Any
) -> _Column:
    spare = 1 + _SPARE.index(heading) if heading in _SPARE else 0
    more = {"shown_in": ONE, "absent": "-", "spare": spare, **more}
    return Column(heading, unit, value, key, digits=digits, **more)


class _OfFigure(NamedTuple):
    """A column of a figure."""

    column: _Column
    figure: figures.Figure
    bare: str  # Its name where sizes are in bytes

    @property
    def shown(self) -> _Column:
        """The column in a table: the peak of a step that is open is at least what was seen."""
        if not self.column.heading.endswith(" PEAK"):
            return self.column
        seen = _seen(self.figure)

        @_of_step
        def value(row: StepTableRow, step: model.RecordedStep) -> Cell:
            found = self.column.value(row)
            at_least: Any = (
                found if self.figure in figures.MEMORY.figures and summary.is_low(step) else None
            )
            if found is None and step.end is None:
                at_least = seen(row)
            return found if at_least is None else UnitCell(at_least, before="≥ ")

        return self.column._replace(value=value)

    def for_programs(self) -> _Column:
        """Returns what a table shows, in one unit."""
        shown, is_size = self.shown.value, self.column.unit == "By"

        def value(row: StepTableRow) -> Any:
            found: Any = plain(shown(row))
            return round(found) if is_size and found is not None else found

        return Column(self.bare, value=value)


def _columns_of(figure: figures.Figure) -> Iterator[_OfFigure]:
    """Yields the columns of a figure that has a heading."""
    bare, unit = figure.name.replace(".", "_"), figure.unit
    name = figure.column.key if figure.column is not None else bare
    end, bare_end = _ENDS.get(unit, ""), _BARE_ENDS.get(unit, "")
    stem = name.removesuffix(end)
    delta, peak = _part(figure, "delta"), _quantity(f"{figure.name}.peak")

    def column(part: str, word: str, value: Value, **more: Any) -> _OfFigure:
        heading = f"{figure.heading} {word}".rstrip()
        made = _column(f"{stem}{part}{end}", heading, unit, value, **more)
        return _OfFigure(made, figure, f"{bare}{part}{bare_end}")

    if figure.is_total:
        yield column("", "", delta, title=figure.brief)
    elif figure.parts == ("peak",):
        yield column("_peak", "", peak, title=figure.brief)
    else:
        yield column("_start", "START", _part(figure, "start"))
        yield column("_end", "END", _part(figure, "end"))
        if figure in figures.MEMORY.figures:
            yield column("_delta", "+/-", delta, is_signed=True)
        yield column("_peak", "PEAK", peak)
        yield column("_seen", "SEEN", _seen(figure))
        if figure is figures.TREE_GPU_MEMORY:
            most = "what was in use on the devices, less what was before the program began"
            yield column(
                "_least", "AT LEAST", _of_bracket("least"), title="what torch had reserved"
            )
            yield column("_most", "AT MOST", _of_bracket("most"), title=most)
        if figure in figures.MEMORY.figures:
            share = _column(f"{stem}_limit_share", "OF LIMIT", "1", _share_of_limit)
            yield _OfFigure(share, figure, f"{bare}_limit_share")


_HEADED: Final = [it for resource in figures.RESOURCES for it in resource.figures if it.heading]
_FIGURES: Final = [each for figure in _HEADED for each in _columns_of(figure)]

COLUMNS: Final = (
    _column("start_secs", "START", "s", lambda row: None if row.start is None else round(row.start - row.of.run.start, _DECIMALS)),
    _column("duration_secs", "TIME", "s", _duration),
    # Of the time from the first step on, in which the time outside of steps is not
    _column("duration_share", "", "1", _of_step(lambda row, step: None if step.spans else _rounded_share(_duration(row), row.of.seconds))),
    *(each.column for each in _FIGURES),
)  # fmt: skip
"""The figures that every run may have, in the order of the table."""


def columns_of(run: ShownRun) -> list[_Column]:
    """Returns the columns in which a row has a value; columns of the program's own metrics come last."""
    return known((*COLUMNS, *_custom_columns(run)), run.rows)


def _custom_columns(run: ShownRun) -> Iterator[_Column]:
    for name in run.checkpoint_names:
        if name.startswith(semconv.CUSTOM_PREFIX):
            key = name.removeprefix(semconv.CUSTOM_PREFIX)
            yield Column(key, "", partial(_custom, name), key, absent="-")


def _custom(name: str, row: StepTableRow) -> Any:
    point = row.first if row.last is _NO_POINT else row.last
    return point.attributes.get(name)


# --- their table --------------------------------------------------------------------------


def step_table(
    recording: model.Recording, runs: Sequence[model.RecordedRun], most: int | None = MOST_STEPS,
    caption: str = "Steps", *, more: Sequence[_Column] = (),
    links: Mapping[model.StepPath, str] = MappingProxyType({}),
) -> Table:  # fmt: skip
    """Returns the steps of runs; of more than ``most`` those that did not end well, then the longest.

    Before the program's own columns stand ``more``. Links are where on a page the names of steps lead to.
    """
    steps = model.steps_in(recording, runs)
    points = sum(point.phase == "point" for run in runs for point in run.checkpoints)
    notes, chosen = [], None
    if most is not None and len(steps) + points > most:
        chosen = most_telling(steps, most)
        kept = {id(each) for each in chosen}
        longest = max((each.duration for each in steps if id(each) not in kept), default=0.0)
        notes.append(
            f"{counted(len(steps) - len(kept), 'step')} of {len(steps):,} left out, the shortest: "
            f"none took more than {duration_text(longest)}."
        )
    shown = [ShownRun(recording, run, chosen) for run in runs]
    rows = sorted(chain.from_iterable(run.rows for run in shown), key=_place)
    custom = chain.from_iterable(map(_custom_columns, shown))
    step, *others = _SHOWN
    several = [_PROCESS] if len({run.process for run in runs}) > 1 else []
    columns = _telling(
        recording, known((step, *several, *others, *more, *custom, CHILDREN, _STATE), rows)
    )
    notes += _notes_on(columns, runs)
    link_of = {id(each.step): links.get(each.path, "") for each in (*steps, *outside_of(recording))}

    def placed(row: StepTableRow, cells: Sequence[Cell]) -> Row:
        state = row.step.state if row.step else "ended"
        return Row(cells, row.depth, state, link=link_of.get(id(row.step), ""))

    note = " ".join(notes)
    return Table.of(columns, rows, row=placed, id="steps", caption=caption, note=note)


def _telling(recording: model.Recording, columns: Sequence[_Column]) -> list[_Column]:
    """Returns the columns without what was seen at checkpoints where a peak is known, and what other programs hardly change."""
    less = {each.heading.replace(" PEAK", " SEEN") for each in columns if " PEAK" in each.heading}
    if not shows_all_programs(recording):
        less |= {each.column.heading for each in _FIGURES if each.figure is figures.ALL_GPUS_MEMORY}
    return [each for each in columns if each.heading not in less]


def _notes_on(columns: Sequence[_Column], runs: Sequence[model.RecordedRun]) -> Iterator[str]:
    headings = [each.heading for each in columns]
    if any(each.endswith(" SEEN") for each in headings):
        has_reading = any(run.last and run.end is None for run in runs)
        but = " and in the last reading" if has_reading else ", not between them"
        yield f"SEEN is the highest at the checkpoints{but}."
    if any(each.startswith(figures.ALL_GPUS_MEMORY.heading) for each in headings):
        yield f"{figures.ALL_GPUS_MEMORY.heading} is memory of all programs on the GPUs."


@_of_step
def _state_text(row: StepTableRow, step: model.RecordedStep) -> str:
    """Returns how a step ended, with the message of its exception where the first lines do not have it."""
    if step.spans:
        return ""
    if step.state == "lost" and not row.of.recording.path.is_dir():
        return "open"  # a file does not show whether its process is alive
    if step.end is None and row.of.run.cut is not None:
        return f"not recorded after {duration_text(row.of.run.cut)}"
    if is_unfinished(step):
        return "not ended"
    message = step.error_message if step.error and step.error_message not in row.of.told else ""
    return ": ".join(filter(None, (model.STATES[step.state].cell, step.error, message)))


CHILDREN: Final = _column("children", "CHILDREN", "", _of_step(lambda row, step: row.of.steps.children(step) or None), title="the largest child processes")  # fmt: skip
_PROCESS: Final = _Column("PROCESS", None, _of_step(lambda row, step: "" if step.spans else process_name(row.of.recording, row.of.run)))  # fmt: skip
_STATE: Final = _Column("STATE", None, _state_text, longest=_LONGEST_STATE)
_NOT_SHOWN: Final = {
    "cpu_memory_delta_mb",
    *(f"gpu_{whose}memory_{part}_mb" for whose in ("", "process_") for part in ("start", "end")),
}


def _share_of_run(row: StepTableRow) -> float | None:
    """Returns the share of the recording's time; None of a step that has outlived the program."""
    whole = row.of.recording.duration
    is_late = row.start is not None and row.start + (row.seconds or 0.0) > _BARELY * whole
    return None if is_late else share_of(row.seconds, whole)


_BARELY: Final = 1.01
_HAVE_A_COLUMN: Final = {"TIME", *(each.column.heading for each in _FIGURES)}

_SHOWN: Final[tuple[_Column, ...]] = (
    Column("STEP", None, lambda row: cut(row.name, _LONGEST_NAME)),
    _column("", "START", "s", lambda row: row.start, title="since the recording began"),
    _column("", "TIME", "s", lambda row: row.seconds),
    _column("", "", "1", lambda row: _share_of_run(row), title="share of the recording's time"),
    *(each.shown for each in _FIGURES if each.column.key not in _NOT_SHOWN),
    Column("SAMPLES", "", _of_step(lambda _, step: step.samples), title="calibration samples: batches", spare=len(_SPARE), absent="-"),
)  # fmt: skip


def _attribute(name: str, row: StepTableRow, step: model.RecordedStep) -> object:
    if name in _SPLIT:
        return split_shares(row.of.recording, step)[name]
    return step.attributes.get(name)


def split_shares(recording: model.Recording, step: model.RecordedStep) -> dict[str, float | None]:
    """Returns what the thread of a step did, as shares of the time that was seen of it."""
    seen = split_of(recording, step)
    return {name: seen and _rounded_share(of(seen), seen.time) for name, of in _SPLIT.items()}


_SPLIT: Final[Mapping[str, Callable[[Amounts], int]]] = {
    "ran_share_of_seen": attrgetter("cpu"),
    "waiting_share_of_seen": attrgetter("waiting"),
    "blocked_share_of_seen": lambda seen: seen.time - seen.cpu - seen.waiting,
}
"""What the thread of a step did, in nanoseconds of the time that was seen of it."""

_BY_LIBRARY: Final = (
    semconv.LIBRARY_NAME, semconv.CONFIG_NAME, semconv.CONFIG_HASH, semconv.WEIGHT_TYPE, semconv.ACTIVATION_TYPE,
    semconv.ALGORITHMS, semconv.BITS, semconv.PARTS_BITS, semconv.GRANULARITY, semconv.BLOCK_SIZE, semconv.PARTS_BLOCK_SIZE, semconv.CALIBRATION_METHOD, semconv.WEIGHT_COUNT, semconv.LAYER_COUNT, semconv.PASS_COUNT,
    semconv.OUTPUT_PATH, semconv.ACCURACY_COUNT,
)  # fmt: skip
"""What a step of a library has for programs."""

_PEAK: Final = next(each.shown.value for each in _FIGURES if each.bare == "memory_peak_bytes")

BARE: Final = (
    _Column("start_seconds", value=attrgetter("start")),
    _Column("duration_seconds", value=attrgetter("seconds")),
    _Column("share_of_run", value=lambda row: (share := _share_of_run(row)) and round(share, 4)),
    *(each.for_programs() for each in _FIGURES),
    _Column("memory_peak_is_least", value=lambda row: None if (peak := _PEAK(row)) is None else isinstance(peak, UnitCell)),
    _Column("samples", value=_of_step(lambda _, step: step.samples)),
    *(_Column(semconv.short(name).replace(".", "_"), value=_of_step(partial(_attribute, name))) for name in _BY_LIBRARY),
    *(_Column(f"bound_{name.rpartition('_')[2]}", value=_of_step(partial(_attribute, name))) for name in (semconv.STEP_BOUND_BY, semconv.STEP_BOUND_EVIDENCE)),
    *(_Column(name, value=_of_step(partial(_attribute, name))) for name in _SPLIT),
)  # fmt: skip
"""Columns for programs: with one base, the recording's beginning, and one unit."""


@_of_step
def _configuration(_: StepTableRow, step: model.RecordedStep) -> str | None:
    """Returns the configuration of a step in words: ``INT8_DEFAULT, int8 weights, int8 activations, channel``."""
    get = step.attributes.get
    size = get(semconv.BLOCK_SIZE) or phrase("{}", get(semconv.PARTS_BLOCK_SIZE), listed)
    kind = get(semconv.GRANULARITY) or ("group" if size else None)
    granularity = phrase("{}", kind) + phrase(" of {}", size)
    parts = (
        phrase("{}", get(semconv.CONFIG_NAME)),
        phrase("{}", get(semconv.ALGORITHMS), listed),
        phrase("{} weights", get(semconv.WEIGHT_TYPE)),
        phrase("{} activations", get(semconv.ACTIVATION_TYPE)),
        granularity,
        phrase("{}", get(semconv.CALIBRATION_METHOD)),
        phrase("arguments were changed: {} left in float", get(semconv.CONFIG_EXCLUDED), _nodes),
        "no weight was quantized" * (get(semconv.WEIGHT_COUNT) == 0),
    )
    return ", ".join(filter(None, parts)) or None


def _nodes(names: Sequence[str]) -> str:
    return counted(len(names), "node")


def _told(name: str, heading: str, unit: str | None = None) -> _Column:
    return Column(heading, unit, _of_step(partial(_attribute, name)), absent="-")


_OF_LIBRARIES: Final[tuple[_Column, ...]] = (
    Column("STEP", None, lambda row: cut(row.name, _LONGEST_NAME)),
    _told(semconv.LIBRARY_NAME, "LIBRARY"),
    Column("CONFIGURATION", None, _configuration, absent="-", longest=_LONGEST_NAME),
    _told(semconv.CALIBRATION_SAMPLE_COUNT, "SAMPLES", ""),
    _told(semconv.LAYER_COUNT, "LAYERS", ""),
    _told(semconv.PASS_COUNT, "PASSES", ""),
    _told(semconv.ACCURACY_COUNT, "VALUES OF ACCURACY", ""),
    _told(semconv.OUTPUT_PATH, "OUTPUT"),
)


def library_table(recording: model.Recording, runs: Sequence[model.RecordedRun]) -> Table:
    """Returns what libraries did in the steps of runs: configuration, samples, layers, what was written."""
    shown = [ShownRun(recording, run) for run in runs]
    _, library, *told = _OF_LIBRARIES
    rows = [row for run in shown for row in run.rows if library.value(row) and known(told, [row])]
    del rows[MOST_STEPS:]
    return Table.of(known(_OF_LIBRARIES, rows), rows, id="quantization", caption="Quantization")


RATES: Final = tuple(
    _column("", each.heading.removesuffix("/S"), each.unit, _quantity(each.name), title=each.brief)
    for each in QUANTITIES
    if each.heading and each.is_of_steps and each.heading not in _HAVE_A_COLUMN
)
"""Columns of what a profile does not know: CPU time, and samples a second."""
