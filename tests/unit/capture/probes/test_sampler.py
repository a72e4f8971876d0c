"""The sampler aims at its share of a core and is never blind for longer than half a second; clocks are read together."""

from __future__ import annotations

import threading

import pytest

from otel_quant.capture import sampler as sampler_module
from otel_quant.capture.probes import readers
from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.sampler import LONGEST_PAUSE, SHARE, Pace, Sampler


def wait_for(event: threading.Event) -> None:
    assert event.wait(30)


def sampler_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "otel-quant-sampler"]


class Clock:
    """Clocks that stand still but for samples and pauses; in place of the sampler's lock."""

    def __init__(self, cost: float) -> None:  # seconds of CPU time that a sample takes
        self._cost = cost
        self._cpu = self._now = 0.0
        self.pauses: list[float] = []

    def thread_time(self) -> float:
        return self._cpu

    def monotonic(self) -> float:
        return self._now

    def take(self) -> None:
        self._cpu += self._cost
        self._now += self._cost

    def acquire(self, timeout: float) -> bool:
        self._now += timeout
        self.pauses.append(timeout)
        return len(self.pauses) > 100

    def release(self) -> None:
        pass


def pauses_of(monkeypatch: pytest.MonkeyPatch, cost: float, interval: float) -> list[float]:
    """Returns the first 101 pauses of a sampler."""
    clock = Clock(cost)
    sampler = Sampler(clock.take, interval)
    monkeypatch.setattr(sampler_module, "time", clock)
    monkeypatch.setattr(sampler, "_running", clock)
    sampler._run()
    return clock.pauses


@pytest.mark.parametrize("cost", [0.001, 0.0015])
def test_the_cpu_time_of_its_thread_decides_how_long_the_sampler_waits(
    monkeypatch: pytest.MonkeyPatch, cost: float
) -> None:
    pauses = pauses_of(monkeypatch, cost, 0.05)
    assert pauses[-1] == pytest.approx(cost / SHARE - cost)
    assert 100 * cost / sum(pauses) == pytest.approx(SHARE, rel=0.02)


def test_the_sampler_waits_for_its_interval_when_samples_are_cheap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert pauses_of(monkeypatch, 0.0, 0.02) == [0.02] * 101


def test_the_duration_of_a_sample_counts_as_elapsed_time() -> None:
    # 3 ms of CPU time need 2/3 s; the sample waited half a second for the GIL: 1/6 s remains.
    assert Pace(0.05).pause(0.003, 0.5) == pytest.approx(0.003 / SHARE - 0.5)


def test_an_expensive_sample_after_cheap_ones_needs_no_pause_up_to_one_second() -> None:
    pace = Pace(0.05)
    for _ in range(1000):
        assert pace.pause(0.0, 0.05) == 0.05
    pauses = [pace.pause(0.7 * SHARE, 0.05) for _ in range(2)]
    assert pauses == [0.05, pytest.approx(0.3)]


@pytest.mark.parametrize("cost", [0.017, 0.05, 10.0])
def test_no_pause_is_longer_than_half_a_second(cost: float) -> None:
    pace = Pace(0.05)
    pauses = [pace.pause(cost, 0.05)] + [pace.pause(cost, LONGEST_PAUSE) for _ in range(10)]
    assert pauses == [0.4] * 11
    # What the longest pause did not pay is not paid later.
    assert [pace.pause(0.0, 0.5) for _ in range(3)][1:] == [0.05, 0.05]


def test_a_longer_interval_of_the_user_is_kept() -> None:
    assert Pace(2.0).pause(0.017, 2.0) == 2.0


def test_sampling_continues_after_a_sample_that_fails() -> None:
    taken = 0
    enough = threading.Event()

    def take() -> None:
        nonlocal taken
        taken += 1
        if taken == 3:
            enough.set()
        raise OSError("made to fail")

    sampler = Sampler(take, 0.001)
    sampler.start()
    wait_for(enough)
    sampler.stop()


@pytest.mark.parametrize(("interval", "starts", "threads"), [(0, 1, 0), (0.001, 1, 1), (10, 2, 1)])
def test_one_thread_runs_between_start_and_stop_unless_sampling_is_off(
    interval: float, starts: int, threads: int
) -> None:
    sampler = Sampler(lambda: None, interval)
    for _ in range(starts):
        sampler.start()
    assert len(sampler_threads()) == threads
    sampler.stop()
    assert sampler_threads() == []


SUSPENDED = 5_000_000
"""Nanoseconds for which a thread does not run."""

EPOCH = 1_700_000_000_000_000_000


class Clocks:
    """Replaces the module ``time`` in a thread that is suspended after some of its calls, counted from 1."""

    def __init__(self, suspended_after: set[int]) -> None:
        self._suspended_after = suspended_after
        self._calls = 0
        self._now = 0

    def _call(self) -> int:
        now = self._now
        self._calls += 1
        self._now += SUSPENDED if self._calls in self._suspended_after else 50
        return now

    def time_ns(self) -> int:
        return EPOCH + self._call()

    def perf_counter_ns(self) -> int:
        return self._call()


@pytest.mark.parametrize("suspended_after", [set(), {1}, {2}, {3}, {1, 2}, {2, 5}, {1, 4, 8}])
def test_both_clocks_of_a_reading_are_of_the_same_moment(
    monkeypatch: pytest.MonkeyPatch, suspended_after: set[int]
) -> None:
    monkeypatch.setattr(readers, "time", Clocks(suspended_after))

    reading = Probes().sample()

    assert reading.clock_ns - (reading.time_ns - EPOCH) == 50
