"""What a sample sees is booked to the line that did it."""

from __future__ import annotations

import asyncio
import dis
import gc
import hashlib
import os
import queue
import select
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

import otel_quant
from otel_quant.capture.gil import GilWaits
from otel_quant.capture.other_tasks import OtherTasks
from otel_quant.capture.peak_lines import PeakLines
from otel_quant.capture.probes.memory import MemoryProbe, taken_now
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.recorder.peaks import PeakTracker
from otel_quant.capture.recorder.sinks import Sinks
from otel_quant.capture.stack_sampler import StackSampler
from otel_quant.diagnosis.spots import EVENTS, LOCK, NETWORK, PIPE, SLEEP
from otel_quant.diagnosis.stack_trees import Stacks
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import OUTSIDE, RECORDER, Amounts, Place, total_of
from otel_quant.schema.readings import Count, MemoryReading, Reading, RunInfo, StepInfo

MB = 1_000_000


def reading(rss: int) -> Reading:
    return Reading(0, time.perf_counter_ns(), {"memory": MemoryReading(rss, rss), "gpu": ()})


def steps_in(*threads: threading.Thread | None) -> dict[int, OpenStep]:
    """Returns the open steps, one in each thread; none in this thread's place."""
    found = {}
    for index, thread in enumerate(threads):
        ident = thread.ident if thread is not None else threading.get_ident()
        info = StepInfo(index=index, label="Train", kind="User-Defined", thread=ident or 0)
        first = reading(0)
        found[index] = OpenStep(info, None, Sinks([]), None, first, PeakTracker(first, {}), {})
    return found


def wait(over: threading.Event) -> None:
    over.wait()


RESTS = threading.Event()


def rest(over: threading.Event) -> None:
    while not RESTS.is_set():
        sum(range(1000))
    time.sleep(1)


WORKS: list[bool] = []


def rest_and_work(over: threading.Event) -> None:
    while not (WORKS or over.is_set()):
        time.sleep(0.2)
    while not over.is_set():
        sum(range(1000))


def ask_and_work(over: threading.Event) -> None:
    while not (WORKS or over.is_set()):
        with suppress(queue.Empty):
            ANSWERS.get(timeout=5)
    while not over.is_set():
        sum(range(1000))


ANSWERS: queue.Queue[None] = queue.Queue()


def compute(over: threading.Event) -> None:
    while not over.is_set():
        sum(range(1000))


def sleep(over: threading.Event) -> None:
    while not over.is_set():
        time.sleep(0.2)


def digest(over: threading.Event) -> None:
    block = bytes(2_000_000)
    while not over.is_set():
        hashlib.sha256(block).digest()  # gives the GIL away


def work_and_sleep(over: threading.Event) -> None:
    while not over.is_set():
        sum(range(1_000_000))
        time.sleep(0.02)


GUARD = threading.Lock()


def take_turns(over: threading.Event) -> None:
    while not over.is_set():
        with GUARD:
            sum(range(1_000_000))


def read_a_pipe(over: threading.Event) -> None:
    reading, writing = os.pipe()
    threading.Thread(target=lambda: (over.wait(), os.write(writing, b"x"))).start()
    os.read(reading, 1)
    os.close(reading)
    os.close(writing)


def wait_for_any(over: threading.Event) -> None:
    while not over.is_set():
        select.select([], [], [], 0.2)


def acquire(over: threading.Event) -> None:
    lock = threading.Lock()
    lock.acquire()
    threading.Thread(target=lambda: (over.wait(), lock.release())).start()
    lock.acquire()


@contextmanager
def threads(*targets: Callable[[threading.Event], None]) -> Iterator[list[threading.Thread]]:
    """Yields threads that run functions, which end with it."""
    over = threading.Event()
    found = [threading.Thread(target=each, args=(over,), daemon=True) for each in targets]
    for each in found:
        each.start()
    time.sleep(0.05)
    try:
        yield found
    finally:
        over.set()
        for each in found:
            each.join()


