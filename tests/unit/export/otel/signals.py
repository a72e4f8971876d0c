"""The real SDK with exporters that keep what they get, and sinks that write to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_quant.export.otel.logs import LogsSink
from otel_quant.export.otel.metrics import MetricsSink
from otel_quant.export.otel.spans import SpansSink
from otel_quant.schema.figures import RESOURCES, Number
from otel_quant.schema.readings import Reading

Points = dict[tuple[str, str], list[tuple[dict[str, Any], float]]]


def plain(attributes: Any) -> dict[str, Any]:
    return dict(attributes or {})


class Signals:
    """Providers of the three signals, and what reached them."""

    def __init__(self) -> None:
        self._spans, self.log_exporter = InMemorySpanExporter(), InMemoryLogRecordExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self.log_exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def spans_sink(self) -> SpansSink:
        return SpansSink(provider=self.tracers)

    def logs_sink(self, send: Callable[[], None] = lambda: None) -> LogsSink:
        return LogsSink(send, lambda step: None, self.loggers)

    def metrics_sink(
        self,
        read_now: Callable[[], Reading | None] = lambda: None,
        peak_now: Callable[[], Number | None] = lambda: None,
    ) -> MetricsSink:
        return MetricsSink(RESOURCES, read_now, lambda step: None, self.meters, peak_now)

    def all_spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def spans(self) -> dict[str, ReadableSpan]:
        """Returns the spans by name."""
        return {span.name: span for span in self.all_spans()}

    def records(self) -> list[tuple[Any, ...]]:
        """Returns event, body, severity, time and attributes of each log record."""
        return [
            (
                record.event_name, record.body, record.severity_text, record.timestamp,
                plain(record.attributes),
            )
            for record in (
                exported.log_record for exported in self.log_exporter.get_finished_logs()
            )
        ]  # fmt: skip

    def began_ns(self, metric: str) -> list[int]:
        """Returns when the series of a counter begin, by a collection of now."""
        return [point.start_time_unix_nano for point in self._points_of(metric)]

    def exemplars(self, metric: str) -> list[int]:
        """Returns the spans that the points of a metric name, by a collection of now."""
        return [each.span_id for point in self._points_of(metric) for each in point.exemplars]

    def _points_of(self, metric: str) -> list[Any]:
        data: Any = self._reader.get_metrics_data()
        (scope,) = data.resource_metrics[0].scope_metrics
        return [
            point
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
        ]

    def points(self) -> Points:
        """Returns attributes and value of all points, by metric and unit; sums of histograms."""
        data = self._reader.get_metrics_data()
        return {
            (metric.name, metric.unit or ""): [
                (
                    plain(point.attributes),
                    point.sum
                    if isinstance(point, HistogramDataPoint)
                    else getattr(point, "value", 0),
                )
                for point in metric.data.data_points
            ]
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
