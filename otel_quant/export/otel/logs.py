"""Sink that sends log records: for checkpoints, readings, starts of a run's span, and devices.

A tracer sends a span only after it has ended, so the open spans of a killed process are lost.
Under automatic instrumentation these records are sent at once: with them the backend still has the
open steps, the memory of the run, also in a step of hours, and the identity of the run's span, which
is the parent of the steps' spans that did arrive.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from opentelemetry._logs import Logger, LoggerProvider, LogRecord, SeverityNumber, get_logger
from opentelemetry.context import Context
from opentelemetry.trace import TraceFlags

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.otel.spans import custom_of
from otel_quant.schema import semconv
from otel_quant.schema.events import Attributes, Event, Sink, present, run_ids_of
from otel_quant.schema.readings import AttributeValue, GpuActivity, Reading, StepInfo
from otel_quant.version import VERSION

_SPACING: Final = 28_000_000_000
"""Nanoseconds between a record and the next reading's: with the second between two readings and
the time of delivery, what a backend knows of the memory is at most 30 s old."""

_MOVED: Final = 0.01  # Part of the memory by which it has to change
_INFO, _WARN, _ERROR = SeverityNumber.INFO, SeverityNumber.WARN, SeverityNumber.ERROR
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_NAMES: Final = {severity: severity.name for severity in (_INFO, _WARN, _ERROR)}

_IN_USE: Final = {
    prefix: (f"{prefix}memory", f"{prefix}gpu_memory")
    for prefix in (semconv.CHECKPOINT_PREFIX, semconv.READING_PREFIX)
}
"""The attributes that have the memory in use, on a record of a checkpoint and on one of a reading."""


def emit_event(
    logger: Logger, name: str, body: str | dict[str, Any], attributes: Mapping[str, Any],
    context: Context | None, time_ns: int, severity: SeverityNumber = _INFO,
) -> None:  # fmt: skip
    """Emits a log record that is an event: with a name, for what happened at a moment.

    All of it can be had from a recording: Loki takes the record that `otel-quant send` sends for the same.
    No attribute may be None: to look for one here would take a hundredth of a step.
    """
    record = LogRecord(
        timestamp=time_ns, observed_timestamp=time_ns, context=context, severity_number=severity,
        severity_text=_NAMES[severity], event_name=name, body=body, attributes=attributes,
    )  # fmt: skip
    if record.trace_flags is not None and record.trace_flags & _SAMPLED:
        record.trace_flags = _SAMPLED  # no recording has the other flags
    logger.emit(record)


class LogsSink(Sink):
    """The events of :data:`otel_quant.schema.semconv.EVENTS`."""

    name = "logs"

    def __init__(
        self,
        send: Callable[[], None],
        context_of: Callable[[StepInfo | None], Context | None],
        provider: LoggerProvider | None = None,
    ) -> None:
        get = get_logger if provider is None else provider.get_logger
        logger = get(semconv.SCOPE, VERSION, schema_url=semconv.SCHEMA_URL)
        self._emit = functools.partial(emit_event, logger)
        self._send = send
        self._context_of = context_of
        self._run_ids: Attributes = {}
        self._of_run: Mapping[str, Any] = {}  # Attributes of the run that each checkpoint repeats
        # Monotonic clock of the last record with a reading, its attributes, and how the names of those begin
        self._sent: tuple[int, Attributes, str] | None = None
        self._impairments = Impairments()

    def run_started(self, event: Event) -> None:
        """Sends ``Start``."""
        run = event.run
        self._run_ids = run_ids_of(run)
        of_run = {semconv.PROCESS_PID: run.pid, semconv.CHECKPOINT_MEMORY_LIMIT: run.limits.memory}
        self._of_run = {**self._run_ids, **present(of_run)}
        self._impairments = Impairments()
        self.checkpoint(event)

    def run_span_started(self, context: Context, attributes: Attributes, start_ns: int) -> None:
        """Sends the identity of a run's span, which the span itself may not live to send."""
        # The spans sink calls this: its spans do not depend on log records.
        with FAULTS.kept_in(f"sink {self.name}"):
            text = f"{semconv.ROOT_SPAN} started"
            self._emit(semconv.RUN_STARTED_EVENT, text, attributes, context, start_ns)
            self._send()

    def step_ended(self, event: Event) -> None:
        """Sends its lines of code, what the step used of each device, and its end."""
        if event.top_lines is not None:
            names = (semconv.STEP_BOUND_BY, semconv.STEP_BOUND_EVIDENCE)
            bound = present({name: event.attributes.get(name) for name in names})
            self._emit_of(event, semconv.LINES_EVENT, event.top_lines, self._ids_in(event) | bound)
        self._emit_devices(event)
        self.checkpoint(event)

    def run_ended(self, event: Event) -> None:
        """Sends what the run used of each device, what it came to, and ``End``."""
        self._emit_devices(event)
        if answer := event.attributes.get(semconv.RUN_ANSWER):
            failed = present({semconv.ERROR_TYPE: event.error})
            known = {**self._run_ids, semconv.RUN_ANSWER: answer, **failed}
            severity = _ERROR if failed else _INFO
            self._emit_of(event, semconv.ANSWER_EVENT, str(answer), known, severity)
        self.checkpoint(event)
        self._sent = None

    def forget(self) -> None:
        """Drops the parent's run."""
        self._sent = None

    def checkpoint(self, event: Event) -> None:
        """Sends a checkpoint."""
        self._sent = event.clock_ns, event.checkpoint, semconv.CHECKPOINT_PREFIX
        # The program's own first: the SDK keeps a limited number of attributes, the last ones.
        attributes = {
            **custom_of(event.custom), semconv.CHECKPOINT_NAME: event.name,
            semconv.CHECKPOINT_PHASE: event.phase, semconv.CHECKPOINT_SEQUENCE: event.sequence,
            semconv.CHECKPOINT_ELAPSED: event.elapsed, **self._of_run, **_labels_of(event.step),
            **event.checkpoint,
        }  # fmt: skip
        if event.error is not None:
            attributes[semconv.ERROR_TYPE] = event.error
        severity = _INFO if event.error is None else _ERROR
        self._emit_of(event, semconv.CHECKPOINT_EVENT, event.name, attributes, severity)
        self._send()

    step_started = checkpoint

    def reading_taken(self, event: Event) -> None:
        """Sends what slows GPUs down, and a reading if memory has moved since the last record."""
        impaired = self._impairments.new_in(event.reading) if event.reading is not None else ()
        for text, attributes in impaired:
            known = {**self._run_ids, **attributes}
            context = self._context_of(None)
            self._emit(semconv.IMPAIRED_EVENT, text, known, context, event.time_ns, _WARN)
            self._send()
        if self._is_due(event):
            self.send_reading(event)

    def send_reading(self, event: Event) -> None:
        """Sends a reading."""
        self._sent = event.clock_ns, event.attributes, semconv.READING_PREFIX
        label = event.step.label if event.step is not None else semconv.ROOT_SPAN
        self._emit_of(event, semconv.READING_EVENT, label, event.attributes)
        self._send()

    def forecast_exceeded(self, event: Event) -> None:
        """Sends that memory will not suffice."""
        self._emit_of(event, semconv.FORECAST_EVENT, event.name, event.attributes, _WARN)
        self._send()

    def forecast_stalled(self, event: Event) -> None:
        """Sends that a step has stalled."""
        self._emit_of(event, semconv.STALL_EVENT, event.name, event.attributes, _WARN)
        self._send()

    def layer_measured(self, event: Event) -> None:
        """Sends how well a layer was quantized."""
        layer = event.layer
        assert layer is not None
        attributes = {
            **self._ids_in(event), semconv.ACCURACY_LAYER: layer.layer,
            semconv.ACCURACY_MEASURE: layer.measure, semconv.ACCURACY_VALUE: layer.value,
            semconv.ACCURACY_BETTER: layer.better, semconv.ACCURACY_UNIT: layer.unit,
            semconv.ACCURACY_INDEX: layer.number,
        }  # fmt: skip
        text = f"{layer.layer}: {layer.measure}"
        self._emit_of(event, semconv.LAYER_EVENT, text, present(attributes))
        self._send()

    def layer_observed(self, event: Event) -> None:
        """Sends what has reached a layer."""
        known = {**self._ids_in(event), **event.attributes}
        is_finite = event.attributes.get(semconv.CALIBRATION_LAYER_FINITE, True)
        severity = _INFO if is_finite else _WARN
        self._emit_of(event, semconv.OBSERVED_EVENT, event.name, known, severity)
        self._send()

    def models_costed(self, event: Event) -> None:
        """Sends the heaviest nodes of each model, or why it could not be costed."""
        for cost in event.models:
            if cost.is_checkpoint:
                continue
            name, severity = semconv.MODEL_COST_EVENT, _INFO
            body: dict[str, Any] = {"heaviest": [dict(node) for node in cost.heaviest]}
            if cost.error is not None:
                name, severity = semconv.COST_FAILED_EVENT, _WARN
                body = {"message": cost.error}
            known = {**self._run_ids, semconv.MODEL_ROLE: cost.role, semconv.MODEL_PATH: cost.path}
            self._emit(name, body, present(known), self._context_of(None), cost.end_ns, severity)
        self._send()

    def run_killed(self, event: Event) -> None:
        """Sends how the program ended, if somebody has seen it."""
        if event.name:
            attributes, step = dict(event.attributes), None
            for innermost in event.steps[-1:]:
                step = innermost.info
                attributes |= {**_labels_of(step), **innermost.counts.attributes()}
            ended = replace(event, step=step)
            self._emit_of(ended, semconv.ENDING_EVENT, event.name, present(attributes), _ERROR)

    def _emit_devices(self, event: Event) -> None:
        for device in event.devices:
            text = f"{event.name}: {device[semconv.HW_ID]}"
            self._emit_of(event, semconv.DEVICE_EVENT, text, {**self._ids_in(event), **device})

    def _emit_of(
        self, event: Event, name: str, body: str | dict[str, Any], attributes: Mapping[str, Any],
        severity: SeverityNumber = _INFO,
    ) -> None:  # fmt: skip
        """Emits a log record at the time of an event, in the context of its step."""
        self._emit(name, body, attributes, self._context_of(event.step), event.time_ns, severity)

    def _ids_in(self, event: Event) -> dict[str, Any]:
        return {**self._run_ids, **_labels_of(event.step)}

    def _is_due(self, event: Event) -> bool:
        """Whether memory, of the processes or the GPUs, has moved since the last record."""
        if self._sent is None or event.clock_ns - self._sent[0] < _SPACING:
            return False
        known, now = _memory(*self._sent[1:]), _memory(event.attributes, semconv.READING_PREFIX)
        pairs = zip(known, now, strict=True)
        return any(abs(after - before) > _MOVED * before for before, after in pairs)


