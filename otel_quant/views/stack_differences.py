"""Which lines of code make two sides of a comparison differ: a table for a step, and a graph for all.

The sampler sees a line about 20 times a second, so a time is known to about the root of the number of its samples:
less than three times that, a hundredth of the whole, or what differs between runs of one side, is noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from otel_quant.recordings.comparison.side_by_side import Sample, Side, difference
from otel_quant.recordings.stacks import SeenStack, by_line, of_step, stacks_in
from otel_quant.schema.stacks import NOTHING, Amounts, Place
from otel_quant.schema.units import cut
from otel_quant.views.document import ONE, Column, Flame, Table
from otel_quant.views.stacks import Tree

_TELLING: Final = 0.1
"""Part of a step's difference that a line makes at least where it is shown."""

_INTERVAL: Final = 0.05e9
"""Nanoseconds between two samples."""

_SMALL: Final = 0.01
"""Share of the whole below which nothing differs."""

_MOST_LINES: Final = 5
_LONGEST_NAME: Final = 80
_LONGEST_LINE: Final = 120


def _stacks_of(side: Side) -> list[list[SeenStack]]:
    """Returns the stacks of each run of a side that has some."""
    return [found for run in side.runs if (found := stacks_in(run.recording))]


def lines_of(sides: tuple[Side, Side], step: str, is_time: bool, change: float) -> Iterator[Table]:
    """Yields the lines that make a tenth of a step's difference or more, if both sides know theirs."""
    base, new = ([by_line(of_step(run, step)) for run in _stacks_of(side)] for side in sides)
    if not base or not new:
        return
    sign, shown = 1 if change > 0 else -1, 1e9 if is_time else 1
    rows: list[tuple[float, Place, float, float]] = []
    for place in dict.fromkeys(line for run in (*base, *new) for line in run):
        before, after = (
            _sample((run.get(place, NOTHING) for run in side), is_time) for side in (base, new)
        )
        more = sign * (after.median - before.median) / shown
        if more >= _TELLING * abs(change) and _is_clear(before, after, is_time, 0.0):
            rows.append((more, place, before.median / shown, after.median / shown))
    if rows:
        unit, what = ("s", "time of their own") if is_time else ("By", "memory growth")
        rows.sort(key=lambda row: -row[0])
        yield Table(
            (
                Column("LINE", longest=_LONGEST_LINE),
                *(Column(side.name.upper(), unit, shown_in=ONE) for side in sides),
                Column("DIFFERENCE", unit, shown_in=ONE, is_signed=True),
            ),
            [
                (place.text, before, after, sign * more)
                for more, place, before, after in rows[:_MOST_LINES]
            ],
            title=f"Lines of {cut(step, _LONGEST_NAME)} with {'more' if sign > 0 else 'less'} {what}",
        )


def flame_of(sides: tuple[Side, Side]) -> Flame | None:
    """Returns the lines of two sides in one graph; None if one of them knows none."""
    base, new = map(_stacks_of, sides)
    if not base or not new:
        return None
    runs = [*base, *new]
    tree = Tree(each for run in runs for each in run)
    rows = [[above, place, 0, 0, 0, 0, 0] for above, place in tree.rows]
    at = 0
    for number, run in enumerate(runs):
        first, count = (4, len(base)) if number < len(base) else (2, len(new))
        for each, place in zip(run, tree.row_of[at:], strict=False):
            rows[place][first] += each.seen.time // 1000 // count  # the mean of the side's runs
            rows[place][first + 1] += each.seen.grown // count
        at += len(run)
    for flag, is_time in ((1, True), (2, False)):
        totals = list(_totals(tree, runs, is_time))
        samples = [
            [
                Sample(*zip(*(of_run[row] for of_run in of_side), strict=True))
                for of_side in (totals[: len(base)], totals[len(base) :])
            ]
            for row in range(len(rows))
        ]
        whole = max(sample.median for sample in samples[0])
        for row, (before, after) in zip(rows, samples, strict=True):
            row[6] |= flag * _is_clear(before, after, is_time, whole)
    names = tuple(side.name for side in sides)
    return Flame(f"Lines of code, {' and '.join(names)}", list(tree.places), rows, sides=names)


Known = tuple[float, float, float]
"""An amount, what it would be without waits for a processor, and the least that it may be."""


def _known(seen: Amounts, is_time: bool) -> Known:
    if not is_time:
        return seen.grown, seen.grown, seen.grown
    return seen.time, seen.time - seen.waiting, max(0, seen.time - 2 * seen.waiting)


def _sample(every: Iterable[Amounts], is_time: bool) -> Sample:
    return Sample(*zip(*(_known(seen, is_time) for seen in every), strict=True))


def _totals(
    tree: Tree, runs: Sequence[Sequence[SeenStack]], is_time: bool
) -> Iterator[list[Known]]:
    """Yields for each run what was seen at each row and below it."""
    at, stacks = 0, sum(map(len, runs))
    for run in runs:
        known = [(0.0, 0.0, 0.0)] * stacks
        known[at : at + len(run)] = [_known(each.seen, is_time) for each in run]
        at += len(run)
        yield list(
            zip(*(tree.totals([each[part] for each in known]) for part in range(3)), strict=True)
        )


def _is_clear(base: Sample, new: Sample, is_time: bool, whole: float) -> bool:
    """Whether a difference is more than noise."""
    sampled = 3 * math.sqrt((base.median + new.median) * _INTERVAL) if is_time else 0.0
    return difference(base, new, max(sampled, _SMALL * whole, 1)).is_clear
