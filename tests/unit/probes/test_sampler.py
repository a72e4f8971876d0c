"""The sampler's share of a core, by its own account of what each sample costs."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from otel_quant.probes.sampler import SHARE, Pace, Sampler


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def wait_until(holds: threading.Event) -> None:
    assert holds.wait(30)


def sampler_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "otel-quant-sampler"]


@pytest.mark.parametrize("cost", [0.001, 0.004])
def test_the_pause_follows_the_cost_so_that_the_share_holds(cost: float) -> None:
    spent: list[float] = []
    enough = threading.Event()

    def take() -> None:
        before = time.thread_time()
        burn(cost)
        spent.append(time.thread_time() - before)
        if len(spent) == 4:
            enough.set()

    sampler = Sampler(take, 0.001)
    began = time.monotonic()
    sampler.start()
    wait_until(enough)
    elapsed = time.monotonic() - began
    sampler.stop()
    # The last sample has not been paid for yet. A busy machine only makes more time go by.
    assert sum(spent[:3]) <= SHARE * elapsed


def test_samples_that_cost_too_much_settle_at_the_share() -> None:
    pace, elapsed, total = Pace(0.05), 0.05, 0.05
    for _ in range(100):
        elapsed = pace.pause(0.001, elapsed)
        total += elapsed
    assert elapsed == pytest.approx(0.001 / SHARE)
    assert 100 * 0.001 / total == pytest.approx(SHARE)


def test_the_time_that_a_sample_waits_counts_as_much_as_the_pause() -> None:
    # Half a second for the GIL, which cost 3 ms: 2/3 s of the share, 1/6 s of them to come.
    assert Pace(0.05).pause(0.003, 0.5) == pytest.approx(0.003 / SHARE - 0.5)


def test_a_dear_sample_after_cheap_ones_needs_no_pause_and_a_second_is_all_that_is_saved() -> None:
    pace = Pace(0.05)
    for _ in range(1000):
        assert pace.pause(0.0, 0.05) == 0.05
    assert pace.pause(SHARE, 0.05) == 0.05
    assert pace.pause(SHARE, 0.05) == pytest.approx(0.9)


def test_a_cheap_sample_is_taken_no_more_often_than_asked_for() -> None:
    taken: list[float] = []
    enough = threading.Event()

    def take() -> None:
        taken.append(time.monotonic())
        if len(taken) == 5:
            enough.set()

    sampler = Sampler(take, 0.02)
    sampler.start()
    wait_until(enough)
    sampler.stop()
    assert all(later - earlier >= 0.019 for earlier, later in itertools.pairwise(taken))


def test_a_sample_that_fails_is_not_the_last() -> None:
    taken = 0
    enough = threading.Event()

    def take() -> None:
        nonlocal taken
        taken += 1
        if taken == 3:
            enough.set()
        raise OSError("told to fail")

    sampler = Sampler(take, 0.001)
    sampler.start()
    wait_until(enough)
    sampler.stop()


def test_an_interval_of_0_starts_no_thread() -> None:
    sampler = Sampler(lambda: None, 0)
    sampler.start()
    assert sampler_threads() == []
    sampler.stop()


def test_stopping_leaves_no_thread_behind() -> None:
    sampler = Sampler(lambda: None, 0.001)
    sampler.start()
    assert len(sampler_threads()) == 1
    sampler.stop()
    assert sampler_threads() == []


def test_starting_twice_starts_one_thread() -> None:
    sampler = Sampler(lambda: None, 10)
    sampler.start()
    sampler.start()
    assert len(sampler_threads()) == 1
    sampler.stop()
