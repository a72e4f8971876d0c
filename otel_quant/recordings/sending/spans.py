"""Spans of what was recorded: the run, its steps and the costing of its models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode

from otel_quant.recordings.model import RecordedRun, RecordedStep, Recording
from otel_quant.recordings.sending.cut import Cut, cut_of
from otel_quant.recordings.sending.identifiers import Identifiers
from otel_quant.recordings.sending.source import SCOPE, resource_of, run_ids_of
from otel_quant.schema import semconv

KNOWN_AT_START: Final = semconv.ORIGIN | {
    semconv.RUN_ID, semconv.RUN_NAME, semconv.RUN_RANK, semconv.RUN_WORLD_SIZE, semconv.PROCESS_PID,
    semconv.MEMORY_LIMIT, semconv.MEMORY_LIMIT_SOURCE, semconv.GPU_COUNT, semconv.GPU_MEMORY_LIMIT,
}  # fmt: skip
"""Attributes of a run's span that it has from its start."""


class Spans:
    """The spans of one run."""

    def __init__(self, run: RecordedRun, recording: Recording, identifiers: Identifiers) -> None:
        self._run = run
        self._began_ns = recording.began_ns
        self._ids = identifiers
        self._resource = resource_of(run)
        self._cut = cut_of(run, recording)

    def all(self) -> Iterator[ReadableSpan]:
        """Yields every span, those within another before it."""
        run = self._run
        custom = _custom_at_ends(run)
        for step in reversed(run.steps):
            if step.end is not None:
                yield self._ended(step, custom.get(step.index, {}))
        for number, model in enumerate(run.models):
            if "began" in model and "ended" in model:
                yield self._cost(number, model)
        yield from self._earlier_roots()
        if run.end is not None:
            yield self._root(run.end, {}, _status(run.error, run.error))
        else:
            yield from self.unended()

    def unended(self) -> Iterator[ReadableSpan]:
        """Yields the spans that were open when the run was cut, innermost first."""
        if self._cut is None:
            return
        for step in reversed(self._run.steps):
            if step.end is None:
                yield self._open(step, self._cut)
        attributes = {**self._cut.attributes, semconv.ERROR_TYPE: self._cut.error}
        yield self._root(self._cut.time, attributes, _status("lost", self._cut.lines[0]))

    def _ended(self, step: RecordedStep, custom: Mapping[str, Any]) -> ReadableSpan:
        assert step.end is not None
        events: tuple[Event, ...] = ()
        if step.error is not None:
            raised = {semconv.EXCEPTION_TYPE: step.error, "exception.message": step.error_message}
            events = (Event(semconv.EXCEPTION_EVENT, _present(raised), self._ns(step.end)),)
        return self._span(
            step.name,
            self._ids.of_step(self._run, step),
            self._ids.above_step(self._run, step),
            {
                **custom,
                **step.attributes,
                **run_ids_of(self._run),
                semconv.ERROR_TYPE: step.error,
            },
            self._ns(step.start),
            self._ns(step.end),
            _status(step.error, step.error_message),
            events,
        )

    def _open(self, step: RecordedStep, cut: Cut) -> ReadableSpan:
        at_start = next((each for each in self._run.checkpoints if each.step == step.index), None)
        memory = at_start.attributes.get(semconv.CHECKPOINT_MEMORY) if at_start else None
        return self._span(
            step.name,
            self._ids.of_step(self._run, step),
            self._ids.above_step(self._run, step),
            {
                **step.attributes,
                **run_ids_of(self._run),
                semconv.MEMORY_START: memory,
                semconv.CALIBRATION_SAMPLE_COUNT: step.samples,
                semconv.CALIBRATION_SAMPLE_TOTAL: step.expected_samples,
                semconv.ERROR_TYPE: cut.error,
            },
            self._ns(step.start),
            self._ns(max(step.start, cut.time)),
            _status("lost", cut.lines[0]),
        )

    def _root(self, end: float, more: Mapping[str, Any], status: Status) -> ReadableSpan:
        run = self._run
        custom = {semconv.CUSTOM_PREFIX + name: value for name, value in run.custom.items()}
        return self._span(
            semconv.ROOT_SPAN,
            self._ids.of_run(run),
            self._ids.above_run(run),
            {**custom, **run.attributes, semconv.ERROR_TYPE: run.error, **more},
            self._ns(run.start),
            self._ns(end),
            status,
        )

    def _earlier_roots(self) -> Iterator[ReadableSpan]:
        """Yields the root spans that a worker has ended before its last: one for each report."""
        run = self._run
        within: dict[str, list[RecordedStep]] = {}
        for step in run.steps:
            above = step.parent_span_id
            if run.span_id is not None and step.parent is None and above not in (None, run.span_id):
                within.setdefault(str(above), []).append(step)
        known = {name: value for name, value in run.attributes.items() if name in KNOWN_AT_START}
        for span_id, steps in within.items():
            yield self._span(
                semconv.ROOT_SPAN,
                self._ids.earlier_root(run, span_id),
                self._ids.above_run(run),
                known,
                self._ns(steps[0].start),
                self._ns(max(step.start if step.end is None else step.end for step in steps)),
                _status(None, None),
            )

    def _cost(self, number: int, model: Mapping[str, Any]) -> ReadableSpan:
        role, error = model.get("role"), model.get("error")
        figures = model.get("figures", {})
        failed = Event(semconv.COST_FAILED_EVENT, {"message": str(error)}, model["ended"])
        return self._span(
            semconv.COST_SPAN,
            self._ids.of_cost(self._run, number),
            self._ids.of_run(self._run),
            {
                **{f"quant.model.{role}.{name}": value for name, value in figures.items()},
                **run_ids_of(self._run),
                semconv.MODEL_ROLE: role,
                semconv.MODEL_PATH: model.get("path"),
            },
            model["began"],
            model["ended"],
            _status(None, None),
            () if error is None else (failed,),
        )

    def _span(
        self,
        name: str,
        context: SpanContext,
        above: SpanContext | None,
        attributes: Mapping[str, Any],
        start_ns: int,
        end_ns: int,
        status: Status,
        events: Sequence[Event] = (),
    ) -> ReadableSpan:
        return ReadableSpan(
            name,
            context,
            above,
            self._resource,
            _present(attributes),
            events=events,
            status=status,
            start_time=start_ns,
            end_time=end_ns,
            instrumentation_scope=SCOPE,
        )

    def _ns(self, time: float) -> int:
        return self._began_ns + round(time * 1e9)


def _custom_at_ends(run: RecordedRun) -> dict[int, dict[str, Any]]:
    """Returns the values that the program's own metrics had at the end of each step."""
    found: dict[int, dict[str, Any]] = {}
    latest: dict[str, Any] = {}
    for checkpoint in run.checkpoints:
        latest |= {
            name: value
            for name, value in checkpoint.attributes.items()
            if name.startswith(semconv.CUSTOM_PREFIX)
        }
        if latest and checkpoint.step is not None:
            found[checkpoint.step] = dict(latest)
    return found


def _status(error: str | None, text: str | None) -> Status:
    return Status(StatusCode.UNSET) if error is None else Status(StatusCode.ERROR, text)


def _present(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
