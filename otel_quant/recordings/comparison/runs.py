"""A run as it is compared: its figures, and its steps by names and times that the next run has too."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import PurePath
from typing import Final, NamedTuple, TypeAlias

from otel_quant.recordings import summary
from otel_quant.recordings.model import (
    Attributes,
    RecordedStep,
    Recording,
    State,
    StepPath,
    script_of,
    steps_in,
)
from otel_quant.recordings.stacks import stacks_in
from otel_quant.recordings.summary import MEMORY_PEAK, is_of_program, outermost_runs, peak
from otel_quant.schema import semconv
from otel_quant.schema.catalog import QUANTITIES

Figures: TypeAlias = Mapping[str, float]
"""Numbers by the name of the quantity, in its unit."""

TOTAL: Final[StepPath] = ()

_MOST_APART: Final = 10_000
"""Steps of a recording from which on steps of one name count as one: nobody reads more rows."""

_PARTIAL: Final[Mapping[State, str]] = {
    "running": "is still running",
    "lost": "has no end: the file is cut, or its process was killed",
}


@dataclass(slots=True)
class ComparedStep:
    """A step, or all of one name."""

    start: float  # Seconds since the recording began
    end: float | None  # Of several the end of the last; None of one that has not ended
    state: State
    attributes: Attributes  # Of the first
    figures: dict[str, float]  # By the name of the quantity

    def add(self, later: RecordedStep, figures: Figures) -> None:
        """Adds a later step of its name: it lasts to the end of that."""
        for name, each in figures.items():
            if name not in self.figures:
                self.figures[name] = each
            elif summary.BY_NAME[name].over_steps == "sum":
                self.figures[name] += each
            elif each > self.figures[name]:
                self.figures[name] = each
        self.end = later.end
        if later.state != "ended":
            self.state = later.state


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A recording."""

    name: str  # Its path, as it was given
    recording: Recording  # What was read
    total: Figures  # Figures of the total
    steps: Mapping[StepPath, ComparedStep]  # Its steps, in the order in which they opened
    why: str  # Why it is not whole: ``is still running``; empty if it is
    has_failed: bool  # It is not, because it has failed or was killed
    cpus: float | None  # How many processors it could use; None if that is not known
    when_read: str | None  # When memory was read; None if it was not
    of_runs: bool  # Without what its launcher alone has seen
    together: bool  # The steps of one name count as one


def compared_runs(
    names: Sequence[Sequence[str]], read: Callable[[str], Recording]
) -> list[list[ComparedRun]]:
    """Returns the recordings of each side as they are compared, one in memory at a time if they are large."""
    found: dict[str, ComparedRun] = {}
    of_runs = together = False
    for _ in range(2):  # what the last one asks for, the first may have to be made again for
        for name in dict.fromkeys(name for side in names for name in side):
            known = found.get(name)
            if known is None or (known.of_runs, known.together) != (of_runs, together):
                recording = read(name)
                of_runs |= not is_of_program(recording)
                together |= sum(len(run.steps) for run in recording.runs) > _MOST_APART
                found[name] = compared_run(name, recording, of_runs=of_runs, together=together)
                del recording  # before the next is read
    return [[found[name] for name in side] for side in names]


def compared_run(
    name: str, recording: Recording, *, of_runs: bool = False, together: bool = False
) -> ComparedRun:
    """Returns a recording as it is compared; with `of_runs` without what its launcher alone has seen.

    That is asked for where another one has no launcher: a profile has one run, from its
    first step on, and not the program. With `together` the steps of one name count as one.
    """
    has_failed = recording.state in ("failed", "killed")
    measured = summary.of_runs(recording) if of_runs else recording
    steps = dict(_steps(measured, together))
    total, when_read = summary.values(measured), _when_read(recording)
    why = _failure(recording) if has_failed else _partial(recording)
    if together:
        recording = _without_most_steps(recording)
    return ComparedRun(
        name=name,
        recording=recording,
        total=total,
        steps=steps,
        why=why,
        has_failed=has_failed,
        cpus=summary.processors(recording),
        when_read=when_read,
        of_runs=of_runs,
        together=together,
    )


