"""Sink that turns the run and its steps into spans."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass
from typing import Any

from opentelemetry import baggage, propagate, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider

from otel_quant.base.fault_boundary import error_type
from otel_quant.base.log import LOG
from otel_quant.export.otel import forecasts
from otel_quant.export.otel.attributes import (
    FigureAttributes,
    cost_identity_of,
    cost_of,
    custom_of,
    gpus_of,
    identity_of,
    origin_of,
    progress_of,
    run_identity_of,
    run_ids_of,
    shown_of,
)
from otel_quant.export.otel.span_ids import SpanIds
from otel_quant.schema import semconv
from otel_quant.schema.figures import Resource
from otel_quant.schema.forecast_warnings import NewWarnings
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


@dataclass(frozen=True, slots=True)
class _RunSpan:
    """The span of a run."""

    span: Span  # The span
    context: Context  # The context whose current span it is
    # Its attributes that must not be dropped; copies from steps are added
    identity: dict[str, AttributeValue]
    # Whether a provider has made it. Without one, it stands for the parent or nothing.
    is_own: bool


class SpansSink(Sink):
    """One span for the run and one for each step, nested as the steps are.

    The run's span is a child of the span that is current when the run begins, or else of the
    trace context in the environment of the process. A step's span is a child of the current span
    if the step is within another step, or else of the run's span.
    """

    name = "spans"

    def __init__(
        self,
        resources: Sequence[Resource],
        provider_found: Callable[[], None] = lambda: None,
        run_span_started: Callable[
            [Context, Mapping[str, AttributeValue], int], None
        ] = lambda context, attributes, start_ns: None,
        provider: TracerProvider | None = None,
        figures: FigureAttributes | None = None,
    ) -> None:
        self._figures = figures or FigureAttributes(resources)
        self._provider_found = provider_found
        self._run_span_started = run_span_started
        get = trace.get_tracer if provider is None else provider.get_tracer
        self._tracer: Tracer = get(semconv.SCOPE, VERSION, schema_url=semconv.SCHEMA_URL)
        self._run: RunInfo | None = None
        # Reentrant: a signal handler, or a span processor, may open a step.
        self._root_lock = threading.RLock()
        self._root: _RunSpan | None = None
        self._started_ns = 0
        self._spans: dict[int, Span] = {}
        self._totals: dict[str, dict[str, AttributeValue]] = {}
        self._costs: list[tuple[CostedModel, Span]] = []
        self._warnings = NewWarnings()

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """Starts the root span."""
        self._run = run
        self._warnings.clear()
        self._root_for(run, checkpoint)

    def step_started(
        self, step: StepInfo, checkpoint: Checkpoint, attributes: Mapping[str, AttributeValue]
    ) -> None:
        """Starts the step's span."""
        run = self._run
        if run is None:
            return
        root = self._root_for(run, checkpoint)
        known: dict[str, AttributeValue] = {
            **shown_of(attributes),
            **run_ids_of(run),
            **identity_of(step),
        }
        memory = checkpoint.reading.memory
        if memory is not None:
            known[semconv.MEMORY_START] = memory.tree_rss
        context = self._context_for(step)
        span = self._start(step.label, context, known, checkpoint.reading.time_ns)
        # A provider may have turned up between the two spans.
        if not root.is_own and _is_own(span, context):
            self._root_for(run, checkpoint)
            context = self._context_for(step)
            span = self._start(step.label, context, known, checkpoint.reading.time_ns)
        self._spans[step.index] = span
        self._copy_to_run(known)

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
                    **custom_of(record.custom),
                    **shown_of(record.attributes),
                    **self._figures.between(
                        record.start,
                        record.end,
                        record.peaks,
                        self._run.limits.memory,
                    ),
                    **progress_of(record),
                }
            )
            if record.error is not None:
                _set_error(span, record.error, record.end.time_ns, texts=self._run.paths)
            if _has_dropped(span):
                span.set_attributes({**run_ids_of(self._run), **identity_of(record.info)})
        # By the monotonic clock: the wall clock may have been set during the step.
        span.end(end_time=record.start.time_ns + record.end.clock_ns - record.start.clock_ns)

    def run_progressed(self, progress: RunProgress) -> None:
        """Puts new warnings on their steps' spans."""
        for step, growth in self._warnings.of(progress):
            span = self._spans.get(step.info.index)
            if span is not None:
                span.set_attributes(forecasts.attributes_of(growth))

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """Adds a span for each model that was costed.

        When the root span ends, it gets the totals of the last model of each role.
        """
        self._costs = []
        if self._run is None:
            return
        for cost in costs:
            totals = cost_of(cost)
            identity = cost_identity_of(cost)
            if identity.get(semconv.MODEL_ROLE) == "float" and semconv.MODEL_PATH in identity:
                self._copy_to_run({semconv.INPUT_PATH: identity[semconv.MODEL_PATH]})
            span = self._tracer.start_span(
                semconv.COST_SPAN,
                context=self.context_of(None),
                attributes={
                    **totals,
                    **run_ids_of(self._run),
                    **identity,
                },
                start_time=cost.start_ns,
            )
            if cost.error is not None:
                span.add_event(semconv.COST_FAILED_EVENT, {"message": cost.error}, cost.end_ns)
            span.end(end_time=cost.end_ns)
            self._costs.append((cost, span))
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
        self._run = self._root = None
        self._root_lock = threading.RLock()  # a thread of the parent may hold it
        self._spans = {}

    def ids_of(self, item: StepInfo | CostedModel | None) -> SpanIds | None:
        """Returns the identifiers of the span of a step or a costed model, or of the run's if None.

        None if no provider has made the span, it is not sampled, or it has ended; of models, those
        that were costed last are known.
        """
        root = self._root
        if root is None or not root.is_own:
            return None
        span: Span | None
        if isinstance(item, CostedModel):
            span = next((span for cost, span in self._costs if cost is item), None)
        else:
            span = root.span if item is None else self._spans.get(item.index)
        if span is None:
            return None
        made, parent = span.get_span_context(), getattr(span, "parent", None)
        if not made.trace_flags.sampled:
            return None
        return SpanIds(
            trace.format_trace_id(made.trace_id),
            trace.format_span_id(made.span_id),
            trace.format_span_id(parent.span_id) if parent is not None else None,
            getattr(getattr(span, "resource", None), "attributes", None) if item is None else None,
        )

    def carrier(self) -> dict[str, str]:
        """Returns the W3C headers of the current span, or of the run's span if there is none."""
        context = otel_context.get_current()
        if not trace.get_current_span(context).get_span_context().is_valid:
            context = self.context_of(None) or context
        headers: dict[str, str] = {}
        if trace.get_current_span(context).get_span_context().is_valid:
            propagate.inject(headers, context)
        return headers

    def _copy_to_run(self, attributes: Mapping[str, AttributeValue]) -> None:
        found = {key: attributes[key] for key in semconv.COPIED_TO_RUN if key in attributes}
        if not found:
            return
        with self._root_lock:  # of two threads, one gives the value
            root = self._root
            if root is None:
                return
            new = {key: value for key, value in found.items() if key not in root.identity}
            if new:
                root.identity.update(new)
                root.span.set_attributes(new)

    def _end_root(self, record: RunRecord) -> None:
        """Sets the totals on the root span and ends it."""
        with self._root_lock:
            root, self._root = self._root, None
        if root is None:
            return
        totals = dict(custom_of(record.custom))
        for models in self._totals.values():
            totals |= models
        self._totals = {}
        totals |= {
            **self._figures.between(
                record.start,
                record.end,
                record.peaks,
                record.info.limits.memory,
            ),
            **origin_of(record.info, record.start),  # more is known at the end
            semconv.RUN_STEPS: record.steps,
            semconv.RUN_FAILED_STEPS: record.failed_steps,
        }
        if record.peaks.process_memory is not None:
            totals[semconv.MEMORY_PROCESS_PEAK] = record.peaks.process_memory
        span = root.span
        span.set_attributes(totals)
        if record.error is not None:
            span.set_attribute(semconv.ERROR_TYPE, record.error)
            span.set_status(StatusCode.ERROR, record.error)
        if _has_dropped(span):
            span.set_attributes(root.identity)
        # By the monotonic clock: the wall clock may have been set during the step.
        span.end(end_time=record.start.time_ns + record.end.clock_ns - record.start.clock_ns)

    def _root_for(self, run: RunInfo, checkpoint: Checkpoint) -> _RunSpan:
        """Returns the run's span, and starts it if there is none yet or any more.

        The program may have configured OpenTelemetry after its first step. If there is a provider
        now, the run's span is started again, with the run's start time. Of threads that need it
        at the same time, one starts it.
        """
        root = self._root
        if root is not None and root.is_own:
            return root
        with self._root_lock:
            earlier = self._root
            if earlier is not None and earlier.is_own:
                return earlier
            if earlier is None:
                self._started_ns = checkpoint.reading.time_ns
            start_ns = self._started_ns
            made = self._make_root(run, checkpoint, start_ns)
            if self._root is not earlier and self._root is not None:
                return self._root  # a step that was opened meanwhile in this thread has made it
            self._root = made
        if made.is_own:
            # Without the lock: the log record that tells of it may take any time to be sent.
            if earlier is not None:
                self._provider_found()
            origin = origin_of(run, checkpoint.baseline)
            self._run_span_started(made.context, {**origin, **made.identity}, start_ns)
        return made

    def _make_root(self, run: RunInfo, checkpoint: Checkpoint, start_ns: int) -> _RunSpan:
        parent = otel_context.get_current()
        if not trace.get_current_span(parent).get_span_context().is_valid:
            parent = _context_from(run.parent_carrier, parent)
        identity = {**gpus_of(checkpoint.baseline), **run_identity_of(run)}
        known = {**origin_of(run, checkpoint.baseline), **identity}
        span = self._start(semconv.ROOT_SPAN, parent, known, start_ns)
        context = trace.set_span_in_context(span, parent)
        return _RunSpan(span, context, identity, _is_own(span, parent))

    def _start(
        self,
        name: str,
        parent: Context,
        attributes: dict[str, AttributeValue],
        start_ns: int,
    ) -> Span:
        return self._tracer.start_span(
            name,
            context=parent,
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=start_ns,
        )

    def context_of(self, step: StepInfo | None) -> Context | None:
        """Returns the context whose current span is a step's, or the run's if ``step`` is None.

        None if the span does not exist or has ended.
        """
        span = self._spans.get(step.index) if step is not None else None
        root = self._root
        context = root.context if root is not None else None
        return context if span is None else trace.set_span_in_context(span, context)

    def _context_for(self, step: StepInfo) -> Context:
        """Returns the context in which a step's span starts.

        Within another step it is the calling context, so that a span of the program between the
        two steps becomes the parent. Otherwise the run's span is the parent, and the run's baggage
        is added for names that the program has not set.
        """
        context = otel_context.get_current()
        root = self._root
        if root is None or (
            step.parent is not None and trace.get_current_span(context).get_span_context().is_valid
        ):
            return context
        for name, value in baggage.get_all(root.context).items():
            if baggage.get_baggage(name, context) is None:
                context = baggage.set_baggage(name, value, context)
        return trace.set_span_in_context(root.span, context)


