"""Every quantity of a recording, of a run and of a step, by one rule.

:data:`otel_quant.schema.catalog.QUANTITIES` lists where a recording has a quantity. For a quantity that
adds up, the launcher's curve counts, without it the sum over the outermost processes. For any other
quantity the highest of all known values counts: attributes of the spans of runs and steps,
marks of the kernel, checkpoints, the last reading, the launcher's curve, and what the launcher saw last.
All commands take their figures from here.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from heapq import nlargest
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal, NamedTuple

from otel_quant.diagnosis.growth import Growth
from otel_quant.format.curve import Curve
from otel_quant.format.series import MEMORY, PROCESS
from otel_quant.recordings.model import (
    LAUNCHER,
    Attributes,
    PlacedStep,
    RecordedRun,
    RecordedStep,
    Recording,
    StepPath,
    known,
    number,
    step_at,
    steps_in,
)
from otel_quant.schema import semconv
from otel_quant.schema.catalog import FORMER, QUANTITIES, Quantity
from otel_quant.schema.events import present
from otel_quant.schema.readings import AT_LEAST

Source = Literal[
    "kernel", "allocator", "sampled", "launcher", "process", "checkpoints", "last reading", "ending"
]
"""How a value is known: from the kernel's mark or the one of torch's allocator, from the samples of the process, from the curve of
the launcher or of a process, read at checkpoints, in the last reading, or by the launcher as the
program ended."""

DURATION: Final = "duration"
CPU_TIME: Final = "cpu.time"
CPU_WAIT: Final = semconv.short(semconv.CPU_WAIT)
CPU_WAITS: Final = "cpu.waits"
SAMPLE_RATE: Final = semconv.short(semconv.CALIBRATION_SAMPLE_RATE)
MEMORY_PEAK: Final = semconv.short(semconv.MEMORY_PEAK)
MEMORY_SEEN: Final = "memory.seen"
GPU_PEAK: Final = semconv.short(semconv.GPU_MEMORY_PEAK)
GPU_TREE_PEAK: Final = semconv.short(semconv.GPU_TREE_PEAK)
GPU_ALLOCATED: Final = "gpu.torch_allocated.peak"
DISK_WRITE: Final = semconv.short(semconv.DISK_WRITE)
CACHE_PEAK: Final = semconv.short(semconv.CACHE_GROWTH)
MEMORY_BOUND: Final = "memory.bound"
"""Beside the quantities of a step whose peak was higher than is known: what it may have been, without a limit."""
PROCESS_PEAK: Final = semconv.short(semconv.MEMORY_PROCESS_PEAK)

WAITS: Final = (CPU_WAIT, CPU_WAITS)
"""Quantities of the machine's other work rather than of the program."""

_PRESENT: Final = {quantity.name: quantity for quantity in QUANTITIES}
_FORMER: Final = {semconv.short(old): semconv.short(new) for old, new in FORMER.items()}

BY_NAME: Final[Mapping[str, Quantity]] = _PRESENT | {
    old: _PRESENT[new] for old, new in _FORMER.items() if new in _PRESENT
}
"""Every quantity by its name, and by those that it had before."""

_OF_STEPS: Final = {
    each.name: "" if each.curve or each.name == SAMPLE_RATE else next(iter(each.attributes), "")
    for each in QUANTITIES
    if each.is_of_steps
}
"""The quantities of steps, by name: the attribute without which a step has none; empty if there is none."""

_NEAR: Final = 0.99  # The curve and the kernel's mark differ by what was used between two samples
_EXACT: Final[tuple[Source, ...]] = ("kernel", "allocator")
_MOST_PLACES: Final = 8  # Values of which it is looked up which step was open then


