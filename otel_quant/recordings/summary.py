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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import nlargest
from operator import itemgetter
from typing import Final, Literal, NamedTuple

from otel_quant.diagnosis.growth import Growth
from otel_quant.recordings.model import (
    LAUNCHER,
    Attributes,
    PlacedStep,
    RecordedRun,
    RecordedStep,
    Recording,
    StepPath,
    number,
    step_at,
    steps_in,
)
from otel_quant.schema import semconv
from otel_quant.schema.catalog import FORMER, QUANTITIES, Quantity

Source = Literal[
    "kernel", "sampled", "launcher", "process", "checkpoints", "last reading", "ending"
]
"""How a value is known: from the kernel's mark, from the samples of the process, from the curve of
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
GPU_ALLOCATED: Final = "gpu.torch_allocated.peak"
DISK_WRITE: Final = semconv.short(semconv.DISK_WRITE)
CACHE_PEAK: Final = semconv.short(semconv.CACHE_GROWTH)
PROCESS_PEAK: Final = semconv.short(semconv.MEMORY_PROCESS_PEAK)

_OF_STEPS: Final = tuple(quantity for quantity in QUANTITIES if quantity.is_of_steps)

WAITS: Final = (CPU_WAIT, CPU_WAITS)
"""Quantities of the machine's other work rather than of the program."""

_PRESENT: Final = {quantity.name: quantity for quantity in QUANTITIES}
_FORMER: Final = {semconv.short(old): semconv.short(new) for old, new in FORMER.items()}

BY_NAME: Final[Mapping[str, Quantity]] = _PRESENT | {
    old: _PRESENT[new] for old, new in _FORMER.items() if new in _PRESENT
}
"""Every quantity by its name, and by those that it had before."""

_NEAR: Final = 0.99
"""The curve and the kernel's mark differ by what was used between two samples."""

_MOST_PLACES: Final = 8
"""Values of which it is looked up which step was open then."""

_AT_LEAST: Final[frozenset[Source]] = frozenset({"checkpoints", "last reading"})


class Known(NamedTuple):
    """A value, with what is known of where and when it was."""

    value: float
    source: Source
    time: float | None = None  # Seconds since the recording began
    run: RecordedRun | None = None
    step: RecordedStep | None = None  # The innermost step
    path: StepPath = ()  # That step and those around it

    @property
    def is_least(self) -> bool:
        """Whether the true value may be higher, because nothing has looked in between."""
        return self.source in _AT_LEAST


class Limit(NamedTuple):
    """A limit of memory."""

    value: float  # Bytes
    source: str | None  # ``cgroup``, ``physical``, ..; None if that is not known


# --- the recording ------------------------------------------------------------------------


def values(recording: Recording) -> dict[str, float]:
    """Returns the quantities of the recording that are known."""
    found = {quantity.name: value(recording, quantity.name) for quantity in QUANTITIES}
    return {name: each for name, each in found.items() if each is not None}


def value(recording: Recording, name: str) -> float | None:
    """Returns a quantity of the recording: of all its processes together."""
    quantity = BY_NAME[name]
    found: float | None
    if name == DURATION:
        found = recording.duration
    elif name == SAMPLE_RATE:
        found = _sample_rate(recording)
    elif quantity.kind == "cost":  # runs have it of their models: the last counts
        costs = (_sum(run.attributes, quantity) for run in reversed(recording.runs))
        found = next((known for known in costs if known is not None), None)
    elif quantity.over_steps == "sum":
        found = _total(recording, quantity)
    elif quantity.over_processes == "sum":
        found = _sum_of_highest(recording, quantity)
    else:
        found = max((each.value for each in _everywhere(recording, quantity)), default=None)
    return found if found is not None and math.isfinite(found) else None  # a file may have any


