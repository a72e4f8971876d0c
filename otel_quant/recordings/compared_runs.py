"""A run as it is compared: its figures, and its steps by names and times that the next run has too."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, count, pairwise
from pathlib import PurePath
from typing import Final, NamedTuple, TypeAlias

from otel_quant.recordings import model, summary
from otel_quant.recordings.failures import failure_of
from otel_quant.recordings.summary import GPU_PEAK, MEMORY_PEAK, is_of_program, outermost_runs, peak
from otel_quant.schema import semconv
from otel_quant.schema.catalog import QUANTITIES
from otel_quant.schema.dataclass import dataclass

Figures: TypeAlias = Mapping[str, float]  # Numbers by the name of the quantity, in its unit
TOTAL: Final[model.StepPath] = ()

_MOST_STEPS: Final = 10_000
"""Steps of a recording that are compared, the first: nobody reads more rows."""

_PARTIAL: Final[Mapping[model.State, str]] = {
    "running": "is still running",
    "lost": "has no end: the file is cut, or its process was killed",
}


class ComparedStep(NamedTuple):
    """A step."""

    step: model.RecordedStep
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A recording."""

    name: str  # Its path, as it was given
    recording: model.Recording  # What was read
    total: Figures  # Figures of the total
    steps: Mapping[model.StepPath, ComparedStep]  # Its steps, in the order in which they opened
    why: str  # Why it is not whole: ``is still running``; empty if it is
    has_failed: bool  # It is not, because it has failed or was killed
    cpus: float | None  # How many processors it could use; None if that is not known
    when_read: str | None  # When memory was read; None if it was not
    has_more_steps: bool  # Than are compared

    def at(self, path: model.StepPath) -> tuple[Figures, model.State] | None:
        """Returns the figures and the state of a step or the total; None if it has no such step."""
        if path == TOTAL:
            return self.total, self.recording.state
        step = self.steps.get(path)
        return None if step is None else (step.figures, step.step.state)


def compared_runs(
    names: Sequence[Sequence[str]], read: Callable[[str], model.Recording]
) -> list[list[ComparedRun]]:
    """Returns the recordings of each side as they are compared."""
    found = {name: read(name) for name in chain.from_iterable(names)}
    of_runs = not all(map(is_of_program, found.values()))
    made = {name: compared_run(name, each, of_runs=of_runs) for name, each in found.items()}
    return [[made[name] for name in side] for side in names]


def compared_run(name: str, recording: model.Recording, *, of_runs: bool = False) -> ComparedRun:
    """Returns a recording as it is compared; `of_runs`: as its processes know it, because another one has no launcher."""
    has_failed = recording.state in ("failed", "killed")
    measured = summary.of_runs(recording) if of_runs else recording
    return ComparedRun(
        name=name, recording=recording, total=summary.values(measured), steps=_steps(measured),
        why=_failure(recording) if has_failed else _partial(recording), has_failed=has_failed,
        cpus=summary.processors(recording), when_read=_when_read(recording),
        has_more_steps=len(model.steps_in(recording)) > _MOST_STEPS,
    )  # fmt: skip


def _steps(recording: model.Recording) -> dict[model.StepPath, ComparedStep]:
    """Returns the steps of all processes; steps of the first have no process in their path."""
    processes = dict.fromkeys(run.process for run in recording.runs)
    numbers = dict(zip(processes, count(), strict=False))
    of_run = summary.steps_of(recording)
    found: dict[model.StepPath, ComparedStep] = {}
    in_order = sorted(model.steps_in(recording), key=lambda each: numbers[each.run.process])
    for each in in_order[:_MOST_STEPS]:
        number, rank = numbers[each.run.process], each.run.rank
        name = f"process {number + 1}" if rank is None else f"rank {rank}"
        path = ((name, 1), *each.path) if number else each.path
        found[path] = ComparedStep(each.step, of_run(each).values(each.step))
    return found


def _partial(recording: model.Recording) -> str:
    """Returns why a recording has only a part of a run; empty if it has all."""
    if recording.problems and recording.state != "running":
        return f"could not be read whole: {recording.problems[0]}"
    if recording.state in _PARTIAL:
        return _PARTIAL[recording.state]
    runs = outermost_runs(recording)
    if not runs:
        return "has no run: the program has opened no step"
    return _PARTIAL["lost"] if any(run.end is None for run in runs) else ""


def _failure(recording: model.Recording) -> str:
    """Returns how a recording failed, and in which step."""
    ending = recording.ending or model.Ending(time=0.0)
    failure = failure_of(recording)
    error, state = (failure.of.error, failure.run.state) if failure else (None, "")
    causes = (
        ("was killed by", ending.signal),
        ("failed when a process was killed by" if state == "killed" else "failed with", error),
        ("failed with exit code", ending.exit_code),
    )
    how = next((f"{verb} {cause}" for verb, cause in causes if cause), "failed")
    steps = ending.open_steps or [each.name for each in (failure.steps if failure else ())]
    return f"{how} in {steps[-1]}" if steps else how


