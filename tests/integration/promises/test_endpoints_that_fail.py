"""Endpoints that are down, hang or refuse: the script ends as it would, and soon.

Bounds on time are far above what is promised, and far below what waiting would take. The
start of the interpreter, which a busy machine may draw out, is in none of them.
"""

from __future__ import annotations

import time
from typing import Literal

import pytest

from tests.fixtures.instrumented import Finished, Workshop
from tests.fixtures.otlp_receiver import Mode, OtlpReceiver

pytestmark = pytest.mark.alone

Protocol = Literal["grpc", "http/protobuf"]
FAILURES = [Mode.REFUSE, Mode.HANG, Mode.ERROR, Mode.UNAVAILABLE]
PROTOCOLS: list[Protocol] = ["grpc", "http/protobuf"]

SOURCE = """
import sys, time
import otel_quant

began = time.monotonic()
for number in range(200):
    with otel_quant.step("step"):
        pass
print(time.monotonic() - began, time.time())
sys.exit(5)
"""


def run(workshop: Workshop, environment: dict[str, str]) -> tuple[Finished, float, float]:
    """Returns the script as it ended, and the seconds that its steps and its exit took."""
    finished = workshop.script(SOURCE).run(environment)
    ended = time.time()
    assert finished.returncode == 5
    steps, moment = map(float, finished.stdout.split())
    return finished, steps, ended - moment


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda mode: mode.name.lower())
def test_the_exit_takes_a_bounded_time_and_keeps_the_scripts_exit_code(
    workshop: Workshop, otlp: OtlpReceiver, failure: Mode, protocol: Protocol
) -> None:
    environment = otlp.environment(protocol)
    otlp.become(failure)
    finished, steps, leaving = run(workshop, {**environment, "OTEL_QUANT_EXIT_TIMEOUT": "1000"})
    assert steps < 10, "200 steps waited for deliveries"
    assert leaving < 9, "one second, and what a busy machine makes of it"
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_by_default_the_exit_is_delayed_by_5_seconds_at_most(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    environment = otlp.environment(protocol)
    del environment["OTEL_QUANT_EXIT_TIMEOUT"]
    otlp.become(Mode.HANG)
    finished, _, leaving = run(workshop, environment)
    assert 5 <= leaving < 15
    assert "could not be delivered within 5 s" in finished.stderr


def test_an_endpoint_that_hangs_does_not_delay_every_fork(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    environment = otlp.environment("http/protobuf")
    otlp.become(Mode.HANG)
    finished = workshop.script(
        """
        import os, time
        import otel_quant

        with otel_quant.step("step"):
            time.sleep(0.5)  # the flush is under way, and hangs
            began = time.monotonic()
            for _ in range(20):
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)
            print(time.monotonic() - began)
        """
    ).run({**environment, "OTEL_QUANT_EXIT_TIMEOUT": "0"})
    assert finished.returncode == 0
    assert float(finished.stdout) < 10, "each of 20 forks waited"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_exit_timeout_of_0_waits_for_nothing(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    environment = otlp.environment(protocol)
    otlp.become(Mode.HANG)
    _, _, leaving = run(workshop, {**environment, "OTEL_QUANT_EXIT_TIMEOUT": "0"})
    assert leaving < 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_if_an_endpoint_stops_answering_the_file_still_has_the_whole_run(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    script = workshop.script(
        """
        import sys
        import otel_quant

        with otel_quant.step("before"):
            pass
        print(flush=True)
        sys.stdin.readline()
        with otel_quant.step("after"):
            pass
        sys.exit(5)
        """
    )
    with script.start(
        {
            **otlp.environment(protocol),
            "OTEL_QUANT_EXIT_TIMEOUT": "1000",
            "OTEL_QUANT_PROFILE": "profile.yaml",
        }
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert otlp.wait_for(lambda receiver: "before" in receiver.span_names(), 60)
        otlp.become(Mode.HANG)
        process.communicate("\n", timeout=60)
    assert process.returncode == 5
    assert otlp.span_names() == ["before"]
    profile = (script.path.parent / "profile.yaml").read_text()
    assert '"after End"' in profile
    assert "# Summary Metrics" in profile


def test_an_endpoint_that_starts_late_gets_all_spans(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    environment = otlp.environment("http/protobuf")
    otlp.become(Mode.UNAVAILABLE)
    script = workshop.script(
        """
        import sys
        import otel_quant

        with otel_quant.step("early"):
            pass
        print(flush=True)
        sys.stdin.readline()
        with otel_quant.step("late"):
            pass
        """
    )
    with script.start(environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert otlp.wait_for(lambda receiver: len(receiver.requests) >= 1, 60)
        otlp.become(Mode.ACCEPT)
        process.communicate("\n", timeout=60)
    assert process.returncode == 0
    assert otlp.span_names() == ["quantization", "early", "late"]
