"""Sink that turns the run and its steps into spans."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from contextvars import Token
from itertools import filterfalse, islice
from typing import Any, Final, NamedTuple

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, Tracer, TracerProvider

from otel_quant.base.log import LOG, warn_once
from otel_quant.base.secrets import masked
from otel_quant.schema import events, semconv
from otel_quant.schema.events import Attributes, Event, Sink, custom_value, encodable, present
from otel_quant.schema.readings import AttributeValue, CostedModel, StepInfo
from otel_quant.version import VERSION


class SpanIds(NamedTuple):
    """The identifiers of a span, in hexadecimal digits."""

    trace_id: str
    span_id: str
    parent_span_id: str | None  # The span above; None for a root
    # Attributes of what the telemetry comes from; of the run's span only
    resource: Attributes | None = None


_LONGEST_TRACE: Final = 2048
"""Bytes of a stack trace: Tempo keeps as many of an attribute, the first, which are the outermost frames."""
_CUT: Final = "... (outer frames left out)\n"


class _OpenSpan(NamedTuple):
    """The span of the run or of an open step."""

    span: Span
    began_in: Context  # The context in which it began
    context: Context  # The same with this one as the current span
    known: Attributes  # What it has since its start
    # Whether a provider has made the run's. Without one, it stands for the parent or nothing.
    is_own: bool = True


class SpansSink(Sink):
    """One span for the run and one for each step, nested as the steps are.

    The run's span is a child of the span that is current when the run begins, or else of the
    trace context in the environment of the process. A step's span is a child of the current span
    if the step is within another step, or else of the run's span.
    """

    name = "spans"

    def __init__(
        self, provider_found: Callable[[], None] = lambda: None,
        run_span_started: Callable[[Context, Attributes, int], None] = lambda *_: None,
        provider: TracerProvider | None = None, *, has_profiles: bool = False,
    ) -> None:  # fmt: skip
        get = trace.get_tracer if provider is None else provider.get_tracer
        self._tracer: Tracer = get(semconv.SCOPE, VERSION, schema_url=semconv.SCHEMA_URL)
        self._provider_found = provider_found
        self._run_span_started = run_span_started
        self._ids: dict[str, AttributeValue] = {}  # What every span of the run has
        self._started_ns = 0
        self._has_profiles = has_profiles  # Whether the profiles of steps are sent
        self._costs: list[tuple[CostedModel, Span]] = []
        self.forget()

    def forget(self) -> None:
        """Drops the parent's spans; the parent ends them."""
        self._run: Event | None = None  # Its start
        self._root: _OpenSpan | None = None
        # Reentrant: starting a span may call user code that opens a step. A thread of the parent may hold it.
        self._root_lock = threading.RLock()
        self._spans: dict[int, _OpenSpan] = {}

    def run_started(self, event: Event) -> None:
        """Starts the root span."""
        self._run, self._ids = event, events.run_ids_of(event.run)
        self._ensure_root(event)

    def step_started(self, event: Event) -> None:
        """Starts the step's span."""
        step = event.step
        if self._run is None or step is None:
            return
        self._ensure_root(event)
        known = {**event.attributes, **self._ids}
        memory = event.checkpoint.get(semconv.CHECKPOINT_MEMORY)
        if memory is not None:
            known[semconv.MEMORY_START] = memory
        began_in = otel_context.get_current()
        above = self._context_for(step, began_in)
        span = self._tracer.start_span(
            step.label, above, attributes=known, start_time=event.time_ns
        )
        if self._has_profiles:
            span_id = trace.format_span_id(span.get_span_context().span_id)
            span.set_attribute(semconv.PYROSCOPE_PROFILE_ID, span_id)
        context = trace.set_span_in_context(span, began_in)
        self._spans[step.index] = _OpenSpan(span, began_in, context, event.attributes)

    def step_entered(self, step: StepInfo) -> Token[Any] | None:
        """Makes the step's span the current one."""
        known = self._spans.get(step.index)
        if known is None:
            return None
        now, context = otel_context.get_current(), known.context
        if now is not known.began_in:
            context = trace.set_span_in_context(known.span, now)
        return otel_context.attach(context)

    def step_left(self, step: StepInfo, token: Token[Any] | None) -> None:
        """Makes the previous span the current one again."""
        if token is not None:
            otel_context.detach(token)

    def step_ended(self, event: Event) -> None:
        """Sets the figures on the step's span and ends it."""
        step = event.step
        if step is None or (ended := self._spans.pop(step.index, None)) is None:
            return
        span, known = ended.span, ended.known
        if span.is_recording():
            new = dict(filterfalse(known.items().__contains__, event.attributes.items()))
            span.set_attributes({**custom_of(event.latest_custom), **new})
            if event.error is not None:
                _set_error(span, event)
        span.end(end_time=event.ended_ns)

    def models_costed(self, event: Event) -> None:
        """Adds a span for each model that was costed."""
        self._costs = []
        if self._run is None:
            return
        for cost in event.models:
            identity = {semconv.MODEL_ROLE: cost.role, semconv.MODEL_PATH: cost.path}
            span = self._tracer.start_span(
                semconv.COST_SPAN,
                context=self.context_of(None),
                attributes={**events.cost_of(cost), **self._ids, **present(identity)},
                start_time=cost.start_ns,
            )
            if cost.error is not None:
                span.add_event(semconv.COST_FAILED_EVENT, {"message": cost.error}, cost.end_ns)
            span.end(end_time=cost.end_ns)
            self._costs.append((cost, span))

    def run_reported(self, event: Event) -> None:
        """Ends the root span; the next step begins another."""
        self._end_root(event)

    def run_ended(self, event: Event) -> None:
        """Ends the root span."""
        self._end_root(event)
        self._run = None
        self._spans.clear()

    def run_killed(self, event: Event) -> None:
        """Ends the spans that were open, the innermost first."""
        status = Status(StatusCode.ERROR, event.error_message)
        for step in reversed(event.steps):
            if known := self._spans.pop(step.info.index, None):
                span = known.span
                found = {**step.counts.attributes(), semconv.ERROR_TYPE: event.error}
                span.set_attributes(present(found))
                span.set_status(status)
                span.end(end_time=max(event.time_ns, getattr(span, "start_time", 0)))
        self._end_root(event)
        self._run = None

    def ids_of(self, item: StepInfo | CostedModel | None) -> SpanIds | None:
        """Returns the identifiers of the span of a step or a costed model, or of the run's if None.

        None if no provider has made the span, it is not sampled, or it has ended; of models, those
        that were costed last are known.
        """
        root = self._root
        if root is None or not root.is_own:
            return None
        span: Span | None = root.span
        if isinstance(item, CostedModel):
            span = next((span for cost, span in self._costs if cost is item), None)
        elif item is not None:
            known = self._spans.get(item.index)
            span = known.span if known is not None else None
        if span is None:
            return None
        made, parent = span.get_span_context(), getattr(span, "parent", None)
        resource = getattr(span, "resource", None) if item is None else None
        if not made.trace_flags.sampled:
            return None
        return SpanIds(
            trace.format_trace_id(made.trace_id),
            trace.format_span_id(made.span_id),
            trace.format_span_id(parent.span_id) if parent is not None else None,
            dict(resource.attributes) if resource is not None else None,
        )

    def carrier(self) -> dict[str, str]:
        """Returns the W3C headers of the current span, or of the run's span if there is none."""
        context = otel_context.get_current()
        if not _has_span(context):
            context = self.context_of(None) or context
        headers: dict[str, str] = {}
        if _has_span(context):
            propagate.inject(headers, context)
        return headers

    def _end_root(self, event: Event) -> None:
        """Sets the totals on the root span and ends it."""
        with self._root_lock:
            root, self._root = self._root, None
        if root is None or self._run is None:
            return
        span, totals = root.span, event.attributes if event.of_span is None else event.of_span
        span.set_attributes({**custom_of(event.latest_custom), **totals})
        if event.error is not None:
            span.set_attribute(semconv.ERROR_TYPE, event.error)
            span.set_status(StatusCode.ERROR, event.error_message or event.error)
        span.end(end_time=event.ended_ns)

    def _ensure_root(self, event: Event) -> None:
        """Starts the run's span if there is none yet or any more.

        The program may have configured OpenTelemetry after its first step. If there is a provider
        now, the run's span is started again, with the run's start time. Of threads that need it
        at the same time, one starts it.
        """
        root = self._root
        if root is not None and root.is_own:
            return
        with self._root_lock:
            earlier = self._root
            if earlier is not None and earlier.is_own:
                return
            if earlier is None:
                self._started_ns = event.time_ns
            start_ns = self._started_ns
            known = self._run.attributes if self._run is not None else {}
            made = self._make_root(event, known, start_ns)
            if self._root is not earlier and self._root is not None:
                return  # a step that was opened meanwhile in this thread has made it
            self._root = made
        if made.is_own:
            # Without the lock: the log record about it may take any time to be sent.
            if earlier is not None:
                self._provider_found()
            self._run_span_started(made.context, known, start_ns)

    def _make_root(self, event: Event, known: Attributes, start_ns: int) -> _OpenSpan:
        parent = otel_context.get_current()
        if not _has_span(parent):
            parent = _context_from(event.run.parent_carrier, parent)
        span = self._tracer.start_span(
            semconv.ROOT_SPAN, parent, attributes=known, start_time=start_ns
        )
        context = trace.set_span_in_context(span, parent)
        made, above = span.get_span_context(), trace.get_current_span(parent).get_span_context()
        # The API returns its parent, or an invalid one.
        is_own = made.is_valid and made.span_id != above.span_id
        return _OpenSpan(span, parent, context, known, is_own)

    def context_of(self, step: StepInfo | None) -> Context | None:
        """Returns the context whose current span is a step's, or the run's if ``step`` is None.

        None if the span does not exist or has ended.
        """
        known = self._root if step is None else self._spans.get(step.index, self._root)
        return known.context if known is not None else None

    def _context_for(self, step: StepInfo, context: Context) -> Context:
        """Returns the context in which a step's span starts.

        Within another step it is the calling context, so that a span of the program between the
        two steps becomes the parent. Otherwise the run's span is the parent.
        """
        root = self._root
        if root is None or (step.parent is not None and _has_span(context)):
            return context
        if context is root.began_in:  # as it is mostly: to make another takes a hundredth of a step
            return root.context
        return trace.set_span_in_context(root.span, context)


