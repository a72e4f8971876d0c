"""Rounds over models and their processes: who runs when, what comes of the times, and what is noise.

Each model runs in each round, so that a busy machine hits all alike, and where it has several
processes each of them has rounds of its own.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import ceil, exp, log, log1p, sqrt
from statistics import mean, median, quantiles, stdev
from typing import Final

from otel_quant.inference.results import Latency

OF_PROCESSES: Final = 0.08
"""How far two processes of the same model may differ for as long as they live, however quiet their
rounds (7 % were measured, 5 % with huge pages): less is no difference between models."""

_ERROR_OF_MEDIAN: Final = 1.2533 / 0.6745
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

_OF_FEW_PROCESSES: Final[Mapping[int, float]] = {
    3: 19.2, 4: 9.2, 5: 6.6, 6: 5.5, 7: 4.9, 8: 4.5, 9: 4.3, 10: 4.1,
}  # fmt: skip
"""Standard errors of the mean of few processes that chance alone exceeds in one of 370 comparisons:
Student's distribution with one degree of freedom less."""

_SETTLED: Final = 0.01
"""Twice the standard error of a median, as a share of it, at which no more rounds are needed."""

ROUNDS: Final = 10
"""Rounds of a model, or of each of its processes, if time suffices."""

_FEWEST: Final = 5
"""Rounds of models that are slow, all processes together; fewer could hardly be compared."""

_MOST_RUNS: Final = 1000


class Subject(ABC):
    """One model while it is measured."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem = ""  # why it cannot be measured; empty as long as it can
        self.first: Sequence[float] = ()  # seconds of its first calls
        self.warm = 1.0  # seconds of a usual call
        self.processes: list[list[Sequence[float]]] = [[]]  # seconds of calls, by process and round
        self.spent = 0.0  # seconds that the rounds of the newest process took

    @abstractmethod
    def time(self, amount: float) -> None:
        """Adds a round: of so many runs, or of so many seconds."""

    def medians(self) -> Sequence[Sequence[float]]:
        """Returns the seconds of a call in each round, by process."""
        return [[median(each) for each in rounds] for rounds in self.processes]

    def rounds(self) -> Sequence[Sequence[float]]:
        """Returns the times in each round of all processes."""
        return [each for rounds in self.processes for each in rounds]


def take_turns(subjects: Sequence[Subject], rounds: Iterable[Mapping[Subject, float]]) -> None:
    """Has models run in rounds that say how much of each; those that fail are left out."""
    for subject in subjects:
        subject.spent = 0.0
    for number, amounts in enumerate(rounds):
        alive = [each for each in subjects if not each.problem]
        turn = number % len(alive) if alive else 0
        for subject in [*alive[turn:], *alive[:turn]]:  # the first of a round is after a pause
            began = time.perf_counter()
            subject.time(amounts[subject])
            subject.spent += time.perf_counter() - began


def planned(
    subjects: Sequence[Subject], runs: int | None, seconds: float
) -> Sequence[Mapping[Subject, int]]:
    """Returns how often each model runs in each round: ``runs`` in all, or as time allows."""
    if runs is not None:
        rounds = min(ROUNDS, runs)
        ends = [runs * i // rounds for i in range(rounds + 1)]
        return [dict.fromkeys(subjects, after - before) for before, after in pairwise(ends)]
    slowest = max((each.warm for each in subjects), default=1.0)
    rounds = min(ROUNDS, max(_FEWEST, int(seconds / max(slowest, 1e-9))))
    most = ceil(_MOST_RUNS / rounds)
    return [
        {each: min(most, max(1, int(seconds / rounds / each.warm))) for each in subjects}
    ] * rounds


def until_settled(
    subjects: Sequence[Subject], each: float, seconds: float, processes: int
) -> Iterator[Mapping[Subject, float]]:
    """Yields rounds of a process, of ``each`` seconds: its share of all that are needed."""
    fewest = ceil(_FEWEST / processes)
    number = 0
    while alive := [subject for subject in subjects if not subject.problem]:
        if number >= fewest and max(each.spent for each in alive) >= seconds / processes:
            return
        if number >= ROUNDS and all(is_settled(own.medians()[-1], processes) for own in alive):
            return
        yield dict.fromkeys(alive, each)
        number += 1


def latency(own: Subject, beside: Subject | None, profiled: float | None = None) -> Latency:
    """Sums up the times of the runs of a model, each timed by itself."""
    times = [time for each in own.rounds() for time in each]
    # With a single run, each figure is that run.
    tenths = quantiles(times, n=10, method="inclusive") if len(times) > 1 else times
    ratio, is_apart = compared(own.medians(), beside.medians()) if beside else (None, None)
    return Latency(
        median(times),
        tenths[0],
        tenths[-1],
        len(times),
        own.first[0],
        noise([each for medians in own.medians() for each in medians]),
        ratio,
        is_apart,
        profiled,
    )


def latency_of_processes(own: Subject, beside: Subject | None) -> Latency:
    """Sums up the times of a model's processes, in which blocks of calls were timed."""
    rounds, processes = own.rounds(), tuple(map(median, own.medians()))
    ratio, is_apart = compared(own.medians(), beside.medians()) if beside else (None, None)
    return Latency(
        without_extremes(processes),
        noise=noise([median(each) for each in rounds]),
        ratio=ratio,
        is_apart=is_apart,
        iqr=quartile_distance(rounds),
        blocks=sum(map(len, rounds)),
        rounds=len(rounds),
        processes=processes,
    )


def compared(
    medians: Sequence[Sequence[float]], others: Sequence[Sequence[float]]
) -> tuple[float, bool]:
    """Returns the ratio of a model's times to another's, and whether the two can be told apart.

    Rounds are compared with those beside them; of three processes and more each counts once.
    """
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


def usual(times: Sequence[float]) -> float:
    """Returns a time that a quarter of the runs was faster than: what is slow is the machine."""
    return sorted(times)[len(times) // 4]