def peak(recording: Recording, name: str = MEMORY_PEAK) -> Known | None:
    """Returns the highest value of the recording, and where it was: as :func:`value` has it."""
    if ("peak", name) not in recording.memo:
        every = _everywhere(recording, BY_NAME[name])
        recording.memo["peak", name] = _placed(every, recording, recording.runs)
    found: Known | None = recording.memo["peak", name]
    return found


def peak_of_run(recording: Recording, run: RecordedRun, name: str = MEMORY_PEAK) -> Known | None:
    """Returns the same of one run; for the only run of the program itself, the recording's."""
    own = [each for each in recording.runs if each.process == run.process]
    if len(own) == 1 and (len(recording.runs) == 1 or _is_the_program(recording, run)):
        return peak(recording, name)
    return _placed(_of_run(recording, run, BY_NAME[name]), recording, (run,))


def limit(recording: Recording, run: RecordedRun | None = None) -> Limit | None:
    """Returns the limit of memory in force: the smallest that is known of the recording, or of a run."""
    runs = recording.runs if run is None else (run,)
    found = [
        (number(attributes, semconv.MEMORY_LIMIT), attributes.get(semconv.MEMORY_LIMIT_SOURCE))
        for attributes in (*(each.attributes for each in runs), recording.origin)
    ]
    lasts = [each.last.attributes for each in runs if each.last is not None]
    found += [(number(last, semconv.READING_MEMORY_LIMIT), None) for last in lasts]
    ending = recording.ending
    # Of a GPU that was full, the ending has the GPU's limit, of addresses that were too few theirs.
    if ending is not None and ending.memory_limit_source in (None, "cgroup", "physical"):
        found.append((ending.memory_limit, ending.memory_limit_source))
    known = [Limit(each, None if source is None else str(source)) for each, source in found if each]
    return min(known, key=lambda each: (each.value, each.source is None), default=None)


def is_of_program(recording: Recording) -> bool:
    """Whether a recording is of a program, as the launcher saw it; else of the runs of its processes."""
    return recording.launcher is not None or recording.ending is not None


def of_runs(recording: Recording) -> Recording:
    """Returns a recording as its processes know it: from the first step of a run to its exit."""
    runs = outermost_runs(recording)
    ends = [recording.duration if run.end is None else run.end for run in runs]
    return replace(
        recording,
        duration=max(ends, default=0.0) - min((run.start for run in runs), default=0.0),
        curves={name: curve for name, curve in recording.curves.items() if name != LAUNCHER},
        ending=None,
        launcher=None,
    )


def outermost_runs(recording: Recording) -> list[RecordedRun]:
    """Returns the runs of processes that no recorded process has started."""
    pids = {run.pid for run in recording.runs if run.pid is not None}
    return [run for run in recording.runs if run.parent_pid not in pids]


def _total(recording: Recording, quantity: Quantity) -> float | None:
    curve = recording.curves.get(LAUNCHER)
    if quantity.curve and curve is not None:
        buckets = curve.curve.buckets.values()
        return _highest(each.totals.get(quantity.curve) for each in buckets)
    if quantity.over_processes == "highest":
        return _highest(_sum(run.attributes, quantity) for run in recording.runs)
    found = [_sum(run.attributes, quantity) for run in outermost_runs(recording)]
    known = [each for each in found if each is not None]
    return sum(known) if known and len(known) == len(found) else None


def _sum_of_highest(recording: Recording, quantity: Quantity) -> float | None:
    """Returns the sum over all processes; of what one process has several of, the highest counts."""
    highest: dict[str, float] = {}
    for run in recording.runs:
        for known in _of_run(recording, run, quantity):
            highest[run.process] = max(known.value, highest.get(run.process, known.value))
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


# --- all that is known --------------------------------------------------------------------


def _everywhere(recording: Recording, quantity: Quantity) -> Iterator[Known]:
    """Yields all that is known of a quantity that does not add up."""
    yield from _of_curve(recording, quantity.curve)
    ending = recording.ending
    if ending is not None and ending.memory is not None and quantity.name == MEMORY_PEAK:
        yield Known(ending.memory, "ending")
    for run in recording.runs:
        yield from _of_run(recording, run, quantity)


