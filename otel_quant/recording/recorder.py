"""The recorder: one run of this process, from its first step to its end.

It opens and closes steps, asks the probes for readings, follows peaks and hands
checkpoints to the sinks. It knows no library and no format.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from typing import Any, Final

from otel_quant.fault_boundary import FAULTS
from otel_quant.probes.limits import read_limits
from otel_quant.probes.memory import reset_high_water
from otel_quant.probes.readers import Probes
from otel_quant.probes.sampler import Sampler
from otel_quant.profile.columns import Columns
from otel_quant.recording.peaks import PeakTracker
from otel_quant.recording.sink import Sink
from otel_quant.records import (
    AttributeValue,
    Checkpoint,
    CostedModel,
    Phase,
    Reading,
    RunInfo,
    RunRecord,
    StepInfo,
    StepRecord,
    error_type,
)
from otel_quant.steps import ProfileStep


class UnfinishedStepError(Exception):
    """What ended a step that was still open when its run ended."""


class OpenStep:
    """A step that has begun and not ended. Made by :meth:`Recorder.open`.

    Attributes:
        info: What it is.
        recorder: The run that it belongs to.
        attributes: Arguments worth knowing; may be added to until the step closes.
        samples: Calibration samples consumed so far.
    """

    __slots__ = (
        "_closed",
        "attributes",
        "info",
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
        self.tracker = PeakTracker(start)
        self._closed = False

    def outwards(self) -> Iterator[OpenStep]:
        """Yields this step, the one around it, and so on outwards."""
        step: OpenStep | None = self
        while step is not None:
            yield step
            step = step.parent


@dataclass(slots=True)
class _Stretch:
    """What happened since a reading.

    Attributes:
        start: The reading.
        tracker: Peaks since then.
        steps: Steps that ended.
        failed: Those of them that failed.
    """

    start: Reading
    tracker: PeakTracker
    steps: int = 0
    failed: int = 0

    def record(
        self, info: RunInfo, end: Reading, custom: Mapping[str, object], **fields: Any
    ) -> RunRecord:
        """Returns the record of the stretch up to a reading."""
        return RunRecord(
            info=info,
            start=self.start,
            end=end,
            peaks=self.tracker.result(),
            steps=self.steps,
            failed_steps=self.failed,
            custom=custom,
            **fields,
        )


_CURRENT: Final[ContextVar[OpenStep | None]] = ContextVar("otel_quant_step", default=None)


class Recorder:
    """One run.

    Every public method keeps its own failures in (:mod:`otel_quant.fault_boundary`): whatever
    goes wrong here, the program that is being measured does not notice.

    Args:
        info: What the run is.
        probes: What is measured.
        sinks: Who is told.
        columns: Metrics of the local file, custom ones included.
        sample_interval: Seconds between samples; 0 for none.
        exact_peaks: Whether the kernel's memory marks are reset at each checkpoint.
    """

    def __init__(
        self,
        info: RunInfo,
        probes: Probes,
        sinks: Sequence[Sink],
        columns: Columns,
        *,
        sample_interval: float = 0.05,
        exact_peaks: bool = False,
    ) -> None:
        self.info = info
        self.columns = columns
        self.latest: Reading | None = None
        self.ended = False
        self._begun = False
        self._probes = probes
        self._sinks = tuple(sinks)
        self._sampler = Sampler(self._sample, sample_interval)
        self._exact_peaks = exact_peaks
        # Reentrant: what a sink calls (a user's exporter, say) may open a step.
        self._lock = threading.RLock()
        self._open: dict[int, OpenStep] = {}
        self._folds = 0
        self._next_step = 0
        self._next_checkpoint = 0
        self._last_custom: dict[str, object] = {}
        # All of the run, and what of it no root span has told yet; the same but in workers.
        self._whole: _Stretch | None = None
        self._untold: _Stretch | None = None

    # --- the run --------------------------------------------------------------------------

    @property
    def baseline(self) -> Reading | None:
        """The run's first reading; None before it has begun."""
        return self._whole.start if self._whole is not None else None

    @property
    def idle(self) -> bool:
        """Whether no step is open."""
        return not self._open

    def reading_now(self) -> Reading:
        """Takes a reading between checkpoints, for whoever shows the run live."""
        return self._observe(self._probes.read)

    def start(self) -> None:
        """Begins the run. Does nothing if it has begun."""
        with self._lock, FAULTS.kept_in("recorder"):
            if self._begun or self.ended:
                return
            self._begun = True  # at once: a signal handler may get here meanwhile
            reading = self.latest = self._probes.read()
            self._whole = self._untold = _Stretch(reading, PeakTracker(reading))
            checkpoint = self._checkpoint(ProfileStep.START, "start", reading)
            self._tell("run_started", self.info, checkpoint)
            self._reset_marks(reading)
            self._sampler.start()

    def end(self, error: str | None = None) -> None:
        """Ends the run; steps that are open are closed as unfinished. Idempotent.

        Args:
            error: Class name of the exception that ends it, None if it ends well.
        """
        self._sampler.stop()  # without the lock, which its last sample may be waiting for
        with self._lock, FAULTS.kept_in("recorder"):
            whole, untold = self._whole, self._untold
            if self.ended or whole is None or untold is None:
                self.ended = True
                return
            for step in sorted(self._open.values(), key=lambda step: -step.info.index):
                self.close(step, UnfinishedStepError("the run ended while the step was open"))
            self.ended = True
            reading = self._read()
            checkpoint = self._checkpoint(ProfileStep.END, "end", reading)
            peaks = whole.tracker.result()
            columns, custom = self.columns.at_end(reading, whole.start, peaks)
            record = untold.record(
                self.info, reading, {**self._last_custom, **custom}, columns=columns, error=error
            )
            self._tell("run_ended", record, checkpoint)
            self._probes.close()

    def settle(self) -> None:
        """Has the sinks finish what they can: the process may be terminated from here on.

        For workers between two tasks. The run goes on; does nothing if nothing has
        happened, or a step is open.
        """
        with self._lock, FAULTS.kept_in("recorder"):
            if self._open or self.ended or self._untold is None or not self._untold.steps:
                return
            reading = self._read()
            record = self._untold.record(self.info, reading, dict(self._last_custom))
            self._untold = _Stretch(reading, PeakTracker(reading))
            self._tell("run_settled", record)

    def forget(self) -> None:
        """In a forked child: drops the parent's run without a trace of its own.

        The lock may have been held by a thread that no longer exists: it is not used.
        """
        self.ended = True
        self._lock = threading.RLock()
        self._open.clear()
        self._tell("forget")

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
            kind: A ``ProfileStep`` constant.
            label: What the step is called; the kind itself if None.
            library: Distribution that the code belongs to.
            library_version: Its version.
            function: Qualified name of the function that is the step.
            attributes: Arguments worth knowing, by attribute name.
            filled_in: Whether the library's own profiler does not report the step.

        Returns:
            The step, to be given to :meth:`close`; None if it could not be opened.
        """
        with FAULTS.kept_in("recorder"):
            self.start()
            if self.ended or self._whole is None:
                return None
            parent = self.current()
            with self._lock:
                reading = self._read()
                info = StepInfo(
                    index=self._next_step,
                    label=label if label is not None else kind,
                    kind=kind,
                    parent=parent.info.index if parent else None,
                    library=library,
                    library_version=library_version,
                    function=function,
                    thread=threading.get_ident(),
                    filled_in=filled_in,
                )
                self._next_step += 1
                step = OpenStep(self, info, parent, reading, attributes or {})
                checkpoint = self._checkpoint(f"{info.label} Start", "start", reading, info)
                self._open[info.index] = step
            self._tell("step_started", info, checkpoint, step.attributes)
            self._reset_marks(reading)
            return step
        return None

    def close(self, step: OpenStep | None, error: BaseException | None = None) -> None:
        """Closes a step; its ``End`` checkpoint has reached the sinks on return.

        Args:
            step: What :meth:`open` returned.
            error: The exception that ended the step's code, None if it ended well.
        """
        if step is None:
            return
        with FAULTS.kept_in("recorder"):
            with self._lock:
                if step._closed or self.ended:
                    return
                step._closed = True
                reading = self._read()
                step.tracker.fold(reading)
                self._open.pop(step.info.index, None)
                for stretch in self._stretches():
                    stretch.steps += 1
                    stretch.failed += error is not None
                checkpoint = self._checkpoint(
                    f"{step.info.label} End",
                    "end",
                    reading,
                    step.info,
                    error_type(error) if error else None,
                )
                record = StepRecord(
                    info=step.info,
                    start=step.start,
                    end=reading,
                    peaks=step.tracker.result(),
                    attributes=step.attributes,
                    samples=step.samples or None,
                    custom=dict(self._last_custom),
                    error=error,
                )
            self._tell("step_ended", record, checkpoint)
            self._reset_marks(reading)

    def enter(self, step: OpenStep | None) -> Entered | None:
        """Makes a step the current one in the calling context.

        Args:
            step: What :meth:`open` returned.

        Returns:
            What :meth:`leave` needs.
        """
        if step is None:
            return None
        token = _CURRENT.set(step)
        tokens: list[tuple[Sink, Token[Any] | None]] = []
        for sink in self._sinks:
            with FAULTS.kept_in(f"sink {sink.name}"):
                tokens.append((sink, sink.step_entered(step.info)))
        return token, tokens

    def leave(self, step: OpenStep | None, entered: Entered | None) -> None:
        """Undoes :meth:`enter`; in another context there is nothing to undo.

        Args:
            step: The step.
            entered: What :meth:`enter` returned.
        """
        if step is None or entered is None:
            return
        token, tokens = entered
        try:
            _CURRENT.reset(token)
        except ValueError:
            return  # another context, where a generator was dropped: nothing was entered there
        for sink, sink_token in reversed(tokens):
            with FAULTS.kept_in(f"sink {sink.name}"):
                sink.step_left(step.info, sink_token)

    def point(self, name: str) -> None:
        """Takes a checkpoint that belongs to no step's boundary.

        Args:
            name: Its name, as it will stand in the file.
        """
        with FAULTS.kept_in("recorder"):
            self.start()
            if self.ended or self._whole is None:
                return
            with self._lock:
                reading = self._read()
                current = self.current()
                checkpoint = self._checkpoint(
                    name, "point", reading, current.info if current else None
                )
            self._tell("point", checkpoint)
            self._reset_marks(reading)

    def expect_samples(self, step: OpenStep, total: int) -> None:
        """Notes how many calibration samples a step will consume, if it takes them all.

        Args:
            step: The step.
            total: How many there are.
        """
        self._tell("samples_expected", step.info, total)

    def count_samples(self, step: OpenStep, count: int = 1) -> None:
        """Counts calibration samples that a step has consumed.

        Args:
            step: The step.
            count: How many more.
        """
        step.samples += count
        self._tell("samples_counted", step.info, count)

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """Hands the static cost of models to the sinks.

        Args:
            costs: One record for each model.
        """
        if self._whole is not None and not self.ended:
            self._tell("models_costed", costs)

    # --- within -----------------------------------------------------------------------------

    def _read(self) -> Reading:
        reading = self._probes.read()
        self._fold(reading)
        return reading

    def _sample(self) -> None:
        self._observe(self._probes.sample)

    def _observe(self, take: Callable[[], Reading]) -> Reading:
        folds = self._folds
        reading = take()
        with self._lock:
            # If a checkpoint was taken meanwhile, this one may be the older: its lower
            # marks would make those of the checkpoint look like a rise in the step after.
            if not self.ended and folds == self._folds:
                self._fold(reading)
        return reading

    def _fold(self, reading: Reading) -> None:
        self._folds += 1
        self.latest = reading
        for stretch in self._stretches():
            stretch.tracker.fold(reading)
        for step in self._open.values():
            step.tracker.fold(reading)

    def _stretches(self) -> tuple[_Stretch, ...]:
        if self._whole is None or self._untold is None:
            return ()
        return (self._whole,) if self._whole is self._untold else (self._whole, self._untold)

    def _reset_marks(self, reading: Reading) -> None:
        memory = reading.memory
        if not self._exact_peaks or memory is None:
            return
        with FAULTS.kept_in("probe memory (exact mode)"), self._lock:
            # What rose since the reading would be lost with the mark: look once more.
            children = [pid for pid, _, _ in memory.children]
            memory = self._probes.memory(children)
            if memory is None:
                return
            self._fold(replace(reading, memory=memory))
            lowered = reset_high_water(children)
            self._folds += 1  # what another thread reads meanwhile may have the former marks
            trackers = [stretch.tracker for stretch in self._stretches()]
            for tracker in (*trackers, *(step.tracker for step in self._open.values())):
                tracker.marks_reset(memory, lowered)

    def _checkpoint(
        self,
        name: str,
        phase: Phase,
        reading: Reading,
        step: StepInfo | None = None,
        error: str | None = None,
    ) -> Checkpoint:
        assert self._whole is not None
        baseline = self._whole.start
        columns, custom = self.columns.at_checkpoint(name, reading, baseline)
        self._last_custom.update(custom)
        checkpoint = Checkpoint(
            sequence=self._next_checkpoint,
            name=name,
            phase=phase,
            reading=reading,
            baseline=baseline,
            step=step,
            columns=columns,
            custom=custom,
            error=error,
        )
        self._next_checkpoint += 1
        return checkpoint

    def _tell(self, event: str, *arguments: Any) -> None:
        # Ends are told backwards: who hears of a step first lets go of it last, so that
        # the step's span is still there for the metrics and logs that refer to it.
        for sink in reversed(self._sinks) if event.endswith("_ended") else self._sinks:
            with FAULTS.kept_in(f"sink {sink.name}"):
                getattr(sink, event)(*arguments)


Entered = tuple[Token[OpenStep | None], list[tuple[Sink, Token[Any] | None]]]


def new_run_info(environ: Mapping[str, str], carrier: Mapping[str, str] | None = None) -> RunInfo:
    """Describes the run that is about to begin in this process.

    Args:
        environ: The environment: ``RANK`` and ``WORLD_SIZE`` as torchrun sets them, and
            the W3C trace context to continue.
        carrier: Trace context that goes before the environment's, by header name.

    Returns:
        The description, with a new identifier.
    """
    return RunInfo(
        id=uuid.uuid4().hex[:16],
        pid=os.getpid(),
        limits=read_limits(),
        rank=_integer(environ.get("RANK")),
        world_size=_integer(environ.get("WORLD_SIZE")),
        parent_carrier=carrier
        or {
            header: environ[header.upper()]
            for header in ("traceparent", "tracestate", "baggage")
            if environ.get(header.upper())
        },
    )


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None
