"""What the rounds of variants are worth: whether there are enough, and which differences are real."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import exp, log, log1p, sqrt
from statistics import mean, median, stdev
from typing import Final

from otel_quant.inference.noise import ERROR_OF_MEDIAN, OF_PROCESSES, compared, noise

SETTLED: Final = 0.01
"""Twice the standard error of a median, as a share of it, at which no more rounds are needed."""

_OF_FEW_PROCESSES: Final[Mapping[int, float]] = {
    3: 19.2, 4: 9.2, 5: 6.6, 6: 5.5, 7: 4.9, 8: 4.5, 9: 4.3, 10: 4.1,
}  # fmt: skip
"""Standard errors of the mean of few processes that chance alone exceeds in one of 370 comparisons:
Student's distribution with one degree of freedom less."""


def is_settled(medians: Sequence[float], processes: int) -> bool:
    """Returns whether more rounds would change the median of all of a variant's rounds by little."""
    return 2 * ERROR_OF_MEDIAN * noise(medians) / sqrt(len(medians) * processes) <= SETTLED


def quartile_distance(rounds: Sequence[Sequence[float]]) -> float:
    """Returns the distance between the quartiles of all blocks; each round counts the same.

    A fast round has more blocks than a slow one, and is not to hide it.
    """
    weighted = sorted((time, 1 / len(each)) for each in rounds for time in each)
    reached = list(accumulate(weight for _, weight in weighted))
    low, high = (weighted[bisect_left(reached, len(rounds) * part)][0] for part in (0.25, 0.75))
    return high - low


def without_extremes(values: Sequence[float]) -> float:
    """Returns the mean without the lowest and the highest quarter, one of each at least.

    Now and then a process is slower than all others by a quarter, which a mean would show.
    """
    cut = max(1, len(values) // 4) if len(values) > 2 else 0
    return mean(sorted(values)[cut : len(values) - cut])


def speedup(
    medians: Sequence[Sequence[float]], others: Sequence[Sequence[float]]
) -> tuple[float, bool]:
    """Returns how much faster a variant is than another, and whether that is more than noise."""
    pairs = [list(zip(*each, strict=False)) for each in zip(medians, others, strict=False)]
    if len(pairs) < min(_OF_FEW_PROCESSES):
        owns, of_others = zip(*(pair for each in pairs for pair in each), strict=True)
        ratio, is_apart = compared(owns, of_others)
        return 1 / ratio, is_apart
    logs = [median(log(own / other) for own, other in each) for each in pairs]
    difference = without_extremes(logs)
    errors = _OF_FEW_PROCESSES[min(len(logs), max(_OF_FEW_PROCESSES))]
    is_real = abs(mean(logs)) > errors * stdev(logs) / sqrt(len(logs))
    return exp(-difference), is_real and abs(difference) > log1p(OF_PROCESSES) / sqrt(len(logs))