def _of_curve(recording: Recording, name: str, run: RecordedRun | None = None) -> Iterator[Known]:
    """Yields the highest value of the launcher's curve, or of the curve of a run's process."""
    curve = recording.curves.get(LAUNCHER if run is None else run.process)
    buckets = curve.curve.buckets.values() if curve is not None and name else ()
    levels = [each.levels[name] for each in buckets if name in each.levels]
    if curve is not None and levels:
        highest = max(levels, key=lambda each: each.highest)
        at = (curve.began_ns - recording.began_ns) / 1e9 + highest.at / 1000
        yield Known(highest.highest, "launcher" if run is None else "process", at, run)


def _of_run(recording: Recording, run: RecordedRun, quantity: Quantity) -> Iterator[Known]:
    for step in run.steps:
        yield from _of_attributes(step.attributes, step.devices, quantity, run, step)
    yield from _of_attributes(run.attributes, run.devices, quantity, run)
    for name in quantity.at_least:
        if (mark := number(run.attributes, name)) is not None:
            yield Known(mark, "kernel", run=run)
    if run.last is not None:
        for name in (quantity.reading, quantity.now, *quantity.attributes):
            if (read := number(run.last.attributes, name)) is not None:
                yield Known(read, "last reading", run=run)
    if quantity.checkpoint:
        points = (
            (seen, point.time)
            for point in run.checkpoints
            if (seen := number(point.attributes, quantity.checkpoint)) is not None
        )
        # Of no more than these it is looked up where they were.
        for highest, time in nlargest(_MOST_PLACES, points, key=itemgetter(0)):
            yield Known(highest, "checkpoints", time, run)
    # The end record of a run already has what its process's curve has.
    if run.end is None and LAUNCHER not in recording.curves:
        yield from _of_curve(recording, quantity.curve, run)


def _of_attributes(
    attributes: Attributes,
    devices: Sequence[Attributes],
    quantity: Quantity,
    run: RecordedRun,
    step: RecordedStep | None = None,
) -> Iterator[Known]:
    if (found := _sum(attributes, quantity)) is not None:
        is_exact = attributes.get(f"{quantity.attributes[0]}_source") == "kernel"
        yield Known(found, "kernel" if is_exact else "sampled", None, run, step)
    if quantity.device:
        known = [number(device, quantity.device) for device in devices]
        if total := [each for each in known if each is not None]:
            yield Known(sum(total), "sampled", None, run, step)


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
    every: Iterable[Known], recording: Recording, runs: Sequence[RecordedRun]
) -> Known | None:
    """Returns the highest; of those that are equal as far as can be told, the one that knows where."""
    found = list(every)
    highest = max((each.value for each in found), default=None)
    if highest is None:
        return None
    sources = [each.source for each in found if each.value == highest]
    source = "kernel" if "kernel" in sources else sources[0]
    steps = steps_in(recording, runs)
    near = [each for each in found if each.value >= _NEAR * highest]
    timed = [each for each in near if each.time is not None]
    for each in sorted(timed, key=lambda each: -each.value)[:_MOST_PLACES]:
        if (place := step_at(steps, each.time or 0.0)) is not None:
            return Known(highest, source, each.time, place.run, place.step, place.path)
    # Of steps that are equal the last: it is the innermost.
    owned = max(
        (each for each in reversed(near) if each.step), key=lambda each: each.value, default=None
    )
    if owned is not None:
        path = next(each.path for each in steps if each.step is owned.step)
        return owned._replace(value=highest, source=source, path=path)
    best = max(timed or near, key=lambda each: each.value)
    return best._replace(value=highest, source=source)