class KnownValue(NamedTuple):
    """A value, with what is known of where and when it was."""

    value: float
    source: Source
    time: float | None = None  # Seconds since the recording began
    run: RecordedRun | None = None
    step: RecordedStep | None = None  # The innermost step
    path: StepPath = ()  # That step and those around it
    since: float | None = None  # Since when it may have been, where only its latest time is known
    is_low: bool = False  # Page faults contradict it: more was in use

    @property
    def is_least(self) -> bool:
        """Whether the true value may be higher, because nothing has looked in between."""
        return self.is_low or self.source in ("checkpoints", "last reading")


class MemoryLimit(NamedTuple):
    """A limit of memory."""

    value: float  # Bytes
    source: str | None  # ``cgroup``, ``physical``, ..; None if that is not known


# --- the recording ------------------------------------------------------------------------


def values(recording: Recording) -> dict[str, float]:
    """Returns the quantities of the recording that are known."""
    return present({each.name: value(recording, each.name) for each in QUANTITIES})


def value(recording: Recording, name: str) -> float | None:
    """Returns a quantity of the recording: of all its processes together."""
    quantity = BY_NAME[name]
    if name == DURATION:
        return recording.duration
    if name == SAMPLE_RATE:
        return _sample_rate(recording)
    if quantity.kind == "cost":  # runs have it of their models: the last counts
        costs = known(_sum(run.attributes, quantity) for run in reversed(recording.runs))
        return next(iter(costs), None)
    if quantity.over_steps == "sum":
        return _total(recording, quantity)
    if quantity.over_processes == "sum":
        return _sum_of_highest(recording, quantity)
    return _highest(each.value for each in _everywhere(recording, quantity))


def peak(recording: Recording, name: str = MEMORY_PEAK) -> KnownValue | None:
    """Returns the peak of memory, or of another level, and where it was: as :func:`value` has it."""
    every = _everywhere(recording, BY_NAME[name])
    return recording.once(
        ("peak", name), lambda: _placed(every, recording, recording.runs, name == MEMORY_PEAK)
    )


def peak_of_run(
    recording: Recording, run: RecordedRun, name: str = MEMORY_PEAK
) -> KnownValue | None:
    """Returns the same of one run; for the only run of the program itself, the recording's."""
    own = [each for each in recording.runs if each.process == run.process]
    if len(own) == 1 and (len(recording.runs) == 1 or _is_the_program(recording, run)):
        return peak(recording, name)
    return _placed(_of_run(recording, run, BY_NAME[name]), recording, (run,), True)


def limit(recording: Recording, run: RecordedRun | None = None) -> MemoryLimit | None:
    """Returns the limit of memory in force: the smallest that is known of the recording, or of a run."""
    runs = recording.runs if run is None else (run,)
    origins = (*(each.attributes for each in runs), recording.origin)
    found = [
        (number(each, semconv.MEMORY_LIMIT), each.get(semconv.MEMORY_LIMIT_SOURCE))
        for each in origins
    ]
    found += [(number(each.last_read, semconv.READING_MEMORY_LIMIT), None) for each in runs]
    ending = recording.ending
    # Of a GPU that was full, the ending has the GPU's limit, of addresses that were too few theirs.
    if ending is not None and ending.memory_limit_source in (None, "cgroup", "physical"):
        found.append((ending.memory_limit, ending.memory_limit_source))
    limits = [
        MemoryLimit(most, None if source is None else str(source)) for most, source in found if most
    ]
    return min(limits, key=lambda each: (each.value, each.source is None), default=None)


def is_of_program(recording: Recording) -> bool:
    """Whether a recording is of a program, as the launcher saw it; else of the runs of its processes."""
    return recording.launcher is not None or recording.ending is not None


def of_runs(recording: Recording) -> Recording:
    """Returns a recording as its processes know it: from the first step of a run to its exit."""
    runs = outermost_runs(recording)
    end = max((recording.duration if run.end is None else run.end for run in runs), default=0.0)
    seconds = end - min((run.start for run in runs), default=0.0)
    curves = {name: curve for name, curve in recording.curves.items() if name != LAUNCHER}
    return replace(recording, duration=seconds, curves=curves, ending=None, launcher=None)


