"""Which lines of code make two sides of a comparison differ: a table for a step, and a graph for all.

Times are without waits for a processor. The sampler sees a line about 20 times a second: what is less than three times the root of
the number of samples, less than a hundredth of the total, or differs within a side as well, is noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from otel_quant.recordings.comparison.side_by_side import Sample, Side, difference
from otel_quant.recordings.stacks import SeenStack, by_line, of_step, stacks_in
from otel_quant.schema.stacks import NOTHING, Amounts
from otel_quant.schema.units import cut
from otel_quant.views.document import ONE, Column, Flame, Table
from otel_quant.views.stacks import Tree

_TELLING: Final = 0.1
"""Part of a step's difference that a line makes at least where it is shown."""

_INTERVAL: Final = 0.05
"""Seconds between two samples."""

_SMALL: Final = 0.01
_MOST_LINES: Final = 5
_LONGEST_NAME: Final = 80
_LONGEST_LINE: Final = 120


def _stacks_of(side: Side) -> list[list[SeenStack]]:
    """Returns the stacks of each run of a side that has some."""
    return [found for run in side.runs if (found := stacks_in(run.recording))]


def _amount(seen: Amounts, is_time: bool) -> float:
    """Returns seconds, or bytes of growth."""
    return (seen.time - seen.waiting) / 1e9 if is_time else seen.grown


def _is_clear(base: Sample, new: Sample, is_time: bool, whole: float = 0.0) -> bool:
    """Whether a difference is more than noise."""
    sampled = 3 * math.sqrt((base.median + new.median) * _INTERVAL) if is_time else 1.0
    return difference(base, new, max(sampled, _SMALL * whole)).is_clear


def lines_of(sides: tuple[Side, Side], step: str, is_time: bool, change: float) -> Iterator[Table]:
    """Yields the lines that make a tenth of a step's difference or more, if both sides know theirs."""
    known = [[by_line(of_step(run, step)) for run in _stacks_of(side)] for side in sides]
    sign, rows = 1 if change > 0 else -1, []
    for place in (
        dict.fromkeys(line for side in known for run in side for line in run) if all(known) else ()
    ):
        before, after = (
            Sample(tuple(_amount(run.get(place, NOTHING), is_time) for run in side))
            for side in known
        )
        more = sign * (after.median - before.median)
        if more >= _TELLING * abs(change) and _is_clear(before, after, is_time):
            rows.append((place.text, before.median, after.median, sign * more))
    if rows:
        unit, what = ("s", "time of their own") if is_time else ("By", "memory growth")
        columns: tuple[Column[Any], ...] = (
            Column("LINE", longest=_LONGEST_LINE),
            *(Column(side.name.upper(), unit, shown_in=ONE) for side in sides),
            Column("DIFFERENCE", unit, shown_in=ONE, is_signed=True),
        )
        rows.sort(key=lambda row: -sign * row[-1])
        title = f"Lines of {cut(step, _LONGEST_NAME)} with {'more' if sign > 0 else 'less'} {what}"
        yield Table(columns, rows[:_MOST_LINES], title=title)


def flame_of(sides: tuple[Side, Side]) -> Flame | None:
    """Returns the lines of two sides in one graph, the means of their runs; None if one of them knows none."""
    base, new = map(_stacks_of, sides)
    if not base or not new:
        return None
    runs = [*base, *new]
    tree = Tree(each for run in runs for each in run)
    rows = [[above, place, 0, 0, 0, 0, 0] for above, place in tree.rows]
    for flag, is_time, unit in ((1, True, 1e6), (2, False, 1)):
        totals, at = [], 0
        for number, run in enumerate(runs):
            column, count = (4, len(base)) if number < len(base) else (2, len(new))
            own = [0.0] * len(tree.row_of)
            own[at : at + len(run)] = [_amount(each.seen, is_time) for each in run]
            for row, amount in zip(tree.row_of[at:], own[at : at + len(run)], strict=False):
                rows[row][column + flag - 1] += round(amount * unit / count)
            totals.append(tree.totals(own))
            at += len(run)
        samples = [
            (Sample(values[: len(base)]), Sample(values[len(base) :]))
            for values in zip(*totals, strict=True)
        ]
        whole = max(sample.median for sample in samples[0])
        for counts, (before, after) in zip(rows, samples, strict=True):
            counts[6] |= flag * _is_clear(before, after, is_time, whole)
    names = tuple(side.name for side in sides)
    return Flame(f"Lines of code, {' and '.join(names)}", list(tree.places), rows, sides=names)
