"""Readings that threads take at once: none of them sees what another has done halfway."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection

import pytest

from otel_quant import recorder as recorder_module
from otel_quant.columns import Columns
from otel_quant.probes import kernel_files
from otel_quant.probes.readers import Probes
from otel_quant.readings import Checkpoint, MemoryReading, StepRecord
from otel_quant.recorder import Recorder, new_run_info
from otel_quant.sinks.sink import Sink

MIB = 1 << 20


class Ended(Sink):
    """Keeps the records of the steps that ended."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        self.records.append(record)


def test_a_mark_that_another_thread_read_just_before_it_was_reset_is_no_peak_of_the_step(
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

    monkeypatch.setattr(recorder_module, "reset_high_water", reset)
    sink = Ended()
    recorder = Recorder(
        new_run_info({}),
        Probes(memory=memory, disk=lambda pids: None, cpu=lambda pids: None),
        [sink],
        Columns(),
        sample_interval=0,
        exact_peaks=True,
    )
    recorder.start()
    mark = 900 * MIB  # of something between the run's start and the step's
    step = recorder.open("Calibration")
    for other in others:
        other.join()
    recorder.close(step)
    recorder.end()
    (record,) = sink.records
    assert record.peaks.memory == 100 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_what_another_thread_of_ours_is_just_reading_is_not_the_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, counted = threading.Event(), kernel_files._counted

    def counted_late(content: bytes) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            read.set()
            time.sleep(0.2)
        return counted(content)

    probes = Probes()
    before = probes.read().disk
    monkeypatch.setattr(kernel_files, "_counted", counted_late)
    other = threading.Thread(target=probes.sample)
    other.start()
    assert read.wait(60)
    during = probes.read().disk
    other.join()
    assert before is not None
    assert during is not None
    assert during.read_chars == before.read_chars
