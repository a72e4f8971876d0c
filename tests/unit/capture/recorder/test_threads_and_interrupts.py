"""Threads that begin, report, read and end a run at once, and Ctrl-C in the middle, lose no step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from otel_quant.capture.probes import readers
from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.recorder.peaks import PeakTracker
from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.capture.recorder.run_info import new_run_info
from otel_quant.schema import semconv
from otel_quant.schema.events import Event, Sink
from otel_quant.schema.readings import GpuReading, MemoryReading, Reading
from tests.fixtures.programs import run_script
from tests.unit.capture.recorder.received import Metric, Received, in_thread, recorder_of

WHOLE = ["Start", "A Start", "A End", "End"]


def memory_of(figure: int) -> MemoryReading:
    return MemoryReading(rss=figure, tree_rss=figure)


class AtStart(Sink):
    """Does something when it receives the start of a run."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def run_started(self, event: Event) -> None:
        self._act()


# --- the beginning of a run -------------------------------------------------------------------


def test_ctrl_c_while_the_run_begins_loses_no_later_step() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    received = Received()
    recorder = recorder_of([received, AtStart(interrupt)])
    with pytest.raises(KeyboardInterrupt):
        recorder.open("Interrupted")
    recorder.close(recorder.open("A"))
    recorder.end()
    assert received.names == WHOLE


def test_a_step_that_a_signal_handler_opens_while_the_run_begins_is_recorded() -> None:
    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)

    received = Received()
    recorder = recorder_of([received, AtStart(interrupted)])
    before = signal.signal(signal.SIGUSR1, lambda *_: recorder.close(recorder.open("Inner")))
    try:
        recorder.close(recorder.open("A"))
    finally:
        signal.signal(signal.SIGUSR1, before)
    recorder.end()
    assert received.names == ["Start", "Inner Start", "Inner End", "A Start", "A End", "End"]


def test_a_step_that_a_signal_handler_opens_while_a_reading_is_added_harms_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received, inner = Received(), list[OpenStep | None]()
    recorder = recorder_of([received])
    step = recorder.open("A")
    add = PeakTracker.fold

    def interrupted(tracker: PeakTracker, reading: Reading) -> None:
        add(tracker, reading)
        if step is not None and tracker is step.tracker:
            monkeypatch.setattr(PeakTracker, "fold", add)
            inner.append(recorder.open("Inner"))

    monkeypatch.setattr(PeakTracker, "fold", interrupted)
    recorder.close(step)
    recorder.close(*inner)
    recorder.end()
    assert received.names == ["Start", "A Start", "Inner Start", "A End", "Inner End", "End"]


def test_a_run_that_ends_while_it_begins_leaves_no_sampler() -> None:
    begins, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        begins.set()
        goes_on.wait(60)

    recorder = Recorder(new_run_info({}), Probes(), [AtStart(wait)], sample_interval=0.01)
    starting = threading.Thread(target=recorder.start)
    starting.start()
    assert begins.wait(60)
    ending = threading.Thread(target=recorder.end)
    ending.start()
    goes_on.set()
    starting.join()
    ending.join()
    assert recorder.ended
    assert [each.name for each in threading.enumerate() if each.name == "otel-quant-sampler"] == []


# --- the end of a run -------------------------------------------------------------------------


def test_a_second_call_that_ends_a_run_waits_for_the_first() -> None:
    ends, received = threading.Event(), Received()

    def slow() -> None:
        ends.set()
        time.sleep(0.3)

    recorder = recorder_of([received], metrics=Metric(at_end=slow))
    recorder.close(recorder.open("A"))
    threading.Thread(target=recorder.end).start()
    assert ends.wait(60)
    recorder.end()
    assert received.names == WHOLE


