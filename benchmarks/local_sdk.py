"""The OpenTelemetry SDK as an application has it, with exporters that go nowhere.

Everything up to the network is real: batch processors with their threads, the metric
reader, and (if asked for) the encoding to OTLP's protobuf. Only the sending is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    LogRecordExporter,
    LogRecordExportResult,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult


class Discard:
    """Counts what it is given; encodes it first if that is wanted.

    Attributes:
        items: Spans and log records so far.
        octets: Bytes that they took, encoded; 0 without encoding.
        spans: The latest batch of spans.
        logs: The latest batch of log records.
        metrics: The latest state of the metrics; None before the first.
    """

    def __init__(self, encode: bool) -> None:
        self.items = 0
        self.octets = 0
        self.spans: Sequence[Any] = ()
        self.logs: Sequence[Any] = ()
        self.metrics: Any = None
        self._encode = encode

    def take(self, batch: Any, items: int, encoder: Callable[[Any], Any]) -> None:
        """Takes a batch."""
        self.items += items
        if self._encode:
            self.octets += len(encoder(batch).SerializeToString())


class _Spans(SpanExporter):
    def __init__(self, discard: Discard) -> None:
        self._discard = discard

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        self._discard.spans = spans
        self._discard.take(spans, len(spans), encode_spans)
        return SpanExportResult.SUCCESS


class _Logs(LogRecordExporter):
    def __init__(self, discard: Discard) -> None:
        self._discard = discard

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        self._discard.logs = batch
        self._discard.take(batch, len(batch), encode_logs)
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True

    def shutdown(self) -> None:
        """Nothing to shut down."""


class _Metrics(MetricExporter):
    def __init__(self, discard: Discard) -> None:
        super().__init__()
        self._discard = discard

    def export(self, metrics_data: Any, timeout_millis: float = 0, **_: Any) -> MetricExportResult:
        self._discard.metrics = metrics_data
        self._discard.take(metrics_data, 0, encode_metrics)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
        """Nothing to shut down."""


def configure(*, encode: bool = False) -> Discard:
    """Sets the three global providers; returns what is given to the exporters, encoded to OTLP if asked for."""
    discard = Discard(encode)
    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(BatchSpanProcessor(_Spans(discard)))
    trace.set_tracer_provider(tracer_provider)
    metrics.set_meter_provider(
        MeterProvider(metric_readers=[PeriodicExportingMetricReader(_Metrics(discard))])
    )
    logger_provider = LoggerProvider()
    logger_provider.add_log_record_processor(BatchLogRecordProcessor(_Logs(discard)))
    set_logger_provider(logger_provider)
    return discard
