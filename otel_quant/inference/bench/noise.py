"""What the rounds of variants are worth: whether there are enough, and which differences are real."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, log1p, sqrt
from statistics import quantiles
from typing import Final

from otel_quant.inference.rounds import compared, noise

SETTLED: Final = 0.01
"""Twice the standard error of a median, as a share of it, at which no more rounds are needed."""

PROCESSES: Final = 0.08
"""How far two processes of the same model may differ for as long as they live, however quiet their
rounds (7 % were measured): less is no difference between variants."""

_STANDARD_ERRORS: Final = 3
"""A difference is that many standard errors at least: chance alone makes one in 370 comparisons."""

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
    least = max(log1p(PROCESSES), _STANDARD_ERRORS * error)
    return 1 / ratio, rounds_agree and abs(log(ratio)) > least
