"""Figures of several runs: their median and spread, and whether a difference is more than noise."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Final

ALPHA: Final = 0.05
"""A difference is more than noise if chance alone would make one like it less often than this."""

_EXACT: Final = 20
"""Runs on both sides together up to which every order of them is counted."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A figure of the runs of one side."""

    values: tuple[float, ...]  # One for each run that has it, at least one
    # What they would have been without what the main thread waited for a processor
    alone: tuple[float, ...] = ()
    # What they may have been, at best, without all that the wait of threads may have cost
    bounds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.alone:
            object.__setattr__(self, "alone", self.values)
            object.__setattr__(self, "bounds", self.values)

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def median_alone(self) -> float:
        """The middle of what the values would have been."""
        return statistics.median(self.alone)

    @property
    def lowest(self) -> float:
        """The lowest value."""
        return min(self.values)

    @property
    def highest(self) -> float:
        """The highest value."""
        return max(self.values)

    @property
    def spread(self) -> float:
        """The largest distance of a value from the median."""
        return max(self.highest - self.median, self.median - self.lowest)


@dataclass(frozen=True, slots=True)
class Difference:
    """How the figures of two sides differ."""

    change: float  # Median of the new side minus that of the base
    ratio: float | None  # The one divided by the other; None if that of the base is 0
    # How often chance alone makes such a difference, by the test of Mann and Whitney; None with
    # one run on each side
    p: float | None
    is_clear: bool  # Whether it is more than noise, and more than waits for a processor make


def difference(base: Sample, new: Sample) -> Difference:
    """Returns how two samples differ.

    With too few runs for the test to reach ``ALPHA`` (fewer than 4 on each side), a difference
    counts if all values of one side are above all of the other, whatever of them was lost by
    waiting for a processor.
    """
    change = new.median - base.median
    ratio = new.median / base.median if base.median else None
    is_one_each = len(base.values) == len(new.values) == 1
    p = None if is_one_each else mann_whitney(base.alone, new.alone)
    if p is not None and can_tell(base, new):
        is_clear = p <= ALPHA
    else:
        first, second = (base.alone + base.bounds), (new.alone + new.bounds)
        is_clear = max(first) < min(second) or max(second) < min(first)
    is_same_way = change * (new.median_alone - base.median_alone) > 0
    return Difference(change, ratio, p, is_clear and is_same_way)


def can_tell(base: Sample, new: Sample) -> bool:
    """Whether there are enough runs for the test to tell a difference from noise."""
    sizes = len(base.values), len(new.values)
    return 2 / math.comb(sum(sizes), sizes[0]) <= ALPHA


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns the two-sided p of the rank-sum test of Mann and Whitney.

    Exact up to 20 values, equal ones included: by the share of all orders of the values in which
    the ranks of ``first`` are as far from the middle. Above that by the normal distribution, with
    the corrections for equal values and for continuity.
    """
    together = sorted([*first, *second])
    groups = tuple(len(list(equal)) for _, equal in groupby(together))
    rank_of: dict[float, int] = {}  # twice the mean rank of equal values: a whole number
    below = 0
    for value, size in zip(dict.fromkeys(together), groups, strict=True):
        rank_of[value] = 2 * below + size + 1
        below += size
    ranks = sum(rank_of[value] for value in first)
    if below <= _EXACT:
        ways = _rank_sums(len(first), groups)
        lower = sum(number for total, number in ways.items() if total <= ranks)
        upper = sum(number for total, number in ways.items() if total >= ranks)
        return min(1.0, 2 * min(lower, upper) / math.comb(below, len(first)))
    product = len(first) * len(second)
    equal = sum(size**3 - size for size in groups) / (below * (below - 1))
    deviation = math.sqrt(product / 12 * (below + 1 - equal))
    if not deviation:
        return 1.0
    distance = abs(ranks / 2 - len(first) * (below + 1) / 2)
    return math.erfc(max(0.0, distance - 0.5) / deviation / math.sqrt(2))


@lru_cache(256)
def _rank_sums(size: int, groups: tuple[int, ...]) -> Counter[int]:
    """Returns in how many ways ``size`` values have each sum of doubled ranks."""
    ways: list[Counter[int]] = [Counter() for _ in range(size + 1)]
    ways[0][0] = 1
    below = 0
    for group in groups:
        rank = 2 * below + group + 1
        for _ in range(group):
            for chosen in range(size - 1, -1, -1):
                for total, number in ways[chosen].items():
                    ways[chosen + 1][total + rank] += number
        below += group
    return ways[size]