def outermost_runs(recording: Recording) -> list[RecordedRun]:
    """Returns the runs of processes that no recorded process has started."""
    pids = {run.pid for run in recording.runs if run.pid is not None}
    return [run for run in recording.runs if run.parent_pid not in pids]


def _total(recording: Recording, quantity: Quantity) -> float | None:
    """Returns what a quantity that adds up comes to: by the launcher's curve, else by the runs."""
    if quantity.curve and LAUNCHER in recording.curves:
        buckets = recording.curves[LAUNCHER].curve.buckets.values()
        return _highest(each.totals.get(quantity.curve) for each in buckets)
    if quantity.over_processes == "highest":
        return _highest(_sum(run.attributes, quantity) for run in recording.runs)
    runs = outermost_runs(recording)
    found = known(_sum(run.attributes, quantity) for run in runs)
    return sum(found) if found and len(found) == len(runs) else None


def _sum_of_highest(recording: Recording, quantity: Quantity) -> float | None:
    """Returns the sum over all processes; of what one process has several of, the highest counts."""
    highest: dict[str, float] = {}
    for run in recording.runs:
        for each in _of_run(recording, run, quantity):
            highest[run.process] = max(each.value, highest.get(run.process, each.value))
    return sum(highest.values()) if highest else None


def _sample_rate(recording: Recording) -> float | None:
    """Returns the samples of the outermost steps that count some, by the time of these steps."""
    samples, seconds = 0, 0.0
    for run in recording.runs:
        counting: set[int] = set()
        for step in sorted(run.steps, key=lambda each: each.index):
            if step.parent in counting:
                counting.add(step.index)
            elif step.samples and step.end is not None:
                counting.add(step.index)
                samples, seconds = samples + step.samples, seconds + step.end - step.start
    return samples / seconds if seconds else None


def processors(recording: Recording) -> float | None:
    """Returns how many processors the program may use; None if that is not known."""
    every = (recording.origin, *(run.attributes for run in recording.runs))
    return min(filter(None, (number(each, semconv.CPU_LIMIT) for each in every)), default=None)


# --- all that is known --------------------------------------------------------------------


def _everywhere(recording: Recording, quantity: Quantity) -> Iterator[KnownValue]:
    """Yields all that is known of a quantity that does not add up."""
    yield from _of_curve(recording, quantity.curve)
    ending = recording.ending
    if quantity.name == MEMORY_PEAK and ending is not None:
        yield from _from("ending", [ending.memory])
    for run in recording.runs:
        yield from _of_run(recording, run, quantity)


def _of_run(recording: Recording, run: RecordedRun, quantity: Quantity) -> Iterator[KnownValue]:
    """Yields all that the process of a run knows of a quantity."""
    for step in (*run.steps, None):
        yield from _of_span(quantity, run, step)
    marks = (number(run.attributes, name) for name in quantity.at_least)
    yield from _from("kernel", marks, run)
    names = (quantity.reading, quantity.now, *quantity.attributes)
    yield from _from("last reading", (number(run.last_read, name) for name in names), run)
    if quantity.name == MEMORY_PEAK and run.end is None and recording.ending is not None:
        own = (size for name, size in recording.ending.processes if name.endswith(f" ({run.pid})"))
        yield from _from("last reading", own, run)
    if quantity.checkpoint:
        points = (
            (seen, point.time)
            for point in run.checkpoints
            if (seen := number(point.attributes, quantity.checkpoint)) is not None
        )
        # Of no more than these it is looked up where they were.
        for highest, time in nlargest(_MOST_PLACES, points, key=itemgetter(0)):
            yield KnownValue(highest, "checkpoints", time, run)
    # The end record of a run already has what its process's curve has.
    if run.end is None and LAUNCHER not in recording.curves:
        yield from _of_curve(recording, quantity.curve, run)


