"""Python stacks of the steps of a run, added up: where a step's time and memory went, by line of code.

The sampler adds what has passed since its last sample to the line that it sees, so a late sample counts
for all the time since the one before. What is rare is folded into :data:`OTHER`, which keeps its sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from otel_quant.schema.code_lines import NOTHING, OTHER, OTHER_STEPS, Amounts, Node, Place, total_of

MOST_NODES: Final = 6000
"""Nodes of all steps together, from which on the rarest are folded. 6,000 take less than 1 MB in a file."""

_LONG: Final = 1_000_000_000  # Nanoseconds from which on a step keeps a tree of its own
_TOP: Final = 10

_RAREST: Final = 0.0002
"""Share of all time and memory growth below which a branch is folded first; doubled while it is
not enough."""


def by_last_line(stacks: Iterable[tuple[tuple[Place, ...], Amounts]]) -> dict[Place, Amounts]:
    """Returns what was seen at each line itself, not in what it calls."""
    found: dict[Place, Amounts] = {}
    for lines, seen in stacks:
        found[lines[-1]] = found.get(lines[-1], NOTHING).plus(seen)
    return found


def top_lines(lines: Mapping[Place, Amounts]) -> dict[str, list[dict[str, Any]]]:
    """Returns the ten lines with the most time and the ten with the most growth, for a log record."""
    whole = total_of(lines.values())
    time = sorted(lines.items(), key=lambda line: -line[1].time)[:_TOP]
    growth = sorted(lines.items(), key=lambda line: -line[1].grown)[:_TOP]
    return {
        "time": [
            {"line": place.text, "seconds": seen.time / 1e9, "share": seen.time / whole.time}
            for place, seen in time
            if seen.time
        ],
        "growth": [
            {"line": place.text, "bytes": seen.grown, "share": seen.grown / whole.grown}
            for place, seen in growth
            if seen.grown
        ],
    }


class Stacks:
    """The stacks of a run: a tree for each step."""

    def __init__(self) -> None:
        self.steps: dict[int, Node] = {}  # By the step's index; its root stands for the step
        self._nodes = 0
        self._last: dict[int, tuple[Sequence[Place], Node]] = {}  # Of each step: mostly seen again
        self._first: dict[tuple[str, ...], int] = {}  # By the names of a step and those around it

    def add(self, step: int, lines: Sequence[Place], seen: Amounts) -> None:
        """Adds what was seen at a stack, outermost line first."""
        last, node = self._last.get(step, ((), None))
        if node is None or last != lines:
            node = self.steps.get(step)
            if node is None:
                node = self.steps[step] = Node()
                self._nodes += 1
            for place in lines:
                inner = node.below.get(place)
                if inner is None:
                    inner = node.below[place] = Node()
                    self._nodes += 1
                node = inner
            self._last[step] = lines, node
        node.own = node.own.plus(seen)
        if self._nodes > MOST_NODES:
            self._fold()

    def settle(self, step: int, names: tuple[str, ...]) -> None:
        """Adds a step that has ended soon to the first of its names: of ten thousand alike one tree is kept."""
        self._last.pop(step, None)
        root = self.steps.get(step)
        if root is None or root.total().time >= _LONG:
            return
        first = self._first.get(names)
        if first is None or first not in self.steps:
            self._first[names] = step
            return
        self.move(step, first)

    def move(self, step: int, to: int) -> None:
        """Adds what was seen of a step to another one."""
        self._last.pop(step, None)
        root = self.steps.pop(step, None)
        if root is not None and (same := self.steps.setdefault(to, root)) is not root:
            self._nodes += _added(root, same) - _count(root)

    def _fold(self) -> None:
        """Folds the rarest branches, until half of the nodes are left."""
        self._last.clear()
        rarest, whole = _RAREST, total_of(root.total() for root in self.steps.values())
        while self._nodes > MOST_NODES / 2:
            least = max(1, round(rarest * whole.time)), max(1, round(rarest * whole.grown))
            self._nodes, others = 0, self.steps.pop(OTHER_STEPS, Node())
            for step, root in list(self.steps.items()):
                total, left = _fold(root, *least)
                if total.time < least[0] and total.grown < least[1]:
                    others.own = others.own.plus(total)
                    del self.steps[step]
                else:
                    self._nodes += left
            if others.own != NOTHING:
                self.steps[OTHER_STEPS] = others
            rarest *= 2
        self._first = {names: step for names, step in self._first.items() if step in self.steps}


def _added(node: Node, to: Node) -> int:
    """Adds what was seen below a node to another; returns how many nodes that has got by it."""
    to.own, made = to.own.plus(node.own), 0
    for place, inner in node.below.items():
        if (same := to.below.get(place)) is None:
            same, made = to.below.setdefault(place, Node()), made + 1
        made += _added(inner, same)
    return made


def _count(node: Node) -> int:
    return 1 + sum(map(_count, node.below.values()))


def _fold(node: Node, time: int, grown: int) -> tuple[Amounts, int]:
    """Folds branches with less than a time and a growth; returns the node's total and the nodes left."""
    total, rare, left = node.own, NOTHING, 1
    for place, inner in list(node.below.items()):
        seen, within = _fold(inner, time, grown)
        total = total.plus(seen)
        if place == OTHER or (seen.time < time and seen.grown < grown):
            rare = rare.plus(seen)
            del node.below[place]
        else:
            left += within
    if rare != NOTHING:
        node.below[OTHER] = Node(rare)
        left += 1
    return total, left
