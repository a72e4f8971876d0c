"""Which differences between the times of two models are real, and which are the machine's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, log1p, sqrt
from statistics import median, quantiles
from typing import Final

OF_PROCESSES: Final = 0.08
"""How far two processes of the same model may differ for as long as they live, however quiet their
rounds (7 % were measured, 5 % with huge pages): less is no difference between models."""

ERROR_OF_MEDIAN: Final = 1.2533 / 0.6745
"""Standard error of the median of n normal values, times the root of n, for half the distance of
their quartiles: that of a mean is smaller by the root of pi / 2, and 0.6745 standard deviations are
half the distance."""

_STANDARD_ERRORS: Final = 3
"""A difference is that many standard errors at least: chance alone makes one in 370 comparisons."""

_OF_FEW_ROUNDS: Final[Mapping[int, float]] = {
    3: 21.3, 4: 11.7, 5: 17.3, 6: 8.9, 7: 6.5, 8: 5.7, 9: 5.0, 10: 4.4, 11: 3.9, 12: 3.6, 13: 3.3,
    14: 3.1,
}  # fmt: skip
"""The same where the standard error itself comes from few rounds, of 200,000 draws of normal values. It
does not fall from each number to the next, since quartiles of few values are interpolated. Fewer rounds
than these tell nothing."""


def compared(medians: Sequence[float], others: Sequence[float]) -> tuple[float, bool]:
    """Returns the ratio of a model's times to another's, and whether the two can be told apart."""
    ratios = [own / other for own, other in zip(medians, others, strict=False)]
    ratio = median(ratios)
    if len(ratios) < min(_OF_FEW_ROUNDS):
        return ratio, False
    tenths = quantiles(ratios, n=10, method="inclusive")
    rounds_agree = tenths[0] > 1 or tenths[-1] < 1
    low, _, high = quantiles(map(log, ratios), n=4, method="inclusive")
    error = ERROR_OF_MEDIAN * (high - low) / 2 / sqrt(len(ratios))
    errors = _OF_FEW_ROUNDS.get(len(ratios), _STANDARD_ERRORS)
    return ratio, rounds_agree and abs(log(ratio)) > max(log1p(OF_PROCESSES), errors * error)


def noise(medians: Sequence[float]) -> float:
    """Returns half the distance of the quartiles as a share of the median."""
    if len(medians) < 2:
        return 0.0
    low, middle, high = quantiles(medians, n=4, method="inclusive")
    return (high - low) / 2 / middle
