"""The end of a run waits for the checkpoints that other threads take, but not for ever."""

from __future__ import annotations

import threading

import pytest

from otel_quant.capture.recorder import recorder
from otel_quant.capture.recorder.recorder import UnderWay

LONG = 60
"""Seconds after which a thread counts as one that hangs."""


def test_the_end_waits_for_other_threads_and_not_for_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder, "_LONGEST_WAIT", 1000)
    lock, order = threading.RLock(), []
    under_way, begun, holds, goes_on = (
        UnderWay(lock),
        *(threading.Event() for _ in range(3)),
    )

    def take() -> None:
        with under_way:
            with under_way:
                begun.set()
                goes_on.wait(LONG)
            order.append("over")

    def end() -> None:
        with under_way, lock:
            holds.set()
            under_way.wait_for_others()
            order.append("end")

    threads = [threading.Thread(target=each, daemon=True) for each in (take, end)]
    for thread, event in zip(threads, (begun, holds), strict=True):
        thread.start()
        assert event.wait(LONG)
    with lock:  # free: the end waits
        assert bool(under_way)
    goes_on.set()
    for thread in threads:
        thread.join(LONG)
    assert (order, bool(under_way)) == (["over", "end"], False)


def test_the_end_goes_on_without_a_thread_that_hangs() -> None:
    lock, hangs, begun = threading.RLock(), threading.Event(), threading.Event()
    under_way = UnderWay(lock)

    def take() -> None:
        with under_way:
            begun.set()
            hangs.wait(2 * LONG)

    def end() -> None:
        with lock:
            under_way.wait_for_others()

    taking, ending = (threading.Thread(target=each, daemon=True) for each in (take, end))
    taking.start()
    assert begun.wait(LONG)
    ending.start()
    ending.join(LONG)
    assert (ending.is_alive(), bool(under_way)) == (False, True)
    hangs.set()
    taking.join(LONG)