def _of_curve(
    recording: Recording, name: str, run: RecordedRun | None = None
) -> Iterator[KnownValue]:
    """Yields the highest value of the launcher's curve, or of the curve of a run's process."""
    source: Source = "launcher" if run is None else "process"
    levels = levels_in(*recording.curve(LAUNCHER if run is None else run.process), name)
    if levels:
        it = max(levels, key=attrgetter("highest"))
        since = it.since if it.since < it.time else None
        yield KnownValue(it.highest, source, it.time, run, since=since)


def _of_span(
    quantity: Quantity, run: RecordedRun, step: RecordedStep | None
) -> Iterator[KnownValue]:
    """Yields what the span of a run or a step knows of a quantity, and the records of its devices."""
    span = step or run
    if (found := _sum(span.attributes, quantity)) is not None:
        told = span.attributes.get(f"{quantity.attributes[0]}_source")
        exact = next((each for each in _EXACT if each == told), None)
        yield KnownValue(found, exact or "sampled", None, run, step)
    elif span.devices and (used := known(number(each, quantity.device) for each in span.devices)):
        yield KnownValue(sum(used), "sampled", None, run, step)


def _from(
    source: Source,
    values: Iterable[float | None],
    run: RecordedRun | None = None,
    step: RecordedStep | None = None,
) -> list[KnownValue]:
    """Returns the values of a source that are known."""
    return [KnownValue(each, source, None, run, step) for each in known(values)]


def _sum(attributes: Attributes, quantity: Quantity) -> float | None:
    """Returns what attributes have of a quantity; None if one of its parts is not known."""
    total = 0.0 if quantity.unit == "s" else 0
    for name in quantity.attributes:
        part = number(attributes, name)
        if part is None:
            return None
        total += part
    return total if quantity.attributes else None


def _placed(
    every: Iterable[KnownValue], recording: Recording, runs: Sequence[RecordedRun], is_memory: bool
) -> KnownValue | None:
    """Returns the highest; of those that are equal as far as can be told, the one that knows where.

    Case 1: one knows when it was, and a step was open then. Case 2: one is of a step. Case 3: one knows
    between which times it was, and a step was open all the while. Case 4: none of them.
    """
    found = sorted(every, key=lambda each: -each.value)
    if not found:
        return None
    best = max(found, key=lambda each: (each.value, each.source in _EXACT))
    seen_by_it = is_memory and best.source not in ("kernel", "launcher", "ending")
    of_best: Any = {
        "value": best.value, "source": best.source, "is_low": seen_by_it and any(map(is_low, runs)),
    }  # fmt: skip
    steps = steps_in(recording, runs)
    near = [each for each in found if each.value >= _NEAR * best.value]
    timed = [each for each in near if each.time is not None]
    for each in [each for each in timed if each.since is None][:_MOST_PLACES]:
        if (placed := _at_its_step(each, steps)) is not None:  # Case 1
            placed = _at_its_origin(placed, _NEAR * best.value, steps) if is_memory else placed
            return placed._replace(**of_best, run=best.run or placed.run)
    # Of steps that are equal the last, because it is the innermost
    owned = [each for each in reversed(near) if each.step]
    if (last := max(owned, key=attrgetter("value"), default=None)) is not None:  # Case 2
        path = next(each.path for each in steps if each.step is last.step)
        return last._replace(path=path, **of_best)
    covered_by = filter(None, (_at_its_step(each, steps) for each in timed))  # Case 3
    return next(covered_by, (timed or near)[0])._replace(**of_best)


def _at_its_origin(held: KnownValue, low: float, steps: Iterable[PlacedStep]) -> KnownValue:
    """Returns a peak with the last step within which memory rose to so much, where that of the peak began with it."""

    def figure(step: RecordedStep | None, name: str) -> float:
        return (step and number(step.attributes, name)) or 0.0

    start, own = semconv.MEMORY_START, semconv.MEMORY_PEAK
    before = [it for it in steps if it.step.start <= (held.time or 0.0)]
    brought = [it for it in before if figure(it.step, start) < low <= figure(it.step, own)]
    if figure(held.step, start) < low or not brought:
        return held
    it = max(brought, key=attrgetter("step.start"))
    return held._replace(run=it.run, step=it.step, path=it.path)


