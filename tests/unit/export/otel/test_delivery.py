"""Delivery begins once, however many threads send, and ends with the exit; which batches are kept, in which order they are sent."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Literal

import pytest
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_quant.base.fault_boundary import start_thread
from otel_quant.export.otel import delivery
from otel_quant.export.otel.automatic_providers import AUTOMATIC_PROVIDERS
from otel_quant.export.otel.delivery import Delivery, Unsent
from otel_quant.export.otel.sdk_workarounds import WORKAROUNDS
from otel_quant.schema import semconv
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
    assert [record.body for record in otlp.records_of(semconv.CHECKPOINT_EVENT)] == [
        "Start", "step Start", "step End", "End"
    ]  # fmt: skip
    end = otlp.records_of(semconv.CHECKPOINT_EVENT)[-1].time_ns
    for metric in (semconv.RUN_MEMORY_USAGE, semconv.RUN_DISK_IO):
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
    """Makes calls at the same moment, each in a thread that pauses before each line of a function."""
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


LOST = (
    "telemetry is lost: the endpoint refuses it, or has been away for too long to keep it all "
    "(4096 spans or log records, 64 exports of metrics)"
)


class Exporter(SpanExporter):
    """An exporter to an endpoint that accepts what `takes` allows, and that keeps it."""

    def __init__(self) -> None:
        self.takes: Callable[[Any], bool] = lambda batch: False
        self.arrived: list[Any] = []
        self.kept = Unsent(self)

    def recover(self) -> None:
        self.takes = lambda batch: True

    def export(self, spans: Any) -> SpanExportResult:
        if not self.takes(spans):
            return SpanExportResult.FAILURE
        self.arrived.append(spans)
        return SpanExportResult.SUCCESS


@pytest.fixture(autouse=True)
def _applied() -> Iterator[None]:
    WORKAROUNDS.apply()
    yield
    WORKAROUNDS.undo()


def test_queued_batches_are_sent_in_order_before_new_ones() -> None:
    exporter = Exporter()
    assert [exporter.export([number]) for number in range(3)] == [SpanExportResult.FAILURE] * 3
    exporter.kept.send_again()  # as every 5 s
    assert exporter.kept.is_waiting
    exporter.recover()
    assert exporter.export([3]) is SpanExportResult.SUCCESS
    assert exporter.arrived == [[0], [1], [2], [3]]
    assert not exporter.kept.is_waiting


def test_an_invalid_batch_is_dropped_without_blocking_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = Exporter()
    exporter.takes = lambda batch: batch != ["refused"]
    names = ["refused", "next", "refused", "last"]
    results = [exporter.export([name]) for name in names]
    assert [result.name for result in results] == ["FAILURE", "SUCCESS", "FAILURE", "SUCCESS"]
    assert exporter.arrived == [["next"], ["last"]]
    assert caplog.messages == []
    for number in range(2 * delivery.REFUSALS):
        exporter.export([number])
    assert not exporter.kept.is_waiting
    assert caplog.messages == [LOST]


def test_batches_survive_outages_of_any_length() -> None:
    exporter = Exporter()
    exporter.export(["first"])
    for _ in range(1000):
        exporter.kept.send_again()
    answers = iter([False, True, True])  # the first; the second, the first
    exporter.takes = lambda batch: next(answers)
    exporter.export(["second"])
    assert exporter.arrived == [["second"], ["first"]]


def test_a_full_queue_drops_the_oldest_batches(caplog: pytest.LogCaptureFixture) -> None:
    exporter = Exporter()
    for number in range(10):
        exporter.export([number] * 512)
        exporter.kept.send_again()
    metrics = [object() for _ in range(8)]  # with as many exports of metrics as 512 records
    for each in metrics:
        exporter.export(each)
    exporter.recover()
    exporter.kept.send_again()
    assert exporter.arrived == [*([number] * 512 for number in range(3, 10)), *metrics]
    assert caplog.messages == [LOST]
    assert delivery.MOST == 8 * 512


def test_a_batch_is_kept_if_the_exporter_raises_a_connection_error() -> None:
    exporter = Exporter()

    def refuse(batch: Any) -> bool:
        raise ConnectionError("refused")

    exporter.takes = refuse
    with pytest.raises(ConnectionError, match="refused"):
        exporter.export(["kept"])
    exporter.kept.send_again()
    exporter.recover()
    exporter.kept.send_again()
    assert exporter.arrived == [["kept"]]


def test_a_batch_that_the_exporter_cannot_handle_is_not_kept() -> None:
    exporter = Exporter()

    def fail(batch: Any) -> bool:
        raise ValueError(batch)

    exporter.takes = fail
    with pytest.raises(ValueError, match="unheard of"):
        exporter.export(["unheard of"])
    assert not exporter.kept.is_waiting


def test_retries_are_invisible_to_http_instrumentations() -> None:
    exporter = Exporter()
    exporter.export(["kept"])
    exporter.takes = lambda batch: not is_instrumentation_enabled()
    exporter.kept.send_again()
    assert exporter.arrived == [["kept"]]


def test_a_forked_child_does_not_inherit_queued_batches() -> None:
    exporter = Exporter()
    exporter.export(["parent's"])
    exporter.kept.forget()
    exporter.recover()
    exporter.export(["child's"])
    assert exporter.arrived == [["child's"]]


def test_uninstrument_restores_the_exporter() -> None:
    exporter = Exporter()
    WORKAROUNDS.undo()
    exporter.export(["dropped"])
    assert not exporter.kept.is_waiting
