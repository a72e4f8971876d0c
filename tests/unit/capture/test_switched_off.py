"""OpenTelemetry's own settings that switch telemetry off: they stop measuring, sending and writing."""

from __future__ import annotations

from ast import literal_eval
from pathlib import Path

import pytest

from tests.fixtures.programs import run_script, steps_in

SUPPRESSED = """
import sys
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from otel_quant import QuantInstrumentor, run, step
from otel_quant.schema import semconv

spans, records, reader = InMemorySpanExporter(), InMemoryLogRecordExporter(), InMemoryMetricReader()
tracers, loggers = TracerProvider(), LoggerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))
loggers.add_log_record_processor(SimpleLogRecordProcessor(records))
QuantInstrumentor().instrument(
    tracer_provider=tracers, logger_provider=loggers, meter_provider=MeterProvider([reader])
)
with run():
    if sys.argv[1] == "within a step":
        with step("outer"), suppress_instrumentation(), step("suppressed"):
            pass
    else:
        with suppress_instrumentation(), step("suppressed"):
            pass
durations = [
    point.attributes[semconv.STEP_KIND]
    for resource in getattr(reader.get_metrics_data(), "resource_metrics", ())
    for scope in resource.scope_metrics
    for metric in scope.metrics
    if metric.name == semconv.STEP_DURATION
    for point in metric.data.data_points
]
print([span.name for span in spans.get_finished_spans()])
print([item.log_record.body for item in records.get_finished_logs()])
print(durations)
"""

SUPPRESSED_RUN = """
import threading
from opentelemetry.instrumentation.utils import suppress_instrumentation
import otel_quant

otel_quant.QuantInstrumentor().instrument()
with suppress_instrumentation(), otel_quant.step("suppressed"):
    print([thread.name for thread in threading.enumerate()])
"""

DISABLED = """
import threading
from opentelemetry.instrumentation.auto_instrumentation import initialize
initialize()
import otel_quant

with otel_quant.step("step"):
    print(sorted(thread.name for thread in threading.enumerate() if "quant" in thread.name))
with otel_quant.run(), otel_quant.step("step"):
    print(sorted(thread.name for thread in threading.enumerate() if "quant" in thread.name))
"""


@pytest.mark.parametrize(
    ("where", "kept", "kinds"), [("within a step", ["outer"], ["User-Defined"]), ("alone", [], [])]
)
def test_a_suppressed_step_is_in_no_signal_and_not_in_the_file(
    where: str, kept: list[str], kinds: list[str], tmp_path: Path
) -> None:
    output, errors = run_script(tmp_path, SUPPRESSED, where, OTEL_QUANT_PROFILE="profile.yaml")

    checkpoints = ["Start", *(f"{name} {end}" for name in kept for end in ("Start", "End")), "End"]
    ran, logged, measured = map(literal_eval, output.splitlines())
    answer = logged.pop(-2)
    assert answer.startswith("Memory peaked at ")
    assert "suppressed" not in answer
    records = ["quantization started", *checkpoints]
    assert (ran, logged, measured, errors) == ([*kept, "quantization"], records, kinds, "")
    assert steps_in(tmp_path / "profile.yaml") == checkpoints


def test_a_suppressed_step_begins_no_run(tmp_path: Path) -> None:
    said = run_script(tmp_path, SUPPRESSED_RUN, OTEL_QUANT_PROFILE="profile.yaml")

    assert said == ("['MainThread']\n", "")
    assert list(tmp_path.iterdir()) == [tmp_path / "script.py"]


def test_a_disabled_sdk_runs_nothing(tmp_path: Path) -> None:
    assert run_script(tmp_path, DISABLED, OTEL_SDK_DISABLED=" TRUE ") == ("[]\n[]\n", "")


def test_a_disabled_sdk_still_writes_a_requested_file(tmp_path: Path) -> None:
    asked = {"OTEL_SDK_DISABLED": "true", "OTEL_QUANT_PROFILE": "profile.yaml"}
    said = run_script(tmp_path, DISABLED, **asked)
    assert said == ("['otel-quant-sampler']\n['otel-quant-sampler']\n", "")
    assert steps_in(tmp_path / "profile.yaml") == ["Start", "step Start", "step End", "End"]