def grown(sampler: StackSampler) -> dict[tuple[int, str], int]:
    """Returns how much memory was booked, by index of the step and function of this file."""
    found: dict[tuple[int, str], int] = {}
    for index, root in sampler.stacks.steps.items():
        for lines, node in root.walk():
            if node.own.grown:
                own = [line.function for line in lines if line.file == __file__]
                found[index, own[-1]] = found.get((index, own[-1]), 0) + node.own.grown
    return found


def taking_lines(sampler: StackSampler) -> set[int]:
    """Returns the lines that have taken memory in the first step."""
    return {lines[-1].line for lines, node in sampler.stacks.steps[0].walk() if node.own.grown}


def sampled(sampler: StackSampler, steps: dict[int, OpenStep], *sizes: int) -> None:
    for size in sizes:
        sampler.look_at_gil()
        sampler.take(steps, reading(size * MB), len(steps))
        time.sleep(0.1)


@pytest.fixture
def threads_of_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out threads of pytest-xdist, which the module threading does not know: they are none of a program's."""
    frames, known = sys._current_frames, threading.enumerate

    def of_program() -> dict[int | None, FrameType]:
        return {each.ident: frames()[each.ident or 0] for each in known()}

    monkeypatch.setattr(sys, "_current_frames", of_program)


linux = pytest.mark.skipif(sys.platform != "linux", reason="needs schedstat")


@linux
@pytest.mark.parametrize("every", [False, True])
def test_memory_is_booked_to_the_thread_that_ran_most_though_it_has_no_step(every: bool) -> None:
    with threads(wait, compute) as (waiting, _):
        sampler = StackSampler(names_paths=True, of_every_thread=every)
        sampled(sampler, steps_in(waiting), 10, 10, 90, 130)
        assert grown(sampler) == {(0, "compute"): 120 * MB}
        time_of = {index: root.total().time for index, root in sampler.stacks.steps.items()}
        assert time_of.keys() == ({0, OUTSIDE} if every else {0})


@linux
def test_memory_of_two_steps_that_wait_is_outside_of_both() -> None:
    with threads(wait, wait, compute) as (first, second, _):
        sampler = StackSampler(names_paths=True)
        sampled(sampler, steps_in(first, second), 10, 10, 90)
        assert grown(sampler) == {(OUTSIDE, "compute"): 80 * MB}


@linux
def test_memory_is_booked_to_no_line_where_nobody_knows_who_ran() -> None:
    with threads(wait, compute) as (waiting, _):
        sampler, steps = StackSampler(names_paths=True), steps_in(waiting)
        sampler.take(steps, reading(10 * MB), 1)
        sampler._watched = 0  # as when nothing has moved for long
        for size in (10, 90):  # without a look at who waits for the GIL, which would know of one
            sampler.take(steps, reading(size * MB), 1)
            time.sleep(0.1)
        assert grown(sampler) == {}
        sampled(sampler, steps, 100)
        assert grown(sampler) == {(0, "compute"): 10 * MB}


@linux
def test_memory_of_a_thread_with_a_step_that_runs_is_its_own() -> None:
    with threads(compute, wait) as (running, _):
        sampler = StackSampler(names_paths=True)
        sampled(sampler, steps_in(running), 10, 10, 90)
        assert grown(sampler) == {(0, "compute"): 80 * MB}


@linux
@pytest.mark.usefixtures("threads_of_program")
def test_time_and_memory_are_those_just_before_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    with threads(compute) as (running,):
        sampler, steps = StackSampler(names_paths=True), steps_in(running)
        sampled(sampler, steps, 10)
        monkeypatch.setattr("otel_quant.capture.stack_sampler.resident", lambda **_: 30 * MB)
        assert sampler.has_moved()
        sampler.look_ahead(lambda: None)
        ahead = Place(__file__, "ahead", 1, "")
        sampler._ahead = {thread: [ahead] for thread in sampler._ahead}
        sampler.take(steps, reading(50 * MB), 1)
        of = {lines[-1]: node.own for lines, node in sampler.stacks.steps[0].walk()}
        assert of.pop(ahead).grown == 20 * MB
        assert total_of(of.values()).grown == 0
        time.sleep(0.1)
        sampled(sampler, steps, 50)
        assert sum(grown(sampler).values()) == 40 * MB


