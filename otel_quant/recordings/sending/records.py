"""Log records of what was recorded: the run's start, checkpoints, costs of models, and the ending."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context

from otel_quant.export.otel.events import emit_event
from otel_quant.recordings.model import RecordedCheckpoint, RecordedRun, RecordedStep, Recording
from otel_quant.recordings.sending.cut import cut_of
from otel_quant.recordings.sending.identifiers import Identifiers
from otel_quant.recordings.sending.source import SCOPE, resource_of, run_ids_of
from otel_quant.recordings.sending.spans import KNOWN_AT_START
from otel_quant.schema import semconv
from otel_quant.schema.records import Phase


class Records:
    """The log records of one run, as the exporters of the installed SDK take them."""

    def __init__(self, run: RecordedRun, recording: Recording, identifiers: Identifiers) -> None:
        self._run = run
        self._began_ns = recording.began_ns
        self._ids = identifiers
        self._cut = cut_of(run, recording)
        self._steps = {step.index: step for step in run.steps}
        self._made: list[Any] = []
        # The type that exporters take has changed between versions of the SDK: it makes them. So has
        # the name of their base class.
        provider = LoggerProvider(resource_of(run), shutdown_on_exit=False)
        kept: Any = Kept(self._made)
        provider.add_log_record_processor(SimpleLogRecordProcessor(kept))
        self._logger = provider.get_logger(SCOPE.name, SCOPE.version, SCOPE.schema_url)

    def all(self) -> list[Any]:
        """Returns every record, in the order of their times but for models and the ending."""
        run = self._run
        self._emit(
            semconv.RUN_STARTED_EVENT,
            f"{semconv.ROOT_SPAN} started",
            {name: value for name, value in run.attributes.items() if name in KNOWN_AT_START},
            None,
            self._ns(run.start),
        )
        for number, checkpoint in enumerate(run.checkpoints):
            self._checkpoint(number, checkpoint)
        for model in run.models:
            self._model(model)
        if self._cut is not None and run.last is not None:
            innermost = self._steps.get(run.last.open_steps[-1]) if run.last.open_steps else None
            self._emit(
                semconv.READING_EVENT,
                innermost.name if innermost is not None else semconv.ROOT_SPAN,
                {**run_ids_of(run), **run.last.attributes},
                innermost,
                self._ns(run.last.time),
            )
        return self.ending()

    def ending(self) -> list[Any]:
        """Returns the records so far, and how the run was ended if the launcher has seen it."""
        run, cut = self._run, self._cut
        if cut is not None and cut.is_told:
            open_steps = [step for step in run.steps if step.end is None]
            step = open_steps[-1] if open_steps else None
            attributes = {
                **self._of_run(),
                **cut.attributes,
                **_of_step(step),
                semconv.CALIBRATION_SAMPLE_COUNT: step.samples if step else None,
                semconv.CALIBRATION_SAMPLE_TOTAL: step.expected_samples if step else None,
            }
            text, time_ns = "\n".join(cut.lines), self._ns(cut.time)
            self._emit(semconv.ENDING_EVENT, text, attributes, step, time_ns, SeverityNumber.ERROR)
        return self._made

    def _checkpoint(self, number: int, checkpoint: RecordedCheckpoint) -> None:
        run = self._run
        step = None if checkpoint.step is None else self._steps.get(checkpoint.step)
        phase = _phase(checkpoint, step or run)
        error = (step or run).error if phase == "end" else None
        self._emit(
            semconv.CHECKPOINT_EVENT,
            checkpoint.name,
            {
                semconv.CHECKPOINT_NAME: checkpoint.name,
                semconv.CHECKPOINT_PHASE: phase,
                semconv.CHECKPOINT_SEQUENCE: number,
                semconv.CHECKPOINT_ELAPSED: round(checkpoint.time - run.start, 9),
                **self._of_run(),
                semconv.CHECKPOINT_MEMORY_LIMIT: run.attributes.get(semconv.MEMORY_LIMIT),
                **_of_step(step),
                **checkpoint.attributes,
                semconv.ERROR_TYPE: error,
            },
            step,
            self._ns(checkpoint.time),
            SeverityNumber.INFO if error is None else SeverityNumber.ERROR,
        )

    def _model(self, model: Mapping[str, Any]) -> None:
        if "ended" not in model:
            return
        error = model.get("error")
        self._emit(
            semconv.MODEL_COST_EVENT if error is None else semconv.COST_FAILED_EVENT,
            {"heaviest": model.get("heaviest", [])} if error is None else {"message": error},
            {
                **run_ids_of(self._run),
                semconv.MODEL_ROLE: model.get("role"),
                semconv.MODEL_PATH: model.get("path"),
            },
            None,
            model["ended"],
            SeverityNumber.INFO if error is None else SeverityNumber.WARN,
        )

    def _emit(
        self,
        name: str,
        body: str | dict[str, Any],
        attributes: Mapping[str, Any],
        step: RecordedStep | None,
        time_ns: int,
        severity: SeverityNumber = SeverityNumber.INFO,
    ) -> None:
        of_run = self._ids.of_run(self._run)
        ids = of_run if step is None else self._ids.of_step(self._run, step)
        emit_event(self._logger, name, body, attributes, _context(ids), time_ns, severity)

    def _of_run(self) -> dict[str, Any]:
        return {**run_ids_of(self._run), semconv.PROCESS_PID: self._run.pid}

    def _ns(self, time: float) -> int:
        return self._began_ns + round(time * 1e9)


class Kept:
    """An exporter that keeps what it gets."""

    def __init__(self, made: list[Any]) -> None:
        self._made = made

    def export(self, batch: Iterable[Any]) -> None:
        """Keeps a batch."""
        self._made.extend(batch)

    def shutdown(self) -> None:
        """Nothing is open."""


def _phase(checkpoint: RecordedCheckpoint, item: RecordedRun | RecordedStep) -> Phase:
    label = f"{item.name} " if isinstance(item, RecordedStep) else ""
    at: tuple[tuple[Phase, float | None], ...] = ("start", item.start), ("end", item.end)
    for phase, time in at:
        if checkpoint.name == label + phase.capitalize() and checkpoint.time == time:
            return phase
    return "point"


def _of_step(step: RecordedStep | None) -> dict[str, Any]:
    if step is None:
        return {}
    return {
        semconv.STEP_NAME: step.name,
        semconv.STEP_KIND: step.kind,
        semconv.STEP_INDEX: step.index,
        semconv.LIBRARY_NAME: step.attributes.get(semconv.LIBRARY_NAME),
    }


def _context(ids: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(ids), Context())