# --- one axis of time for two runs ------------------------------------------------------

_MOST_MOMENTS: Final = 250


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
        before, after = moments[max(0, at - 1)], moments[min(at, len(moments) - 1)]
        if before[1] <= moment[1] <= after[1] and before[0] <= moment[0] <= after[0]:
            moments.insert(at, moment)
    lengths = (max(b - a, d - c) for (a, c), (b, d) in pairwise(moments))
    return CommonTime(tuple(accumulate(lengths, initial=0.0)), tuple(zip(*moments, strict=True)))


def _in_both(base: ComparedRun, new: ComparedRun) -> Iterator[tuple[float, float]]:
    """Yields when steps begin and end in both runs, outer steps first."""
    paths = [path for path in base.steps if path in new.steps]
    for path in sorted(paths, key=len)[:_MOST_MOMENTS]:
        first, second = base.steps[path].step, new.steps[path].step
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
_NEARLY: Final = 0.01  # Two machines of one kind have a memory that differs by some pages


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that is known of a run."""

    name: str  # What it is
    attribute: str  # Name of its attribute, of the run or of its steps; empty for none
    # Figures that are not compared where it differs, by their kinds or names
    changes: frozenset[str] = _NOTHING
    unit: str = ""  # Unit of a number: ``By`` or nothing
    is_setting: bool = False  # A part of the configuration


CONFIGURATION: Final = "hash of the configuration"
"""Name of the fact that differs wherever a setting does, also one that has no attribute."""

FACTS: Final[tuple[Fact, ...]] = (
    Fact("command", semconv.PROCESS_COMMAND_LINE),
    Fact("library", semconv.LIBRARY_NAME),
    Fact("calibration samples", semconv.CALIBRATION_SAMPLE_COUNT),
    Fact(CONFIGURATION, semconv.CONFIG_HASH),
    Fact("calibration method", semconv.CALIBRATION_METHOD, is_setting=True),
    Fact("samples asked for", semconv.CONFIG_SAMPLES, is_setting=True),
    Fact("configuration", semconv.CONFIG_NAME, is_setting=True),
    Fact("format", semconv.FORMAT, is_setting=True),
    Fact("weight type", semconv.WEIGHT_TYPE, is_setting=True),
    Fact("activation type", semconv.ACTIVATION_TYPE, is_setting=True),
    Fact("activation bits", semconv.ACTIVATION_BITS, is_setting=True),
    Fact("backend", semconv.BACKEND, is_setting=True),
    Fact("per channel", semconv.PER_CHANNEL, is_setting=True),
    Fact("granularity", semconv.GRANULARITY, is_setting=True),
    Fact("symmetric", semconv.SYMMETRIC, is_setting=True),
    Fact("bits", semconv.BITS, is_setting=True),
    Fact("block size", semconv.BLOCK_SIZE, is_setting=True),
    Fact("bits of parts", semconv.PARTS_BITS, is_setting=True),
    Fact("block sizes of parts", semconv.PARTS_BLOCK_SIZE, is_setting=True),
    Fact("symmetric activations", semconv.ACTIVATION_SYMMETRIC, is_setting=True),
    Fact("algorithms", semconv.ALGORITHMS, is_setting=True),
    Fact("layers", semconv.LAYER_COUNT),
    Fact("accuracy of layers", semconv.ACCURACY_MEASURE),
    Fact("median of its values", semconv.ACCURACY_MEDIAN),
    Fact("worst of its values", semconv.ACCURACY_WORST),
    Fact("layer of the worst", semconv.ACCURACY_WORST_LAYER),
    Fact("model read", semconv.INPUT_PATH),
    Fact("model written", semconv.OUTPUT_PATH),
    Fact("SHA-256 of the float model", semconv.of_model("float", "sha256")),
    Fact("SHA-256 of the quantized model", semconv.of_model("quantized", "sha256")),
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

_SCRIPT: Final = Fact("script", "", _ALL)
_WHEN_READ: Final = Fact("memory was read", "", frozenset({MEMORY_PEAK}))
_GPU_SOURCE: Final = Fact("memory of GPUs was read from", "", frozenset({GPU_PEAK}))
_ALWAYS: Final = (_SCRIPT, _WHEN_READ, _GPU_SOURCE, *FACTS)
_PROCESSES: Final = Fact("recorded processes", "", _ALL)
"""Of profiles: one has one process, and nobody knows what the others had added to its whole."""


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A fact in which sides differ."""

    name: str  # What it is
    # For each side the values of its runs, each once; empty for one that is not known
    values: tuple[tuple[Value, ...], ...]
    changes: frozenset[str]  # Figures that are not compared for it, by their kinds or names
    unit: str = ""  # Unit of the values
    is_setting: bool = False  # It is a part of the configuration

    def is_unlike(self, at: int) -> bool:
        """Whether a side is known to differ from the base."""
        base, new = self.values[0], self.values[at]
        return bool(base and new and (_beside(base, new) or _beside(new, base)))


