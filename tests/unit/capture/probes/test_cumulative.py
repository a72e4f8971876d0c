"""Totals over a process tree that changes while it is read.

The counters here are literal numbers; ``tests/integration/promises`` tests a real kernel.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from otel_quant.capture.probes.counters import Cumulative


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


def test_the_total_is_the_sum_over_all_processes() -> None:
    assert Tree(5, p1=10, p2=20).read() == 35


def test_a_child_is_counted_once_after_it_was_waited_for() -> None:
    tree = Tree(5, p1=10)
    before = tree.read()
    tree.wait_for(1)
    assert (before, tree.read()) == (15, 15)


def test_a_child_is_counted_once_when_it_is_waited_for_during_a_reading() -> None:
    tree = Tree(5, p1=10, p2=20)
    tree.before_child[1] = lambda: tree.wait_for(1)
    assert [tree.read(), tree.read()] == [35, 35]


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
