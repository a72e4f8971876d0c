"""What a run does and has used so far: its open steps, its latest reading, and what each step has counted.

Nothing here has a lock: methods of :class:`Ongoing` are called with the recorder's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from traceback import walk_tb
from typing import Any, Final

from otel_quant.capture.garbage import COLLECTIONS
from otel_quant.capture.recorder.attributes import growth_of
from otel_quant.capture.recorder.observed_layers import ObservedLayers
from otel_quant.capture.recorder.peaks import PeakTracker, with_peaks
from otel_quant.capture.recorder.sinks import Sinks, SinkTokens
from otel_quant.capture.recorder.step_forecast import StallWatch, StepForecast
from otel_quant.diagnosis.headline import StepTimes
from otel_quant.schema.code_lines import Spot
from otel_quant.schema.dataclass import dataclass, field, replace
from otel_quant.schema.figures import TREE_MEMORY, Resource
from otel_quant.schema.readings import (
    AttributeValue,
    Counts,
    Forecast,
    GrowthForecast,
    LayerAccuracy,
    Peaks,
    Reading,
    StepInfo,
    StepProgress,
)

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
    sample_rss: int | None = None  # RSS as its newest sample began, in bytes
    # Attributes of the warnings that memory will not suffice, and of which devices they were
    warnings: dict[str, AttributeValue] = field(default_factory=dict)
    warned_of: set[str | None] = field(default_factory=set)
    watch: StallWatch = field(default_factory=StallWatch)  # Of the newest of its counts
    has_stalled: bool = False  # Whether that was so at the last reading
    stall: tuple[float, str] = (0.0, "")  # The longest time without progress, in seconds, and where
    closed: bool = False  # Whether its end has begun
    # Whether it ends when what contains it does, as nothing else may report its end
    ends_with_parent: bool = False
    # Then what returns the model whose forward passes it is made of: it fails by what these raise
    model: Callable[[], object] | None = None
    # The reading after the last of the calls that it is made of, while it waits for another: it is its end if none comes
    between: Reading | None = None
    # What the library has computed of layers, as many as are recorded, and how many there were
    layers: list[LayerAccuracy] = field(default_factory=list)
    measured: int = 0
    observed: ObservedLayers | None = None  # What reaches the layers that it calibrates
    # Nanoseconds that its thread had run when it was opened
    thread_ns: int = field(default_factory=time.thread_time_ns)
    collected: tuple[int, ...] = field(default_factory=lambda: COLLECTIONS.taken)  # Until then

    def outwards(self) -> Iterator[OpenStep]:
        """Yields this step, then the step that contains it, and so on to the outermost."""
        step: OpenStep | None = self
        while step is not None:
            yield step
            step = step.parent

    def own_failure(self, error: BaseException | None) -> BaseException | None:
        """Returns the failure of what contains it, if a forward pass of its model has raised that."""
        model = None if self.model is None else self.model()
        if error is None or model is None:
            return None
        frames = walk_tb(error.__traceback__)
        return error if any(at.f_locals.get("self") is model for at, _ in frames) else None

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

    def progress(self, clock_ns: int, still: float = 0.0) -> StepProgress:
        """Returns how far it is; it has been at one line for some seconds while nothing of the program ran."""
        forecast = self.forecast.result(clock_ns) if self.forecast is not None else Forecast()
        stalled = self.watch.stalled(clock_ns, self.counts.current.total, still)
        if stalled is not None:
            forecast = replace(forecast, time_left=None, stalled=stalled)
        findings = tuple(self.observed.so_far()) if self.observed is not None else ()
        return StepProgress(self.info, Counts(self.counts), forecast, findings)

    def new_stall(self, progress: StepProgress, spot: Spot | None) -> float | None:
        """Returns for how many seconds it has not moved, if that is far too long and was not before."""
        stalled = progress.forecast.stalled
        if stalled is not None and stalled > self.stall[0]:
            after = f" after {progress.counts}" if progress.counts else ""
            at = f", at {spot.waiting_words}" if spot is not None else ""
            self.stall = stalled, f"{after}{at}"
        was_known, self.has_stalled = self.has_stalled, stalled is not None
        return None if was_known else stalled

    def new_warnings(self, progress: StepProgress) -> Iterator[GrowthForecast]:
        """Yields the growths beyond a limit, each once."""
        for growth in progress.forecast.growths:
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
        self.ended: Reading | None = None  # At the end of the step that ended last
        self.whole: Period | None = None
        self.unreported: Period | None = None  # The part that a worker has not reported yet
        self._periods: tuple[Period, ...] = ()  # Both, once
        self.open: dict[int, OpenStep] = {}
        self.times = StepTimes()

    def begin(self, reading: Reading) -> None:
        """Begins the run with its first reading."""
        self.whole = self.unreported = Period(reading, PeakTracker(reading, self._with_peaks))
        self._periods, self.latest = (self.whole,), reading
        self._told_ns = reading.clock_ns

    def reported(self, reading: Reading) -> None:
        """Begins the part that the next report will cover with the last reading of this one."""
        self.unreported = Period(reading, PeakTracker(reading, self._with_peaks))
        self._periods = (*self._periods[:1], self.unreported)

    def begin_step(self, reading: Reading) -> PeakTracker:
        """Returns the tracker of a step that begins with a reading."""
        tracker = PeakTracker(reading, self._with_peaks)
        self.times.begin(reading.clock_ns)
        newest = self.fold(reading)
        if newest is not reading:
            tracker.fold(newest)
        return tracker

    def fold(self, reading: Reading) -> Reading:
        """Adds a reading to the peaks of the run and of the open steps; returns the newest one."""
        newest = self.latest
        if newest is None or reading.order >= newest.order:
            newest = self.latest = reading
        # Listed, as a step may end meanwhile: a generator is garbage-collected.
        steps = [step for step in self.open.values() if step.between is None]
        tracked: tuple[Period | OpenStep, ...] = (*self._periods, *steps)
        for each in tracked:
            each.tracker.fold(reading)
        return newest

    def time_step(self, step: OpenStep, end: Reading, peaks: Peaks) -> None:
        """Notes what a step that has ended took."""
        names = [each.info.label for each in step.outwards()][::-1]
        lasted_ns, peak = end.clock_ns - step.start.clock_ns, peaks.figures.get(TREE_MEMORY.name)
        self.times.end(names, lasted_ns, end.clock_ns, peak)

    def count_step(self, *, failed: bool) -> None:
        """Counts a step that has ended, at the latest reading."""
        self.ended = self.latest
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
                most = step.sample_rss if step.forecast.unit == "sample" else None
                step.forecast.add(done, reading, most)

    def progress(
        self, reading: Reading, still: Mapping[int, float]
    ) -> list[tuple[OpenStep, StepProgress]]:
        """Returns how far the open steps are at a reading that the sinks receive."""
        self._told_ns = now = reading.clock_ns
        every = self.open.values()
        return [(step, step.progress(now, still.get(step.info.index, 0.0))) for step in every]
