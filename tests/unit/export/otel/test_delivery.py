"""Delivery begins once, however many threads send, and ends with the exit: the same on every Python."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Literal

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_quant.base.fault_boundary import start_thread
from otel_quant.export.otel import delivery
from otel_quant.export.otel.automatic_providers import AUTOMATIC_PROVIDERS
from otel_quant.export.otel.delivery import Delivery
from tests.fixtures.otlp_receiver import Mode, OtlpReceiver
from tests.fixtures.programs import Workshop

Protocol = Literal["grpc", "http/protobuf"]
PROTOCOLS: list[Protocol] = ["grpc", "http/protobuf"]

STEP = """
import sys
import otel_quant

with otel_quant.step("step"):
    pass
sys.exit(5)
"""
STEP_AT_EXIT = """
import atexit
import otel_quant

def late():
    with otel_quant.step("late"):
        pass

atexit.register(late)
"""
THREADS_AT_EXIT = """
import threading
import otel_quant

with otel_quant.step("step"):
    pass

def fail(thread):
    print("started at exit:", thread.name)

def watch():
    threading.Thread.start = fail

threading._register_atexit(watch)  # after the program's last line, before its exit handlers
"""

INTERRUPTED_EXIT = """
import os, signal, sys, threading, time
import otel_quant
from otel_quant.capture.runtime import RUNTIME

is_interrupted = False

def handle(*_):
    global is_interrupted
    is_interrupted = True
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, handle)
with otel_quant.step("step"):
    pass

def interrupt():
    while not RUNTIME.delivery._late:  # until the exit waits
        time.sleep(0.01)
    # Python looks for signals before it waits for a lock, and one that arrives in between leaves it
    # waiting: a busy machine may stop the thread just there. A second one wakes it.
    while not is_interrupted:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

threading.Thread(target=interrupt, daemon=True).start()
sys.exit(5)
"""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_last_metrics_of_the_run_arrive(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    finished = workshop.script(STEP).run(otlp.environment(protocol))

    assert (finished.returncode, finished.stdout, finished.stderr) == (5, "", "")
    assert otlp.tree() == [("quantization", [("step", [])])]
    assert [record.body for record in otlp.records_of("quant.checkpoint.taken")] == [
        "Start", "step Start", "step End", "End"
    ]  # fmt: skip
    end = otlp.records_of("quant.checkpoint.taken")[-1].time_ns
    for metric in ("quant.run.memory.usage", "quant.run.disk.io"):
        assert otlp.latest_points(metric)[0].time_ns > end, "collected when the run was over"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_endpoint_that_never_answers_is_given_up_in_one_line(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    otlp.become(Mode.HANG)
    finished = workshop.script(STEP).run(
        {**otlp.environment(protocol), "OTEL_QUANT_EXIT_TIMEOUT": "100"}
    )

    assert (finished.returncode, finished.stdout) == (5, "")
    assert finished.stderr == (
        "telemetry could not be delivered within 0.1 s and is given up "
        "(OTEL_QUANT_EXIT_TIMEOUT sets the time, in milliseconds)\n"
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_interrupted_wait_for_an_endpoint_is_given_up_in_one_line(
    workshop: Workshop, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    otlp.become(Mode.HANG)
    # The exporter's own patience must not end first, however busy the machine is.
    environment = {"OTEL_QUANT_EXIT_TIMEOUT": "600000", "OTEL_EXPORTER_OTLP_TIMEOUT": "600"}
    finished = workshop.script(INTERRUPTED_EXIT).run({**otlp.environment(protocol), **environment})

    assert (finished.returncode, finished.stdout) == (5, "")
    assert finished.stderr == ("telemetry that has not been delivered is given up: interrupted\n")


def test_no_thread_is_started_at_exit(workshop: Workshop, otlp: OtlpReceiver) -> None:
    finished = workshop.script(THREADS_AT_EXIT).run(otlp.environment())

    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_a_step_in_an_exit_handler_fails_nothing(workshop: Workshop, otlp: OtlpReceiver) -> None:
    finished = workshop.script(STEP_AT_EXIT).run(otlp.environment())

    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
    assert otlp.span("late").status == "UNSET"


THREADS = 4


def call_line_by_line(code: CodeType, calls: list[Callable[[], object]]) -> None:
    """Makes calls at the same moment, each in a thread that pauses before each line of a function.

    Args:
        code: The function's code.
        calls: What the threads call.
    """
    together = threading.Barrier(len(calls))

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not code:
            return None
        if event == "line":
            time.sleep(0.01)
        return trace

    def run(call: Callable[[], object]) -> None:
        together.wait()
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(None)

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_concurrent_first_senders_start_one_delivery_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []

    def start(target: Callable[[], None], name: str) -> threading.Thread | None:
        begun.append(name)
        return start_thread(target, name)

    monkeypatch.setitem(AUTOMATIC_PROVIDERS, "traces", TracerProvider())
    monkeypatch.setattr(delivery, "start_thread", start)
    sent = Delivery()
    call_line_by_line(Delivery.soon.__code__, [sent.soon] * THREADS)
    assert begun == ["otel-quant-delivery", "otel-quant-flush-traces"]
