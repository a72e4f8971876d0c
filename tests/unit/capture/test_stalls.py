"""A step that does not move is called one that has stalled, and a slow one is not."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from traceback import walk_stack

import pytest

from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.recorder.peaks import PeakTracker
from otel_quant.capture.recorder.sinks import Sinks
from otel_quant.capture.recorder.step_forecast import StallWatch
from otel_quant.capture.stack_sampler import StackSampler
from otel_quant.schema.readings import CpuReading, MemoryReading, Reading, StepInfo


@pytest.mark.parametrize(
    ("seconds", "expected", "silent", "still", "stalled"),
    [
        ((1, 2, 3), 20, 20, 0, None),
        ((1, 2, 3), 20, 20.5, 0, 20.5),
        ((0.001, 0.002, 0.003), 20, 20.5, 0, 20.5),  # counted, not seen by readings
        ((3, 6, 9), 20, 30, 0, None),  # slow: ten times as long as the longest is 30 s
        ((3, 6, 9), 20, 31, 0, 31.0),
        ((0, 60, 61, 62), 20, 21, 0, 21.0),  # the first sample compiles
        ((1, 2), 20, 29, 29, None),  # one pause does not predict the others
        (range(1, 21), 20, 100, 0, None),  # none is waited for
        ((1, 2, 3), None, 100, 0, None),  # or nobody knows of how many
        ((1, 2, 3), None, 31, 31, 31),
        ((), None, 31, 31, 31),
        ((4, 8, 12), None, 35, 35, None),  # slow but moving
        ((4, 8, 12), None, 41, 41, 41),
        (range(1, 21), 20, 31, 31, 31),  # after the last sample, at one line
    ],
)
def test_a_step_has_stalled_that_waits_many_times_longer_than_before_or_at_one_line(
    seconds: Iterable[float],
    expected: int | None,
    silent: float,
    still: float,
    stalled: float | None,
) -> None:
    pace, second = StallWatch(), 0.0
    for number, second in enumerate(seconds, start=1):
        pace.count(number, round(second * 1e9))
    found = pace.stalled(round((second + silent) * 1e9), expected, still)
    assert found == (None if stalled is None else pytest.approx(stalled))


def reading(second: float, cpu: float = 0.0) -> Reading:
    known = {"memory": MemoryReading(1, 1), "gpu": (), "cpu": CpuReading(cpu, 0.0)}
    return Reading(0, round(second * 1e9), known)


@contextmanager
def step_in(target: Callable[..., None], *args: object) -> Iterator[dict[int, OpenStep]]:
    """Yields the open steps, of which one is in a thread of its own."""
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    time.sleep(0.05)
    first = reading(0)
    info = StepInfo(index=0, label="Train", kind="User-Defined", thread=thread.ident or 0)
    yield {0: OpenStep(info, None, Sinks([]), None, first, PeakTracker(first, {}), {})}


def wait(event: threading.Event) -> None:
    event.wait()


def poll(event: threading.Event) -> None:
    while not event.wait(0.001):
        pass


def compute(event: threading.Event) -> None:
    while not event.is_set():
        sum(range(1000))


def wait_elsewhere(first: threading.Event, event: threading.Event) -> None:
    first.wait()
    event.wait()


def line_of(thread: int) -> int:
    """Returns the line of this file that a thread is at."""
    frames = (each for each, _ in walk_stack(sys._current_frames()[thread]))
    return next(each.f_lineno for each in frames if each.f_code.co_filename == __file__)


def still_after(
    steps: dict[int, OpenStep], every: float, times: int, cpu: float = 0.0
) -> dict[int, float]:
    """Returns how long steps are at one line, of samples in which a real thread ran for milliseconds."""
    sampler = StackSampler(names_paths=True)
    for at in range(times + 1):
        sampler.take(steps, reading(at * every, at * cpu))
        found = sampler.still(reading(at * every, at * cpu))
        time.sleep(0.005)
    return found


@pytest.mark.parametrize("blocked", [wait, poll])
def test_a_blocked_thread_of_an_idle_program_is_at_one_line(blocked: Callable[..., None]) -> None:
    event = threading.Event()
    with step_in(blocked, event) as steps:
        assert still_after(steps, 10, 4) == {0: 40}
    event.set()


def run_tasks(event: threading.Event) -> None:
    async def until_set() -> None:
        while not event.is_set():
            await asyncio.sleep(0.1)

    asyncio.run(until_set())


def test_an_event_loop_that_waits_is_not_at_one_line() -> None:
    event = threading.Event()
    with step_in(run_tasks, event) as steps:
        assert still_after(steps, 10, 4).get(0, 0) == 0
    event.set()


def test_a_thread_that_computes_is_not_nor_one_whose_children_do() -> None:
    event = threading.Event()
    with step_in(compute, event) as steps:
        assert still_after(steps, 0.02, 5).get(0, 0.0) < 0.1
    event.set()
    with step_in(wait, event := threading.Event()) as steps:
        assert still_after(steps, 10, 4, cpu=5) == {}
    event.set()


def test_another_line_is_another_start_and_is_told_with_what_it_waits_for() -> None:
    first, event = threading.Event(), threading.Event()
    with step_in(wait_elsewhere, first, event) as steps:
        sampler = StackSampler(names_paths=True)
        sampler.take(steps, reading(0))
        sampler.still(reading(0))
        before = line_of(steps[0].info.thread)
        first.set()
        while line_of(steps[0].info.thread) == before:  # a busy machine has it go on later
            time.sleep(0.001)
        time.sleep(0.05)
        for second in (35, 40):
            sampler.take(steps, reading(second))
            found = sampler.still(reading(second))
        assert found == {0: 5}
        words = sampler.newest[0].waiting_words
        assert words.startswith("wait_elsewhere (test_stalls.py:")
        assert words.endswith("), in Condition.wait, which waits for a signal of another thread")
    event.set()