def fact_differences(sides: Sequence[Sequence[ComparedRun]]) -> list[FactDifference]:
    """Returns in what sides differ. A fact that is not known of a side changes nothing: the side may be alike."""
    known = [[*map(_facts_of, side)] for side in sides]
    every_fact = chain.from_iterable(chain.from_iterable(known))
    facts = dict.fromkeys((*_ALWAYS, *every_fact))
    del facts[_PROCESSES]
    if not all(is_of_program(run.recording) for run in chain.from_iterable(sides)):
        facts[_PROCESSES] = None
    found = []
    for fact in facts:
        values = tuple(_distinct(each[fact] for each in side if fact in each) for side in known)
        every = _distinct(chain.from_iterable(values))
        differs = len(every) > 1
        if differs or (every and not all(values)):
            changes = fact.changes if differs else _NOTHING
            found.append(FactDifference(fact.name, values, changes, fact.unit, fact.is_setting))
    return found


def _facts_of(run: ComparedRun) -> dict[Fact, Value]:
    """Returns what is known of a run."""
    sources = [
        run.recording.origin,
        *(each.attributes for each in run.recording.runs),
        *(each.step.attributes for each in run.steps.values()),
    ]
    known = {fact: _value_in(sources, fact.attribute) for fact in FACTS}
    listed = run.recording.origin.get(semconv.LIBRARIES)
    named = (str(it).rpartition(" ") for it in (listed if isinstance(listed, tuple) else [listed]))
    known |= {Fact(name, "", _TIME_MEMORY_GPU): version for name, _, version in named if name}
    if (command := run.recording.origin.get(semconv.PROCESS_COMMAND_LINE)) is not None:
        known[FACTS[0]] = _value_in([run.recording.origin], FACTS[0].attribute)  # not of workers
    known[_SCRIPT] = model.script_of(command) if isinstance(command, str) else None
    known |= {_WHEN_READ: run.when_read, _PROCESSES: len(outermost_runs(run.recording))}
    known[_GPU_SOURCE] = _gpu_source(sources) if GPU_PEAK in run.total else None
    return {fact: value for fact, value in known.items() if value is not None}


def _value_in(sources: Iterable[model.Attributes], name: str) -> Value | None:
    """Returns the values of an attribute, wherever a recording has them, each once."""
    values = (source[name] for source in sources if name in source)
    texts = (", ".join(map(str, each)) if isinstance(each, tuple) else each for each in values)
    found = dict.fromkeys(texts)
    several = (("no", "yes")[each] if isinstance(each, bool) else str(each) for each in found)
    return ", ".join(several) if len(found) > 1 else next(iter(found), None)


def _when_read(recording: model.Recording) -> str | None:
    """Returns when memory was read: Quark's own profiler does so at checkpoints alone."""
    known = peak(recording)
    if known is None:
        return None
    marks = {semconv.MEMORY_PEAK, semconv.READING_MEMORY_PEAK}
    sampled = any(marks & {*run.attributes, *run.last_read} for run in recording.runs)
    all_the_time = sampled or known.source in ("launcher", "ending", "process", "sampled")
    return "all the time" if all_the_time else "at checkpoints"


def _gpu_source(sources: Sequence[model.Attributes]) -> Value | None:
    """Returns what the memory of GPUs was read from; of older recordings of ours it was version 1 of NVIDIA's."""
    is_ours = _value_in(sources, semconv.OTEL_QUANT_VERSION) is not None
    named = (_value_in(sources, name) for name in (semconv.GPU_DRIVERS, semconv.GPU_NAMES))
    is_nvidia = any("nvidia" in str(each).lower() for each in named)
    older = "nvmlMemory_v1" if is_ours and is_nvidia else None
    return _value_in(sources, semconv.GPU_MEMORY_SOURCE) or older


def _distinct(values: Iterable[Value]) -> tuple[Value, ...]:
    """Returns values, of those that are alike the first."""
    found: list[Value] = []
    for value in values:
        found += _beside((value,), found)
    return tuple(found)


def _beside(values: Iterable[Value], others: Sequence[Value]) -> list[Value]:
    """Returns the values that are like none of some others."""
    return [value for value in values if not any(_is_alike(value, other) for other in others)]


def _is_alike(first: Value, second: Value) -> bool:
    if isinstance(first, int) and isinstance(second, int) and first > 1 << 20:
        return abs(first - second) <= _NEARLY * first
    if isinstance(first, str) and isinstance(second, str) and "/" in (first[:1], second[:1]):
        return PurePath(first).name == PurePath(second).name  # folders differ between checkouts
    return first == second