@linux
@pytest.mark.usefixtures("threads_of_program")
def test_memory_that_is_seen_in_our_code_is_booked_where_the_program_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with threads(compute) as (running,):
        sampler, steps, moments = StackSampler(names_paths=True), steps_in(running), list[int]()
        sampled(sampler, steps, 10)
        monkeypatch.setattr("otel_quant.capture.stack_sampler.resident", lambda **_: 30 * MB)
        stacks = iter([[RECORDER], [Place(__file__, "goes_on", 1, "")]])
        monkeypatch.setattr(sampler, "_lines", lambda _: next(stacks))
        sampler.look_ahead(lambda: moments.append(1))
        sampler.take(steps, reading(50 * MB), 1)
        assert moments == [1]
        assert grown(sampler) == {(0, "goes_on"): 20 * MB}


@linux
@pytest.mark.usefixtures("threads_of_program")
def test_without_a_step_the_program_goes_on_for_a_moment_before_it_is_seen_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("otel_quant.capture.stack_sampler.resident", lambda **_: 10 * MB)
    sampler, moments = StackSampler(names_paths=True), list[int]()
    sampled(sampler, {}, 10)
    sum(range(100_000))
    sampler.look_ahead(lambda: moments.append(1))
    assert moments == [1]
    assert [*sampler._ahead] == [threading.main_thread().ident]


@linux
def test_no_sample_keeps_what_a_function_had_until_the_next_garbage_collection() -> None:
    class Kept:
        pass

    def hold(over: threading.Event) -> None:
        kept.append(weakref.ref(it := Kept()))
        while not over.is_set():
            sum(range(1000))
        assert it is not None

    kept: list[weakref.ref[Kept]] = []
    gc.disable()
    try:
        with threads(hold) as (running,):
            sampler, steps = StackSampler(names_paths=True), steps_in(running)
            for _ in range(2):
                sampler.look_ahead(lambda: None)
                sampled(sampler, steps, 10)
        assert kept[0]() is None
    finally:
        gc.enable()


@linux
def test_memory_that_a_function_takes_before_it_sleeps_is_not_booked_to_the_sleep() -> None:
    with threads(rest) as (running,):
        sampler, steps = StackSampler(names_paths=True), steps_in(running)
        sampled(sampler, steps, 10, 11, 11)
        RESTS.set()
        time.sleep(0.05)
        sampled(sampler, steps, 11, 90)
        first = rest.__code__.co_firstlineno
        assert taking_lines(sampler) <= {first + 1, first + 2}  # the loop


@linux
@pytest.mark.parametrize(("target", "waits"), [(rest_and_work, 2), (ask_and_work, 3)])
def test_memory_seen_while_a_function_waits_is_at_its_line_that_takes_some_later(
    threads_of_program: None,
    monkeypatch: pytest.MonkeyPatch,
    target: Callable[[threading.Event], None],
    waits: int,
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "WORKS", [])
    with threads(target) as (running,):
        sampler, steps = StackSampler(names_paths=True), steps_in(running)
        first = target.__code__.co_firstlineno
        sampled(sampler, steps, 10, 30)
        taken_at = {first + waits + 1, first + waits + 2}
        seen = taking_lines(sampler)
        WORKS.append(True)
        ANSWERS.put(None)
        assert seen.isdisjoint(taken_at)
        time.sleep(0.5)
        sampled(sampler, steps, 50)
        assert taking_lines(sampler) <= taken_at
        assert grown(sampler) == {(0, target.__name__): 40 * MB}


@pytest.mark.parametrize(
    ("sizes", "peak", "expected"),
    [
        ((10, 90, 60), 90, "compute"),  # seen by a sample
        ((10, 90, 60), 95, "compute"),
        ((10, 90, 60), 200, None),  # nothing has seen it rise so far
        ((0, 0, 0), 0, None),  # it has not risen
    ],
)
def test_the_line_of_a_peak_is_where_memory_was_seen_to_be_that_high(
    sizes: tuple[int, ...], peak: int, expected: str | None
) -> None:
    with threads(compute) as (running,):
        sampler, steps = StackSampler(names_paths=True), steps_in(running)
        sampled(sampler, steps, *sizes)
        found = sampler.peak_line(steps[0], peak * MB)
        assert found == expected or (found or "").startswith(f"{expected} (test_stack_sampler.py:")
        assert sampler.peak_line(steps[0], peak * MB) is None  # it has ended