def steps_of(recording: Recording) -> Callable[[PlacedStep], StepSummary]:
    """Returns a function that returns what the steps of a step's run come to."""
    known = {id(run): StepSummary(recording, run) for run in recording.runs}
    return lambda each: known[id(each.run)]


# --- steps --------------------------------------------------------------------------------


class StepSummary:
    """What the steps of a run come to."""

    def __init__(self, recording: Recording, run: RecordedRun) -> None:
        self._recording, self._run = recording, run
        self.limit = limit(recording, run)
        self._is_the_program = _is_the_program(recording, run)
        self._is_alone = all(each.process == run.process for each in outermost_runs(recording))
        self._checkpoints: dict[str, list[float | None]] = {}
        self._windows: dict[str, Windows] = {}

    def values(self, step: RecordedStep) -> dict[str, float]:
        """Returns the quantities of a step that are known."""
        found: dict[str, float] = {}
        for each in _OF_STEPS:
            # Of most figures a step has nothing, and there may be 100,000 steps.
            is_absent = each.attributes and each.attributes[0] not in step.attributes
            if is_absent and not each.curve and each.name != SAMPLE_RATE:
                continue
            if (value := self.value(step, each.name)) is not None:
                found[each.name] = value
        return found

    def value(self, step: RecordedStep, name: str) -> float | None:
        """Returns a quantity of a step."""
        quantity = BY_NAME[name]
        if quantity.name == DURATION:
            return None if step.end is None else step.end - step.start
        if quantity.name == SAMPLE_RATE:
            seconds = 0.0 if step.end is None else step.end - step.start
            told = _sum(step.attributes, quantity) if seconds else None
            return step.samples / seconds if told is None and step.samples and seconds else told
        if quantity.over_steps == "sum":
            if quantity.attributes or step.end is None:
                return _sum(step.attributes, quantity)
            return self._window(quantity.curve).rise(step.start, step.end)
        known = self.peak(step, name)
        return known.value if known is not None and math.isfinite(known.value) else None

    def peak(self, step: RecordedStep, name: str = MEMORY_PEAK) -> Known | None:
        """Returns the highest value during a step; None if nothing has looked between its checkpoints."""
        quantity = BY_NAME[name]
        found = [*_of_attributes(step.attributes, step.devices, quantity, self._run, step)]
        if not quantity.attributes and not quantity.device:  # what is read at checkpoints alone
            found += self._seen_at_checkpoints(step, quantity.checkpoint)
        # Of an open step nothing else is known: what a shell around its process held is little.
        has_curve = self._is_the_program or (step.end is None and self._is_alone)
        if has_curve and quantity.curve:
            end = math.inf if step.end is None else step.end
            if (highest := self._window(quantity.curve).highest(step.start, end)) is not None:
                found.append(Known(highest, "launcher", None, self._run, step))
        return max(found, key=lambda each: each.value, default=None)

    def seen(self, step: RecordedStep, name: str = MEMORY_PEAK) -> float | None:
        """Returns the highest value at a step's checkpoints and in the last reading within it."""
        quantity = BY_NAME[name]
        found = [each.value for each in self._seen_at_checkpoints(step, quantity.checkpoint)]
        last = self._run.last
        if step.end is None and last is not None and last.time >= step.start:
            found += [now for now in (number(last.attributes, quantity.now),) if now is not None]
        return max(found, default=None)

    def _seen_at_checkpoints(self, step: RecordedStep, name: str) -> Iterator[Known]:
        if name not in self._checkpoints:
            points = self._run.checkpoints
            self._checkpoints[name] = [number(each.attributes, name) for each in points]
        first, until = self._positions.get(step.index, (0, 0))
        if (seen := _highest(self._checkpoints[name][first:until])) is not None:
            yield Known(seen, "checkpoints", None, self._run, step)

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

    def _window(self, name: str) -> Windows:
        if name not in self._windows:
            self._windows[name] = Windows(self._recording, name)
        return self._windows[name]