def is_low(item: RecordedRun | RecordedStep) -> bool:
    """Whether page faults contradict the peak of memory that is known of a run or a step: more was in use."""
    return item.attributes.get(semconv.MEMORY_PEAK_SOURCE) == AT_LEAST


def _at_its_step(known: KnownValue, steps: Iterable[PlacedStep]) -> KnownValue | None:
    """Returns a value with the innermost step that it belongs to; None without one."""
    place = step_at([each for each in steps if _may_have(each.step, known)], known.time or 0.0)
    if place is None:
        return None
    return known._replace(run=place.run, step=place.step, path=place.path)


def _may_have(step: RecordedStep, known: KnownValue) -> bool:
    """Whether a step had begun before a value may have been reached; a higher mark than at its start rose in it."""
    if known.since is None or known.since >= step.start:
        return True
    return step.mark is not None and known.value > step.mark


def steps_of(recording: Recording) -> Callable[[PlacedStep], StepSummary]:
    """Returns a function that returns what the steps of a step's run come to."""
    known = {id(run): StepSummary(recording, run) for run in recording.runs}
    return lambda each: known[id(each.run)]


# --- steps --------------------------------------------------------------------------------


class StepSummary:
    """What the steps of a run come to."""

    def __init__(self, recording: Recording, run: RecordedRun) -> None:
        self._recording, self._run = recording, run
        self._is_the_program = _is_the_program(recording, run)
        self._is_alone = all(each.process == run.process for each in outermost_runs(recording))
        points = run.checkpoints
        self._checkpoints = cache(lambda name: [number(each.attributes, name) for each in points])
        self._windows = cache(partial(windows, recording))

    def values(self, step: RecordedStep) -> dict[str, float]:
        """Returns the quantities of a step that are known."""
        # Of most figures a step has nothing, and there may be 100,000 steps.
        given = {"", *step.attributes}
        wanted = [name for name, attribute in _OF_STEPS.items() if attribute in given]
        found = present({name: self.value(step, name) for name in wanted})
        return found | {MEMORY_BOUND: math.inf} if is_low(step) else found

    def value(self, step: RecordedStep, name: str) -> float | None:
        """Returns a quantity of a step."""
        quantity = BY_NAME[name]
        if name == DURATION:
            return step.lasted
        if name == SAMPLE_RATE:
            measured = number(step.attributes, semconv.CALIBRATION_SAMPLE_RATE)
            if step.lasted and step.samples and measured is None:
                return step.samples / step.lasted
            return measured if step.lasted else None
        if quantity.over_steps != "sum":
            highest = self.peak(step, name)
            return None if highest is None else highest.value
        if quantity.attributes or step.end is None:
            return _sum(step.attributes, quantity)
        return self._windows(quantity.curve).rise(step.start, step.end)

    def peak(self, step: RecordedStep, name: str = MEMORY_PEAK) -> KnownValue | None:
        """Returns the highest value during a step; None if nothing has looked between its checkpoints."""
        quantity = BY_NAME[name]
        found = [*_of_span(quantity, self._run, step)]
        if not quantity.attributes and not quantity.device:  # what is read at checkpoints alone
            seen = self._seen_at_checkpoints(step, quantity.checkpoint)
            found += _from("checkpoints", (seen,), self._run, step)
        # Of an open step nothing else is known: what a shell around its process held is little.
        is_in_curve = self._is_the_program or (step.end is None and self._is_alone)
        if quantity.curve and is_in_curve and not step.spans:
            end = math.inf if step.end is None else step.end
            highest = self._windows(quantity.curve).highest(step.start, end, step.mark)
            found += _from("launcher", (highest,), self._run, step)
        best = max(found, key=attrgetter("value"), default=None)
        return best and best._replace(is_low=name == MEMORY_PEAK and is_low(step))

    def children(self, step: RecordedStep) -> str:
        """Returns the largest child processes of its time: ``cc1plus x 4``; nothing where processes are beside it."""
        name = LAUNCHER if LAUNCHER in self._recording.curves else self._run.process
        spans = step.spans or ((step.start, math.inf if step.end is None else step.end),)
        found: Counter[str] = Counter()
        for series in _children_in(self._recording, name) if self._is_alone else ():
            if known(windows(self._recording, series, name).highest(*span) for span in spans):
                found[series.removeprefix(PROCESS).rpartition(" (")[0]] += 1
        return ", ".join(f"{each} x {many}" if many > 1 else each for each, many in found.items())

    def seen(self, step: RecordedStep, name: str = MEMORY_PEAK) -> float | None:
        """Returns the highest value at a step's checkpoints and in the last reading within it."""
        quantity, last = BY_NAME[name], self._run.last
        found = [self._seen_at_checkpoints(step, quantity.checkpoint)]
        if step.end is None and last is not None and last.time >= step.start:
            found.append(number(last.attributes, quantity.now))
        return _highest(found)

    def _seen_at_checkpoints(self, step: RecordedStep, name: str) -> float | None:
        first, until = self._positions.get(step.index, (0, 0))
        return _highest(self._checkpoints(name)[first:until])

    @cached_property
    def _positions(self) -> dict[int | None, tuple[int, int | None]]:
        """Where the checkpoints of each step begin, and before which they end."""
        found: dict[int | None, tuple[int, int | None]] = {}
        for at, point in enumerate(self._run.checkpoints):
            if point.phase == "start":
                found[point.step] = at, None
            elif point.phase == "end" and point.step in found:
                found[point.step] = found[point.step][0], at + 1
        return found


