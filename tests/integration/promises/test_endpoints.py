"""Endpoints that are down, hang or refuse: the script ends as it would, waits for none, and what
could not be taken arrives once they are back.

An endpoint that hangs answers nothing before the test is over, and where `WAITING` is set the exporters
would wait for it for ten minutes: a script that waits for a delivery without a bound does not end here.
"""

from __future__ import annotations

import subprocess

import pytest

from otel_quant.base.waited import Waited
from otel_quant.export.otel.delivery import FORK_PATIENCE, LEAST_WAIT, Delivery
from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import Mode, OtlpReceiver, Protocol
from tests.fixtures.programs import Workshop

PROTOCOLS: list[Protocol] = ["grpc", "http/protobuf"]
WAITING = {"OTEL_EXPORTER_OTLP_TIMEOUT": "600"}
GIVES_UP_SOON = {"OTEL_EXPORTER_OTLP_TIMEOUT": "3"}
"""The SDK alone gives a batch up after this time, in seconds; a receiver on a busy machine answers within it."""

MANY = """
import sys
import otel_quant

for number in range(200):
    with otel_quant.step("step"):
        pass
print("the steps are over")
sys.exit(5)
"""


def ended(workshop: Workshop, environment: dict[str, str]) -> str:
    """Returns the standard error of the script, whose exit code and file are the expected ones."""
    variables = {**environment, **WAITING, "OTEL_QUANT_PROFILE": "profile.yaml"}
    finished = workshop.script(MANY).run(variables)
    assert (finished.returncode, finished.stdout) == (5, "the steps are over\n")
    profile = (workshop.folder / "profile.yaml").read_text()
    assert profile.count('"step End"') == 200
    assert "# Summary Metrics" in profile
    return finished.stderr


def given_up_after(seconds: int) -> str:
    """Returns the line that is logged when the exit has waited that long."""
    return f"telemetry could not be delivered within {seconds} s and is given up"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "failure", [Mode.REFUSE, Mode.ERROR, Mode.UNAVAILABLE], ids=lambda mode: mode.name
)
def test_the_exit_takes_a_bounded_time_and_keeps_the_scripts_exit_code_and_its_file(
    workshop: Workshop, otlp: OtlpReceiver, failure: Mode, protocol: Protocol
) -> None:
    environment = otlp.environment(protocol)
    otlp.become(failure)
    said = ended(workshop, {**environment, "OTEL_QUANT_EXIT_TIMEOUT": "1000"})
    is_given_up = failure is not Mode.ERROR  # after an error, nothing is left to wait for
    assert (given_up_after(1) in said) == is_given_up
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("timeout", "protocol", "seconds"), [(None, "grpc", 5), ("0", "http/protobuf", 0)]
)
def test_the_exit_waits_5_seconds_by_default_and_does_not_wait_if_configured(
    workshop: Workshop, otlp: OtlpReceiver, timeout: str | None, protocol: Protocol, seconds: int
) -> None:
    environment = otlp.environment(protocol)
    del environment["OTEL_QUANT_EXIT_TIMEOUT"]
    otlp.become(Mode.HANG)
    more = {"OTEL_QUANT_EXIT_TIMEOUT": timeout} if timeout else {}
    assert given_up_after(seconds) in ended(workshop, {**environment, **more})


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


POOL = """
import multiprocessing, sys, time
import otel_quant
from otel_quant.base.waited import Waited
from otel_quant.export.otel.delivery import Delivery

drain = Delivery.drain

def noted(self, timeout):
    with open("waits", "a") as file:
        file.write(f"{timeout:.1f}\\n")
    return drain(self, timeout)

Delivery.drain = noted

def work(number):
    with otel_quant.step("work"):
        pass

if __name__ == "__main__":
    if sys.argv[1] == "fork":
        work(0)
    with multiprocessing.get_context(sys.argv[1]).Pool(1, maxtasksperchild=1) as pool:
        pool.map(work, range(4), chunksize=1)
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_program_and_its_workers_wait_together_as_long_as_one(
    workshop: Workshop, otlp: OtlpReceiver, start: str
) -> None:
    environment = otlp.environment("http/protobuf")
    otlp.become(Mode.HANG)
    more = {**WAITING, "OTEL_QUANT_EXIT_TIMEOUT": "2000"}
    finished = workshop.script(POOL).run({**environment, **more}, start)
    assert finished.returncode == 0
    first, *others = map(float, (workshop.folder / "waits").read_text().split())
    assert 0.9 <= first <= 2.0  # less what a fork has waited
    assert len(others) >= 4
    assert max(others) <= 0.1


def test_an_endpoint_that_is_back_is_waited_for_as_long_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = Waited()
    monkeypatch.setattr("otel_quant.export.otel.delivery.WAITED", waited)
    delivery = Delivery()
    waits: list[float] = []

    def send(timeout: float) -> bool:
        waits.append(timeout)
        return len(waits) == 3

    waited.seconds = 3.0
    results = [delivery.within(5.0, send)]
    waited.seconds = 5.0
    results += [delivery.within(5.0, send) for _ in range(3)]
    assert results == [False, False, True, False]
    assert waits == [2.0, LEAST_WAIT, LEAST_WAIT, 5.0]


IN_PARTS = """
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
sys.exit(5)
"""
STEPS = ["before", "during", "during", "during"]
CHECKPOINTS = ["Start", *(f"{step} {end}" for step in STEPS for end in ("Start", "End"))]


def go_on(process: subprocess.Popen[str]) -> None:
    """Lets a script go on to its next part."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def wait_for_the_first_part(process: subprocess.Popen[str], otlp: OtlpReceiver) -> None:
    assert process.stdout is not None
    process.stdout.readline()
    assert otlp.wait_for(
        lambda it: (
            len(it.records_of(semconv.CHECKPOINT_EVENT)) == 3 and it.span_names() == ["before"]
        ),
        60,
    )


