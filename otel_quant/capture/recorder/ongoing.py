"""What a run does and has used so far: its sinks, its open steps, and the highest figures of each.

A peak is exact (``kernel``: a mark rose) or what was seen (``sampled``). The kernel remembers the peak of each
process and not when it was, so the peak of a process tree is the kernel's only if there was no child during the
step. A child's mark counts only above every mark of this process: the kernel charges a child with the memory of
the image that it was forked from.

Nothing here has a lock: methods of :class:`Ongoing` are called with the recorder's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.recorder.attributes import growth_of
from otel_quant.diagnosis.growth import Growth
from otel_quant.schema.events import EVENTS, Event, Sink, method_of
from otel_quant.schema.figures import MEMORY, TREE_MEMORY, Figure, Number, Resource
from otel_quant.schema.readings import (
    AttributeValue,
    Counts,
    Forecast,
    GrowthForecast,
    LayerAccuracy,
    Limits,
    MemoryReading,
    Peaks,
    PeakSource,
    Reading,
    StepInfo,
    StepProgress,
)

_MEMORY: Final = TREE_MEMORY.name


_Tracked = Mapping[str, tuple[tuple[Figure, ...], tuple[Figure, ...]]]
"""By the name of a resource: its figures that have a peak, and its devices' figures."""


def with_peaks(resources: Sequence[Resource]) -> _Tracked:
    """Returns the resources that have peaks beside memory, which is tracked in its own way."""
    found = {each.name: (_peaks(each.figures), _peaks(each.device_figures)) for each in resources}
    return {
        name: tracked for name, tracked in found.items() if name != MEMORY.name and any(tracked)
    }


def _peaks(figures: Sequence[Figure]) -> tuple[Figure, ...]:
    return tuple(figure for figure in figures if "peak" in figure.parts)


class PeakTracker:
    """Tracks the peaks of a step or of the run.

    A kernel's mark that rose between two readings is an exact peak of that process. If the
    process had no descendants meanwhile, it is the tree's peak too. Else the tree may have used
    more at another moment, and the memory of the *other* processes at this one is known only if
    the process still uses as much as its mark. Otherwise the smaller of their memory at the two
    readings is added. The sum counts as what was seen, like a sample.

    Several threads take readings, so an older reading may be folded after a newer one. Its
    memory in use counts; its marks do not, because they would seem to rise at the next reading.
    """

    def __init__(self, first: Reading, tracked: _Tracked) -> None:
        self._tracked = tracked
        self._first, self._latest = first.order, first.order
        self._process = self._sampled = self._by_marks = 0  # bytes; 0 for unknown
        self._had_descendants = False
        self._previous: MemoryReading | None = None
        self._marks_are_own = False  # They were lowered since the step began
        self._highest: dict[str, Number] = {}
        self._devices: dict[str, dict[int, dict[str, Number]]] = {}
        self.fold(first)

    def fold(self, reading: Reading) -> None:
        """Takes one more reading into account; ignores one that is older than the first."""
        _, _, resources, order = reading
        if order < self._first:
            return
        is_late = order < self._latest
        if not is_late:
            self._latest = order
        memory = resources.get(MEMORY.name)
        if memory is not None:
            if memory.tree_rss > self._sampled:
                self._sampled = memory.tree_rss
            if memory.rss > self._process:
                self._process = memory.rss
            if not is_late and not memory.is_brief:
                self._fold_marks(self._previous or memory, memory)
                self._previous = memory
        for name, (figures, device_figures) in self._tracked.items():
            if (record := resources.get(name)) is None:
                continue
            _raise(self._highest, figures, record)
            if device_figures:
                devices = self._devices.setdefault(name, {})
                for device in record:
                    _raise(devices.setdefault(device.index, {}), device_figures, device)

    def marks_lowered(self, reading: Reading) -> None:
        """Notes that the kernel's memory marks have been lowered to the memory in use now."""
        self._latest = reading.order
        self._marks_are_own = True
        self._previous = reading.memory

    def result(self) -> Peaks:
        """Returns the peaks so far."""
        figures: dict[str, Number] = dict(self._highest)
        sources: dict[str, PeakSource] = {}
        if self._sampled:
            is_exact = self._by_marks >= self._sampled and not self._had_descendants
            figures[_MEMORY] = max(self._by_marks, self._sampled)
            sources[_MEMORY] = "kernel" if is_exact else "sampled"
        devices = {
            name: {index: dict(highest) for index, highest in found.items()}
            for name, found in self._devices.items()
        }
        return Peaks(figures, sources, devices, self._process or None)

    def _fold_marks(self, before: MemoryReading, now: MemoryReading) -> None:
        if now.reaped_faults is None or now.reaped_faults != before.reaped_faults:
            self._had_descendants = True
        mark, mark_before = now.high_water, before.high_water
        # After a reset within the step, the mark belongs to the step even if it did not rise.
        if mark is not None and (
            self._marks_are_own or (mark_before is not None and mark > mark_before)
        ):
            self._add(mark, now.rss, before.tree_rss - before.rss, now.tree_rss - now.rss)
            self._process = max(self._process, mark)
        if before is now:
            return
        if now.children:
            marks = {pid: mark for pid, _, mark in before.children}
            for pid, rss, mark in now.children:
                if mark is not None and mark > (marks.get(pid) or 0):
                    rss_before = sum(each[1] for each in before.children if each[0] == pid)
                    self._add(mark, rss, before.tree_rss - rss_before, now.tree_rss - rss)
        # Of descendants that started and exited between two readings:
        mark = now.reaped_high_water
        if mark is not None and mark > (before.reaped_high_water or 0):
            self._add(mark, 0, before.rss, now.rss)

    def _add(self, mark: int, rss: int, others_before: int, others_now: int) -> None:
        others = others_now if rss >= mark else min(others_before, others_now)
        self._by_marks = max(self._by_marks, mark + others)