def _has_span(context: Context) -> bool:
    return trace.get_current_span(context).get_span_context().is_valid


def _context_from(carrier: Mapping[str, str], parent: Context) -> Context:
    if not carrier:
        return parent
    extracted = propagate.extract(carrier, parent)
    if "traceparent" in carrier and not _has_span(extracted):
        LOG.warning(
            "environment variable TRACEPARENT is %r; expected "
            "00-<32 hexadecimal digits>-<16 hexadecimal digits>-<2 hexadecimal digits>, neither "
            "identifier all zeros, and the tracecontext propagator; the run begins a new trace",
            carrier["traceparent"],
        )
    return extracted


def _set_error(span: Span, event: Event) -> None:
    """Records on a span what ended its step."""
    assert event.error is not None
    span.set_attribute(semconv.ERROR_TYPE, event.error)
    if event.exception is not None and event.run.paths:
        message = masked(str(event.exception), is_prose=True)
        shown = {
            semconv.EXCEPTION_STACKTRACE: _stack_trace(event.exception),
            semconv.EXCEPTION_MESSAGE: message,
        }
        span.record_exception(event.exception, shown, event.time_ns)
        span.set_status(StatusCode.ERROR, message or None)
        return
    raised = {semconv.EXCEPTION_TYPE: event.error, semconv.EXCEPTION_MESSAGE: event.error_message}
    span.add_event(semconv.EXCEPTION_EVENT, present(raised), event.time_ns)
    span.set_status(StatusCode.ERROR, event.error_message)


