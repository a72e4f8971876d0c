"""What takes the place of the SDK's parts in a replay: providers that keep what they get, and meters.

The SDK gives a point of a metric the time at which it
is collected; here it has the recorded time. A histogram has a point at the end of each step, with the sum of the steps
up to it. What is observed while a run goes on (memory in use, progress, forecasts) is not here: a recording has no such
points; but its start, end and peak are.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_quant.schema import semconv
from otel_quant.schema.catalog import METRIC_BY_NAME
from otel_quant.version import VERSION


class Kept:
    """Providers of spans and log records that keep what they get."""

    def __init__(self, resource: Resource, **of_spans: Any) -> None:
        self.spans: list[Any] = []
        self.records: list[Any] = []
        self.tracers = TracerProvider(resource=resource, shutdown_on_exit=False, **of_spans)
        self.tracers.add_span_processor(SimpleSpanProcessor(_exporter(self.spans)))
        self.loggers = LoggerProvider(resource, shutdown_on_exit=False)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(_exporter(self.records)))


def _exporter(kept: list[Any]) -> Any:
    return SimpleNamespace(export=kept.extend, shutdown=lambda: None)


# --- metrics ------------------------------------------------------------------------------

_SCOPE: Final = InstrumentationScope(semconv.SCOPE, VERSION, semconv.SCHEMA_URL)
_MOST: Final = 1000  # Points of one request: a receiver takes 4 MiB by default
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE

_OF_RUN: Final = (
    semconv.RUN_START, semconv.RUN_LAST_SEEN, semconv.RUN_MEMORY_PEAK, semconv.RUN_END,
)  # fmt: skip
"""What is observed of a run that is over; dashboards list runs by it."""

_DATA: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "histogram": lambda points: Histogram(points, _CUMULATIVE),
    "counter": lambda points: Sum(points, _CUMULATIVE, True),
    "gauge": Gauge,
    "observable_gauge": Gauge,
}
"""What contains the points of each kind of instrument."""


class RecordedMeters:
    """A provider, its meter and its instruments, for one run."""

    def __init__(self, resource: Resource, start_ns: int) -> None:
        self.now_ns = start_ns
        self._resource = resource
        self._start_ns = start_ns
        self._observed: dict[str, Callable[..., Any]] = {}
        self._latest: dict[tuple[str, frozenset[tuple[str, Any]]], Any] = {}
        self._found: dict[str, list[Any]] = {}

    def get_meter(self, *_: object, **__: object) -> RecordedMeters:
        """Returns the meter."""
        return self

    def create_histogram(self, name: str, **_: object) -> SimpleNamespace:
        """Returns an instrument of any kind that values are written to."""
        add = functools.partial(self._add, name)
        return SimpleNamespace(record=add, add=add, set=add)

    create_counter = create_gauge = create_histogram

    def create_observable_gauge(
        self, name: str, callbacks: Sequence[Callable[..., Any]], **_: object
    ) -> None:
        """Notes what observes a metric."""
        self._observed[name] = callbacks[0]

    create_observable_counter = create_observable_gauge

    def observe_run(self, *, has_ended: bool) -> None:
        """Adds when the run began, was last seen and ended, and its peak."""
        for name in _OF_RUN:
            for observation in self._observed[name](None):
                is_now = name == semconv.RUN_LAST_SEEN and not has_ended
                value = self.now_ns / 1e9 if is_now else observation.value
                point = NumberDataPoint(observation.attributes, 0, self.now_ns, value)
                self._found.setdefault(name, []).append(point)

    def _add(
        self, name: str, value: float, labels: Mapping[str, Any], context: Context | None = None
    ) -> None:
        metric = METRIC_BY_NAME.get(name)
        if metric is None:
            return  # the program's own
        key = name, frozenset(labels.items())
        before: Any = self._latest.get(key)
        exemplars = []
        if context is not None:
            ids = trace.get_current_span(context).get_span_context()
            exemplars = [Exemplar({}, value, self.now_ns, ids.span_id, ids.trace_id)]
        point: Any
        if metric.instrument == "histogram":
            counts, bounds = [0] * (len(metric.buckets) + 1), metric.buckets
            before = before or HistogramDataPoint(
                labels, self._start_ns, self.now_ns, 0, 0, counts, bounds, math.inf, -math.inf
            )
            counts = list(before.bucket_counts)
            counts[bisect_left(bounds, value)] += 1
            point = replace(
                before, time_unix_nano=self.now_ns, count=before.count + 1, sum=before.sum + value,
                bucket_counts=counts, min=min(before.min, value), max=max(before.max, value),
                exemplars=exemplars,
            )  # fmt: skip
        elif metric.instrument == "counter":
            total = value + (before.value if before else 0)
            point = NumberDataPoint(labels, self._start_ns, self.now_ns, total, exemplars)
        else:
            point = NumberDataPoint(labels, 0, self.now_ns, value, exemplars)
        self._latest[key] = point
        self._found.setdefault(name, []).append(point)

    def all(self) -> Iterator[tuple[MetricsData, int]]:
        """Yields the points as exporters take them, with their number: some of a metric at once."""
        for name, points in self._found.items():
            metric = METRIC_BY_NAME[name]
            for first in range(0, len(points), _MOST):
                some = points[first : first + _MOST]
                data = _DATA[metric.instrument](some)
                shown = Metric(name, metric.brief, metric.unit, data)
                scope = ScopeMetrics(_SCOPE, [shown], semconv.SCHEMA_URL)
                yield MetricsData([ResourceMetrics(self._resource, [scope], "")]), len(some)