@linux
def test_a_peak_between_two_samples_is_at_the_line_that_the_mark_rose_at(
    threads_of_program: None,
) -> None:
    with threads(compute) as (running,):
        sampler, probe = StackSampler(names_paths=True), MemoryProbe()
        first = Reading(0, time.perf_counter_ns(), {"memory": probe()})
        steps = steps_in(running)
        steps[0] = replace(steps[0], start=first)
        sampler.take(steps, Reading(0, time.perf_counter_ns(), {"memory": probe.sample()}), 1)
        held = bytearray(b"x") * (4 * first.memory.high_water)
        del held
        sampler.take(steps, Reading(0, time.perf_counter_ns(), {"memory": probe.sample()}), 1)
        line = sampler.peak_line(steps[0], probe().high_water)
        assert line is not None
        assert line.startswith("compute (")


@linux
@pytest.mark.parametrize(("target", "what"), [(read_a_pipe, PIPE), (sleep, SLEEP), (acquire, LOCK)])
def test_what_a_blocked_thread_waits_for_is_asked_of_linux_and_of_the_code(
    target: Callable[[threading.Event], None], what: str
) -> None:
    with threads(target) as (waiting,):
        sampler = StackSampler(names_paths=True)
        sampled(sampler, steps_in(waiting), 10, 10, 10)
        waits = sampler._beside[0].waits
        assert max(waits, key=waits.__getitem__) == what


@linux
@pytest.mark.parametrize("has_connection", [False, True])
def test_a_wait_in_select_is_the_networks_only_in_a_process_with_a_connection(
    monkeypatch: pytest.MonkeyPatch, has_connection: bool
) -> None:
    name = "otel_quant.capture.stack_sampler.carried_by_connections"
    monkeypatch.setattr(name, lambda: 0 if has_connection else None)
    with threads(wait_for_any) as (waiting,):
        sampler = StackSampler(names_paths=True)
        sampled(sampler, steps_in(waiting), 10, 10, 10)
        assert (NETWORK in sampler._beside[0].waits) == has_connection


def wait_for_a_thread(over: threading.Event) -> None:
    asyncio.run(asyncio.to_thread(over.wait))


def poll(over: threading.Event) -> None:
    async def look() -> None:
        while not over.is_set():
            await asyncio.sleep(0.2)

    asyncio.run(look())


@linux
def test_a_loop_of_asyncio_that_waits_for_its_next_timer_waits_for_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    carried = iter(range(0, 10**6, 100))
    name = "otel_quant.capture.stack_sampler.carried_by_connections"
    monkeypatch.setattr(name, lambda: next(carried))
    with threads(wait_for_a_thread, poll) as waiting:
        sampler, steps = StackSampler(names_paths=True), steps_in(*waiting)
        for _ in range(100):
            sampled(sampler, steps, 10)
            beside = sampler._beside.get(0)
            if beside is not None and beside.carried is not None and beside.carried[1] >= 200:
                break
        assert beside is not None
        assert beside.carried == (0, 200)
        assert {*beside.waits} >= {EVENTS}
        assert EVENTS not in sampler._beside[1].waits


def ask(over: threading.Event) -> None:
    async def wait_for_answers() -> None:
        loop = asyncio.get_running_loop()
        while not over.is_set():
            answer = asyncio.Event()
            ASKED.append(partial(loop.call_soon_threadsafe, answer.set))
            with suppress(TimeoutError):
                await asyncio.wait_for(answer.wait(), 2)

    asyncio.run(wait_for_answers())


ASKED: list[Callable[[], object]] = []


@linux
def test_a_loop_of_asyncio_that_goes_on_before_its_next_timer_waits_for_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "otel_quant.capture.stack_sampler.carried_by_connections"
    monkeypatch.setattr(name, lambda: 0)
    with threads(ask) as (waiting,):
        sampler, steps = StackSampler(names_paths=True), steps_in(waiting)
        for _ in range(100):
            sampled(sampler, steps, 10)
            beside = sampler._beside.get(0)
            if beside is not None and EVENTS in beside.waits:
                break
            if ASKED:
                ASKED.pop()()
        assert beside is not None
        assert EVENTS in beside.waits