def _is_the_program(recording: Recording, run: RecordedRun) -> bool:
    """Whether a run's process is the one that the launcher has started: its tree is the curve's."""
    return recording.launcher is not None and run.parent_pid == recording.launcher


class Windows:
    """A series of the launcher's curve between any two moments, in seconds since the recording began."""

    def __init__(self, recording: Recording, name: str) -> None:
        curve = recording.curves.get(LAUNCHER)
        buckets = [] if curve is None else list(curve.curve.buckets.values())
        begin = 0.0 if curve is None else (curve.began_ns - recording.began_ns) / 1e9
        self._length = 0.0 if curve is None else curve.curve.length / 1000
        levels = sorted(
            (begin + each.levels[name].at / 1000, each.levels[name].highest)
            for each in buckets
            if name in each.levels
        )
        self._times = [time for time, _ in levels]
        self._levels = [value for _, value in levels]
        totals = [each for each in buckets if name in each.totals]
        self._starts = [begin + each.position * self._length for each in totals]
        self._sums = [0.0, *(each.totals[name] for each in totals)]

    def highest(self, start: float, end: float) -> float | None:
        """Returns the highest value that was read between two moments."""
        # A reading's time is cut to milliseconds: it may have been taken one later.
        first, until = bisect_left(self._times, start), bisect_right(self._times, end - 1e-3)
        return _highest(self._levels[first:until])

    def at(self, time: float) -> float | None:
        """Returns the highest value of the newest reading at a moment."""
        before = bisect_right(self._times, time)
        return self._levels[before - 1] if before else None

    def rise(self, start: float, end: float) -> float | None:
        """Returns by how much a total rose, at most."""
        if not self._starts:
            return None
        before = bisect_right(self._starts, start - self._length)  # buckets that had ended
        after = bisect_left(self._starts, end) + 1  # and one that had not begun
        return self._sums[min(after, len(self._starts))] - self._sums[before]


# --- growth -------------------------------------------------------------------------------

_GROWTH_LASTS: Final = 3.0
"""Shortest step, in seconds, that is reported when its memory goes on growing."""

_GROWS: Final = 64 * 10**6
"""Bytes by which it grows at least."""


class Growing(NamedTuple):
    """Memory that goes on growing within a step: a leak, or data that is kept."""

    per_second: float  # Bytes
    per_sample: float | None  # Bytes; None of a step that counts no samples
    grown: float  # Bytes since the step began
    left: float | None  # Seconds until the limit is reached; None without one, or after it


def growing(recording: Recording, each: PlacedStep) -> Growing | None:
    """Returns how memory goes on growing within a step; None if it does not."""
    name = LAUNCHER if LAUNCHER in recording.curves else each.run.process
    curve, seconds = recording.curves.get(name), each.duration
    if curve is None or seconds < _GROWTH_LASTS:
        return None
    begin = (curve.began_ns - recording.began_ns) / 1e9 - each.step.start
    growth = Growth()
    for bucket in curve.curve.buckets.values():
        level = bucket.levels.get("memory")
        if level is not None and 0 <= (at := begin + level.at / 1000) <= seconds:
            growth.add(round(1000 * at), level.lowest)
    line = growth.line()
    if line is None or line.now - line.start < _GROWS:
        return None
    rate, samples, most = 1000 * line.per_sample, each.step.samples, limit(recording)
    at_end = line.now + rate * (seconds - line.samples / 1000)
    room = most.value - at_end if most is not None else 0.0
    per_sample = rate * seconds / samples if samples else None
    return Growing(rate, per_sample, at_end - line.start, room / rate if room > 0 else None)


def _highest(values: Iterable[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)


# --- processors ---------------------------------------------------------------------------


def processors(recording: Recording) -> float | None:
    """Returns how many processors the program may use; None if that is not known."""
    every = (recording.origin, *(run.attributes for run in recording.runs))
    return min(filter(None, (number(each, semconv.CPU_LIMIT) for each in every)), default=None)
