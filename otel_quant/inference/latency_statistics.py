"""Statistics of the times of rounds: usual values, noise, and which differences between models are real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import comb, exp, expm1, log, log1p, sqrt
from statistics import mean, median, quantiles, stdev
from typing import Final, NamedTuple

from otel_quant.schema.units import share_text

OF_PROCESSES: Final = 0.08
"""How far two processes of the same model may differ for as long as they live, however quiet their
rounds (7 % were measured, 5 % with huge pages): less is no difference between models."""

OF_PROCESSES_CPU: Final = 0.05
"""The same of CPU time on one thread (4.9 % were measured, of twelve processes of each of three models)."""

_ERROR_OF_MEDIAN: Final = 1.2533 / 0.6745
"""Standard error of the median of n normal values, times the root of n, for half the distance of
their quartiles: the error of a mean is smaller by the root of pi / 2, and 0.6745 standard deviations are
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

_OF_FEW_PROCESSES: Final[Mapping[int, float]] = {
    3: 19.2, 4: 9.2, 5: 6.6, 6: 5.5, 7: 4.9, 8: 4.5, 9: 4.3, 10: 4.1,
}  # fmt: skip
"""Standard errors of the mean of few processes that chance alone exceeds in one of 370 comparisons:
Student's distribution with one degree of freedom less."""

_BY_CHANCE: Final = 370
"""Comparisons in one of which chance alone may show a difference, in all rules here."""

_IN_DOUBT: Final = 1.25
"""Ratio of medians to that of the fastest tenths, or the other way round, from which neither is believed."""

_ANY: Final = 10.0
"""Ratio above which noise is not put into a number."""

_SETTLED: Final = 0.01
"""Twice the standard error of a median, as a share of it, at which no more rounds are needed."""


class RatioOfTimes(NamedTuple):
    """A model's times beside another's."""

    ratio: float
    is_apart: bool  # Whether the difference is more than noise
    why: str = ""  # Why it is not known to be


def compared(
    medians: Sequence[Sequence[float]],
    others: Sequence[Sequence[float]],
    of_processes: float = OF_PROCESSES,
) -> RatioOfTimes:
    """Compares the times of two models, round by round; ``of_processes`` is what two of one model differ by."""
    ratios = [
        [one / other for one, other in zip(*rounds, strict=False)]
        for rounds in zip(medians, others, strict=False)
    ]
    if len(ratios) < min(_OF_FEW_PROCESSES):
        return _compared_rounds(list(chain.from_iterable(ratios)), of_processes)
    logs = [median(map(log, each)) for each in ratios]
    difference, root = without_extremes(logs), sqrt(len(logs))
    errors = _OF_FEW_PROCESSES[min(len(logs), max(_OF_FEW_PROCESSES))]
    error, least = errors * stdev(logs) / root, log1p(of_processes) / root
    return _judged(exp(difference), min(abs(mean(logs)), abs(difference)), error, least)


def _judged(ratio: float, difference: float, error: float, least: float) -> RatioOfTimes:
    """Returns whether a difference is more than what chance and what two processes of a model explain."""
    if difference <= least:
        why = f"processes of one model differ by up to {share_text(expm1(least))}"
    elif difference <= error:
        much = f"up to {share_text(expm1(error))}" if error < log(_ANY) else "any difference"
        why = f"their noise explains {much}"
    else:
        why = ""
    return RatioOfTimes(ratio, not why, why)


def _compared_rounds(ratios: Sequence[float], of_processes: float) -> RatioOfTimes:
    """Compares times by their ratios in all rounds, of which nearly all have to show a difference."""
    ratio = median(ratios)
    if len(ratios) < min(_OF_FEW_ROUNDS):
        return RatioOfTimes(ratio, False, f"too few rounds ({len(ratios)}) to say")
    tenths = quantiles(ratios, n=10, method="inclusive")
    rounds_agree = tenths[0] > 1 or tenths[-1] < 1
    low, _, high = quantiles(map(log, ratios), n=4, method="inclusive")
    error = _ERROR_OF_MEDIAN * (high - low) / 2 / sqrt(len(ratios))
    errors = _OF_FEW_ROUNDS.get(len(ratios), _STANDARD_ERRORS)
    found = _judged(ratio, abs(log(ratio)), errors * error, log1p(of_processes))
    if found.is_apart and not rounds_agree:
        return RatioOfTimes(ratio, False, "fewer than nine of ten rounds agree")
    return found


def are_separate(times: Sequence[float], others: Sequence[float]) -> bool:
    """Whether all of one model's times lie below all of the other's, which chance alone rarely does."""
    by_chance = 2 / comb(len(times) + len(others), len(times))
    gap = max(min(times) / max(others), min(others) / max(times))
    return gap > 1 + OF_PROCESSES and by_chance < 1 / _BY_CHANCE


def doubted(times: Sequence[float], others: Sequence[float], medians: float) -> RatioOfTimes | None:
    """Returns which of two ratios is nearer to 1, and whether it is a difference: that of the fastest tenths, or of the ``medians`` that are shown.

    None where they are alike: a busy machine hits one of two models more.
    """
    if min(len(times), len(others)) < 2:
        return None
    tenths = [quantiles(each, n=10, method="inclusive")[0] for each in (times, others)]
    logs = log(tenths[0] / tenths[1]), log(medians)
    if abs(logs[0] - logs[1]) <= log(_IN_DOUBT):
        return None
    least = min(logs, key=abs)
    is_apart = logs[0] * logs[1] > 0 and abs(least) > log1p(OF_PROCESSES)
    return RatioOfTimes(exp(least), is_apart)


def noise(medians: Sequence[float]) -> float:
    """Returns half the distance of the quartiles as a share of the median."""
    if len(medians) < 2:
        return 0.0
    low, middle, high = quantiles(medians, n=4, method="inclusive")
    return (high - low) / 2 / middle


def is_settled(medians: Sequence[float], processes: int) -> bool:
    """Returns whether more rounds would change the median of all of a model's rounds by little."""
    error = _ERROR_OF_MEDIAN * noise(medians) / sqrt(len(medians) * processes)
    return 2 * error <= _SETTLED


def without_extremes(values: Sequence[float]) -> float:
    """Returns the mean without the lowest and highest quarter: now and then a process is slow throughout.

    One at least is left out on each side, as long as one is left.
    """
    cut = min(max(1, len(values) // 4), (len(values) - 1) // 2)
    return mean(sorted(values)[cut : len(values) - cut])
