"""Sink that turns the run and its steps into spans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from typing import Any, Final

from opentelemetry import baggage, propagate, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider

from otel_quant.recording.sink import Sink
from otel_quant.records import (
    AttributeValue,
    Checkpoint,
    CostedModel,
    RunInfo,
    RunRecord,
    StepInfo,
    StepRecord,
    error_type,
)
from otel_quant.resources import Resource
from otel_quant.telemetry import semconv
from otel_quant.telemetry.attributes import (
    FigureAttributes,
    cost_identity_of,
    cost_of,
    custom_of,
    gpus_of,
    identity_of,
    run_identity_of,
)
from otel_quant.version import VERSION

_log = logging.getLogger("otel_quant")

_COPIED_TO_RUN: Final = (
    semconv.LIBRARY_NAME, semconv.INPUT_PATH, semconv.CALIBRATION_METHOD, semconv.CONFIG_NAME,
)  # fmt: skip
"""Attributes of steps that the run's span has as well, with the first value in the run."""


class SpansSink(Sink):
    """One span for the run and one for each step, nested as the steps are.

    The run's span is a child of the span that is current when the run begins, or else of the
    trace context in the environment of the process. A step's span is a child of the current span
    if the step is within another step, or else of the run's span.

    Args:
        resources: The resources that are measured.
        provider_found: Called when a provider is found that did not exist when the run began.
        provider: The provider; None for the global one.
    """

    name = "spans"

    def __init__(
        self,
        resources: Sequence[Resource],
        provider_found: Callable[[], None] = lambda: None,
        provider: TracerProvider | None = None,
    ) -> None:
        self._figures = FigureAttributes(resources)
        self._provider_found = provider_found
        get = trace.get_tracer if provider is None else provider.get_tracer
        self._tracer: Tracer = get(semconv.SCOPE, VERSION, schema_url=semconv.SCHEMA_URL)
        self._run: RunInfo | None = None
        self._root: Span | None = None
        self._root_context: Context | None = None
        self._started_ns = 0
        self._spans: dict[int, Span] = {}
        self._copied_to_run: set[str] = set()
        self._totals: dict[str, dict[str, AttributeValue]] = {}

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """Starts the root span."""
        self._run = run
        self._started_ns = checkpoint.reading.time_ns
        self._start_root(checkpoint)

    def step_started(
        self, step: StepInfo, checkpoint: Checkpoint, attributes: Mapping[str, AttributeValue]
    ) -> None:
        """Starts the step's span."""
        if self._run is None:
            return
        if self._root is None:  # it was ended when the run was reported
            self._started_ns = checkpoint.reading.time_ns
            self._start_root(checkpoint)
        elif not self._root.get_span_context().is_valid:
            # The program may have configured OpenTelemetry after its first step. If there is a
            # provider now, the run's span is started again, with the run's start time.
            self._start_root(checkpoint)
            if self._root is not None and self._root.get_span_context().is_valid:
                self._provider_found()
        known: dict[str, AttributeValue] = {
            semconv.RUN_ID: self._run.id,
            **identity_of(step),
            **attributes,
        }
        self._copy_to_run(known)
        memory = checkpoint.reading.memory
        if memory is not None:
            known[semconv.MEMORY_START] = memory.tree_rss
        self._spans[step.index] = self._tracer.start_span(
            step.label,
            context=self._context_for(step),
            kind=SpanKind.INTERNAL,
            attributes=known,
            start_time=checkpoint.reading.time_ns,
        )

    def step_entered(self, step: StepInfo) -> Token[Any] | None:
        """Makes the step's span the current one."""
        span = self._spans.get(step.index)
        if span is None:
            return None
        return otel_context.attach(trace.set_span_in_context(span, self._context_for(step)))

    def step_left(self, step: StepInfo, token: Token[Any] | None) -> None:
        """Makes the previous span the current one again."""
        if token is not None:
            otel_context.detach(token)

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        """Sets the figures on the step's span and ends it."""
        span = self._spans.pop(record.info.index, None)
        if span is None or self._run is None:
            return
        self._copy_to_run(record.attributes)
        if span.is_recording():
            span.set_attributes(
                {
                    **record.attributes,
                    **self._figures.between(
                        record.start,
                        record.end,
                        record.peaks,
                        self._run.limits.memory,
                    ),
                    **_progress(record),
                    **custom_of(record.custom),
                }
            )
            if record.error is not None:
                span.set_attribute(semconv.ERROR_TYPE, error_type(record.error))
                span.record_exception(record.error, timestamp=record.end.time_ns)
                span.set_status(StatusCode.ERROR, str(record.error) or None)
        # By the monotonic clock: the wall clock may have been set during the step.
        span.end(end_time=record.start.time_ns + record.end.clock_ns - record.start.clock_ns)

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """Adds a span for each model that was costed.

        When the root span ends, it gets the totals of the last model of each role.
        """
        if self._run is None:
            return
        for cost in costs:
            totals = cost_of(cost)
            identity = cost_identity_of(cost)
            if identity.get(semconv.MODEL_ROLE) == "float" and semconv.MODEL_PATH in identity:
                self._copy_to_run({semconv.INPUT_PATH: identity[semconv.MODEL_PATH]})
            span = self._tracer.start_span(
                semconv.COST_SPAN,
                context=self._root_context,
                attributes={
                    semconv.RUN_ID: self._run.id,
                    **identity,
                    **totals,
                },
                start_time=cost.start_ns,
            )
            if cost.error is not None:
                span.add_event(semconv.COST_FAILED_EVENT, {"message": cost.error}, cost.end_ns)
            span.end(end_time=cost.end_ns)
            # Set when the root ends: an attribute cannot be removed, and the next quantization of
            # the run may have other ones.
            self._totals[cost.role] = totals

    def run_reported(self, record: RunRecord) -> None:
        """Ends the root span; the next step begins another."""
        self._end_root(record)

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        """Ends the root span."""
        self._end_root(record)
        self._run = None
        self._spans.clear()

    def forget(self) -> None:
        """Drops the parent's spans; the parent ends them."""
        self._run = self._root = self._root_context = None
        self._spans = {}

    def carrier(self) -> dict[str, str]:
        """Returns the W3C headers of the current span, or of the run's span if there is none."""
        context = otel_context.get_current()
        if not trace.get_current_span(context).get_span_context().is_valid:
            context = self._root_context or context
        headers: dict[str, str] = {}
        if trace.get_current_span(context).get_span_context().is_valid:
            propagate.inject(headers, context)
        return headers

    def _copy_to_run(self, attributes: Mapping[str, AttributeValue]) -> None:
        found = {
            key: attributes[key]
            for key in _COPIED_TO_RUN
            if key in attributes and key not in self._copied_to_run
        }
        if found and self._root is not None:
            self._root.set_attributes(found)
            self._copied_to_run |= found.keys()

    def _end_root(self, record: RunRecord) -> None:
        """Sets the totals on the root span and ends it."""
        root, self._root, self._root_context = self._root, None, None
        if root is None:
            return
        totals: dict[str, AttributeValue] = {
            semconv.RUN_STEPS: record.steps,
            semconv.RUN_FAILED_STEPS: record.failed_steps,
            **self._figures.between(
                record.start,
                record.end,
                record.peaks,
                record.info.limits.memory,
            ),
            **custom_of(record.custom),
        }
        for models in self._totals.values():
            totals |= models
        self._totals = {}
        if record.peaks.process_memory is not None:
            totals[semconv.MEMORY_PROCESS_PEAK] = record.peaks.process_memory
        root.set_attributes(totals)
        if record.error is not None:
            root.set_attribute(semconv.ERROR_TYPE, record.error)
            root.set_status(StatusCode.ERROR, record.error)
        # By the monotonic clock: the wall clock may have been set during the step.
        root.end(end_time=record.start.time_ns + record.end.clock_ns - record.start.clock_ns)

    def _start_root(self, checkpoint: Checkpoint) -> None:
        assert self._run is not None
        self._copied_to_run = set()
        parent = otel_context.get_current()
        if not trace.get_current_span(parent).get_span_context().is_valid:
            parent = _context_from(self._run.parent_carrier, parent)
        self._root = self._tracer.start_span(
            semconv.ROOT_SPAN,
            context=parent,
            kind=SpanKind.INTERNAL,
            attributes={
                **run_identity_of(self._run),
                **gpus_of(checkpoint.baseline),
            },
            start_time=self._started_ns,
        )
        self._root_context = trace.set_span_in_context(self._root, parent)

    def context_of(self, step: StepInfo | None) -> Context | None:
        """Returns the context whose current span is a step's, or the run's if ``step`` is None.

        None if the span does not exist or has ended.
        """
        span = self._spans.get(step.index) if step is not None else None
        if span is None:
            return self._root_context
        return trace.set_span_in_context(span, self._root_context)

    def _context_for(self, step: StepInfo) -> Context:
        """Returns the context in which a step's span starts.

        Within another step it is the calling context, so that a span of the program between the
        two steps becomes the parent. Otherwise the run's span is the parent, and the run's baggage
        is added for names that the program has not set.
        """
        context = otel_context.get_current()
        if self._root is None or (
            step.parent is not None and trace.get_current_span(context).get_span_context().is_valid
        ):
            return context
        for name, value in baggage.get_all(self._root_context).items():
            if baggage.get_baggage(name, context) is None:
                context = baggage.set_baggage(name, value, context)
        return trace.set_span_in_context(self._root, context)


def _context_from(carrier: Mapping[str, str], parent: Context) -> Context:
    if not carrier:
        return parent
    extracted = propagate.extract(carrier, parent)
    if "traceparent" in carrier and not (
        trace.get_current_span(extracted).get_span_context().is_valid
    ):
        _log.warning(
            "environment variable TRACEPARENT is %r; expected "
            "00-<32 hexadecimal digits>-<16 hexadecimal digits>-<2 hexadecimal digits>, neither "
            "identifier all zeros, and the tracecontext propagator; the run begins a new trace",
            carrier["traceparent"],
        )
    return extracted


def _progress(record: StepRecord) -> dict[str, AttributeValue]:
    if not record.samples:
        return {}
    progress: dict[str, AttributeValue] = {semconv.CALIBRATION_SAMPLE_COUNT: record.samples}
    if record.duration > 0:
        progress[semconv.CALIBRATION_SAMPLE_RATE] = round(record.samples / record.duration, 3)
    return progress
