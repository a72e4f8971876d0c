"""Endpoints that are down, hang or refuse: the script ends as it would, and waits for none.

An endpoint that hangs answers nothing before the test is over, and the exporters would wait for it
for ten minutes: a script that waits for a delivery without a bound does not end here.
"""

from __future__ import annotations

from typing import Literal

import pytest

from otel_quant.export.otel.delivery import FORK_PATIENCE
from tests.fixtures.instrumented import Finished, Workshop
from tests.fixtures.otlp_receiver import Mode, OtlpReceiver

Protocol = Literal["grpc", "http/protobuf"]
FAILURES = [Mode.REFUSE, Mode.HANG, Mode.ERROR, Mode.UNAVAILABLE]
PROTOCOLS: list[Protocol] = ["grpc", "http/protobuf"]

SOURCE = """
import sys
import otel_quant

for number in range(200):
    with otel_quant.step("step"):
        pass
print("the steps are over")
sys.exit(5)
"""
WAITING = {"OTEL_EXPORTER_OTLP_TIMEOUT": "600"}


def run(workshop: Workshop, environment: dict[str, str]) -> Finished:
    """Returns the script as it ended."""
    finished = workshop.script(SOURCE).run({**environment, **WAITING})
    assert (finished.returncode, finished.stdout) == (5, "the steps are over\n")
    return finished


def given_up_after(seconds: int) -> str:
    """Returns what the script says when its exit has waited that long."""
    return f"telemetry could not be delivered within {seconds} s and is given up"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda mode: mode.name.lower())
def test_the_exit_takes_a_bounded_time_and_keeps_the_scripts_exit_code(
    workshop: Workshop, otlp: OtlpReceiver, failure: Mode, protocol: Protocol
) -> None:
    environment = otlp.environment(protocol)
    otlp.become(failure)
    finished = run(workshop, {**environment, "OTEL_QUANT_EXIT_TIMEOUT": "1000"})
    is_given_up = failure is not Mode.ERROR  # after an error, nothing is left to wait for
    assert (given_up_after(1) in finished.stderr) == is_given_up
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_by_default_the_exit_is_delayed_by_5_seconds_at_most(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    environment = otlp.environment(protocol)
    del environment["OTEL_QUANT_EXIT_TIMEOUT"]
    otlp.become(Mode.HANG)
    assert given_up_after(5) in run(workshop, environment).stderr


def test_an_endpoint_that_hangs_delays_the_first_fork_and_no_other(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    environment = otlp.environment("http/protobuf")
    otlp.become(Mode.HANG)
    finished = workshop.script(
        """
        import os, time
        import otel_quant
        from otel_quant.capture.runtime import RUNTIME

        class Noted:
            def __init__(self, lock):
                self.lock, self.waits = lock, []
            def acquire(self, timeout):
                self.waits.append(timeout)
                return self.lock.acquire(timeout=timeout)
            def release(self):
                self.lock.release()

        with otel_quant.step("step"):
            lock = RUNTIME.delivery._flushing
            while not lock.locked():  # until the flush is under way, which hangs
                time.sleep(0.01)
            noted = RUNTIME.delivery._flushing = Noted(lock)
            for _ in range(20):
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)
            RUNTIME.delivery._flushing = lock
            print(noted.waits)
        """
    ).run({**environment, **WAITING, "OTEL_QUANT_EXIT_TIMEOUT": "0"})
    assert finished.returncode == 0
    assert finished.stdout == f"{[FORK_PATIENCE] + [0] * 19}\n"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_exit_timeout_of_0_waits_for_nothing(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    environment = otlp.environment(protocol)
    otlp.become(Mode.HANG)
    finished = run(workshop, {**environment, "OTEL_QUANT_EXIT_TIMEOUT": "0"})
    assert given_up_after(0) in finished.stderr


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
