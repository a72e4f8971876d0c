"""Totals over a process tree that changes while it is read.

The tree here is made of literal counters; what a real kernel does is shown in
``tests/integration/promises``.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from otel_quant.probes.cumulative import Cumulative


class Tree:
    """One counter for this process and each child, and what happens during a reading."""

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


def test_the_total_is_that_of_all_processes() -> None:
    assert Tree(5, p1=10, p2=20).read() == 35


def test_a_child_that_was_waited_for_is_counted_once() -> None:
    tree = Tree(5, p1=10)
    before = tree.read()
    tree.wait_for(1)
    assert (before, tree.read()) == (15, 15)


def test_a_child_that_is_waited_for_in_the_middle_of_a_reading_is_counted_once() -> None:
    tree = Tree(5, p1=10, p2=20)
    tree.before_child[1] = lambda: tree.wait_for(1)
    assert [tree.read(), tree.read()] == [35, 35]


def test_what_a_child_took_with_it_stays_counted_and_hides_nothing_after_it() -> None:
    tree = Tree(5, p1=100)
    before = tree.read()
    del tree.children[1]  # SIGCHLD ignored: the kernel adds it to nobody
    gone = tree.read()
    tree.own += 40
    assert (before, gone, tree.read()) == (105, 105, 145)


def test_a_child_that_cannot_be_read_any_more_keeps_its_last_figure_until_it_is_waited_for() -> (
    None
):
    tree = Tree(5, p1=100)
    before = tree.read()
    tree.forbidden.add(1)
    hidden = tree.read()
    tree.children[1] = 130
    tree.wait_for(1)
    assert (before, hidden, tree.read()) == (105, 105, 135)


def test_a_child_that_could_never_be_read_counts_from_when_it_is_waited_for() -> None:
    tree = Tree(5, p1=100)
    tree.forbidden.add(1)
    before = tree.read()
    tree.wait_for(1)
    assert (before, tree.read()) == (5, 105)


def test_a_child_that_a_listing_missed_for_a_moment_is_not_taken_for_lost() -> None:
    tree = Tree(5, p1=100)
    before = tree.read()
    missed = tree.totals.read(())  # the first listing lacks it, the next one does not
    tree.own += 40
    assert (before, missed, tree.read()) == (105, (105,), 145)


def test_a_tree_that_never_stands_still_costs_a_bounded_number_of_passes() -> None:
    tree, passes = Tree(5), 0

    def coming_and_going() -> tuple[int, ...]:
        nonlocal passes
        passes += 1
        return (passes,)  # gone before it is read

    totals = Cumulative(tree.read_own, tree.read_child, coming_and_going)
    assert (totals.read((99,)), passes) == ((5,), 2)


@given(st.lists(st.sampled_from(["work", "own", "fork", "wait", "vanish", "wait while read"])))
def test_totals_never_fall_and_hold_all_the_work(events: list[str]) -> None:
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
            tree.before_child[pid] = lambda pid=pid: tree.wait_for(pid)  # type: ignore[misc]
        total = tree.read()
        assert total >= last
        assert total == work
        last = total