def windows(recording: Recording, name: str, process: str = LAUNCHER) -> Windows:
    """Returns a series of the launcher's curve, or of a process's."""
    return recording.once(("windows", name, process), lambda: Windows(recording, name, process))


def _children_in(recording: Recording, process: str) -> Sequence[str]:
    """Returns the series of a curve that are of child processes without a run; the first is the program's."""

    def find() -> Sequence[str]:
        buckets = recording.curve(process)[1].buckets.values()
        names = dict.fromkeys(name for each in buckets for name in each.levels)
        children = [name for name in names if name.startswith(PROCESS)][1:]
        of_runs = tuple(f" ({run.pid})" for run in recording.runs)
        return [name for name in children if not name.endswith(of_runs)]

    return recording.once(("children", process), find)


def _is_the_program(recording: Recording, run: RecordedRun) -> bool:
    """Whether a run's process is the one that the launcher has started: its tree is the curve's."""
    return recording.launcher is not None and run.parent_pid == recording.launcher


class KnownLevel(NamedTuple):
    """What a bucket of a curve has of a level; times in seconds since the recording began."""

    time: float  # When the highest was read
    since: float  # Since when it may have been; the same where it was in use when it was read
    highest: float
    read: float  # What was in use at that time, at least; 0 if nothing was read then


def levels_in(begin: float, curve: Curve, name: str) -> list[KnownLevel]:
    """Returns what the buckets of a curve, and when it began, have of a level."""
    found = []
    for bucket in curve.buckets.values():
        if (level := bucket.levels.get(name)) is not None:
            since = min(level.at, bucket.totals.get(f"{name}.since", level.at))
            read = level.highest if since == level.at else level.lowest if since else 0.0
            times = begin + level.at / 1000, begin + since / 1000
            found.append(KnownLevel(*times, level.highest, read))
    return found