def _without_most_steps(recording: Recording) -> Recording:
    """Returns a recording with only the steps that lines of code were seen in, and those around them."""
    seen = [each.step for each in stacks_in(recording) if each.step is not None]
    around = {(step.run.id, step.path[:depth]) for step in seen for depth in range(step.depth + 2)}
    kept = [each for each in steps_in(recording) if (each.run.id, each.path) in around]
    runs = (
        replace(run, steps=tuple(each.step for each in kept if each.run is run), checkpoints=())
        for run in recording.runs
    )
    return replace(recording, runs=tuple(runs))


def _steps(recording: Recording, together: bool) -> Iterator[tuple[StepPath, ComparedStep]]:
    """Yields the steps of all processes; steps of the first have no process in their path."""
    processes = list(dict.fromkeys(run.process for run in recording.runs))
    of_run = summary.steps_of(recording)
    found: dict[StepPath, tuple[int, ComparedStep]] = {}
    for each in steps_in(recording):
        number, path = processes.index(each.run.process), each.path
        if together:
            path = tuple((name, 1) for name in each.names)
        if number:
            rank = each.run.rank
            name = f"rank {rank}" if rank is not None else f"process {number + 1}"
            path = ((name, 1), *path)
        step, figures = each.step, of_run(each).values(each.step)
        if path in found:
            found[path][1].add(step, figures)
        else:
            made = ComparedStep(step.start, step.end, step.state, step.attributes, figures)
            found[path] = number, made
    in_order = sorted(found.items(), key=lambda item: (item[1][0], item[1][1].start))
    yield from (
        (path, step) for path, (_, step) in (in_order if len(processes) > 1 else found.items())
    )


def _partial(recording: Recording) -> str:
    """Returns why a recording has only a part of a run; empty if it has all."""
    if recording.problems and recording.state != "running":
        return f"could not be read whole: {recording.problems[0]}"
    if recording.state in _PARTIAL:
        return _PARTIAL[recording.state]
    outermost = summary.outermost_runs(recording)
    if not outermost:
        return "has no run: the program has opened no step"
    return _PARTIAL["lost"] if any(run.end is None for run in outermost) else ""


def _failure(recording: Recording) -> str:
    ending = recording.ending
    error = next((run.error for run in recording.runs if run.error), None)
    if ending is not None and ending.signal is not None:
        how = f"was killed by {ending.signal}"
    elif error is not None:
        how = f"failed with {error}"
    elif ending is not None and ending.exit_code:
        how = f"failed with exit code {ending.exit_code}"
    else:
        how = "failed"
    stopped = [step for run in recording.runs for step in run.steps if step.state != "ended"]
    return f"{how} in {stopped[-1].name}" if stopped else how


# --- one axis of time for two runs ------------------------------------------------------

_MOST_STEPS: Final = 250


class CommonTime(NamedTuple):
    """The axis, in seconds: between two moments that both runs have, it is as long as in the slower."""

    moments: tuple[float, ...]  # Where these moments are on it, from the first to the last
    of_runs: tuple[tuple[float, ...], ...]  # The same moments in each run

    @property
    def until(self) -> float:
        """Its length."""
        return self.moments[-1]

    def place(self, side: int, time: float) -> float:
        """Returns where a moment of a run is on the axis."""
        own = self.of_runs[side]
        at = max(0, bisect_right(own[:-1], time) - 1)
        return min(self.moments[at] + max(0.0, time - own[at]), self.moments[at + 1])


def common_time(base: ComparedRun, new: ComparedRun) -> CommonTime:
    """Returns the common axis of two runs: it goes on where both have reached the same moment."""
    moments = [(0.0, 0.0), (base.recording.duration, new.recording.duration)]
    for moment in _in_both(base, new):
        at = bisect_left(moments, moment)
        before, after = moments[at - 1] if at else moments[0], moments[min(at, len(moments) - 1)]
        if before[1] <= moment[1] <= after[1] and before[0] <= moment[0] <= after[0]:
            moments.insert(at, moment)
    lengths = (max(b - a, d - c) for (a, c), (b, d) in pairwise(moments))
    return CommonTime(tuple(accumulate(lengths, initial=0.0)), tuple(zip(*moments, strict=True)))


def _in_both(base: ComparedRun, new: ComparedRun) -> Iterator[tuple[float, float]]:
    """Yields when steps begin and end in both runs, outer steps first."""
    paths = [path for path in base.steps if path in new.steps]
    for path in sorted(paths, key=len)[:_MOST_STEPS]:
        first, second = base.steps[path], new.steps[path]
        yield first.start, second.start
        if first.end is not None and second.end is not None:
            yield first.end, second.end


