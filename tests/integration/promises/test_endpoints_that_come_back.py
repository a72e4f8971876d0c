"""What an endpoint was not there to take arrives once it is back: nothing of the run is missing.

The SDK alone gives a batch up after the exporter's time-out, here after a second.
"""

from __future__ import annotations

import subprocess
from typing import Literal

import pytest

from tests.fixtures.instrumented import Workshop
from tests.fixtures.otlp_receiver import Mode, OtlpReceiver

Protocol = Literal["grpc", "http/protobuf"]
PROTOCOLS: list[Protocol] = ["grpc", "http/protobuf"]
GIVES_UP_SOON = {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}

RUN = """
import sys
import otel_quant

with otel_quant.step("before"):
    pass
print(flush=True)
sys.stdin.readline()
for _ in range(3):
    with otel_quant.step("during"):
        pass
print(flush=True)
sys.stdin.readline()
"""
STEPS = ["before", "during", "during", "during"]
CHECKPOINTS = ["Start", *(f"{step} {end}" for step in STEPS for end in ("Start", "End"))]

OWN_PROVIDER = """
import otel_quant
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from otel_quant.capture.runtime import RUNTIME

exporter = OTLPSpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
otel_quant.QuantInstrumentor().instrument()
with otel_quant.step("step"):
    pass
RUNTIME.delivery.drain(10)
print("export" in vars(exporter))
"""


def wait_until_given_up(process: subprocess.Popen[str]) -> None:
    """Waits until the SDK has said of spans and of log records that it drops them."""
    assert process.stderr is not None
    missing = {"spans", "traces", "logs"}
    for line in process.stderr:
        if "Failed to export" in line:
            missing -= {"spans", "traces"} if "logs" not in line else {"logs"}
        if not missing:
            return
    raise AssertionError(f"the SDK did not give up {missing}")


def everything_came(otlp: OtlpReceiver, checkpoints: list[str]) -> bool:
    bodies = [record.body for record in otlp.records_of("quant.checkpoint.taken")]
    steps = [name for name in otlp.span_names() if name != "quantization"]
    return (bodies, steps) == (checkpoints, STEPS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_is_sent_while_the_run_goes_on(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    with workshop.script(RUN).start({**otlp.environment(protocol), **GIVES_UP_SOON}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert otlp.wait_for(lambda it: len(it.records_of("quant.checkpoint.taken")) == 3, 60)
        otlp.become(Mode.UNAVAILABLE)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        wait_until_given_up(process)
        otlp.become(Mode.ACCEPT)
        assert otlp.wait_for(lambda it: everything_came(it, CHECKPOINTS), 60)
        process.communicate("\n")
    assert process.returncode == 0
    assert everything_came(otlp, [*CHECKPOINTS, "End"])
    assert len(otlp.spans_named("quantization")) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_is_sent_at_the_exit(workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol) -> None:
    with workshop.script(RUN).start({**otlp.environment(protocol), **GIVES_UP_SOON}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert otlp.wait_for(lambda it: len(it.records_of("quant.checkpoint.taken")) == 3, 60)
        otlp.become(Mode.UNAVAILABLE)
        process.stdin.write("\n")
        process.stdin.flush()
        wait_until_given_up(process)
        otlp.become(Mode.ACCEPT)
        process.communicate("\n")
    assert process.returncode == 0
    assert everything_came(otlp, [*CHECKPOINTS, "End"])
    assert otlp.point("quant.step.duration", quant__step__kind="User-Defined").count == len(STEPS)


def test_a_provider_that_the_program_made_is_left_alone(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": otlp.grpc_endpoint,
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
    }
    finished = workshop.script(OWN_PROVIDER).run(environment, instrumented=False)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "False\n", "")
    assert otlp.span_names() == ["quantization", "step"]
