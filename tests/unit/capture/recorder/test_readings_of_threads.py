"""Readings of several threads at the same time: none uses a half-finished state of another."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from otel_quant.capture.probes import readers
from otel_quant.schema.records import MemoryReading
from tests.fixtures.programs import run_script
from tests.unit.capture.recorder.received import Received, recorder_of

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
    assert record.attributes["quant.memory.peak"] == 100 * MIB


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