class Windows:
    """A series of a curve between any two moments, in seconds since the recording began."""

    def __init__(self, recording: Recording, name: str, process: str = LAUNCHER) -> None:
        begin, curve = recording.curve(process)
        self._length = curve.length / 1000
        self._levels = sorted(levels_in(begin, curve, name))
        self._times = [each.time for each in self._levels]
        totals = [each for each in curve.buckets.values() if name in each.totals]
        self._starts = [begin + each.position * self._length for each in totals]
        self._sums = [0.0, *(each.totals[name] for each in totals)]

    def read(self, start: float, end: float) -> Sequence[KnownLevel]:
        """Returns what was read between two moments."""
        # A reading's time is cut to milliseconds, and memory is read within another one.
        first, until = bisect_left(self._times, start), bisect_right(self._times, end - 2e-3)
        return self._levels[first:until]

    def highest(self, start: float, end: float, mark: int | None = None) -> float | None:
        """Returns the highest value between two moments; `mark` is the kernel's at the first of them.

        A mark that may have risen before is not theirs, but what was in use when it was read.
        """
        below = math.inf if mark is None else mark
        known = (
            it.highest if it.since >= start or it.highest > below else it.read
            for it in self.read(start, end)
        )
        return max(known, default=0.0) or None

    def at(self, time: float) -> float | None:
        """Returns the value of the newest reading at a moment."""
        levels = self._levels[: bisect_right(self._times, time)]
        return next((each.read for each in reversed(levels) if each.read), None)

    def rise(self, start: float, end: float, *, is_most: bool = True) -> float | None:
        """Returns by how much a total rose: at most, or as if it had risen evenly within each bucket."""
        if not self._starts:
            return None
        if not is_most:
            return self._total(end) - self._total(start)
        before = bisect_right(self._starts, start - self._length)  # buckets that had ended
        after = bisect_left(self._starts, end) + 1  # and one that had not begun
        return self._sums[min(after, len(self._starts))] - self._sums[before]

    def _total(self, time: float) -> float:
        at = bisect_right(self._starts, time)
        last, now = self._sums[max(0, at - 1)], self._sums[at]
        passed = (time - self._starts[at - 1]) / self._length if at else 0.0
        return last + (now - last) * min(1.0, passed)


# --- growth -------------------------------------------------------------------------------

# Shortest step, in seconds, that is reported when its memory goes on growing
_GROWTH_LASTS: Final = 3.0
_GROWS: Final = 64 * 10**6  # Bytes by which it grows at least


def growing(recording: Recording, each: PlacedStep, level: str = MEMORY) -> float:
    """Returns by how many bytes memory, or another level of the curve, goes on growing within a step; 0 if it does not."""
    name = LAUNCHER if LAUNCHER in recording.curves else each.run.process
    began, curve = recording.curve(name)
    begin, seconds, growth = began - each.step.start, each.duration, Growth()
    if seconds < _GROWTH_LASTS:
        return 0.0
    times, levels = list[float](), list[float]()
    for bucket in curve.buckets.values():
        read = bucket.levels.get(level)
        if read is not None and 0 <= (at := begin + read.at / 1000) <= seconds:
            growth.add(round(1000 * at), read.lowest)
            times.append(at)
            levels += read.lowest, read.highest
    line, samples = growth.line(), each.step.samples
    grown = 0.0 if line is None else 1000 * line.per_sample * seconds
    per_sample = each.step.attributes.get(semconv.FORECAST_MEMORY_PER_SAMPLE)
    if level == MEMORY and samples and isinstance(per_sample, int):
        grown = per_sample * samples  # by what was there as each sample began
    if grown and len(times) > 1:  # a slope that was steeper once does not hold for all of the time
        rise = (max(levels) - min(levels)) / (max(times) - min(times))
        grown = min(grown, rise * seconds)
    return grown if grown >= _GROWS else 0.0


def _highest(values: Iterable[float | None]) -> float | None:
    return max(known(values), default=None)
