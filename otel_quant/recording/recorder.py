"""The recorder: one run of this process, from its first step to its end.

It opens and closes steps, takes readings from the probes, tracks peaks and passes checkpoints
to the sinks. It depends on no library and no file format.

Readings are taken and the program's metrics are called without the recorder's lock: a driver
that hangs in one thread, or a metric that waits for another thread, must not block the steps
of other threads. The lock is taken afterwards, to change the recorder's state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Final, TypeAlias

from otel_quant.fault_boundary import FAULTS
from otel_quant.forecast.step_forecast import StepForecast
from otel_quant.probes.readers import Probes
from otel_quant.probes.sampler import Sampler
from otel_quant.recording.peaks import PeakTracker, with_peaks
from otel_quant.recording.period import Period
from otel_quant.recording.program_metrics import ProgramMetrics, ProgramValues
from otel_quant.recording.sink import Sink
from otel_quant.recording.sinks import Sinks, SinkTokens
from otel_quant.records import (
    AttributeValue,
    Checkpoint,
    CostedModel,
    Peaks,
    Phase,
    Reading,
    RunInfo,
    RunProgress,
    StepInfo,
    StepProgress,
    StepRecord,
    error_type,
)
from otel_quant.steps import ALL_STEPS, ProfileStep


class UnfinishedStepError(Exception):
    """The error of a step that was still open when its run ended."""


class OpenStep:
    """A step that has begun and not ended. Made by :meth:`Recorder.open`.

    Attributes:
        info: Its description.
        recorder: The run that it belongs to.
        attributes: Attributes of its span; more may be added until the step closes.
        samples: Calibration samples consumed so far.
        items: Items in these samples; None if one of them did not tell.
        expected_samples: How many samples it will consume; None if that is not known.
        forecast: Where it will be after them; None if their number is not known.
    """

    __slots__ = (
        "_closed",
        "attributes",
        "expected_samples",
        "forecast",
        "info",
        "items",
        "parent",
        "recorder",
        "samples",
        "start",
        "tracker",
    )

    def __init__(
        self,
        recorder: Recorder,
        info: StepInfo,
        parent: OpenStep | None,
        start: Reading,
        attributes: Mapping[str, AttributeValue],
    ) -> None:
        self.recorder = recorder
        self.info = info
        self.parent = parent
        self.start = start
        self.attributes = dict(attributes)
        self.samples = 0
        self.items: int | None = 0
        self.expected_samples: int | None = None
        self.forecast: StepForecast | None = None
        self.tracker = recorder.tracker_from(start)
        self._closed = False

    def outwards(self) -> Iterator[OpenStep]:
        """Yields this step, then the step that contains it, and so on to the outermost."""
        step: OpenStep | None = self
        while step is not None:
            yield step
            step = step.parent


_LONGEST_WAIT: Final = 1.0
"""Seconds that the end of a run waits for the checkpoints of other threads: a driver may hang."""

_BETWEEN_PROGRESS: Final = 1_000_000_000
"""Nanoseconds between two reports of progress. With the sampler's longest pause the last one of a
run that is killed is less than 2 s old."""

Describe: TypeAlias = Callable[[RunInfo, Mapping[str, AttributeValue], int], RunInfo]

_CURRENT: Final[ContextVar[OpenStep | None]] = ContextVar("otel_quant_step", default=None)


class Recorder:
    """One run.

    No public method raises ``Exception`` (:mod:`otel_quant.fault_boundary`): a failure here must
    not affect the program that is measured.

    Args:
        info: Description of the run.
        probes: The probes that take the readings.
        sinks: The sinks that receive the run.
        metrics: Metrics that the program has added; None for none.
        sample_interval: Seconds between samples; 0 for no samples.
        exact_peaks: Whether the kernel's memory marks are lowered at each checkpoint.
        completed: Returns the description with what is known of it at the end.
        described: Adds what is known once the run begins: gets the description, the attributes
            of the step that begins it and the time in nanoseconds since the epoch.

    Attributes:
        info: Description of the run.
        latest: The newest reading; None before the run has begun.
        ended: Whether the run has ended.
    """

    def __init__(
        self,
        info: RunInfo,
        probes: Probes,
        sinks: Sequence[Sink],
        metrics: ProgramMetrics | None = None,
        *,
        sample_interval: float = 0.05,
        exact_peaks: bool = False,
        completed: Callable[[RunInfo], RunInfo] = lambda info: info,
        described: Describe = lambda info, attributes, time_ns: info,
    ) -> None:
        self.info = info
        self._completed = completed
        self._described = described
        self.latest: Reading | None = None
        self.ended = False
        self._ending = False
        self._probes = probes
        self._with_peaks = with_peaks(probes.resources)
        self._sinks = Sinks(sinks)
        self._values = ProgramValues(metrics)
        self._sampler = Sampler(self._sample, sample_interval)
        self._progress_told = 0  # monotonic clock of the last report, in nanoseconds
        self._exact_peaks = exact_peaks
        # Reentrant: a sink may call user code (an exporter, for example) that opens a step.
        self._lock = threading.RLock()
        # Reentrant: a signal handler may end the run while it is being ended.
        self._end_lock = threading.RLock()
        self._checkpoint_over = threading.Condition(self._lock)
        self._taking: list[int] = []  # threads that take a checkpoint now
        self._open: dict[int, OpenStep] = {}
        self._next_step = 0
        self._next_checkpoint = 0
        # The whole run, and the part since the last report. Equal except in workers.
        self._whole: Period | None = None
        self._unreported: Period | None = None

    # --- the run --------------------------------------------------------------------------

    @property
    def baseline(self) -> Reading | None:
        """The run's first reading; None before it has begun."""
        return self._whole.start if self._whole is not None else None

    @property
    def peaks(self) -> Peaks:
        """Highest figures of the run so far."""
        with self._lock:
            return self._whole.tracker.result() if self._whole is not None else Peaks()

    @property
    def idle(self) -> bool:
        """Whether no step is open."""
        return not self._open

    def reading_now(self) -> Reading:
        """Takes a reading between checkpoints, for metrics that show the run live."""
        return self._take(self._probes.read)

    def tracker_from(self, reading: Reading) -> PeakTracker:
        """Returns a tracker of the peaks since a reading."""
        return PeakTracker(reading, self._with_peaks)

    def start(self, attributes: Mapping[str, AttributeValue] | None = None) -> None:
        """Begins the run. Does nothing if it has begun.

        Args:
            attributes: Attributes of the step that begins it; None where no step does.
        """
        with FAULTS.kept_in("recorder"):
            with self._lock:  # another thread may just be sending the start to the sinks
                if self._whole is not None or self._ending:
                    return
            reading = self._probes.read()
            custom = self._values.at_checkpoint(ProfileStep.START, reading, reading)
            with self._lock:
                if self._whole is not None or self._ending:
                    return  # another thread or a signal handler has begun or ended the run
                self._whole = self._unreported = Period(reading, self.tracker_from(reading))
                self.info = self._described(self.info, attributes or {}, reading.time_ns)
                self.latest = reading
                checkpoint = self._checkpoint(ProfileStep.START, "start", reading, reading, custom)
                self._sinks.each(lambda sink: sink.run_started(self.info, checkpoint))
            self._lower_marks(reading)
            with self._lock:
                if not self._ending:
                    self._sampler.start()

    def end(self, error: str | None = None) -> None:
        """Ends the run; open steps are closed as unfinished. A second call does nothing.

        It waits for the checkpoints that other threads are taking, for a bounded time.

        Args:
            error: Class name of the exception that ended the run; None for no error.
        """
        with self._end_lock:
            with self._lock:
                if self.ended:
                    return
                self._ending = True
            self._sampler.stop()
            own = threading.get_ident()
            with self._checkpoint_over:
                self._checkpoint_over.wait_for(
                    lambda: all(thread == own for thread in self._taking), _LONGEST_WAIT
                )
                unfinished = sorted(self._open.values(), key=lambda step: -step.info.index)
            with FAULTS.kept_in("recorder"):
                for step in unfinished:
                    self.close(step, UnfinishedStepError("the run ended while the step was open"))
                self._end(error)
            self.ended = True

    def report(self) -> None:
        """Reports the steps since the last report to the sinks; the run continues.

        For workers between two tasks, which may be terminated at any time. Does nothing if no
        step has ended since then, or a step is open.
        """
        with FAULTS.kept_in("recorder"):
            ended_before = self._reportable_steps()
            if not ended_before:
                return
            reading = self._probes.read()
            with self._lock:
                whole, unreported = self._whole, self._unreported
                if whole is None or unreported is None or self._reportable_steps() != ended_before:
                    return  # the thread that has ended a step meanwhile reports it
                self._fold(reading)
                record = unreported.record(
                    self.info, reading, self._values.last(), whole.tracker.result()
                )
                self._unreported = Period(reading, self.tracker_from(reading))
                # Under the lock: the next step belongs to the next root span.
                self._sinks.each(lambda sink: sink.run_reported(record))

    def forget(self) -> None:
        """Drops the parent's run in a forked child, without writing or sending anything.

        The locks are replaced: they may be held by threads that do not exist in the child.
        """
        self.ended = self._ending = True
        self._lock = threading.RLock()
        self._end_lock = threading.RLock()
        self._checkpoint_over = threading.Condition(self._lock)
        self._open.clear()
        self._sinks.each(lambda sink: sink.forget())

    # --- steps ----------------------------------------------------------------------------

    def current(self) -> OpenStep | None:
        """Returns the innermost open step of the calling context."""
        step = _CURRENT.get()
        while step is not None and (step.recorder is not self or step._closed):
            step = step.parent
        return step

    def open(
        self,
        kind: str,
        *,
        label: str | None = None,
        library: str | None = None,
        library_version: str | None = None,
        function: str | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
        filled_in: bool = False,
    ) -> OpenStep | None:
        """Opens a step; its ``Start`` checkpoint has reached the sinks on return.

        Args:
            kind: A ``ProfileStep`` constant; any other name is a ``USER_DEFINED`` step's label.
            label: Name of the step; the kind if None.
            library: Distribution that the code belongs to.
            library_version: Its version.
            function: Qualified name of the function that is the step.
            attributes: Attributes of the step's span, by name.
            filled_in: Whether the library's own profiler does not report the step.

        Returns:
            The step, for :meth:`close`; None if it could not be opened.
        """
        with FAULTS.kept_in("recorder"):
            self.start(attributes)
            whole = self._whole
            if self.ended or whole is None:
                return None
            label = label if label is not None else kind
            name = f"{label} Start"
            parent = self.current()
            with _TakingCheckpoint(self):
                reading = self._probes.read()
                with self._lock:
                    if self._ending:
                        return None
                    info = StepInfo(
                        index=self._next_step,
                        label=label,
                        kind=kind if kind in ALL_STEPS else ProfileStep.USER_DEFINED,
                        parent=parent.info.index if parent else None,
                        library=library,
                        library_version=library_version,
                        function=function,
                        thread=threading.get_ident(),
                        filled_in=filled_in,
                    )
                    self._next_step += 1
                    step = OpenStep(self, info, parent, reading, attributes or {})
                    step.tracker.fold(self._fold(reading))
                    self._open[info.index] = step
                is_open = False
                try:
                    custom = self._values.at_checkpoint(name, reading, whole.start)
                    with self._lock:
                        checkpoint = self._checkpoint(
                            name, "start", reading, whole.start, custom, info
                        )
                    self._sinks.each(
                        lambda sink: sink.step_started(info, checkpoint, step.attributes)
                    )
                    is_open = True
                finally:
                    if not is_open:  # Ctrl-C: nobody gets the step, so nobody can close it
                        self._drop(step)
                self._lower_marks(reading)
            return step
        return None

    def close(self, step: OpenStep | None, error: BaseException | None = None) -> None:
        """Closes a step; its ``End`` checkpoint has reached the sinks on return.

        Args:
            step: The result of :meth:`open`.
            error: The exception that ended the step's code; None for no error.
        """
        if step is None:
            return
        with FAULTS.kept_in("recorder"):
            whole = self._whole
            with self._lock:
                if step._closed or self.ended or whole is None:
                    return
                step._closed = True
            name = f"{step.info.label} End"
            with _TakingCheckpoint(self):
                try:
                    reading = self._probes.read()
                except BaseException:  # Ctrl-C: the step has no end, but it is over
                    self._drop(step)
                    raise
                with self._lock:
                    self._fold(reading)
                    self._drop(step)
                    peaks = step.tracker.result()
                    for period in self._periods():
                        period.steps += 1
                        period.failed += error is not None
                custom = self._values.at_checkpoint(name, reading, whole.start)
                with self._lock:
                    if self.ended:
                        return  # the run did not wait any longer
                    checkpoint = self._checkpoint(
                        name,
                        "end",
                        reading,
                        whole.start,
                        custom,
                        step.info,
                        error_type(error) if error else None,
                    )
                    record = StepRecord(
                        info=step.info,
                        start=step.start,
                        end=reading,
                        peaks=peaks,
                        attributes=step.attributes,
                        samples=step.samples or None,
                        items=step.items or None,
                        custom=self._values.last(),
                        error=error,
                    )
                self._sinks.each_in_reverse(lambda sink: sink.step_ended(record, checkpoint))
                self._lower_marks(reading)

    def enter(self, step: OpenStep | None) -> Entered | None:
        """Makes a step the current one in the calling context.

        Args:
            step: The result of :meth:`open`.

        Returns:
            The argument for :meth:`leave`.
        """
        if step is None:
            return None
        return _CURRENT.set(step), self._sinks.enter(step.info)

    def leave(self, step: OpenStep | None, entered: Entered | None) -> None:
        """Undoes :meth:`enter`; does nothing in another context.

        Args:
            step: The step.
            entered: The result of :meth:`enter`.
        """
        if step is None or entered is None:
            return
        token, tokens = entered
        try:
            _CURRENT.reset(token)
        except ValueError:
            return  # a generator was garbage-collected in a context that never entered the step
        self._sinks.leave(step.info, tokens)

    def point(self, name: str) -> None:
        """Takes a checkpoint that is neither the start nor the end of a step.

        Args:
            name: Its name, as it will be shown.
        """
        with FAULTS.kept_in("recorder"):
            self.start()
            whole = self._whole
            if self._ending or whole is None:
                return
            current = self.current()
            with _TakingCheckpoint(self):
                reading = self._probes.read()
                custom = self._values.at_checkpoint(name, reading, whole.start)
                with self._lock:
                    if self.ended:
                        return  # the run did not wait any longer
                    self._fold(reading)
                    info = current.info if current else None
                    checkpoint = self._checkpoint(name, "point", reading, whole.start, custom, info)
                self._sinks.each(lambda sink: sink.point(checkpoint))
                self._lower_marks(reading)

    def count_in(self, step: OpenStep, attribute: str) -> None:
        """Adds one to an attribute of a step that is a count.

        Args:
            step: The step.
            attribute: Name of the attribute; it is 1 after the first call.
        """
        with self._lock:
            count = step.attributes.get(attribute, 0)
            assert isinstance(count, int)
            step.attributes[attribute] = count + 1

    def expect_samples(self, step: OpenStep, total: int) -> None:
        """Notes how many calibration samples a step will consume, the first time that it is told.

        Args:
            step: The step.
            total: Number of samples, if it consumes them all.
        """
        with self._lock:  # a second thread counts nothing before the sinks know of the total
            if step.expected_samples is None:
                step.expected_samples = total
                step.forecast = StepForecast(total, self.info.limits)
                self._sinks.each(lambda sink: sink.samples_expected(step.info, total))

    def count_samples(self, step: OpenStep, count: int = 1, *, items: int | None = None) -> None:
        """Counts calibration samples that a step has consumed.

        Args:
            step: The step.
            count: Number of further samples.
            items: Number of items in them; None if they do not tell.
        """
        with self._lock:
            step.samples += count
            step.items = None if items is None or step.items is None else step.items + items
        self._sinks.each(lambda sink: sink.samples_counted(step.info, count))

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """Passes the static cost of models to the sinks.

        Args:
            costs: One record for each model.
        """
        if self._whole is not None and not self.ended:
            self._sinks.each(lambda sink: sink.models_costed(costs))

    def add_sink(self, sink: Sink) -> None:
        """Adds a sink; it receives what happens from now on.

        Args:
            sink: The sink.
        """
        self._sinks.add(sink)

    # --- within -----------------------------------------------------------------------------

    def _end(self, error: str | None) -> None:
        whole = self._whole
        if whole is None:
            return
        reading = self._probes.read()
        custom = self._values.at_checkpoint(ProfileStep.END, reading, whole.start)
        with self._lock:
            self._fold(reading)
            checkpoint = self._checkpoint(ProfileStep.END, "end", reading, whole.start, custom)
            peaks = whole.tracker.result()
        at_end = self._values.at_end(reading, whole.start, peaks)
        info = self.info
        with FAULTS.kept_in("description of the run"):
            info = self._completed(info)
        with self._lock:
            if self.ended:
                return  # a signal handler has ended it
            self.ended = True
            period = self._unreported or whole
            custom = {**self._values.last(), **at_end}
            record = period.record(info, reading, custom, peaks, error)
        self._sinks.each_in_reverse(lambda sink: sink.run_ended(record, checkpoint))

    def _sample(self) -> None:
        with self._lock:
            whole = self._whole
        if whole is None:
            return
        latest = max(self._progress_told, whole.start.clock_ns)
        is_due = time.perf_counter_ns() - latest >= _BETWEEN_PROGRESS
        reading = self._take(lambda: self._probes.sample(totals=is_due))
        with self._lock:
            if self._ending:
                return
            for step in self._open.values():
                if step.forecast is not None and step.samples:
                    step.forecast.add(step.samples, reading)
        self._sinks.sampled(reading)
        if not is_due:
            return
        with self._lock:
            self._progress_told = reading.clock_ns
            progress = RunProgress(
                reading,
                whole.start,
                whole.tracker.result(),
                tuple(
                    StepProgress(
                        step.info,
                        step.samples or None,
                        step.expected_samples,
                        step.forecast.result(reading.clock_ns) if step.forecast else None,
                    )
                    for step in self._open.values()
                ),
            )
        self._sinks.each(lambda sink: sink.run_progressed(progress))

    def _take(self, read: Callable[[], Reading]) -> Reading:
        reading = read()
        with self._lock:
            if not self.ended:
                self._fold(reading)
        return reading

    def _fold(self, reading: Reading) -> Reading:
        """Adds a reading to the run's and the open steps' peaks; returns the newest reading."""
        newest = self.latest
        if newest is None or reading.order >= newest.order:
            newest = self.latest = reading
        for period in self._periods():
            period.tracker.fold(reading)
        for step in self._open.values():
            step.tracker.fold(reading)
        return newest

    def _drop(self, step: OpenStep) -> None:
        with self._lock:  # another thread may be going through the open steps
            self._open.pop(step.info.index, None)

    def _periods(self) -> tuple[Period, ...]:
        if self._whole is None or self._unreported is None:
            return ()
        if self._whole is self._unreported:
            return (self._whole,)
        return (self._whole, self._unreported)

    def _lower_marks(self, reading: Reading) -> None:
        if not self._exact_peaks:
            return
        # Under the lock, so that readings with the lowered marks are folded after these two.
        with FAULTS.kept_in("probe memory (exact mode)"), self._lock:
            # Memory is read again: a mark that rose since the reading would be lost.
            lowered = self._probes.lower_marks(reading)
            if lowered is None:
                return
            before, after = lowered
            trackers = [period.tracker for period in self._periods()]
            for tracker in (*trackers, *(step.tracker for step in self._open.values())):
                tracker.fold(before)
                tracker.marks_lowered(after)

    def _reportable_steps(self) -> int:
        """Returns how many steps a report would cover; 0 while it has to wait."""
        if self._open or self._taking or self._ending or self._unreported is None:
            return 0
        return self._unreported.steps

    def _checkpoint(
        self,
        name: str,
        phase: Phase,
        reading: Reading,
        baseline: Reading,
        custom: Mapping[str, object],
        step: StepInfo | None = None,
        error: str | None = None,
    ) -> Checkpoint:
        self._values.keep(custom, reading)
        checkpoint = Checkpoint(
            sequence=self._next_checkpoint,
            name=name,
            phase=phase,
            reading=reading,
            baseline=baseline,
            step=step,
            custom=custom,
            error=error,
        )
        self._next_checkpoint += 1
        return checkpoint


class _TakingCheckpoint:
    """Notes that the calling thread takes a checkpoint: the run does not end before it has.

    A class, not a generator, which would take several times as long.

    Args:
        recorder: The run.
    """

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        with self._recorder._lock:
            self._recorder._taking.append(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        recorder = self._recorder
        with recorder._lock:
            recorder._taking.remove(threading.get_ident())
            if recorder._ending:
                recorder._checkpoint_over.notify_all()


Entered = tuple[Token[OpenStep | None], SinkTokens]