def _memory(attributes: Attributes, prefix: str) -> tuple[Any, Any]:
    memory, of_gpus = _IN_USE[prefix]
    return attributes.get(memory, 0), attributes.get(of_gpus, 0)


def _labels_of(step: StepInfo | None) -> dict[str, Any]:
    if step is None:
        return {}
    labels = {
        semconv.STEP_NAME: step.label, semconv.STEP_KIND: step.kind, semconv.STEP_INDEX: step.index,
    }  # fmt: skip
    if step.library is not None:
        labels[semconv.LIBRARY_NAME] = step.library
    return labels


class Impairments:
    """GPUs that something slows down, or whose memory fails: reported when it begins."""

    def __init__(self) -> None:
        self._known: dict[str, GpuActivity] = {}

    def new_in(self, reading: Reading) -> Iterator[tuple[str, dict[str, AttributeValue]]]:
        """Yields what is new: a sentence, and the attributes of its log record.

        Errors of memory from before the first reading of a device are not new.
        """
        for gpu in reading.gpus:
            activity = gpu.activity
            if activity is None:
                continue
            before = self._known.get(gpu.id, GpuActivity(memory_errors=activity.memory_errors))
            self._known[gpu.id] = activity
            texts, errors = [], activity.memory_errors or 0
            if reasons := set(activity.slowed_by or ()).difference(before.slowed_by or ()):
                texts.append(f"slowed down by {', '.join(sorted(reasons))}")
            if errors > (before.memory_errors or 0):
                texts.append(f"{errors} errors of its memory that could not be corrected")
            if not texts:
                continue
            attributes = {
                semconv.HW_ID: gpu.id, semconv.HW_NAME: gpu.name,
                semconv.GPU_SLOWED_BY: activity.slowed_by or None,
                semconv.GPU_MEMORY_ERRORS: activity.memory_errors,
            }  # fmt: skip
            yield f"GPU {gpu.index} ({gpu.id}): {'; '.join(texts)}", present(attributes)
