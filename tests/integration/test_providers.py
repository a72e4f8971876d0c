"""A program that configures OpenTelemetry itself does so when it likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.script import run_script

SCRIPT = """
import sys
import otel_quant
from opentelemetry import metrics, trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

def set_providers():
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(
        MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    )
    loggers = LoggerProvider()
    loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    set_logger_provider(loggers)

when = sys.argv[1]
if when == "before instrument()":
    set_providers()
otel_quant.QuantInstrumentor().instrument()
if when == "after instrument()":
    set_providers()
with otel_quant.step("First"):
    if when == "within the first step":
        set_providers()
    with otel_quant.step("Inner"):
        pass
if when == "after the first step":
    set_providers()
with otel_quant.step("Second"):
    pass
"""


@pytest.mark.parametrize(
    ("when", "steps"),
    [
        ("before instrument()", [("First", [("Inner", [])]), ("Second", [])]),
        ("after instrument()", [("First", [("Inner", [])]), ("Second", [])]),
        ("within the first step", [("Inner", []), ("Second", [])]),
        ("after the first step", [("Second", [])]),
    ],
)
def test_what_begins_after_the_providers_are_set_is_reported_to_the_end(
    tmp_path: Path, otlp: OtlpReceiver, when: str, steps: list[object]
) -> None:
    _, errors = run_script(tmp_path, SCRIPT, when, **otlp.environment("http/protobuf"))

    assert errors == ""
    assert otlp.tree() == [("quantization", steps)]
    root = otlp.span("quantization")
    assert root.attributes["quant.run.steps"] == 3
    assert root.start_ns <= min(span.start_ns for span in otlp.spans)
    records = otlp.records_of("quant.checkpoint")
    assert records[-1].body == "End"
    assert (records[-1].trace_id, records[-1].span_id) == (root.trace_id, root.span_id)
    assert otlp.point("quant.step.duration", quant__step__name="Second").count == 1
    assert otlp.point("quant.run.memory.usage").value > 0


def test_nothing_is_sent_once_the_providers_have_been_shut_down(
    tmp_path: Path, otlp: OtlpReceiver
) -> None:
    # What is registered first runs last: the process lives on after the SDK's own handlers.
    lives_on = "import atexit, time\natexit.register(time.sleep, 1)\n"
    _, errors = run_script(
        tmp_path, lives_on + SCRIPT, "before instrument()", **otlp.environment("http/protobuf")
    )

    assert errors == ""
    assert otlp.tree() == [("quantization", [("First", [("Inner", [])]), ("Second", [])])]