def test_a_run_whose_end_was_interrupted_can_be_ended() -> None:
    received, interrupts = Received(), False

    def memory(pids: Collection[int]) -> MemoryReading:
        nonlocal interrupts
        if interrupts:
            interrupts = False
            raise KeyboardInterrupt
        return memory_of(1)

    recorder = recorder_of([received], memory)
    recorder.open("A")
    recorder.open("B")
    interrupts = True
    with pytest.raises(KeyboardInterrupt):
        recorder.end()
    recorder.end()
    assert received.names == ["Start", "A Start", "B Start", "A End", "End"]


@pytest.mark.parametrize("checkpoint", ["A End", "Mine"])
def test_a_run_ends_after_the_checkpoints_that_other_threads_are_taking(checkpoint: str) -> None:
    reads, goes_on, received = threading.Event(), threading.Event(), Received()

    def wait(name: str) -> None:
        if name == checkpoint:
            reads.set()
            goes_on.wait(60)

    def work() -> None:
        recorder.close(recorder.open("A"))
        recorder.point("Mine")

    recorder = recorder_of([received], metrics=Metric(wait))
    worker = threading.Thread(target=work)
    worker.start()
    assert reads.wait(60)
    threading.Timer(0.2, goes_on.set).start()
    recorder.end()
    worker.join()
    assert received.names[: received.names.index("End")][-1] == checkpoint
    assert received.runs[-1].attributes[semconv.RUN_STEPS] == 1


# --- what may hang ----------------------------------------------------------------------------