def _is_own(span: Span, parent: Context) -> bool:
    """Whether a provider has made a span. The API returns its parent, or an invalid one."""
    made = span.get_span_context()
    above = trace.get_current_span(parent).get_span_context()
    return made.is_valid and made.span_id != above.span_id


def _has_dropped(span: Span) -> bool:
    """Whether the SDK has dropped attributes, so that what identifies a span is to be set again.

    It keeps a limited number (`OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT`, 128 by default) and drops those
    that were set first.
    """
    return bool(getattr(span, "dropped_attributes", 0))


def _context_from(carrier: Mapping[str, str], parent: Context) -> Context:
    if not carrier:
        return parent
    extracted = propagate.extract(carrier, parent)
    if "traceparent" in carrier and not (
        trace.get_current_span(extracted).get_span_context().is_valid
    ):
        LOG.warning(
            "environment variable TRACEPARENT is %r; expected "
            "00-<32 hexadecimal digits>-<16 hexadecimal digits>-<2 hexadecimal digits>, neither "
            "identifier all zeros, and the tracecontext propagator; the run begins a new trace",
            carrier["traceparent"],
        )
    return extracted


def _set_error(span: Span, error: BaseException, time_ns: int, *, texts: bool) -> None:
    """Says on a span what ended its step."""
    kind = error_type(error)
    span.set_attribute(semconv.ERROR_TYPE, kind)
    if texts:
        span.record_exception(error, timestamp=time_ns)
        span.set_status(StatusCode.ERROR, str(error) or None)
    else:
        span.add_event(semconv.EXCEPTION_EVENT, {semconv.EXCEPTION_TYPE: kind}, time_ns)
        span.set_status(StatusCode.ERROR)