def wait_until_given_up(process: subprocess.Popen[str]) -> None:
    """Waits until the SDK has logged that it drops spans and log records."""
    assert process.stderr is not None
    missing = {"spans", "traces", "logs"}
    for line in process.stderr:
        if "Failed to export" in line:
            missing -= {"spans", "traces"} if "logs" not in line else {"logs"}
        if not missing:
            return
    raise AssertionError(f"the SDK did not give up {missing}")


def everything_came(otlp: OtlpReceiver, checkpoints: list[str]) -> bool:
    records = sorted(otlp.records_of(semconv.CHECKPOINT_EVENT), key=lambda record: record.time_ns)
    bodies = [record.body for record in records]
    spans = sorted(otlp.spans, key=lambda span: span.start_ns)
    steps = [span.name for span in spans if span.name != "quantization"]
    return (bodies, steps) == (checkpoints, STEPS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("at_exit", [False, True], ids=["while the run goes on", "at the exit"])
def test_telemetry_of_an_outage_is_sent_when_the_endpoint_is_back(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol, at_exit: bool
) -> None:
    variables = {**otlp.environment(protocol), **GIVES_UP_SOON}
    with workshop.script(IN_PARTS).start(variables) as process:
        wait_for_the_first_part(process, otlp)
        otlp.become(Mode.UNAVAILABLE)
        go_on(process)
        wait_until_given_up(process)
        otlp.become(Mode.ACCEPT)
        if not at_exit:
            assert otlp.wait_for(lambda it: everything_came(it, CHECKPOINTS), 60)
        process.communicate("\n")
    assert process.returncode == 5
    assert everything_came(otlp, [*CHECKPOINTS, "End"])
    assert len(otlp.spans_named("quantization")) == 1
    assert otlp.point(semconv.STEP_DURATION, quant__step__kind="User-Defined").count == len(STEPS)


FORKED = """
import os, sys
import otel_quant

with otel_quant.step("before"):
    pass
print(flush=True)
sys.stdin.readline()
with otel_quant.step("during"):
    pass
sys.stdin.readline()
child = os.fork()
with otel_quant.step("after" if child else "in the child"):
    pass
if child == 0:
    print(flush=True)
    sys.stdin.readline()
else:
    os.waitpid(child, 0)
"""


def test_a_child_forked_in_an_outage_does_not_send_its_parents_queue(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    variables = {**otlp.environment("http/protobuf"), **GIVES_UP_SOON}
    with workshop.script(FORKED).start(variables) as process:
        wait_for_the_first_part(process, otlp)
        otlp.become(Mode.UNAVAILABLE)
        go_on(process)
        wait_until_given_up(process)
        go_on(process)
        assert process.stdout is not None
        process.stdout.readline()
        otlp.become(Mode.ACCEPT)
        process.communicate("\n")
    assert process.returncode == 0
    names = ["after", "before", "during", "in the child", "quantization", "quantization"]
    assert sorted(otlp.span_names()) == names


SDK_ALONE = """
import sys
from opentelemetry import trace

def send():
    trace.get_tracer("bare").start_span("span").end()
    trace.get_tracer_provider().force_flush()

send()
print(flush=True)
sys.stdin.readline()
send()
"""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_sdk_alone_still_loses_telemetry_in_an_outage(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    variables = {**otlp.environment(protocol), **GIVES_UP_SOON}
    otlp.become(Mode.UNAVAILABLE)
    with workshop.script(SDK_ALONE).start(variables) as process:
        assert process.stdout is not None
        process.stdout.readline()
        otlp.become(Mode.ACCEPT)
        process.communicate("\n")
    assert process.returncode == 0
    assert otlp.span_names() == ["span"], "the fault is gone: delete Unsent in delivery.py"
