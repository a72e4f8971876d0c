"""Totals over a process tree that changes while it is read.

The counters here are literal numbers; ``tests/integration/promises`` tests a real kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_quant.base.kernel_files import SELF
from otel_quant.capture.probes import cpu
from otel_quant.capture.probes.cpu import CpuProbe, ThreadWaits, main_thread_wait
from otel_quant.capture.probes.process_tree import Cumulative


class Tree:
    """One counter for this process and each child; changes may happen during a reading."""

    def __init__(self, own: int, **children: int) -> None:
        self.own = own
        self.children = {int(name[1:]): used for name, used in children.items()}
        self.forbidden: set[int] = set()
        self.before_child: dict[int, Callable[[], None]] = {}
        self.totals = Cumulative(self.read_own, self.read_child, self.pids)

    def pids(self) -> tuple[int, ...]:
        return tuple(self.children)

    def read_own(self) -> tuple[int]:
        return (self.own,)

    def read_child(self, pid: int) -> tuple[int]:
        self.before_child.pop(pid, lambda: None)()
        if pid in self.forbidden:
            raise PermissionError(pid)
        if pid not in self.children:
            raise FileNotFoundError(pid)
        return (self.children[pid],)

    def wait_for(self, pid: int) -> None:
        self.own += self.children.pop(pid)

    def read(self) -> int:
        (total,) = self.totals.read(self.pids())
        return total


def test_the_work_of_a_child_that_nobody_waited_for_stays_counted() -> None:
    tree = Tree(5, p1=100)
    before = tree.read()
    del tree.children[1]  # SIGCHLD is ignored: the kernel adds its counter to no process
    after = tree.read()
    tree.own += 40
    assert (before, after, tree.read()) == (105, 105, 145)


def test_a_child_that_became_unreadable_is_counted_once() -> None:
    tree = Tree(5, p1=100)
    before = tree.read()
    tree.forbidden.add(1)
    hidden = tree.read()
    tree.children[1] = 130
    tree.wait_for(1)
    assert (before, hidden, tree.read()) == (105, 105, 135)


def test_a_child_that_was_never_readable_counts_once_it_is_waited_for() -> None:
    tree = Tree(5, p1=100)
    tree.forbidden.add(1)
    before = tree.read()
    tree.wait_for(1)
    assert (before, tree.read()) == (5, 105)


def test_a_child_that_one_listing_missed_is_still_counted() -> None:
    tree = Tree(5, p1=100)
    before = tree.read()
    missed = tree.totals.read(())  # only the first listing lacks the child
    tree.own += 40
    assert (before, missed, tree.read()) == (105, (105,), 145)


def test_the_number_of_passes_is_limited_when_processes_keep_changing() -> None:
    tree, passes = Tree(5), 0

    def changing_pids() -> tuple[int, ...]:
        nonlocal passes
        passes += 1
        return (passes,)  # has exited before it is read

    totals = Cumulative(tree.read_own, tree.read_child, changing_pids)
    assert (totals.read((99,)), passes) == ((5,), 2)


@given(st.lists(st.sampled_from(["work", "own", "fork", "wait", "vanish", "wait while read"])))
def test_totals_never_fall_and_contain_all_work(events: list[str]) -> None:
    tree = Tree(0)
    work, last = 0, tree.read()
    for number, event in enumerate(events, start=1):
        pid = next(iter(tree.children), None)
        if event == "fork":
            tree.children[number] = 0
        elif event == "own" or pid is None:
            tree.own += number
            work += number
        elif event == "work":
            tree.children[pid] += number
            work += number
        elif event == "wait":
            tree.wait_for(pid)
        elif event == "vanish":
            del tree.children[pid]
        else:
            tree.before_child[pid] = lambda pid=pid: tree.wait_for(pid)
        total = tree.read()
        assert total >= last
        assert total == work
        last = total


needs_waits = pytest.mark.skipif(
    main_thread_wait(SELF) is None, reason="this kernel does not count waits"
)

SPIN = """\
import os, threading
os.sched_setaffinity(0, {cpu})
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
spin()
"""


@pytest.fixture
def rivals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two programs of two threads each that share one processor."""
    cpu = {min(os.sched_getaffinity(0))}
    found = [subprocess.Popen([sys.executable, "-c", SPIN.format(cpu=cpu)]) for _ in range(2)]
    yield found
    for each in found:
        each.kill()
        each.wait()


@needs_waits
def test_programs_that_share_a_cpu_wait_and_the_sum_never_falls(
    rivals: list[subprocess.Popen[bytes]],
) -> None:
    waits, pids = ThreadWaits(), [each.pid for each in rivals]
    while not all((main_thread_wait(pid) or 0) > 0.05 for pid in pids):
        time.sleep(0.05)
    mains = [main_thread_wait(pid) or 0 for pid in pids]
    before = waits.read(pids)
    assert before is not None
    assert before >= sum(mains) - 1e-6
    cpu = CpuProbe(pids[1])()
    assert cpu is not None
    assert (cpu.wait or 0) >= mains[1]
    rivals[0].kill()
    rivals[0].wait()
    after = waits.read(pids)
    assert after is not None
    assert after >= before
    assert main_thread_wait(pids[0]) is None


@needs_waits
def test_the_wait_belongs_to_the_main_thread_in_every_thread() -> None:
    found: list[float | None] = []
    asking = threading.Thread(target=lambda: found.append(main_thread_wait(SELF)))
    before = main_thread_wait(os.getpid())
    asking.start()
    asking.join()
    after = main_thread_wait(os.getpid())
    assert before is not None
    assert after is not None
    assert found[0] is not None
    assert before <= found[0] <= after


def test_the_wait_is_unknown_if_the_kernel_does_not_count_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu, "read_process", lambda *_: b"0 0 0\n")
    monkeypatch.setattr(cpu, "read_proc", lambda _: b"0 0 0\n")
    assert (main_thread_wait(SELF), ThreadWaits().read([os.getpid()])) == (None, None)


@needs_waits
def test_many_threads_are_read_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0]
    monkeypatch.setattr(cpu, "time", SimpleNamespace(monotonic_ns=lambda: clock[0]))
    waits, done = ThreadWaits(), threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(40)]
    for thread in threads:
        thread.start()
    found = []
    for clock[0] in (0, 999_999_999, 1_000_000_000):
        found.append(waits.read([os.getpid()]))
    done.set()
    for thread in threads:
        thread.join()
    assert [each is None for each in found] == [False, True, False]


def test_an_ended_thread_stays_in_the_sum_and_its_id_may_be_reused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds: dict[str, float] = {}

    def schedstat(path: str) -> bytes:
        if path.split("/")[4] not in seconds:
            raise FileNotFoundError(path)
        return b"99000000000 %d 5\n" % (seconds[path.split("/")[4]] * 1e9)

    monkeypatch.setattr(cpu, "read_proc", schedstat)
    # Thread 3 ends between the list and its file.
    monkeypatch.setattr(cpu, "threads_of", lambda _: ["3", *seconds])
    waits, found = ThreadWaits(), [ThreadWaits().read([7])]
    for each in ({"1": 2, "2": 3}, {"1": 4}, {"1": 4, "2": 1}, {"1": 4, "2": 0.5}, {}):
        seconds.clear()
        seconds.update(each)
        found.append(waits.read([7]))
    assert found == [None, 5, 7, 8, 8, 8]
