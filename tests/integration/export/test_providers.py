"""A program that configures OpenTelemetry itself does so when it likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import run_script

SCRIPT = """
import sys
import otel_quant
from otel_quant.capture.runtime import RUNTIME
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

exporters = [OTLPSpanExporter(), OTLPLogExporter(), OTLPMetricExporter()]

def set_providers():
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(BatchSpanProcessor(exporters[0]))
    loggers.add_log_record_processor(BatchLogRecordProcessor(exporters[1]))
    trace.set_tracer_provider(tracers)
    set_logger_provider(loggers)
    metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(exporters[2])]))

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
with otel_quant.step("Calibration", "Second"):
    pass
RUNTIME.delivery.drain(10)
assert not any("export" in vars(exporter) for exporter in exporters), "they are the program's"
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
def test_untouched_exporters_report_steps_that_begin_after_the_providers_are_set(
    tmp_path: Path, otlp: OtlpReceiver, when: str, steps: list[object]
) -> None:
    _, errors = run_script(tmp_path, SCRIPT, when, **otlp.environment("http/protobuf"))

    assert errors == ""
    assert otlp.tree() == [("quantization", steps)]
    root = otlp.span("quantization")
    assert root.attributes[semconv.RUN_STEPS] == 3
    assert root.start_ns <= min(span.start_ns for span in otlp.spans)
    records = otlp.records_of(semconv.CHECKPOINT_EVENT)
    assert records[-1].body == "End"
    assert (records[-1].trace_id, records[-1].span_id) == (root.trace_id, root.span_id)
    assert otlp.point(semconv.STEP_DURATION, quant__step__kind="Calibration").count == 1
    assert otlp.point(semconv.RUN_MEMORY_USAGE).value > 0


AUTOMATIC = """
import atexit, time
atexit.register(time.sleep, 1)  # what is registered first runs last: after the SDK's own handlers
from opentelemetry.instrumentation.auto_instrumentation import initialize
initialize()
import otel_quant
with otel_quant.step("First"):
    pass
"""

LEFT_ALONE = """
import multiprocessing
import otel_quant
from opentelemetry import metrics, trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

def telling(kind):
    class Telling(kind):
        def force_flush(self, *args, **kwargs):
            print(kind.__name__, "is flushed")
            return super().force_flush(*args, **kwargs)
        def shutdown(self, *args, **kwargs):
            print(kind.__name__, "is shut down")
            return super().shutdown(*args, **kwargs)
    return Telling(shutdown_on_exit=False)

def work():
    with otel_quant.step("work"):
        pass

trace.set_tracer_provider(telling(TracerProvider))
metrics.set_meter_provider(telling(MeterProvider))
set_logger_provider(telling(LoggerProvider))
otel_quant.QuantInstrumentor().instrument()
with otel_quant.step("main"):
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
trace.get_tracer_provider().force_flush()
"""


def test_nothing_is_sent_once_the_providers_have_been_shut_down(
    tmp_path: Path, otlp: OtlpReceiver
) -> None:
    _, errors = run_script(tmp_path, AUTOMATIC, **otlp.environment("http/protobuf"))

    assert errors == ""
    assert otlp.tree() == [("quantization", [("First", [])])]
    assert [record.body for record in otlp.records_of(semconv.CHECKPOINT_EVENT)] == [
        "Start", "First Start", "First End", "End"
    ]  # fmt: skip


@pytest.mark.parametrize("exit_timeout", ["0", "5000"])
def test_providers_of_the_program_are_neither_flushed_nor_shut_down(
    tmp_path: Path, exit_timeout: str
) -> None:
    said = run_script(tmp_path, LEFT_ALONE, OTEL_QUANT_EXIT_TIMEOUT=exit_timeout)

    assert said == ("TracerProvider is flushed\n", ""), "by the program itself, and once"
