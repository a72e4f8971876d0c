"""The recorder: one run of this process, from its first step to its end.

It opens and closes steps, takes readings from the probes, tracks peaks and passes checkpoints
to the sinks. It depends on no library and no file format.

Readings are taken and the program's metrics are called without the recorder's lock: a driver
that hangs in one thread, or a metric that waits for another thread, must not block the steps
of other threads. The lock is taken afterwards, to change the recorder's state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from otel_quant.base.fault_boundary import FAULTS, error_type
from otel_quant.capture.forecast.step_forecast import StepForecast
from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.probes.sampler import Sampler
from otel_quant.capture.recorder.checkpoints import Checkpoints
from otel_quant.capture.recorder.checkpoints_under_way import CheckpointsUnderWay
from otel_quant.capture.recorder.ongoing_figures import OngoingFigures
from otel_quant.capture.recorder.open_step import OpenStep, current_step
from otel_quant.capture.recorder.program_metrics import ProgramMetrics
from otel_quant.capture.recorder.progress import Progress
from otel_quant.capture.recorder.sinks import Sinks
from otel_quant.schema.records import (
    AttributeValue,
    CostedModel,
    Peaks,
    Reading,
    RunInfo,
    StepInfo,
    StepRecord,
)
from otel_quant.schema.sink import Sink
from otel_quant.schema.step_names import ALL_STEPS, ProfileStep


class UnfinishedStepError(Exception):
    """The error of a step that was still open when its run ended."""


Describe: TypeAlias = Callable[[RunInfo, Mapping[str, AttributeValue], int], RunInfo]


class Recorder:
    """One run.

    No public method raises ``Exception`` (:mod:`otel_quant.base.fault_boundary`): a failure here must
    not affect the program that is measured.
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
        self.ended = False
        self._ending = False
        self._probes = probes
        self._sinks = Sinks(sinks)
        self._checkpoints = Checkpoints(metrics)
        self._sampler = Sampler(self._sample, sample_interval)
        self._exact_peaks = exact_peaks
        # Reentrant: a sink may call user code (an exporter, for example) that opens a step.
        self._lock = threading.RLock()
        # Reentrant: a signal handler may end the run while it is being ended.
        self._end_lock = threading.RLock()
        self._under_way = CheckpointsUnderWay(self._lock)
        self._figures = OngoingFigures(probes.resources)
        self._progress = Progress(self._figures)
        self._next_step = 0

    # --- the run --------------------------------------------------------------------------

    @property
    def latest(self) -> Reading | None:
        """The newest reading; None before the run has begun."""
        return self._figures.latest

    @property
    def baseline(self) -> Reading | None:
        """The run's first reading; None before it has begun."""
        whole = self._figures.whole
        return whole.start if whole is not None else None

    @property
    def peaks(self) -> Peaks:
        """Highest figures of the run so far."""
        with self._lock:
            whole = self._figures.whole
            return whole.tracker.result() if whole is not None else Peaks()

    @property
    def idle(self) -> bool:
        """Whether no step is open."""
        return not self._figures.open

    def reading_now(self) -> Reading:
        """Takes a reading between checkpoints, for metrics that show the run live."""
        return self._take(self._probes.read)

    def start(self, attributes: Mapping[str, AttributeValue] | None = None) -> None:
        """Begins the run. Does nothing if it has begun."""
        with FAULTS.kept_in("recorder"):
            with self._lock:  # another thread may just be sending the start to the sinks
                if self._figures.whole is not None or self._ending:
                    return
            reading = self._probes.read()
            custom = self._checkpoints.at_checkpoint(ProfileStep.START, reading, reading)
            with self._lock:
                if self._figures.whole is not None or self._ending:
                    return  # another thread or a signal handler has begun or ended the run
                self._figures.begin(reading)
                self.info = self._described(self.info, attributes or {}, reading.time_ns)
                checkpoint = self._checkpoints.make(
                    ProfileStep.START, "start", reading, reading, custom
                )
                self._sinks.each(lambda sink: sink.run_started(self.info, checkpoint))
            self._lower_marks(reading)
            with self._lock:
                if not self._ending:
                    self._sampler.start()

    def end(self, error: str | None = None) -> None:
        """Ends the run; open steps are closed as unfinished. A second call does nothing.

        It waits for the checkpoints that other threads are taking, for a bounded time.
        """
        with self._end_lock:
            with self._lock:
                if self.ended:
                    return
                self._ending = True
            self._sampler.stop()
            with self._lock:
                self._under_way.wait_for_others()
                unfinished = sorted(self._figures.open.values(), key=lambda step: -step.info.index)
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
                whole, unreported = self._figures.whole, self._figures.unreported
                if whole is None or unreported is None or self._reportable_steps() != ended_before:
                    return  # the thread that has ended a step meanwhile reports it
                self._figures.fold(reading)
                record = unreported.record(
                    self.info, reading, self._checkpoints.last(), whole.tracker.result()
                )
                self._figures.reported(reading)
                # Under the lock: the next step belongs to the next root span.
                self._sinks.each(lambda sink: sink.run_reported(record))

    def forget(self) -> None:
        """Drops the parent's run in a forked child, without writing or sending anything.

        The locks are replaced: they may be held by threads that do not exist in the child.
        """
        self.ended = self._ending = True
        self._lock = threading.RLock()
        self._end_lock = threading.RLock()
        self._under_way.use(self._lock)
        self._figures.open.clear()
        self._sinks.each(lambda sink: sink.forget())

    # --- steps ----------------------------------------------------------------------------

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
        """Opens a step; its ``Start`` checkpoint has reached the sinks on return."""
        with FAULTS.kept_in("recorder"):
            self.start(attributes)
            whole = self._figures.whole
            if self.ended or whole is None:
                return None
            label = label if label is not None else kind
            name = f"{label} Start"
            parent = current_step(self)
            with self._under_way:
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
                    its_attributes = dict(attributes or {})
                    tracker = self._figures.begin_step(reading)
                    step = OpenStep(
                        info, self, self._sinks, parent, reading, tracker, its_attributes
                    )
                    self._figures.open[info.index] = step
                is_open = False
                try:
                    custom = self._checkpoints.at_checkpoint(name, reading, whole.start)
                    with self._lock:
                        checkpoint = self._checkpoints.make(
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
        """Closes a step; its ``End`` checkpoint has reached the sinks on return."""
        if step is None:
            return
        with FAULTS.kept_in("recorder"):
            whole = self._figures.whole
            with self._lock:
                if step.closed or self.ended or whole is None:
                    return
                step.closed = True
            name = f"{step.info.label} End"
            with self._under_way:
                try:
                    reading = self._probes.read()
                except BaseException:  # Ctrl-C: the step has no end, but it is over
                    self._drop(step)
                    raise
                with self._lock:
                    self._figures.fold(reading)
                    self._drop(step)
                    peaks = step.tracker.result()
                    self._figures.count_step(failed=error is not None)
                custom = self._checkpoints.at_checkpoint(name, reading, whole.start)
                with self._lock:
                    if self.ended:
                        return  # the run did not wait any longer
                    checkpoint = self._checkpoints.make(
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
                        custom=self._checkpoints.last(),
                        error=error,
                    )
                self._sinks.each_in_reverse(lambda sink: sink.step_ended(record, checkpoint))
                self._lower_marks(reading)

    def point(self, name: str) -> None:
        """Takes a checkpoint that is neither the start nor the end of a step."""
        with FAULTS.kept_in("recorder"):
            self.start()
            whole = self._figures.whole
            if self._ending or whole is None:
                return
            current = current_step(self)
            with self._under_way:
                reading = self._probes.read()
                custom = self._checkpoints.at_checkpoint(name, reading, whole.start)
                with self._lock:
                    if self.ended:
                        return  # the run did not wait any longer
                    self._figures.fold(reading)
                    info = current.info if current else None
                    checkpoint = self._checkpoints.make(
                        name, "point", reading, whole.start, custom, info
                    )
                self._sinks.each(lambda sink: sink.point(checkpoint))
                self._lower_marks(reading)

    def count_in(self, step: OpenStep, attribute: str) -> None:
        """Adds one to an attribute of a step that is a count."""
        with self._lock:
            count = step.attributes.get(attribute, 0)
            assert isinstance(count, int)
            step.attributes[attribute] = count + 1

    def expect_samples(self, step: OpenStep, total: int) -> None:
        """Notes how many calibration samples a step will consume, the first time that it is told."""
        with self._lock:  # a second thread counts nothing before the sinks know of the total
            if step.expected_samples is None:
                step.expected_samples = total
                step.forecast = StepForecast(total, self.info.limits)
                self._sinks.each(lambda sink: sink.samples_expected(step.info, total))

    def count_sample(self, step: OpenStep, items: int | None) -> None:
        """Counts a calibration sample that a step has consumed."""
        with self._lock:
            step.samples += 1
            step.items = None if items is None or step.items is None else step.items + items
        self._sinks.each(lambda sink: sink.samples_counted(step.info, 1))

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """Passes the static cost of models to the sinks."""
        if self._figures.whole is not None and not self.ended:
            self._sinks.each(lambda sink: sink.models_costed(costs))

    def add_sink(self, sink: Sink) -> None:
        """Adds a sink; it receives what happens from now on."""
        self._sinks.add(sink)

    # --- within -----------------------------------------------------------------------------

    def _end(self, error: str | None) -> None:
        whole = self._figures.whole
        if whole is None:
            return
        reading = self._probes.read()
        custom = self._checkpoints.at_checkpoint(ProfileStep.END, reading, whole.start)
        with self._lock:
            self._figures.fold(reading)
            checkpoint = self._checkpoints.make(
                ProfileStep.END, "end", reading, whole.start, custom
            )
            peaks = whole.tracker.result()
        at_end = self._checkpoints.at_end(reading, whole.start, peaks)
        info = self.info
        with FAULTS.kept_in("description of the run"):
            info = self._completed(info)
        with self._lock:
            if self.ended:
                return  # a signal handler has ended it
            self.ended = True
            period = self._figures.unreported or whole
            custom = {**self._checkpoints.last(), **at_end}
            record = period.record(info, reading, custom, peaks, error)
        self._sinks.each_in_reverse(lambda sink: sink.run_ended(record, checkpoint))

    def _sample(self) -> None:
        is_due = self._progress.is_due()
        reading = self._probes.sample(totals=is_due)
        with self._lock:
            if not self.ended:
                self._figures.fold(reading)
            if self._ending:
                return
            self._progress.add(reading)
        self._sinks.sampled(reading)
        if is_due:
            with self._lock:
                progress = self._progress.report(reading)
            self._sinks.each(lambda sink: sink.run_progressed(progress))

    def _take(self, read: Callable[[], Reading]) -> Reading:
        reading = read()
        with self._lock:
            if not self.ended:
                self._figures.fold(reading)
        return reading

    def _drop(self, step: OpenStep) -> None:
        with self._lock:  # another thread may be going through the open steps
            self._figures.open.pop(step.info.index, None)

    def _lower_marks(self, reading: Reading) -> None:
        if not self._exact_peaks:
            return
        # Under the lock, so that readings with the lowered marks are folded after these two.
        with FAULTS.kept_in("probe memory (exact mode)"), self._lock:
            # Memory is read again: a mark that rose since the reading would be lost.
            lowered = self._probes.lower_marks(reading)
            if lowered is not None:
                self._figures.marks_lowered(*lowered)

    def _reportable_steps(self) -> int:
        """Returns how many steps a report would cover; 0 while it has to wait."""
        unreported = self._figures.unreported
        if self._figures.open or self._under_way or self._ending or unreported is None:
            return 0
        return unreported.steps