def _raise(highest: dict[str, Number], figures: Sequence[Figure], record: Any) -> None:
    for figure in figures:
        value = figure.of(record)
        if value is not None and value >= highest.get(figure.name, value):
            highest[figure.name] = value


# --- where an open step will be at its end ------------------------------------------------

_SEEN: Final = 0.35
"""Part of the growth up to the limit that has to be seen before a warning. A leak that reaches the
limit after an hour is reported after 21 minutes; saw teeth that take less of the room are not reported
in their first tooth."""

_MOST_TIMES: Final = 256
"""Readings that the pace is taken from, the newest."""

_STALL_NS: Final = 20_000_000_000
_STALL_TIMES: Final = 10
"""A step has stalled if no sample or layer came for both: this long, and so many times as long as the longest so far took."""

_Key: TypeAlias = tuple[Literal["memory", "gpu"], str | None]


class StepForecast:
    """Follows the samples or the layers of one step."""

    def __init__(self, expected: int, limits: Limits, unit: str = "sample") -> None:
        self.unit = unit
        self._expected = expected
        self._limits = limits
        self._growths: dict[_Key, Growth] = {}
        self._limit_of: dict[_Key, int] = {}
        self._warned: set[_Key] = set()
        self._samples = 0
        self._times: deque[tuple[int, int]] = deque(maxlen=_MOST_TIMES)  # samples, monotonic ns
        self._longest_ns = 0  # Between two of them

    def add(self, samples: int, reading: Reading) -> None:
        """Adds a reading."""
        if samples > self._samples:
            self._samples = samples
            if self._times:
                self._longest_ns = max(self._longest_ns, reading.clock_ns - self._times[-1][1])
            self._times.append((samples, reading.clock_ns))
        if reading.memory is not None and self._limits.memory is not None:
            self._add(("memory", None), samples, reading.memory.tree_rss, self._limits.memory)
        for gpu in reading.gpus:
            if gpu.limit is not None:
                self._add(("gpu", gpu.id), samples, gpu.used, gpu.limit)

    def result(self, clock_ns: int) -> Forecast:
        """Returns the forecast."""
        forecasts = (self._growth(key) for key in self._growths)
        growths, stalled = tuple(each for each in forecasts if each), self._stalled(clock_ns)
        return Forecast(self._time_left(clock_ns) if stalled is None else None, growths, stalled)

    def _add(self, key: _Key, samples: int, value: int, limit: int) -> None:
        if key not in self._growths:
            self._growths[key] = Growth()
        self._limit_of[key] = limit
        self._growths[key].add(samples, value)

    def _growth(self, key: _Key) -> GrowthForecast | None:
        line = self._growths[key].line()
        if line is None:
            return None
        limit = self._limit_of[key]
        at_end = line.now + line.per_sample * max(0, self._expected - line.samples)
        if at_end > limit and line.now - line.start >= _SEEN * (limit - line.start):
            self._warned.add(key)
        return GrowthForecast(
            key[0],
            round(at_end),
            round(line.per_sample),
            limit,
            key[1],
            key in self._warned,
            self.unit,
        )

    def _stalled(self, clock_ns: int) -> float | None:
        # After the last one none is waited for.
        if len(self._times) < 3 or self._samples >= self._expected:
            return None
        silent_ns = clock_ns - self._times[-1][1]
        is_long = silent_ns > max(_STALL_NS, _STALL_TIMES * self._longest_ns)
        return silent_ns / 1e9 if is_long else None

    def _time_left(self, clock_ns: int) -> float | None:
        left = self._expected - self._samples
        left += left >= 0 and self.unit == "layer"  # most of a step's time may be in its last layer
        if len(self._times) < 2 or left < 0:
            return None
        # The first half may hold what is done once: sessions, compilation.
        samples, started_ns = self._times[len(self._times) // 2 if len(self._times) > 3 else 0]
        newest, seen_ns = self._times[-1]
        if newest == samples:
            return None
        per_sample = (seen_ns - started_ns) / (newest - samples)
        return max(0.0, (left * per_sample - (clock_ns - seen_ns)) / 1e9)


# --- sinks and steps ----------------------------------------------------------------------

_Receive: TypeAlias = Callable[..., Any]
"""A method of a sink, within the boundary of that sink: a failure of one is logged, and the others go on."""

SinkTokens: TypeAlias = list[tuple[_Receive, Token[Any] | None]]
"""What leaves a step that a sink has entered, and what it needs."""


class Sinks:
    """The sinks of a run; each is called only with what it handles."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks: tuple[Sink, ...] = ()
        self.add(*sinks)

    def add(self, *sinks: Sink) -> None:
        """Adds sinks, which receive what happens from now on."""
        self._sinks = (*self._sinks, *sinks)
        self._receivers = {kind: self._receivers_of(kind) for kind in EVENTS}
        self._counters = self._that_override("counted")
        self._samplers = self._that_override("sampled")
        self._entering = [
            (_within(sink, sink.step_entered), _within(sink, sink.step_left))
            for sink in self._sinks
            if type(sink).step_entered is not Sink.step_entered
        ]

    def send(self, event: Event) -> None:
        """Sends an event."""
        FAULTS.call_each("sink", self._receivers[event.kind], event)

    def counted(self, step: StepInfo, unit: str, count: int) -> None:
        """Sends that a step has begun samples or layers."""
        for receive in self._counters:
            receive(step, unit, count)

    def sampled(self, reading: Reading) -> None:
        """Sends a sample."""
        for receive in self._samplers:
            receive(reading)

    def forget(self) -> None:
        """Has all drop the run."""
        for sink in self._sinks:
            _within(sink, sink.forget)()

    def enter(self, step: StepInfo) -> SinkTokens:
        """Enters a step in the calling context; returns what :meth:`leave` needs."""
        return [(leave, enter(step)) for enter, leave in self._entering]

    def leave(self, step: StepInfo, tokens: SinkTokens) -> None:
        """Leaves a step in the calling context."""
        for leave, token in reversed(tokens):
            leave(step, token)

    def _receivers_of(self, kind: str) -> list[tuple[str, _Receive]]:
        name = method_of(kind)
        found = []
        for sink in self._sinks:
            if type(sink).receive is not Sink.receive:
                found.append((sink.name, sink.receive))
            elif hasattr(sink, name):
                found.append((sink.name, getattr(sink, name)))
        # The spans sink is first, so it ends the span after the metrics and logs that refer to it
        # have been written.
        return found[::-1] if kind in ("step.ended", "run.ended") else found

    def _that_override(self, name: str) -> list[_Receive]:
        return [
            _within(sink, getattr(sink, name))
            for sink in self._sinks
            if getattr(type(sink), name) is not getattr(Sink, name)
        ]


def _within(sink: Sink, method: _Receive) -> _Receive:
    return FAULTS.kept_in(f"sink {sink.name}").around(method)


_BETWEEN: Final = 1_000_000_000
"""Nanoseconds between two readings that the sinks receive. With the sampler's longest pause the
last one of a run that is killed is less than 2 s old."""


@dataclass(slots=True, eq=False)
class OpenStep:
    """A step that has begun and not ended. Made by ``Recorder.open``."""

    info: StepInfo
    recorder: Any  # The Recorder that has opened it, which imports this module
    sinks: Sinks  # The sinks of that run
    parent: OpenStep | None  # The step that contains it; None for an outermost one
    start: Reading  # The reading at its start
    tracker: PeakTracker  # Its peaks
    # Attributes of its span; more may be added until the step closes
    attributes: dict[str, AttributeValue]
    counts: Counts = field(default_factory=Counts)  # Samples and layers begun so far
    items: int | None = 0  # Items in these samples; None if one of them did not tell
    # Where it will be after the newest of its counts; None if there is no total
    forecast: StepForecast | None = None
    # Attributes of the warnings that memory will not suffice, and of which devices they were
    warnings: dict[str, AttributeValue] = field(default_factory=dict)
    warned_of: set[str | None] = field(default_factory=set)
    has_stalled: bool = False  # Whether that was so at the last reading
    closed: bool = False  # Whether its end has begun
    # Whether it ends when what contains it does, without a failure: nothing else may report its end
    ends_with_parent: bool = False
    # What the library has computed of layers, as many as are recorded, and how many there were
    layers: list[LayerAccuracy] = field(default_factory=list)
    measured: int = 0
    # Nanoseconds that its thread had run when it was opened
    thread_ns: int = field(default_factory=time.thread_time_ns)

    def outwards(self) -> Iterator[OpenStep]:
        """Yields this step, then the step that contains it, and so on to the outermost."""
        step: OpenStep | None = self
        while step is not None:
            yield step
            step = step.parent

    def enter(self) -> Entered:
        """Makes it the current step of the calling context; returns what :meth:`leave` needs."""
        return _CURRENT.set(self), self.sinks.enter(self.info)

    def leave(self, entered: Entered) -> None:
        """Undoes :meth:`enter`; does nothing in another context."""
        token, tokens = entered
        try:
            _CURRENT.reset(token)
        except ValueError:
            return  # a generator was garbage-collected in a context that never entered the step
        self.sinks.leave(self.info, tokens)

    def progress(self, clock_ns: int) -> StepProgress:
        """Returns how far it is."""
        return StepProgress(
            self.info,
            Counts(self.counts),
            self.forecast.result(clock_ns) if self.forecast else None,
        )

    def new_stall(self, progress: StepProgress) -> float | None:
        """Returns for how many seconds it has waited for a sample or layer, if that is far too long and was not before."""
        stalled = progress.forecast.stalled if progress.forecast is not None else None
        was_known, self.has_stalled = self.has_stalled, stalled is not None
        return None if was_known else stalled

    def new_warnings(self, progress: StepProgress) -> Iterator[GrowthForecast]:
        """Yields the growths beyond a limit, each once."""
        for growth in progress.forecast.growths if progress.forecast is not None else ():
            if growth.is_warning and growth.device not in self.warned_of:
                self.warned_of.add(growth.device)
                self.warnings |= growth_of(growth)
                yield growth


Entered = tuple[Token[OpenStep | None], SinkTokens]
"""What is needed to leave a step that was entered."""

_CURRENT: Final[ContextVar[OpenStep | None]] = ContextVar("otel_quant_step", default=None)


def current_step(recorder: object) -> OpenStep | None:
    """Returns the innermost open step of the calling context."""
    step = _CURRENT.get()
    while step is not None and (step.recorder is not recorder or step.closed):
        step = step.parent
    return step


@dataclass(slots=True)
class Period:
    """The run, or a part of it, since a reading."""

    start: Reading
    tracker: PeakTracker  # Peaks since then
    steps: int = 0  # Number of steps that ended
    failed: int = 0  # Number of steps that ended with an error


class Ongoing:
    """Passes each reading to all that tracks peaks and growth."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._with_peaks = with_peaks(resources)
        self._told_ns = 0  # monotonic clock of the last reading that the sinks received
        self.latest: Reading | None = None
        self.whole: Period | None = None
        self.unreported: Period | None = None  # The part that a worker has not reported yet
        self._periods: tuple[Period, ...] = ()  # Both, once
        self.open: dict[int, OpenStep] = {}

    def begin(self, reading: Reading) -> None:
        """Begins the run with its first reading."""
        self.whole = self.unreported = Period(reading, PeakTracker(reading, self._with_peaks))
        self._periods = (self.whole,)
        self.latest = reading
        self._told_ns = reading.clock_ns

    def reported(self, reading: Reading) -> None:
        """Begins the part that the next report will cover with the last reading of this one."""
        self.unreported = Period(reading, PeakTracker(reading, self._with_peaks))
        self._periods = (*self._periods[:1], self.unreported)

    def begin_step(self, reading: Reading) -> PeakTracker:
        """Returns the tracker of a step that begins with a reading."""
        tracker = PeakTracker(reading, self._with_peaks)
        newest = self.fold(reading)
        if newest is not reading:
            tracker.fold(newest)
        return tracker

    def fold(self, reading: Reading) -> Reading:
        """Adds a reading to the peaks of the run and of the open steps; returns the newest one."""
        newest = self.latest
        if newest is None or reading.order >= newest.order:
            newest = self.latest = reading
        for tracked in self._tracked():
            tracked.tracker.fold(reading)
        return newest

    def marks_lowered(self, before: Reading, after: Reading) -> None:
        """Notes that the kernel's memory marks have been lowered to the memory in use now."""
        for tracked in self._tracked():
            tracked.tracker.fold(before)
            tracked.tracker.marks_lowered(after)

    def count_step(self, *, failed: bool) -> None:
        """Counts a step that has ended."""
        for period in self._periods:
            period.steps += 1
            period.failed += failed

    def is_due(self) -> bool:
        """Returns whether the sinks are to receive the next sample."""
        return time.perf_counter_ns() - self._told_ns >= _BETWEEN

    def add_to_forecasts(self, reading: Reading) -> None:
        """Adds a sample to the forecasts of the open steps."""
        for step in self.open.values():
            if step.forecast is not None and (done := step.counts[step.forecast.unit].done):
                step.forecast.add(done, reading)

    def progress(self, reading: Reading) -> list[tuple[OpenStep, StepProgress]]:
        """Returns how far the open steps are at a reading that the sinks receive."""
        self._told_ns = reading.clock_ns
        return [(step, step.progress(reading.clock_ns)) for step in self.open.values()]

    def _tracked(self) -> tuple[Period | OpenStep, ...]:
        return (*self._periods, *self.open.values())
