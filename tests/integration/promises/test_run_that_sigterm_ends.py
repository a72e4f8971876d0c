"""SIGTERM ends a program at once: what has been sent by then names its run all the same."""

from __future__ import annotations

import signal

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Ran, Workshop

# Batch processors of the SDK, made by opentelemetry-instrument or by the program itself.
STEPS = """
import sys, time
import otel_quant
with otel_quant.step("Calibration"):
    with otel_quant.step("inner"):
        pass
with otel_quant.step("Model Caching"):
    with otel_quant.step("ended"):
        pass
    print("within a step", flush=True)
    time.sleep(600)
"""
OWN_PROVIDERS = """
from opentelemetry import trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

tracers, loggers = TracerProvider(), LoggerProvider()
tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
trace.set_tracer_provider(tracers)
set_logger_provider(loggers)
"""
ENDED = ["Calibration", "inner", "ended"]


@pytest.mark.parametrize("by_program", [False, True], ids=["instrumented", "own providers"])
def test_the_start_of_the_runs_span_has_arrived_and_names_the_run_of_the_steps(
    workshop: Workshop, otlp: OtlpReceiver, by_program: bool
) -> None:
    script = workshop.script((OWN_PROVIDERS if by_program else "") + STEPS)
    environment = otlp.environment("http/protobuf") | {
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "OTEL_BLRP_SCHEDULE_DELAY": "200",
    }
    with script.start(environment, instrumented=not by_program) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        otlp.wait_for(
            lambda it: len(it.spans) == 3 and len(it.records_of("quant.checkpoint.taken")) == 8, 60
        )
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert said == "within a step\n"
    assert process.returncode == -signal.SIGTERM

    assert otlp.span_names() == ENDED, "the run's span is lost with the process"
    (started,) = otlp.records_of("quant.run.started")
    outer, inner, ended = otlp.by_start()
    assert {span.trace_id for span in otlp.spans} == {started.trace_id}
    assert outer.parent_id == started.span_id
    assert inner.parent_id == outer.span_id
    first, *_, last = otlp.records_of("quant.checkpoint.taken")
    assert (first.trace_id, first.span_id) == (started.trace_id, started.span_id)
    open_step = otlp.records_of("quant.checkpoint.taken")[5]
    assert (open_step.body, open_step.span_id) == ("Model Caching Start", ended.parent_id)
    assert last.body == "ended End"

    assert (started.body, started.severity) == ("quantization started", "INFO")
    assert started.time_ns == first.time_ns
    names = {
        "quant.run.id", "quant.run.name", "process.pid", "quant.memory.limit",
        "quant.memory.limit_source",
    }  # fmt: skip
    assert started.attributes.keys() - semconv.ORIGIN == names
    made_by = {"process.command_line", "process.runtime.version", "host.name", "os.description"}
    assert made_by <= started.attributes.keys()
    assert started.attributes["quant.run.id"] == outer.attributes["quant.run.id"]
    assert started.resource == outer.resource


def test_the_record_of_a_start_has_what_the_span_of_a_run_that_ends_has(
    ran: Ran, otlp: OtlpReceiver
) -> None:
    ran(STEPS.replace("time.sleep(600)", ""))
    (started,), root = otlp.records_of("quant.run.started"), otlp.span("quantization")
    assert (started.trace_id, started.span_id) == (root.trace_id, root.span_id)
    assert started.time_ns == root.start_ns
    assert {**root.attributes, **started.attributes} == root.attributes


def test_each_span_of_a_worker_has_the_record_of_its_start(ran: Ran, otlp: OtlpReceiver) -> None:
    ran(
        """
        import multiprocessing
        import otel_quant

        def work(number):
            with otel_quant.step("work"):
                return number

        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(1) as pool:
                pool.map(work, range(3), chunksize=1)
        """
    )
    started = otlp.records_of("quant.run.started")
    worked = [span.parent_id for span in otlp.spans_named("work")]
    assert len(worked) == 3
    assert set(worked) <= {record.span_id for record in started}
    roots = {span.span_id for span in otlp.spans_named("quantization")}
    assert {record.span_id for record in started} == roots