@linux
def test_a_step_that_ends_soon_after_it_was_seen_has_all_of_its_time() -> None:
    sampler, steps = StackSampler(names_paths=True), steps_in(None, None)
    lasted = []
    for index, seconds in ((0, 0.01), (1, 0.5)):  # after that it is not known where it was
        sampled(sampler, {index: steps[index]}, 10)
        time.sleep(seconds)
        lasted.append(time.perf_counter_ns() - steps[index].start.clock_ns)
        sampler.bound_of(steps[index], lasted[-1] / 1e9, {}, RunInfo(id="", pid=None))
    soon, late = (sampler.stacks.steps[index].total() for index in (0, 1))
    assert abs(soon.time - lasted[0]) < 2  # of a float
    assert late.time <= lasted[1] - 400_000_000


@linux
@pytest.mark.parametrize(
    ("targets", "for_threads", "waiting"),
    [
        ((compute, compute), False, [0]),
        ((digest, compute), False, [0]),  # after each call
        ((wait, compute, compute), True, [1, 2]),  # it waits for these
    ],
)
def test_threads_that_wait_for_the_gil_beside_each_other_are_found(
    targets: tuple[Callable[[threading.Event], None], ...], for_threads: bool, waiting: list[int]
) -> None:
    with threads(*targets) as found:
        files = {each.ident or 0: f"/proc/self/task/{each.native_id}/schedstat" for each in found}
        own, *_ = files
        gil, expected, ends = GilWaits(), {[*files][at] for at in waiting}, time.monotonic() + 20
        while {*gil.waiting(files, own, for_threads=for_threads)} != expected:
            assert time.monotonic() < ends


@linux
@pytest.mark.parametrize(
    "targets",
    [
        (compute,),
        (compute, sleep, sleep),
        (compute, digest),
        (digest, digest),
        (work_and_sleep, digest),
        (take_turns, take_turns),
        (wait, compute),
        (wait, compute, sleep),
        (wait, digest, digest),
    ],
    ids=lambda value: "-".join(each.__name__ for each in value),
)
def test_the_gil_is_not_what_a_thread_waits_for_whose_others_are_in_c_code_or_asleep(
    targets: tuple[Callable[[threading.Event], None], ...],
) -> None:
    with threads(*targets) as (own, *_):
        sampler, steps = StackSampler(names_paths=True), steps_in(own)
        sampled(sampler, steps, *[10] * 15)  # of few, two that meet the GIL by chance are a third
        share = sampler._beside[0].gil_ns / sampler.stacks.steps[0].total().time
        assert share < 0.3


@linux
def test_a_peak_has_no_line_where_its_thread_has_left_it_for_our_code() -> None:
    sampler, probe = StackSampler(names_paths=True), MemoryProbe()

    def taken() -> Reading:
        return Reading(0, time.perf_counter_ns(), {"memory": probe()})

    steps = steps_in(None)
    steps[0] = replace(steps[0], start=taken())
    sampler.take(steps, taken(), 1)
    held = bytearray(b"x") * (4 * probe().high_water)
    del held
    sampler.take(steps, taken(), 1)  # which is in our code itself
    assert sampler.peak_line(steps[0], probe().high_water) is None


def test_a_peak_has_no_line_where_what_we_call_was_seen() -> None:
    lines, steps = PeakLines(), steps_in(None)
    start = Reading(0, 1, {"memory": MemoryReading(MB, MB)})
    steps[0] = replace(steps[0], start=start)
    lines.add(steps, MemoryReading(50 * MB, 50 * MB), [RECORDER])
    assert lines.end(0, 50 * MB) is None


def functions(frame: FrameType | None) -> list[str]:
    """Returns the functions of a stack that are within tests of this file, outermost first."""
    lines = StackSampler(names_paths=True)._lines(frame)
    own = [line.function for line in lines if line.file == __file__]
    return [each.rpartition(".")[2] for each in own if ".<locals>." in each]


