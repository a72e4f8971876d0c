"""Latency in rounds: each model runs in each round, so that a busy machine hits all alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from statistics import median, quantiles
from typing import Final, TypeVar

from otel_quant.inference.noise import compared, noise
from otel_quant.inference.options import Options
from otel_quant.inference.results import Latency

ROUNDS: Final = 10
_FEWEST: Final = 5
"""Rounds of models that are slow; fewer could hardly be compared."""

_MOST_RUNS: Final = 1000
_NANO: Final = 1e-9

_Model = TypeVar("_Model", str, int)


@dataclass(frozen=True, slots=True)
class Timed:
    """The times of one model."""

    first: float  # Seconds of its very first run
    rounds: Sequence[Sequence[int]]  # Nanoseconds of each run, by round


def plan(options: Options, warm: Mapping[_Model, int]) -> Sequence[Mapping[_Model, int]]:
    """Returns how often each model runs, for each round."""
    if options.runs is not None:
        rounds = min(ROUNDS, options.runs)
        ends = [options.runs * i // rounds for i in range(rounds + 1)]
        return [dict.fromkeys(warm, after - before) for before, after in pairwise(ends)]
    slowest = max(warm.values(), default=1) * _NANO
    rounds = min(ROUNDS, max(_FEWEST, int(options.seconds / max(slowest, _NANO))))
    return [
        {
            name: min(
                ceil(_MOST_RUNS / rounds), max(1, int(options.seconds / rounds / (time * _NANO)))
            )
            for name, time in warm.items()
        }
    ] * rounds


def in_turn(options: Options, warm: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yields which model runs next, and how often.

    Each begins another round, since the first of a round is after a pause.
    """
    numbers = list(warm)
    for number, counts in enumerate(plan(options, warm)):
        at = number % len(numbers) if numbers else 0
        for model in [*numbers[at:], *numbers[:at]]:
            yield model, counts[model]


def latency(timed: Timed, first: Timed | None, profiled: float | None) -> Latency:
    """Sums up the times of a model."""
    times = [time for each in timed.rounds for time in each]
    medians = [median(each) for each in timed.rounds]
    middle = median(times)
    ratio = apart = None
    if first is not None:
        ratio, apart = compared(medians, [median(each) for each in first.rounds])
    return Latency(
        median=middle * _NANO,
        p10=_quantile(times, 1) * _NANO,
        p90=_quantile(times, 9) * _NANO,
        runs=len(times),
        first=timed.first,
        noise=noise(medians),
        ratio=ratio,
        is_apart=apart,
        profiled=profiled,
    )


def usual(times: Sequence[float]) -> float:
    """Returns a time that a quarter of the runs was faster than: what is slow is the machine."""
    return sorted(times)[len(times) // 4]


def _quantile(values: Sequence[float], tenth: int) -> float:
    return values[0] if len(values) < 2 else quantiles(values, n=10, method="inclusive")[tenth - 1]
