"""The receiver that other tests rely on stores what real exporters send, and misbehaves."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
    OTLPMetricExporter as GrpcMetricExporter,
)
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcSpanExporter,
)
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
    OTLPMetricExporter as HttpMetricExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpSpanExporter,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

from tests.fixtures.otlp_receiver import Mode, OtlpReceiver

SpanExporterOf = Callable[[OtlpReceiver, int], SpanExporter]

SPAN_EXPORTERS: dict[str, SpanExporterOf] = {
    "grpc": lambda otlp, seconds: GrpcSpanExporter(endpoint=otlp.grpc_endpoint, timeout=seconds),
    "http": lambda otlp, seconds: HttpSpanExporter(
        f"{otlp.http_endpoint}/v1/traces", timeout=seconds
    ),
    "http-gzip": lambda otlp, seconds: HttpSpanExporter(
        f"{otlp.http_endpoint}/v1/traces", compression=Compression.Gzip, timeout=seconds
    ),
}
PATIENT, IMPATIENT = 30, 2
"""Seconds: for who waits for an answer that comes, and for one that does not."""

METRIC_EXPORTERS: dict[str, Callable[[OtlpReceiver], MetricExporter]] = {
    "grpc": lambda otlp: GrpcMetricExporter(endpoint=otlp.grpc_endpoint),
    "http": lambda otlp: HttpMetricExporter(f"{otlp.http_endpoint}/v1/metrics"),
}


def emit_two_spans(exporter: SpanExporter) -> None:
    provider = TracerProvider(resource=Resource({"service.name": "a"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("scope", "1.0")
    with (
        tracer.start_as_current_span("outer", attributes={"texts": ["a", "b"], "flag": True}),
        tracer.start_as_current_span("inner", attributes={"int": 1, "double": 0.5}),
    ):
        pass
    provider.shutdown()


@pytest.mark.parametrize("exporter", SPAN_EXPORTERS.values(), ids=SPAN_EXPORTERS)
def test_spans_arrive_whole_and_nested(exporter: SpanExporterOf, otlp: OtlpReceiver) -> None:
    emit_two_spans(exporter(otlp, PATIENT))

    assert otlp.tree() == [("outer", [("inner", [])])]
    assert otlp.span("outer").attributes == {"texts": ("a", "b"), "flag": True}
    inner = otlp.span("inner")
    assert inner.attributes == {"int": 1, "double": 0.5}
    assert inner.resource == {"service.name": "a"}
    assert (inner.scope, inner.scope_version) == ("scope", "1.0")
    assert inner.trace_id == otlp.span("outer").trace_id
    assert inner.arrived >= inner.end_ns


@pytest.mark.parametrize("exporter", METRIC_EXPORTERS.values(), ids=METRIC_EXPORTERS)
def test_points_of_each_kind_arrive(
    exporter: Callable[[OtlpReceiver], MetricExporter], otlp: OtlpReceiver
) -> None:
    provider = MeterProvider([PeriodicExportingMetricReader(exporter(otlp))])
    meter = provider.get_meter("scope")
    meter.create_counter("counted", unit="By").add(3, {"a.b": "c"})
    meter.create_gauge("set").set(0.5)
    meter.create_histogram("spread", explicit_bucket_boundaries_advisory=[1, 2]).record(1.5)
    provider.shutdown()

    counted = otlp.point("counted", a__b="c")
    assert (counted.type, counted.monotonic, counted.value, counted.unit) == ("sum", True, 3, "By")
    assert otlp.point("set").value == 0.5
    spread = otlp.point("spread")
    assert (spread.count, spread.value, spread.bounds, spread.buckets) == (
        1,
        1.5,
        (1, 2),
        (0, 1, 0),
    )
    assert otlp.metric_names("scope") == {"counted", "set", "spread"}


@pytest.mark.parametrize("mode", [Mode.ERROR, Mode.UNAVAILABLE, Mode.HANG, Mode.REFUSE])
@pytest.mark.parametrize("exporter", SPAN_EXPORTERS.values(), ids=SPAN_EXPORTERS)
def test_a_receiver_that_misbehaves_stores_nothing_until_it_accepts_again(
    exporter: SpanExporterOf,
    mode: Mode,
    otlp: OtlpReceiver,
    caplog: pytest.LogCaptureFixture,
) -> None:
    otlp.become(mode)
    with caplog.at_level(logging.CRITICAL):
        emit_two_spans(exporter(otlp, IMPATIENT))
    assert otlp.spans == []
    assert {how for _, how in otlp.requests} == (set() if mode is Mode.REFUSE else {mode})

    otlp.become(Mode.ACCEPT)
    otlp.clear()
    emit_two_spans(exporter(otlp, PATIENT))
    assert otlp.span_names() == ["outer", "inner"]
