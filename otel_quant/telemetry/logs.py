"""Sink that sends one log record for each checkpoint, and for readings between them.

A tracer sends a span only after it has ended, so the open spans of a killed process are lost.
Under automatic instrumentation these records are sent at once: with them the backend still has the
open steps and the memory of the run, also in a step of hours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber, get_logger
from opentelemetry.context import Context

from otel_quant.recording.sink import Sink
from otel_quant.records import (
    AttributeValue,
    Checkpoint,
    CostedModel,
    RunInfo,
    RunProgress,
    RunRecord,
    StepInfo,
    StepRecord,
)
from otel_quant.resources import Resource
from otel_quant.telemetry import semconv
from otel_quant.telemetry.attributes import FigureAttributes, cost_identity_of, custom_of
from otel_quant.telemetry.readings import Due, attributes_of
from otel_quant.version import VERSION


class LogsSink(Sink):
    """One record of event ``quant.checkpoint`` for each checkpoint, ``quant.reading`` between them.

    Args:
        resources: The resources that are measured.
        send: Called after each record; makes the exporters send it without delay.
        context_of: Returns the context whose current span is a step's, or the run's.
    """

    name = "logs"

    def __init__(
        self,
        resources: Sequence[Resource],
        send: Callable[[], None],
        context_of: Callable[[StepInfo | None], Context | None],
    ) -> None:
        self._logger = get_logger(semconv.SCOPE, VERSION, schema_url=semconv.SCHEMA_URL)
        self._figures = FigureAttributes(resources)
        self._send = send
        self._context_of = context_of
        self._run: RunInfo | None = None
        self._due = Due()

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """Sends ``Start``."""
        self._run = run
        self._emit(checkpoint)

    def step_started(
        self, step: StepInfo, checkpoint: Checkpoint, attributes: Mapping[str, AttributeValue]
    ) -> None:
        """Sends the step's start."""
        self._emit(checkpoint)

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        """Sends the step's end."""
        self._emit(checkpoint)

    def point(self, checkpoint: Checkpoint) -> None:
        """Sends a checkpoint that is neither the start nor the end of a step."""
        self._emit(checkpoint)

    def run_progressed(self, progress: RunProgress) -> None:
        """Sends a reading if memory has moved since the last record."""
        run, reading = self._run, progress.reading
        if run is None or not self._due.is_due(reading):
            return
        self._due.note(reading)
        innermost = progress.steps[-1].info if progress.steps else None
        self._logger.emit(
            LogRecord(
                timestamp=reading.time_ns,
                context=self._context_of(innermost),
                severity_number=SeverityNumber.INFO,
                severity_text=SeverityNumber.INFO.name,
                event_name=semconv.READING_EVENT,
                body=innermost.label if innermost is not None else semconv.ROOT_SPAN,
                attributes=attributes_of(progress, run, self._figures),
            )
        )
        self._send()

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """Sends the heaviest nodes of each model, or why it could not be costed."""
        for cost in costs:
            costed = cost.error is None
            severity = SeverityNumber.INFO if costed else SeverityNumber.WARN
            self._logger.emit(
                LogRecord(
                    timestamp=cost.end_ns,
                    context=self._context_of(None),
                    severity_number=severity,
                    severity_text=severity.name,
                    event_name=semconv.MODEL_COST_EVENT if costed else semconv.COST_FAILED_EVENT,
                    body={"heaviest": [dict(node) for node in cost.heaviest]}
                    if costed
                    else {"message": cost.error},
                    attributes={
                        **({semconv.RUN_ID: self._run.id} if self._run else {}),
                        **cost_identity_of(cost),
                    },
                )
            )
        self._send()

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        """Sends ``End``."""
        self._emit(checkpoint)
        self._run = None

    def forget(self) -> None:
        """Drops the parent's run."""
        self._run = None

    def _emit(self, checkpoint: Checkpoint) -> None:
        self._due.note(checkpoint.reading)
        severity = SeverityNumber.INFO if checkpoint.error is None else SeverityNumber.ERROR
        self._logger.emit(
            LogRecord(
                timestamp=checkpoint.reading.time_ns,
                context=self._context_of(checkpoint.step),
                severity_number=severity,
                severity_text=severity.name,
                event_name=semconv.CHECKPOINT_EVENT,
                body=checkpoint.name,
                attributes=self._attributes(checkpoint),
            )
        )
        self._send()

    def _attributes(self, checkpoint: Checkpoint) -> dict[str, Any]:
        step = checkpoint.step
        attributes: dict[str, Any] = {
            semconv.CHECKPOINT_NAME: checkpoint.name,
            semconv.CHECKPOINT_PHASE: checkpoint.phase,
            semconv.CHECKPOINT_SEQUENCE: checkpoint.sequence,
            semconv.CHECKPOINT_ELAPSED: checkpoint.elapsed,
        }
        if self._run is not None:
            attributes |= {
                semconv.RUN_ID: self._run.id,
                semconv.PROCESS_PID: self._run.pid,
                semconv.RUN_RANK: self._run.rank,
                semconv.CHECKPOINT_MEMORY_LIMIT: self._run.limits.memory,
            }
        if step is not None:
            attributes |= {
                semconv.STEP_NAME: step.label,
                semconv.STEP_KIND: step.kind,
                semconv.STEP_INDEX: step.index,
                semconv.LIBRARY_NAME: step.library,
            }
        attributes |= {
            **self._figures.at_checkpoint(checkpoint.reading, checkpoint.baseline),
            semconv.ERROR_TYPE: checkpoint.error,
            **custom_of(checkpoint.custom),
        }
        return {key: value for key, value in attributes.items() if value is not None}
