"""Rounds over models and their processes: who runs when, what comes of the times, and what is noise.

Each model runs in each round, so that a busy machine hits all alike, and where it has several
processes each of them has rounds of its own.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import ceil, exp, log, log1p, sqrt
from statistics import mean, median, quantiles, stdev
from typing import ClassVar, Final

from otel_quant.inference.results import Latency

OF_PROCESSES: Final = 0.08
"""How far two processes of the same model may differ for as long as they live, however quiet their
rounds (7 % were measured, 5 % with huge pages): less is no difference between models."""

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

_SETTLED: Final = 0.01
"""Twice the standard error of a median, as a share of it, at which no more rounds are needed."""

ROUND: Final = 0.2
"""Seconds of a model in a round; torch's own default of a range."""

ROUNDS: Final = 10
"""Rounds of a model, or of each of its processes, if time suffices."""

_FEWEST: Final = 5
"""Rounds of models that are slow, all processes together; fewer could hardly be compared."""

_MOST_RUNS: Final = 1000
"""Runs of a model in a round."""


class Subject(ABC):
    """One model while it is measured."""

    runs_are_known: ClassVar[bool] = True  # Whether each time is of one run

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem = ""  # why it cannot be measured; empty as long as it can
        self.first: Sequence[float] = ()  # seconds of its first calls
        self.warm = 1.0  # seconds of a usual call
        self.processes: list[list[Sequence[float]]] = [[]]  # seconds of calls, by process and round
        self.spent = 0.0  # seconds that the rounds of the newest process took

    @abstractmethod
    def time(self, seconds: float, runs: int | None) -> None:
        """Adds a round: of so many runs, or of so many seconds."""

    def runs_in(self, seconds: float) -> int:
        """Returns how many runs fit into so many seconds, one at least."""
        return min(_MOST_RUNS, ceil(seconds / self.warm))

    def medians(self) -> Sequence[Sequence[float]]:
        """Returns the seconds of a call in each round, by process."""
        return [[median(each) for each in rounds] for rounds in self.processes]

    def rounds(self) -> Sequence[Sequence[float]]:
        """Returns the times in each round of all processes."""
        return [each for rounds in self.processes for each in rounds]


def take_turns(
    subjects: Sequence[Subject], seconds: float, runs: int | None = None, processes: int = 1
) -> None:
    """Has models run in rounds: so many runs in all, or until more would change little or time is over."""
    for subject in subjects:
        subject.spent = 0.0
    number = 0
    while alive := [each for each in subjects if not each.problem]:
        now = None
        if runs is not None:
            if number == min(ROUNDS, runs):
                return
            now = runs * (number + 1) // min(ROUNDS, runs) - runs * number // min(ROUNDS, runs)
        elif _is_enough(alive, number, seconds, processes):
            return
        turn = number % len(alive)
        for subject in [*alive[turn:], *alive[:turn]]:  # the first of a round is after a pause
            began = time.perf_counter()
            subject.time(min(ROUND, seconds / ROUNDS), now)
            subject.spent += time.perf_counter() - began
        number += 1


def _is_enough(alive: Sequence[Subject], number: int, seconds: float, processes: int) -> bool:
    is_over = max(each.spent for each in alive) >= seconds / processes
    if is_over and number >= ceil(_FEWEST / processes):
        return True
    return number >= ROUNDS and all(is_settled(each.medians()[-1], processes) for each in alive)


def latency(own: Subject, beside: Subject | None) -> Latency:
    """Sums up the times of a model."""
    times = [time for each in own.rounds() for time in each]
    # With a single run, each figure is that run.
    tenths = quantiles(times, n=10, method="inclusive") if len(times) > 1 else times
    processes = tuple(map(median, own.medians()))
    ratio, is_apart = compared(own.medians(), beside.medians()) if beside else (None, None)
    return Latency(
        without_extremes(processes),
        tenths[0],
        tenths[-1],
        len(times) if own.runs_are_known else None,
        own.first[0] if own.first else None,
        noise([median(each) for each in own.rounds()]),
        ratio,
        is_apart,
        processes,
    )


def compared(
    medians: Sequence[Sequence[float]], others: Sequence[Sequence[float]]
) -> tuple[float, bool]:
    """Returns the ratio of a model's times to another's, round by round, and whether it is more than noise."""
    pairs = [zip(*each, strict=False) for each in zip(medians, others, strict=False)]
    ratios = [[one / other for one, other in each] for each in pairs]
    if len(ratios) < min(_OF_FEW_PROCESSES):
        return _compared_rounds([each for process in ratios for each in process])
    logs = [median(map(log, each)) for each in ratios]
    difference, root = without_extremes(logs), sqrt(len(logs))
    errors = _OF_FEW_PROCESSES[min(len(logs), max(_OF_FEW_PROCESSES))]
    is_real = abs(mean(logs)) > errors * stdev(logs) / root
    return exp(difference), is_real and abs(difference) > log1p(OF_PROCESSES) / root


def _compared_rounds(ratios: Sequence[float]) -> tuple[float, bool]:
    ratio = median(ratios)
    if len(ratios) < min(_OF_FEW_ROUNDS):
        return ratio, False
    tenths = quantiles(ratios, n=10, method="inclusive")
    rounds_agree = tenths[0] > 1 or tenths[-1] < 1
    low, _, high = quantiles(map(log, ratios), n=4, method="inclusive")
    error = _ERROR_OF_MEDIAN * (high - low) / 2 / sqrt(len(ratios))
    errors = _OF_FEW_ROUNDS.get(len(ratios), _STANDARD_ERRORS)
    return ratio, rounds_agree and abs(log(ratio)) > max(log1p(OF_PROCESSES), errors * error)


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
    """Returns the mean without the lowest and highest quarter: now and then a process is slow throughout."""
    cut = max(1, len(values) // 4) if len(values) > 2 else 0
    return mean(sorted(values)[cut : len(values) - cut])