def test_a_function_that_has_not_begun_is_its_callers() -> None:
    found: list[list[str]] = []

    def second() -> None:
        pass

    def caller() -> None:
        second()

    def generator() -> Iterator[int]:
        yield 1
        yield 2

    def takes() -> None:
        for _ in generator():
            pass

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call":  # before RESUME has done anything
            found.append(functions(frame))

    sys.setprofile(look)
    try:
        caller()
        takes()
    finally:
        sys.setprofile(None)
    inner = [each[-1] for each in found if each]
    assert "second" not in inner
    assert "generator" not in inner
    assert {"caller", "takes"} <= {*inner}


STRAIGHT = """size = 2
def first():
    return b"x" * size

def second(*_):
    return 1

class Methods:
    def third(self):
        pass

def in_turn():
    kept = first()
    second()

def of_a_method(methods):
    value = b"x" * size
    methods.third()

def through_c():
    kept = first()
    sorted([2, 1], key=second)

def behind_a_branch(is_first):
    if is_first:
        first()
    second()

def in_a_loop():
    for _ in range(2):
        value = b"x" * size
        del value

def alone():
    for _ in range(2):
        pass
"""


def test_what_was_done_before_cpython_handed_over_is_at_its_line_with_the_function_that_did_it() -> (
    None
):
    found: dict[str, tuple[str, ...]] = {}
    program: dict[str, Any] = {}
    exec(compile(STRAIGHT, "straight.py", "exec"), program)

    def look(frame: FrameType, what: str) -> None:
        lines = StackSampler(names_paths=True)._lines(frame)
        found[what] = tuple(each.text for each in lines if each.file == "straight.py")

    def called(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == "straight.py":
            look(frame, f"{(frame.f_back or frame).f_code.co_name} > {frame.f_code.co_name}")

    def run(name: str, *arguments: object) -> None:
        sys.setprofile(called)
        try:
            program[name](*arguments)
        finally:
            sys.setprofile(None)

    def at_its_end(name: str) -> None:
        code = program[name].__code__
        [end] = (each for each in dis.get_instructions(code) if "JUMP_BACKWARD" in each.opname)
        line = end.positions.lineno if end.positions else 0
        frame = SimpleNamespace(f_code=code, f_lasti=end.offset, f_lineno=line, f_globals=program, f_back=None)  # fmt: skip
        look(cast(FrameType, frame), f"{name}, loop")

    run("in_turn")
    run("of_a_method", program["Methods"]())
    run("through_c")
    run("behind_a_branch", True)
    at_its_end("in_a_loop")
    at_its_end("alone")
    assert {what: lines for what, lines in found.items() if lines} == {
        "in_turn > first": ("in_turn (straight.py:13)",),  # nothing was before
        "in_turn > second": ("in_turn (straight.py:13)", "first (straight.py)"),
        "of_a_method > third": ("of_a_method (straight.py:17)",),
        "through_c > first": ("through_c (straight.py:21)",),
        "through_c > second": ("through_c (straight.py:22)",),  # sorted may have done it
        "behind_a_branch > first": ("behind_a_branch (straight.py:26)",),
        "behind_a_branch > second": ("behind_a_branch (straight.py:27)",),  # by either way
        "in_a_loop, loop": ("in_a_loop (straight.py:31)",),
        "alone, loop": ("alone (straight.py:35)",),
    }


def test_of_recursion_the_innermost_line_is_kept_with_its_outer_callers() -> None:
    def down(depth: int) -> list[str]:
        return down(depth - 1) if depth else functions(sys._getframe())

    def visit(depth: int) -> list[str]:
        return generic(depth - 1) if depth else functions(sys._getframe())

    def generic(depth: int) -> list[str]:
        return visit(depth)

    def outer() -> tuple[list[str], list[str], list[str]]:
        return down(450), visit(200), visit(10)

    direct, in_turns, few = outer()
    assert direct == ["outer", "down"]
    assert in_turns in (["outer", "generic", "visit"], ["outer", "visit", "generic", "visit"])
    assert len(few) == 22  # what is not deep stays as it is


class Reader:
    def __init__(self, *, in_a_thread: bool) -> None:
        self.in_a_thread = in_a_thread

    def take(self) -> None:
        self.kept = bytearray(b"x") * (32 * MB)

    def get_next(self) -> None:
        if self.in_a_thread:
            thread = threading.Thread(target=self.take)
            thread.start()
            thread.join()
        else:
            self.take()


@linux
@pytest.mark.parametrize(
    ("in_a_thread", "is_sampled"), [(False, True), (True, True), (False, False)]
)
def test_a_data_reader_has_what_its_thread_has_taken_though_samples_come_later(
    in_a_thread: bool, is_sampled: bool
) -> None:
    sampler, probe, reader = (
        StackSampler(names_paths=True),
        MemoryProbe(),
        Reader(in_a_thread=in_a_thread),
    )

    def take() -> None:
        sampler.take(steps_in(None), Reading(0, time.perf_counter_ns(), {"memory": probe()}), 1)

    if is_sampled:
        take()
    began = taken_now()
    assert began is not None
    reader.get_next()
    sampler.add_reader(steps_in(None)[0], reader, began)
    take()
    of_reader = grown(sampler).get((0, "Reader.get_next"), 0)
    is_known = is_sampled and not in_a_thread
    assert of_reader == (pytest.approx(32 * MB, rel=0.1) if is_known else 0)
    assert sum(grown(sampler).values()) < 36 * MB  # nothing twice


@linux
def test_a_reader_that_computes_longer_for_each_sample_is_told_from_one_that_does_not() -> None:
    """Both compute for so many seconds before the call that counts as their beginning."""

    def evidence_of(seconds: Callable[[int], float]) -> str:
        sampler, steps = StackSampler(names_paths=True), steps_in(None)
        sampler.take(steps, reading(MB), 1)
        reader = Reader(in_a_thread=False)
        for number in range(1, 41):
            steps[0].counts["sample"] = Count(number)
            began = taken_now()
            assert began is not None
            sampler.add_reader(steps[0], reader, (*began[:4], began[4] - seconds(number)))
        called = Place("onnxruntime/calibrate.py", "collect", 1, "onnxruntime")
        lines = [called, Place("q.py", "Reader.get_next", 2, "")]
        sampler.stacks = Stacks()  # without what was seen until now
        sampler.stacks.add(0, lines, Amounts(10**10, 10**10))
        known = {semconv.CALIBRATION_SAMPLE_COUNT: 40}
        bound, _ = sampler.bound_of(steps[0], 10, known, RunInfo(id="", pid=None))
        return str(bound[semconv.STEP_BOUND_EVIDENCE])

    plain = "100 % of its time, most at Reader.get_next (q.py:2)"
    longer = f"{plain}; it computes 10 ms longer for each sample than for the one before"
    assert evidence_of(lambda number: number / 100) == longer
    assert evidence_of(lambda number: 0.25) == plain
    assert evidence_of(lambda number: 0.25 + number / 1000) == plain  # a tenth of its time


@pytest.mark.parametrize(("code", "is_ours"), [("import seen", True), ("look(sys)", False)])
def test_what_the_recorder_imports_is_booked_to_no_line_of_the_program(
    code: str, is_ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def look(module: object) -> None:
        found.append(StackSampler(names_paths=True)._lines(sys._getframe()))

    (tmp_path / "seen.py").write_text("import sys; sys.look(sys)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "look", look, raising=False)
    monkeypatch.delitem(sys.modules, "seen", raising=False)
    exec(compile(code, otel_quant.__file__, "exec"), {"look": look, "sys": sys})
    (lines,) = found
    assert (lines == [RECORDER]) == is_ours


class EndingMeanwhile(dict[int, OpenStep]):
    """Open steps, of which one ends in its thread while a sample asks for it."""

    def __init__(self, steps: dict[int, OpenStep], sampler: StackSampler) -> None:
        super().__init__(steps)
        self.sampler = sampler

    def get(self, index: Any, default: Any = None) -> Any:
        self.sampler.bound_of(self[index], 1, {}, RunInfo(id="", pid=None))
        return super().get(index, default)


@linux
def test_a_step_may_end_while_a_sample_is_taken() -> None:
    sampler = StackSampler(names_paths=True)
    with threads(wait, compute) as both:
        steps = EndingMeanwhile(steps_in(*both), sampler)
        sampled(sampler, steps, 10)
        sampler._others = OtherTasks()  # it is time for a look at tasks beside
        sampled(sampler, steps, 10)