def _stack_trace(error: BaseException) -> str:
    """Returns the frames of an exception; the innermost, if all are more than a store keeps of it."""
    *frames, last = (masked(each, is_prose=True) for each in traceback.format_exception(error))
    text = "".join((*frames, last))
    if len(text.encode(errors="replace")) <= _LONGEST_TRACE:
        return text
    last = last.encode(errors="replace")[: _LONGEST_TRACE // 4].decode(errors="ignore")
    kept = _LONGEST_TRACE - len(last.encode()) - len(_CUT)
    innermost = "".join(frames).encode(errors="replace")[-kept:]
    return _CUT + innermost.partition(b"\n")[2].decode(errors="ignore") + last


# --- metrics that the program has added, as attributes --------------------------------------

MOST_CUSTOM: Final = 32
"""Custom metrics that a span or a checkpoint record shows. With the step's attributes and all of
ours they stay below the 128 that the SDK keeps by default; it drops those that were set first,
which are the ones that identify the span."""


def custom_of(values: Mapping[str, object]) -> Attributes:
    """Returns the values of custom metrics that an attribute can hold, as many as are shown."""
    if not values:
        return {}
    named = ((encodable(name), custom_value(value)) for name, value in values.items())
    found = present({semconv.CUSTOM_PREFIX + name: value for name, value in named})
    if len(found) <= MOST_CUSTOM:
        return found
    warn_once(
        f"only the first {MOST_CUSTOM} custom metrics are on spans and log records; "
        "add fewer to choose them"
    )
    return dict(islice(found.items(), MOST_CUSTOM))
