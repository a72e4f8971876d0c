"""What the rounds of variants are worth: whether there are enough, and which differences are real."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import log, log1p, sqrt
from statistics import quantiles
from typing import Final

from otel_quant.inference.rounds import compared, noise

SETTLED: Final = 0.01
"""Twice the standard error of a median, as a share of it, at which no more rounds are needed."""

PROCESSES: Final = 0.08
"""How far two processes of the same model may differ for as long as they live, however quiet their
rounds (7 % were measured, 5 % with huge pages): less is no difference between variants."""

_STANDARD_ERRORS: Final = 3
"""A difference is that many standard errors at least: chance alone makes one in 370 comparisons."""

_OF_FEW_ROUNDS: Final[Mapping[int, float]] = {
    5: 17.3, 6: 8.9, 7: 6.5, 8: 5.7, 9: 5.0, 10: 4.4, 11: 3.9, 12: 3.6, 13: 3.3, 14: 3.1,
}  # fmt: skip
"""The same where the standard error itself comes from few rounds, of 200,000 draws of normal values."""

_ERROR_OF_MEDIAN: Final = 1.2533 / 0.6745
"""Standard error of the median of n normal values, times the root of n, for half the distance of
their quartiles: that of a mean is smaller by the root of pi / 2, and 0.6745 standard deviations are
half the distance."""


def is_settled(medians: Sequence[float]) -> bool:
    """Returns whether more rounds would change the median of a variant's rounds by little.

    Args:
        medians: Of its rounds.
    """
    return 2 * _ERROR_OF_MEDIAN * noise(medians) / sqrt(len(medians)) <= SETTLED


def quartile_distance(rounds: Sequence[Sequence[float]]) -> float:
    """Returns the distance between the quartiles of all blocks; each round counts the same.

    A fast round has more blocks than a slow one, and is not to hide it.

    Args:
        rounds: Times of the blocks of each round.
    """
    weighted = sorted((time, 1 / len(each)) for each in rounds for time in each)
    reached = list(accumulate(weight for _, weight in weighted))
    low, high = (weighted[bisect_left(reached, len(rounds) * part)][0] for part in (0.25, 0.75))
    return high - low


def speedup(medians: Sequence[float], others: Sequence[float]) -> tuple[float, bool]:
    """Returns how much faster a variant is than another, and whether that is more than noise.

    Args:
        medians: Of its rounds.
        others: Of the other's, in the same rounds.
    """
    ratio, rounds_agree = compared(medians, others)
    logs = [log(own / other) for own, other in zip(medians, others, strict=False)]
    low, _, high = quantiles(logs, n=4, method="inclusive")
    error = _ERROR_OF_MEDIAN * (high - low) / 2 / sqrt(len(logs))
    errors = _OF_FEW_ROUNDS.get(max(len(logs), min(_OF_FEW_ROUNDS)), _STANDARD_ERRORS)
    least = max(log1p(PROCESSES), errors * error)
    return 1 / ratio, rounds_agree and abs(log(ratio)) > least
