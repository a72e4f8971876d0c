"""Sink that sends log records: for checkpoints, readings, starts of a run's span, and devices.

A tracer sends a span only after it has ended, so the open spans of a killed process are lost.
Under automatic instrumentation these records are sent at once: with them the backend still has the
open steps, the memory of the run, also in a step of hours, and the identity of the run's span, which
is the parent of the steps' spans that did arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry._logs import LoggerProvider, SeverityNumber, get_logger
from opentelemetry.context import Context

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.otel import forecasts
from otel_quant.export.otel.attributes import (
    FigureAttributes,
    cost_identity_of,
    custom_of,
    run_ids_of,
)
from otel_quant.export.otel.events import emit_event
from otel_quant.export.otel.impairments import Impairments
from otel_quant.export.otel.readings import Due, attributes_of
from otel_quant.schema import semconv
from otel_quant.schema.figures import Resource
from otel_quant.schema.forecast_warnings import NewWarnings, sentence
from otel_quant.schema.records import (
    AttributeValue,
    Checkpoint,
    CostedModel,
    RunInfo,
    RunProgress,
    RunRecord,
    StepInfo,
    StepRecord,
)
from otel_quant.schema.sink import Sink
from otel_quant.version import VERSION


class LogsSink(Sink):
    """The events of :data:`otel_quant.schema.semconv.EVENTS`."""

    name = "logs"

    def __init__(
        self,
        resources: Sequence[Resource],
        send: Callable[[], None],
        context_of: Callable[[StepInfo | None], Context | None],
        provider: LoggerProvider | None = None,
        figures: FigureAttributes | None = None,
    ) -> None:
        get = get_logger if provider is None else provider.get_logger
        self._logger = get(semconv.SCOPE, VERSION, schema_url=semconv.SCHEMA_URL)
        self._figures = figures or FigureAttributes(resources)
        self._send = send
        self._context_of = context_of
        self._run: RunInfo | None = None
        self._due = Due()
        self._warnings = NewWarnings()
        self._impairments = Impairments()

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """Sends ``Start``."""
        self._run = run
        self._warnings.clear()
        self._impairments = Impairments()
        self._emit(checkpoint)

    def run_span_started(
        self, context: Context, attributes: Mapping[str, AttributeValue], start_ns: int
    ) -> None:
        """Sends the identity of a run's span, which the span itself may not live to send."""
        # The spans sink calls this: its spans do not depend on log records.
        with FAULTS.kept_in(f"sink {self.name}"):
            emit_event(
                self._logger,
                semconv.RUN_STARTED_EVENT,
                f"{semconv.ROOT_SPAN} started",
                attributes,
                context,
                start_ns,
            )
            self._send()

    def step_started(
        self, step: StepInfo, checkpoint: Checkpoint, attributes: Mapping[str, AttributeValue]
    ) -> None:
        """Sends the step's start."""
        self._emit(checkpoint)

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        """Sends what the step used of each device, and its end."""
        self._emit_devices(record, checkpoint)
        self._emit(checkpoint)

    def point(self, checkpoint: Checkpoint) -> None:
        """Sends a checkpoint that is neither the start nor the end of a step."""
        self._emit(checkpoint)

    def run_progressed(self, progress: RunProgress) -> None:
        """Sends new warnings, and a reading if memory has moved since the last record."""
        run, reading = self._run, progress.reading
        if run is None:
            return
        self._send_warnings(run, progress)
        for sentence_of_gpu, impaired in self._impairments.new_in(reading):
            emit_event(
                self._logger,
                semconv.IMPAIRED_EVENT,
                sentence_of_gpu,
                {**self._run_id(), **impaired},
                self._context_of(None),
                reading.time_ns,
                SeverityNumber.WARN,
            )
            self._send()
        if not self._due.is_due(reading):
            return
        self._due.note(reading)
        innermost = progress.steps[-1].info if progress.steps else None
        emit_event(
            self._logger,
            semconv.READING_EVENT,
            innermost.label if innermost is not None else semconv.ROOT_SPAN,
            attributes_of(progress, run, self._figures),
            self._context_of(innermost),
            reading.time_ns,
        )
        self._send()

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """Sends the heaviest nodes of each model, or why it could not be costed."""
        for cost in costs:
            costed = cost.error is None
            emit_event(
                self._logger,
                semconv.MODEL_COST_EVENT if costed else semconv.COST_FAILED_EVENT,
                {"heaviest": [dict(node) for node in cost.heaviest]}
                if costed
                else {"message": cost.error},
                {**self._run_id(), **cost_identity_of(cost)},
                self._context_of(None),
                cost.end_ns,
                SeverityNumber.INFO if costed else SeverityNumber.WARN,
            )
        self._send()

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        """Sends what the run used of each device, and ``End``."""
        self._emit_devices(record, checkpoint)
        self._emit(checkpoint)
        self._run = None

    def forget(self) -> None:
        """Drops the parent's run."""
        self._run = None

    def _send_warnings(self, run: RunInfo, progress: RunProgress) -> None:
        for step, growth in self._warnings.of(progress):
            emit_event(
                self._logger,
                semconv.FORECAST_EVENT,
                sentence(step, growth, run.limits),
                {
                    **self._run_id(),
                    **_step_of(step.info),
                    semconv.CALIBRATION_SAMPLE_COUNT: step.samples,
                    semconv.CALIBRATION_SAMPLE_TOTAL: step.expected_samples,
                    semconv.FORECAST_TIME_LEFT: step.forecast and step.forecast.time_left,
                    **forecasts.attributes_of(growth),
                },
                self._context_of(step.info),
                progress.reading.time_ns,
                SeverityNumber.WARN,
            )
            self._send()

    def _emit(self, checkpoint: Checkpoint) -> None:
        self._due.note(checkpoint.reading)
        emit_event(
            self._logger,
            semconv.CHECKPOINT_EVENT,
            checkpoint.name,
            self._attributes(checkpoint),
            self._context_of(checkpoint.step),
            checkpoint.reading.time_ns,
            SeverityNumber.INFO if checkpoint.error is None else SeverityNumber.ERROR,
        )
        self._send()

    def _emit_devices(self, record: StepRecord | RunRecord, checkpoint: Checkpoint) -> None:
        for device in self._figures.of_devices(record.start, record.end, record.peaks):
            emit_event(
                self._logger,
                semconv.DEVICE_EVENT,
                f"{checkpoint.name}: {device[semconv.HW_ID]}",
                {**self._run_id(), **_step_of(checkpoint.step), **device},
                self._context_of(checkpoint.step),
                checkpoint.reading.time_ns,
            )

    def _run_id(self) -> dict[str, Any]:
        return dict(run_ids_of(self._run)) if self._run is not None else {}

    def _attributes(self, checkpoint: Checkpoint) -> dict[str, Any]:
        # The program's own first: the SDK keeps a limited number of attributes, the last ones.
        attributes: dict[str, Any] = {
            **custom_of(checkpoint.custom),
            semconv.CHECKPOINT_NAME: checkpoint.name,
            semconv.CHECKPOINT_PHASE: checkpoint.phase,
            semconv.CHECKPOINT_SEQUENCE: checkpoint.sequence,
            semconv.CHECKPOINT_ELAPSED: checkpoint.elapsed,
        }
        if self._run is not None:
            attributes |= {
                **run_ids_of(self._run),
                semconv.PROCESS_PID: self._run.pid,
                semconv.CHECKPOINT_MEMORY_LIMIT: self._run.limits.memory,
            }
        attributes |= {
            **_step_of(checkpoint.step),
            **self._figures.at_checkpoint(checkpoint.reading, checkpoint.baseline),
            semconv.ERROR_TYPE: checkpoint.error,
        }
        return attributes


def _step_of(step: StepInfo | None) -> dict[str, Any]:
    if step is None:
        return {}
    return {
        semconv.STEP_NAME: step.label,
        semconv.STEP_KIND: step.kind,
        semconv.STEP_INDEX: step.index,
        semconv.LIBRARY_NAME: step.library,
    }