class HangingDriver:
    """Reads no GPU, and hangs in one thread from some reading on, until it `resumes`."""

    def __init__(self, after: int = 0) -> None:
        self.resumes, self._hangs = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._after = after

    def __call__(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        if threading.current_thread() is self._thread:
            self._after -= 1
            if self._after < 0:
                self._hangs.set()
                self.resumes.wait(60)
        return ()

    def hang_in(self, act: Callable[[], object]) -> threading.Thread:
        """Starts a thread and returns it once it hangs in the driver."""
        self._thread = threading.Thread(target=act, daemon=True)
        self._thread.start()
        assert self._hangs.wait(60)
        return self._thread


def test_a_run_waits_a_bounded_time_for_a_driver_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("otel_quant.capture.recorder.recorder._LONGEST_WAIT", 0.1)
    driver, received = HangingDriver(after=1), Received()
    recorder = recorder_of([received], gpu=driver)
    recorder.start()
    hanging = driver.hang_in(lambda: recorder.close(recorder.open("A")))
    recorder.end()
    driver.resumes.set()
    hanging.join()
    assert received.names == ["Start", "A Start", "End"]


@pytest.mark.parametrize("moment", ["the start", "a step"])
def test_a_driver_that_hangs_in_one_thread_blocks_no_step_of_another(moment: str) -> None:
    driver, received = HangingDriver(), Received()
    recorder = recorder_of([received], gpu=driver)
    if moment == "the start":
        hanging = driver.hang_in(recorder.start)
    else:
        recorder.start()
        hanging = driver.hang_in(lambda: recorder.close(recorder.open("Hanging")))
    recorder.close(recorder.open("A"))
    assert received.names == ["Start", "A Start", "A End"]
    driver.resumes.set()
    hanging.join()
    recorder.end()
    late = [] if moment == "the start" else ["Hanging Start", "Hanging End"]
    assert received.names[3:] == [*late, "End"]


def test_a_metric_may_wait_for_a_thread_that_opens_a_step() -> None:
    def act(name: str) -> None:
        if name == "Outer Start":
            other = in_thread(lambda: recorder.close(recorder.open("Inner")))
            assert not other.is_alive()

    received = Received()
    recorder = recorder_of([received], metrics=Metric(act))
    recorder.close(recorder.open("Outer"))
    recorder.end()
    assert received.names == [
        "Start", "Inner Start", "Inner End", "Outer Start", "Outer End", "End",
    ]  # fmt: skip


# --- peaks and values -------------------------------------------------------------------------


def test_memory_used_after_the_last_reading_of_a_step_is_not_in_its_peak() -> None:
    used, received = 100, Received()

    def spike(name: str) -> None:
        nonlocal used
        if name == "A End":
            used = 900
            in_thread(recorder.reading_now)
            used = 100

    recorder = recorder_of([received], lambda pids: memory_of(used), Metric(spike))
    recorder.close(recorder.open("A"))
    assert received.steps[0].attributes[semconv.MEMORY_PEAK] == 100


def test_a_childs_peak_found_only_by_the_last_reading_is_the_peak_of_the_step() -> None:
    children: tuple[tuple[int, int, int], ...] = ()
    received = Received()

    def memory(pids: Collection[int]) -> MemoryReading:
        tree = 100 + sum(rss for _, rss, _ in children)
        return MemoryReading(rss=100, tree_rss=tree, high_water=100, children=children)

    def exits(name: str) -> None:
        nonlocal children
        if name == "A End":
            children = ()
            in_thread(recorder.reading_now)

    recorder = recorder_of([received], memory, Metric(exits))
    step = recorder.open("A")
    children = ((7, 10, 800),)
    recorder.close(step)
    found = received.steps[0].attributes
    assert (found[semconv.MEMORY_PEAK], found[semconv.MEMORY_PEAK_SOURCE]) == (900, "sampled")


def test_ctrl_c_in_one_thread_breaks_no_reading_of_another() -> None:
    reads, folds = threading.Event(), threading.Event()

    def memory(pids: Collection[int]) -> MemoryReading:
        if threading.current_thread().name == "interrupted":
            reads.set()
            folds.wait(60)
            raise KeyboardInterrupt
        return memory_of(1)

    def close_second() -> None:
        with pytest.raises(KeyboardInterrupt):
            recorder.close(second)

    class Tracker(PeakTracker):
        """Lets the other thread go on while the open steps are gone through."""

        def fold(self, reading: Reading) -> None:
            folds.set()
            interrupted.join(0.2)

    recorder = recorder_of([], memory)
    first, second = recorder.open("First"), recorder.open("Second")
    assert first is not None
    first.tracker = Tracker.__new__(Tracker)
    interrupted = threading.Thread(target=close_second, name="interrupted")
    interrupted.start()
    assert reads.wait(60)
    assert recorder.reading_now().memory == memory_of(1)
    interrupted.join()
    assert not recorder.idle  # the first step is open still


# --- forks ------------------------------------------------------------------------------------


def test_a_checkpoint_in_which_a_metric_forks_ends_in_the_child() -> None:
    """In the child the recorder's lock may be held by a thread that does not exist there."""
    held, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        with recorder._lock:
            held.set()
            goes_on.wait(60)

    def fork(name: str) -> None:
        if name == "A End":
            threading.Thread(target=hold, daemon=True).start()
            assert held.wait(60)
            recorder.forget()  # as the child does after a fork

    recorder = recorder_of([], metrics=Metric(fork))
    closing = in_thread(lambda: recorder.close(recorder.open("A")), 10)
    is_stuck = closing.is_alive()
    goes_on.set()
    assert not is_stuck


# --- reports of workers -----------------------------------------------------------------------


def test_a_worker_reports_after_a_metric_was_interrupted() -> None:
    received = Received()

    def interrupt(name: str) -> None:
        if name == "A End":
            raise KeyboardInterrupt

    recorder = recorder_of([received], metrics=Metric(interrupt))
    with pytest.raises(KeyboardInterrupt):
        recorder.close(recorder.open("A"))
    assert recorder.idle
    recorder.close(recorder.open("B"))
    recorder.report()
    assert [each.attributes[semconv.RUN_STEPS] for each in received.runs] == [2]


def test_a_step_that_opens_during_a_report_starts_after_it() -> None:
    received, threads = Received(), []

    class Opens(Sink):
        def run_reported(self, event: Event) -> None:
            threads.append(in_thread(lambda: recorder.open("B"), 0.2))

    recorder = recorder_of([Opens(), received])
    recorder.close(recorder.open("A"))
    recorder.report()
    threads[0].join()
    assert received.names == ["Start", "A Start", "A End", "reported", "B Start"]


def test_a_report_ends_after_the_last_step_that_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    received, clocks, opens_another = Received(), readers._clocks, False

    def late() -> tuple[int, int]:
        nonlocal opens_another
        now = clocks()
        if opens_another:
            opens_another = False
            in_thread(lambda: recorder.close(recorder.open("B")))
        return now

    monkeypatch.setattr(readers, "_clocks", late)
    recorder = recorder_of([received])
    recorder.close(recorder.open("A"))
    opens_another = True
    recorder.report()  # takes its reading before B has ended
    recorder.report()  # as B's thread does
    (record,) = received.runs
    assert record.attributes[semconv.RUN_STEPS] == 2
    assert record.clock_ns >= max(step.clock_ns for step in received.steps)


MIB = 1 << 20


def test_a_kernel_peak_read_by_another_thread_before_a_reset_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = 100 * MIB
    read = threading.Event()
    others: list[threading.Thread] = []

    def memory(pids: Collection[int]) -> MemoryReading:
        reading = MemoryReading(rss=100 * MIB, tree_rss=100 * MIB, high_water=mark)
        if threading.current_thread() is not threading.main_thread():
            read.set()
        return reading

    def reset(pids: Collection[int]) -> frozenset[int]:
        nonlocal mark
        read.clear()
        others.append(threading.Thread(target=recorder.reading_now))
        others[-1].start()
        assert read.wait(60)
        mark = 100 * MIB
        return frozenset()

    monkeypatch.setattr(readers, "reset_high_water", reset)
    monkeypatch.setattr(readers, "_LONGEST_WAIT", 0.05)  # the other thread reads all the same
    received = Received()
    recorder = recorder_of([received], memory, exact_peaks=True)
    recorder.start()
    mark = 900 * MIB  # rose between the start of the run and the start of the step
    step = recorder.open("Calibration")
    for other in others:
        other.join()
    recorder.close(step)
    recorder.end()
    (record,) = received.steps
    assert record.attributes[semconv.MEMORY_PEAK] == 100 * MIB


READS_BESIDE = """
import threading, time
from otel_quant.base import kernel_files
from otel_quant.capture.probes import readers

read, counted = threading.Event(), kernel_files._counted

def counted_late(content):
    if threading.current_thread() is not threading.main_thread():
        read.set()
        time.sleep(0.2)
    return counted(content)

readers._LONGEST_WAIT = 60.0
probes = readers.Probes()
before = probes.read().resources["disk"]
kernel_files._counted = counted_late
other = threading.Thread(target=probes.sample)
other.start()
assert read.wait(60)
during = probes.read().resources["disk"]
other.join()
print(during.read_chars - before.read_chars)
"""


def test_our_reads_in_another_thread_are_not_counted_as_the_programs(tmp_path: Path) -> None:
    # In a process of its own: pytest's workers read their instructions meanwhile.
    assert run_script(tmp_path, READS_BESIDE) == ("0\n", "")


def test_a_step_that_ends_during_a_reading_causes_no_deadlock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A generator is garbage-collected in the sampler's thread while another opens a step."""
    monkeypatch.setattr(readers, "_LONGEST_WAIT", 0.2)
    reading, opening, ended = threading.Event(), threading.Event(), threading.Event()

    def memory(pids: Collection[int]) -> None:
        if threading.current_thread() is sampling and not reading.is_set():
            reading.set()
            assert opening.wait(60)
            recorder.close(dropped)
            ended.set()

    def open_another() -> None:
        assert reading.wait(60)
        with recorder._lock:
            opening.set()
            recorder.close(recorder.open("Another"))

    recorder = recorder_of((), memory)
    sampling = threading.Thread(target=recorder.reading_now, daemon=True)
    dropped = recorder.open("Dropped")
    threading.Thread(target=open_another, daemon=True).start()
    sampling.start()
    assert ended.wait(60)
    recorder.end()