# --- what differs beside the figures ------------------------------------------------------

Value: TypeAlias = str | int | float | bool

_ALL: Final = frozenset(quantity.kind for quantity in QUANTITIES)
_NOTHING: Final[frozenset[str]] = frozenset()
_TIME: Final[frozenset[str]] = frozenset({"time"})
_TIME_MEMORY: Final[frozenset[str]] = frozenset({"time", "memory"})
_TIME_MEMORY_GPU: Final[frozenset[str]] = frozenset({"time", "memory", "gpu"})

_NEARLY: Final = 0.01
"""Two machines of one kind have a memory that differs by some pages."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that is known of a run."""

    name: str  # What it is
    attribute: str  # Name of its attribute, of the run or of its steps; empty for none
    # Figures that are not compared where it differs, by their kinds or names
    changes: frozenset[str] = _NOTHING
    unit: str = ""  # Unit of a number: ``By`` or nothing


FACTS: Final[tuple[Fact, ...]] = (
    Fact("command", semconv.PROCESS_COMMAND_LINE),
    Fact("library", semconv.LIBRARY_NAME),
    Fact("calibration method", semconv.CALIBRATION_METHOD),
    Fact("calibration samples", semconv.CALIBRATION_SAMPLE_COUNT),
    Fact("configuration", semconv.CONFIG_NAME),
    Fact("format", semconv.FORMAT),
    Fact("weight type", semconv.WEIGHT_TYPE),
    Fact("activation type", semconv.ACTIVATION_TYPE),
    Fact("per channel", semconv.PER_CHANNEL),
    Fact("bits", semconv.BITS),
    Fact("block size", semconv.BLOCK_SIZE),
    Fact("algorithms", semconv.ALGORITHMS),
    Fact("layers", semconv.LAYER_COUNT),
    Fact("model read", semconv.INPUT_PATH),
    Fact("model written", semconv.OUTPUT_PATH),
    Fact("SHA-256 of the float model", "quant.model.float.sha256"),
    Fact("SHA-256 of the quantized model", "quant.model.quantized.sha256"),
    Fact("processes of the launcher", semconv.RUN_WORLD_SIZE, _TIME_MEMORY_GPU),
    Fact("machine", semconv.HOST_NAME),
    Fact("system", semconv.OS_DESCRIPTION, _TIME),
    Fact("CPU", semconv.CPU_MODEL, _TIME),
    Fact("CPUs", semconv.CPU_COUNT, _TIME_MEMORY),
    Fact("limit of CPUs", semconv.CPU_LIMIT, _TIME_MEMORY),
    Fact("limit of memory", semconv.MEMORY_LIMIT, _TIME_MEMORY, "By"),
    Fact("limit of addresses", semconv.ADDRESS_SPACE_LIMIT, _TIME_MEMORY, "By"),
    Fact("limit of file sizes", semconv.FILE_SIZE_LIMIT, _NOTHING, "By"),
    Fact("GPUs", semconv.GPU_NAMES, _TIME_MEMORY_GPU),
    Fact("GPU drivers", semconv.GPU_DRIVERS, _TIME_MEMORY_GPU),
    Fact("Python", semconv.PYTHON_VERSION, _TIME_MEMORY),
    Fact("otel-quant", semconv.OTEL_QUANT_VERSION, _TIME_MEMORY),
    Fact("commit", semconv.VCS_REVISION),
    Fact("branch", semconv.VCS_REF),
    Fact("uncommitted changes", semconv.VCS_DIRTY),
)  # fmt: skip
"""What may differ, in the order in which it is shown. RSS depends on the number of threads, which
follows the processors; the processor's model and the system change how fast it is reached."""


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A fact in which sides differ."""

    name: str  # What it is
    # For each side the values of its runs, each once; empty for one that is not known
    values: tuple[tuple[Value, ...], ...]
    changes: frozenset[str]  # Figures that are not compared for it, by their kinds or names
    unit: str = ""  # Unit of the values

    def is_unlike(self, at: int) -> bool:
        """Whether a side is known to differ from the base."""
        base, new = self.values[0], self.values[at]
        return bool(base and new) and not (_are_among(base, new) and _are_among(new, base))


def fact_differences(sides: Sequence[Sequence[ComparedRun]]) -> list[FactDifference]:
    """Returns in what the runs of two or more sides differ.

    A fact that is not known of a side is shown and changes nothing: the side may be alike.
    """
    libraries = dict.fromkeys(name for side in sides for run in side for name in _libraries(run))
    facts: list[tuple[Fact, Callable[[ComparedRun], Value | None]]] = [
        (Fact("script", "", _ALL), _script),
        (Fact("memory was read", "", frozenset({MEMORY_PEAK})), lambda run: run.when_read),
        *((fact, partial(_value, name=fact.attribute)) for fact in FACTS),
        *(
            (Fact(name, "", _TIME_MEMORY_GPU), partial(_version, library=name))
            for name in libraries
        ),
    ]
    if not all(is_of_program(run.recording) for side in sides for run in side):
        # A profile has one process, and nobody knows what the others had added to its whole.
        facts.append((Fact("recorded processes", "", _ALL), _processes))
    found = []
    for fact, value_of in facts:
        values = tuple(_distinct(map(value_of, side)) for side in sides)
        known = [value for side in values for value in side]
        differs = not all(_is_alike(value, known[0]) for value in known)
        if differs or (known and not all(values)):
            changes = fact.changes if differs else _NOTHING
            found.append(FactDifference(fact.name, values, changes, fact.unit))
    return found


def without_common_step(base: Sequence[ComparedRun], new: Sequence[ComparedRun]) -> bool:
    """Whether two sides have steps, and none of them in common."""
    first, second = ({path for run in side for path in run.steps} for side in (base, new))
    return bool(first) and bool(second) and first.isdisjoint(second)


def _version(run: ComparedRun, library: str) -> Value | None:
    return _libraries(run).get(library)


def _value(run: ComparedRun, name: str) -> Value | None:
    """Returns the values of an attribute, wherever a recording has them, each once."""
    sources = [
        run.recording.origin,
        *(each.attributes for each in run.recording.runs),
        *(each.attributes for each in run.steps.values()),
    ]
    found = dict.fromkeys(
        ", ".join(map(str, value)) if isinstance(value, tuple) else value
        for source in sources
        if (value := source.get(name)) is not None
    )
    return ", ".join(map(str, found)) if len(found) > 1 else next(iter(found), None)


def _script(run: ComparedRun) -> str | None:
    command = run.recording.origin.get(semconv.PROCESS_COMMAND_LINE)
    return script_of(command) if isinstance(command, str) and command else None


def _processes(run: ComparedRun) -> int:
    return len(outermost_runs(run.recording))


def _when_read(recording: Recording) -> str | None:
    """Returns when memory was read: Quark's own profiler does so at checkpoints alone."""
    known = peak(recording)
    if known is None:
        return None
    sampled = any(
        name in attributes
        for each in recording.runs
        for attributes in (each.attributes, each.last.attributes if each.last else {})
        for name in (semconv.MEMORY_PEAK, semconv.READING_MEMORY_PEAK)
    )
    all_the_time = sampled or known.source in ("launcher", "ending", "process", "sampled")
    return "all the time" if all_the_time else "at checkpoints"


def _libraries(run: ComparedRun) -> Mapping[str, str]:
    listed = run.recording.origin.get(semconv.LIBRARIES)
    names = [listed] if isinstance(listed, str) else listed if isinstance(listed, tuple) else []
    pairs = (str(each).rpartition(" ") for each in names)
    return {name: version for name, _, version in pairs if name}


def _distinct(values: Iterable[Value | None]) -> tuple[Value, ...]:
    found: dict[Value, None] = {}
    for value in values:
        if value is not None and not any(_is_alike(value, other) for other in found):
            found[value] = None
    return tuple(found)


def _are_among(values: Iterable[Value], others: Sequence[Value]) -> bool:
    return all(any(_is_alike(value, other) for other in others) for value in values)


def _is_alike(first: Value, second: Value) -> bool:
    if isinstance(first, int) and isinstance(second, int) and first > 1 << 20:
        return abs(first - second) <= _NEARLY * first
    if isinstance(first, str) and isinstance(second, str) and "/" in (first[:1], second[:1]):
        return PurePath(first).name == PurePath(second).name  # folders differ between checkouts
    return first == second
