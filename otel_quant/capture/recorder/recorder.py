"""The recorder: one run of this process. It depends on no library and no file format.

Readings are taken and the program's metrics are called without the recorder's lock: a driver
that hangs in one thread, or a metric that waits for another thread, must not block the steps
of other threads. The lock is taken afterwards, to change the recorder's state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.capture.early_stacks import EARLY_STACKS
from otel_quant.capture.probes.cache_directories import CACHE_DIRECTORIES
from otel_quant.capture.probes.gpu import GPUS
from otel_quant.capture.probes.memory import Taken, taken_now
from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.recorder.events import EventMaker
from otel_quant.capture.recorder.ongoing import Ongoing, OpenStep, current_step
from otel_quant.capture.recorder.run_info import completed
from otel_quant.capture.recorder.sinks import Sinks
from otel_quant.capture.recorder.step_forecast import StallWatch, StepForecast
from otel_quant.capture.sampler import SHARE, Sampler
from otel_quant.capture.stack_sampler import STACKS_SHARE, StackSampler
from otel_quant.diagnosis import calibration
from otel_quant.export.otel.service_name import described
from otel_quant.export.quark_yaml.columns import ProgramMetrics
from otel_quant.schema import readings, semconv
from otel_quant.schema.events import Event, Sink, present

_LONGEST_WAIT: Final = 1.0
"""Seconds that the end of a run waits for other threads: a driver may hang."""

_LOOKS: Final = 0.001  # Seconds between two looks whether they are done

_LONGEST_PAUSE: Final = 5_000_000_000
"""Nanoseconds without another call after which a step that is made of calls has ended."""

_NONE: Final = readings.Count()


class _UnderWay(list[int]):
    """Threads that take a checkpoint: a run does not end before they have. Without a lock: it changes in one operation."""

    def __enter__(self) -> int:
        self.append(thread := threading.get_ident())
        return thread

    def __exit__(self, *_: object) -> None:
        self.remove(threading.get_ident())


class UnfinishedStepError(Exception):
    """The error of a step that was still open when its run ended."""


class Recorder:
    """One run, from its first step to its end. No public method raises ``Exception``."""

    def __init__(
        self, info: readings.RunInfo, probes: Probes, sinks: Sequence[Sink],
        metrics: ProgramMetrics | None = None, *, sample_interval: float = 0.05,
        exact_peaks: bool = False, stacks: StackSampler | None = None,
    ) -> None:  # fmt: skip
        self.ended = self._ending = self._has_lost = False
        self.baseline: readings.Reading | None = None  # The run's first reading, once it has begun
        self.opened = 0  # How many steps were opened so far
        self._boundary = FAULTS.kept_in("recorder")
        self._probes = probes
        self._sinks = Sinks(sinks)
        self._events = EventMaker(probes.resources, metrics, stacks)
        self._events.run = info
        share = SHARE if stacks is None else SHARE + STACKS_SHARE
        self._sampler = Sampler(self._sample, sample_interval, share)
        self._exact_peaks = exact_peaks
        self._stacks = stacks
        # Reentrant: a sink may call user code (an exporter, for example) that opens a step.
        self._lock = threading.RLock()
        # Reentrant: a signal handler may end the run while it is being ended.
        self._end_lock = threading.RLock()
        self._under_way = _UnderWay()
        self._ongoing = Ongoing(probes.resources)

    # --- the run --------------------------------------------------------------------------

    @property
    def info(self) -> readings.RunInfo:
        """What is known of the run."""
        return self._events.run

    @property
    def latest(self) -> readings.Reading | None:
        """The newest reading; None before the run has begun."""
        return self._ongoing.latest

    def started(self, baseline: readings.Reading) -> Event:
        """Returns the event of the run's start, for a sink that is added later."""
        return self._events.run_started(self._events.at(readings.ProfileStep.START, baseline, {}))

    @property
    def peaks(self) -> readings.Peaks:
        """Highest figures of the run so far."""
        with self._lock:
            whole = self._ongoing.whole
            return whole.tracker.result() if whole is not None else readings.Peaks()

    @property
    def idle(self) -> bool:
        """Whether no step is open."""
        return not self._ongoing.open

    def reading_now(self) -> readings.Reading:
        """Takes a reading between checkpoints, for metrics that show the run live."""
        return self._folded(self._probes.read())

    def start(
        self,
        attributes: Mapping[str, readings.AttributeValue] | None = None,
        began: readings.Reading | None = None,
    ) -> None:
        """Begins the run, with a reading of now or an earlier one. Does nothing if it has begun."""
        with self._boundary:
            with self._lock:  # another thread may just be sending the start to the sinks
                if self._ongoing.whole is not None or self._ending:
                    return
            EARLY_STACKS.stop()
            reading = began or self._probes.read(lowers_marks=self._exact_peaks)
            custom = self._events.custom_at(readings.ProfileStep.START, reading, reading)
            with self._lock:
                if self._ongoing.whole is not None or self._ending:
                    return  # another thread or a signal handler has begun or ended the run
                self._ongoing.begin(reading)
                events = self._events
                events.run = described(events.run, attributes or {}, reading.time_ns)
                events.baseline = self.baseline = reading
                taken = events.take(readings.ProfileStep.START, reading, custom)
                self._sinks.send(events.run_started(taken))
            with self._lock:
                if not self._ending:
                    self._sampler.start()

    def end(self, error: BaseException | None = None) -> None:
        """Ends the run when other threads have taken their checkpoints; closes what is open as unfinished."""
        with self._end_lock:
            with self._lock:
                if self.ended:
                    return
                self._ending = True
            self._sampler.stop()
            own, ends = threading.get_ident(), time.monotonic() + _LONGEST_WAIT
            while any(each != own for each in self._under_way) and time.monotonic() < ends:
                time.sleep(_LOOKS)
            with self._lock:
                unfinished = sorted(self._ongoing.open.values(), key=lambda step: -step.info.index)
            with self._boundary:
                for step in unfinished:
                    why = UnfinishedStepError("the run ended while the step was open")
                    self.close(step, step.own_failure(error) if step.ends_with_parent else why)
                self._end(error)
            self.ended = True

    def report(self) -> None:
        """Reports the steps since the last report, if none is open: a worker may be terminated between two tasks."""
        with self._boundary:
            ended_before = self._reportable_steps()
            if not ended_before:
                return
            reading = self._probes.read()
            with self._lock:
                unreported = self._ongoing.unreported
                if unreported is None or self._reportable_steps() != ended_before:
                    return  # the thread that has ended a step meanwhile reports it
                self._ongoing.fold(reading)
                event = self._events.run_reported(unreported, reading)
                self._ongoing.reported(reading)
                # Under the lock: the next step belongs to the next root span.
                self._sinks.send(event)

    def forget(self) -> None:
        """Drops the parent's run in a forked child, without writing or sending anything."""
        self.ended = self._ending = True
        # They may be held by threads that do not exist in the child.
        self._lock = threading.RLock()
        self._end_lock = threading.RLock()
        self._ongoing.open.clear()
        self._sinks.forget()

    # --- steps ----------------------------------------------------------------------------

    def open(
        self, kind: str, *, label: str | None = None, library: str | None = None,
        library_version: str | None = None, function: str | None = None,
        attributes: Mapping[str, readings.AttributeValue] | None = None, filled_in: bool = False,
        began: readings.Reading | None = None,
    ) -> OpenStep | None:  # fmt: skip
        """Opens a step, now or at an earlier reading; its ``Start`` checkpoint has reached the sinks on return."""
        with self._boundary:
            if self._ongoing.whole is None:
                self.start(attributes, began)
            kind, label = str(kind), str(kind if label is None else label)
            if self.ended or self._ongoing.whole is None:
                self._tell_of_loss(label)
                return None
            attributes = dict(attributes or {})
            if (model := attributes.pop(semconv.MODEL_NAME, None)) is not None:
                self._events.name_model(model)
            parent, step = current_step(self), None
            for each in list(self._ongoing.open.values()):
                if each.between is not None and each.info.thread == threading.get_ident():
                    self.close(each)
            try:
                with self._under_way as thread:
                    reading = began or self._probes.read(lowers_marks=self._exact_peaks)
                    with self._lock:
                        if self._ending:
                            return None
                        is_known = kind in readings.ALL_STEPS
                        info = readings.StepInfo(
                            index=self.opened, label=label,
                            kind=kind if is_known else readings.ProfileStep.USER_DEFINED,
                            parent=parent.info.index if parent else None, library=library,
                            library_version=library_version, function=function, thread=thread,
                            filled_in=filled_in,
                        )  # fmt: skip
                        self.opened += 1
                        tracker = self._ongoing.begin_step(reading)
                        step = OpenStep(
                            info, self, self._sinks, parent, reading, tracker, attributes
                        )
                        self._ongoing.open[info.index] = step
                    if (taken := self._taken(f"{label} Start", reading)) is not None:
                        self._sinks.send(self._events.step_started(step, taken))
                        return step
            except BaseException:  # Ctrl-C: nobody can close what nobody gets
                if step is not None:
                    self._drop(step)
                raise
        return None

    def close(self, step: OpenStep | None, error: BaseException | None = None) -> None:
        """Closes a step; its ``End`` checkpoint has reached the sinks on return."""
        if step is None:
            return
        with self._boundary:
            with self._lock:
                if step.closed or self.ended:
                    return
                step.closed = True
                steps = self._ongoing.open.values()
                within = [each for each in steps if each.ends_with_parent and each.parent is step]
            for each in within:
                self.close(each, each.own_failure(error))
            try:
                with FAULTS.kept_in("what calibration has seen"):
                    self._end_calibration(step, is_over=error is None)
                with self._under_way:
                    reading = step.between or self._probes.read(lowers_marks=self._exact_peaks)
                    with self._lock:
                        self._ongoing.fold(reading)
                        self._ongoing.open.pop(step.info.index, None)
                        peaks = step.tracker.result()
                        self._ongoing.time_step(step, reading, peaks)
                        self._ongoing.count_step(failed=error is not None)
                    if (taken := self._taken(f"{step.info.label} End", reading)) is not None:
                        self._sinks.send(self._events.step_ended(step, peaks, error, taken))
            except BaseException:  # Ctrl-C: the step has no end, but it is over
                self._drop(step)
                raise

    def point(self, name: str) -> None:
        """Takes a checkpoint that is neither the start nor the end of a step."""
        with self._boundary:
            self.start()
            if self._ending or self._ongoing.whole is None:
                return
            current = current_step(self)
            with self._under_way:
                reading = self._folded(self._probes.read(lowers_marks=self._exact_peaks))
                if (taken := self._taken(str(name), reading)) is not None:
                    taken.step = current.info if current else None
                    self._sinks.send(taken)

    def expect(self, step: OpenStep, unit: str, total: int) -> None:
        """Notes how many layers a step goes through from now on, or how many samples, the first time that it is given."""
        with self._lock:  # a second thread counts nothing before the sinks know of the total
            if unit == "layer" or unit not in step.counts:
                if unit not in step.counts:
                    step.watch = StallWatch()
                step.counts.expect(unit, total)
                step.forecast = StepForecast(total, self.info.limits, unit)
                known = {"step": step.info, "counts": readings.Counts(step.counts)}
                self._sinks.send(self._events.bare("progress.expected", _now(), **known))

    def count(self, step: OpenStep, unit: str) -> None:
        """Counts a layer or a sample that a step has begun."""
        with self._lock:
            done, total = step.counts.get(unit, _NONE)
            step.counts[unit] = readings.Count(done + 1, total)
            if unit == step.counts.newest:
                step.watch.count(done + 1, time.perf_counter_ns())
        self._sinks.counted(step.info, unit, 1)

    def count_sample(
        self, step: OpenStep, items: int | None, reader: object = None, began: Taken | None = None
    ) -> None:
        """Counts a calibration sample that a step has consumed, of a reader that was called then."""
        taken = began or taken_now()
        with self._lock:
            step.sample_rss = None if taken is None else taken[1]
            step.items = None if items is None or step.items is None else step.items + items
        self.count(step, "sample")
        if self._stacks is not None and began is not None:
            self._stacks.add_reader(step, reader, began)

    def measure_layers(
        self, layers: Sequence[readings.LayerAccuracy], owners: Collection[str]
    ) -> None:
        """Notes what a library has computed of layers, for its innermost step; in a thread of its own, its newest."""
        around, now = current_step(self), _now()
        with self._lock:
            every = reversed(self._ongoing.open.values()) if around is None else around.outwards()
            step = next((each for each in every if each.info.library in owners), None)
            if step is None:
                return
            new = [
                layer._replace(number=number, time_ns=now[0])
                for number, layer in enumerate(layers, step.measured)
                if number < semconv.MOST_LAYERS
            ]
            step.layers += new
            step.measured += len(layers)
        for each in new:
            event = self._events.bare("layer.measured", now, step=step.info, layer=each)
            self._sinks.send(event)

    def models_costed(self, costs: Sequence[readings.CostedModel]) -> None:
        """Passes the static cost of models to the sinks."""
        if self._ongoing.whole is not None and not self.ended:
            self._sinks.send(self._events.models_costed(costs, _now()))

    def add_sink(self, sink: Sink) -> None:
        """Adds a sink; it receives what happens from now on."""
        self._sinks.add(sink)

    # --- within -----------------------------------------------------------------------------

    def _end(self, error: BaseException | None) -> None:
        whole = self._ongoing.whole
        if whole is None:
            return
        CACHE_DIRECTORIES.end_pause()
        GPUS.ask_for_energy()
        reading = self.reading_now()
        taken = self._taken(readings.ProfileStep.END, reading)
        of_run = self._events.custom_of_run(reading, self.peaks)
        info = self.info
        with FAULTS.kept_in("description of the run"):
            info = completed(info)
        with self._lock:
            if taken is None or self.ended:
                return  # a signal handler has ended it
            self.ended = True
            self._events.run = info
            unreported = self._ongoing.unreported or whole
        times = self._ongoing.times
        self._sinks.send(self._events.run_ended(whole, unreported, of_run, error, taken, times))

    def _tell_of_loss(self, label: str) -> None:
        if self._ongoing.whole is not None and not self._has_lost:
            self._has_lost = True
            LOG.warning(
                "step %r is not recorded: the program is ending, and its run has ended; expected "
                "functions with steps to be given to atexit after the first step",
                label,
            )

    def _end_calibration(self, step: OpenStep, *, is_over: bool) -> None:
        """Sends what has reached the layers of a calibration that ends, and notes what is wrong with it."""
        layers = step.observed.end() if step.observed is not None else []
        step.warnings |= calibration.attributes(layers, is_over=is_over)
        for layer in layers[: semconv.MOST_LAYERS]:
            known = {"name": layer.layer, "attributes": present(layer.attributes())}
            self._sinks.send(self._events.bare("layer.observed", _now(), step=step.info, **known))

    def _taken(self, name: str, reading: readings.Reading) -> Event | None:
        """Takes a checkpoint; None if the run has ended, which waits for other threads a second at most."""
        events = self._events
        custom = events.custom_at(name, reading, events.baseline)
        with self._lock:
            return None if self.ended else events.take(name, reading, custom)

    def _sample(self) -> None:
        if self._stacks is not None:
            self._stacks.look_at_gil()
            self._stacks.look_ahead(self._sampler.see_anywhere)
        is_due = self._ongoing.is_due()
        reading = self._folded(self._probes.sample(totals=is_due))
        with self._lock:
            if self._ending:
                return
            self._ongoing.add_to_forecasts(reading)
            every = self._ongoing.open.items()
            steps = {index: step for index, step in every if step.between is None}
        if self._stacks is not None:
            self._stacks.take(steps, reading, self.opened, self._ongoing.ended)
        self._sinks.sampled(reading)
        if is_due:
            self._end_of_calls(reading)
            self._tell_of(reading)

    def _end_of_calls(self, reading: readings.Reading) -> None:
        """Closes steps that are made of calls, of which none came for long, or whose thread has ended."""
        waiting = [each for each in list(self._ongoing.open.values()) if each.between is not None]
        threads = {each.ident for each in threading.enumerate()} if waiting else ()
        for each in waiting:
            last = each.between  # None if another call has begun
            if last is not None and (
                reading.clock_ns - last.clock_ns > _LONGEST_PAUSE or each.info.thread not in threads
            ):
                self.close(each)

    def _tell_of(self, reading: readings.Reading) -> None:
        """Sends a reading, without the lock, and which forecasts it makes worth a warning."""
        lines = self._stacks.newest if self._stacks is not None else {}
        still = self._stacks.still(reading) if self._stacks is not None else {}
        with self._lock:
            steps = self._ongoing.progress(reading, still)
            warnings = [
                self._events.forecast_stalled(progress, stall, spot, reading)
                for step, progress in steps
                for spot in (lines.get(step.info.index),)
                if (stall := step.new_stall(progress, spot)) is not None
            ]
            warnings += [
                self._events.forecast_exceeded(progress, growth, reading)
                for step, progress in steps
                for growth in step.new_warnings(progress)
            ]
        for event in warnings:
            LOG.warning("%s", event.name)
            self._sinks.send(event)
        told = tuple(progress for _, progress in steps)
        self._sinks.send(self._events.reading_taken(reading, self.peaks, told, lines))

    def _drop(self, step: OpenStep) -> None:
        with self._lock:  # another thread may be going through the open steps
            if self._ongoing.open.pop(step.info.index, None) is not None:
                self._ongoing.times.drop()

    def _folded(self, reading: readings.Reading) -> readings.Reading:
        with self._lock:
            if not self.ended:
                self._ongoing.fold(reading)
        return reading

    def _reportable_steps(self) -> int:
        """Returns how many steps a report would cover; 0 while it has to wait."""
        unreported = self._ongoing.unreported
        if self._ongoing.open or self._under_way or self._ending or unreported is None:
            return 0
        return unreported.steps


def _now() -> tuple[int, int]:
    """Returns the wall clock and the monotonic clock."""
    return time.time_ns(), time.perf_counter_ns()
