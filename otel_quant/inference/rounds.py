"""Rounds in which models take turns: who runs when, when there are enough, and what comes of the times.

Each model runs in each round, so that a busy machine hits all alike, and where it has several
processes each of them has rounds of its own.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise, repeat
from math import ceil
from statistics import median, quantiles
from typing import ClassVar, Final

from otel_quant.inference.arrays import Arrays
from otel_quant.inference.latency_statistics import (
    OF_PROCESSES_CPU,
    RatioOfTimes,
    are_separate,
    compared,
    doubted,
    is_settled,
    noise,
    without_extremes,
)
from otel_quant.inference.outputs import compared_outputs
from otel_quant.inference.results import Accuracy, Latency, ModelResult

ROUND: Final = 0.2
"""Seconds of a model in a round; torch's own default of a range."""

ROUNDS: Final = 10
"""Rounds of a model, or of each of its processes, if time suffices."""

_FEWEST: Final = 5
"""Rounds of models that are slow, all processes together; fewer could hardly be compared."""

_METERED: Final = 1.0
"""Seconds that a model's energy needs: counters of GPUs change every tenth of a second."""

_LAGS: Final = 0.15
"""Seconds of which a counter may lack the energy, or have it from the model that ran before."""

_MOST_RUNS: Final = 1000
"""Runs of a model in a round."""


class MeasuredModel(ABC):
    """One model while it is measured."""

    runs_are_known: ClassVar[bool] = True  # Whether each time is of one run

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem = ""  # why it cannot be measured; empty as long as it can
        self.first: Sequence[float] = ()  # seconds of its first calls
        self.warm = 1.0  # seconds of a usual call
        self.processes: list[list[Sequence[float]]] = [[]]  # seconds of calls, by process and round
        self.cpu: list[list[Sequence[float]]] = [[]]  # the same of CPU time
        self.is_on_one_thread = False  # whether it runs on one thread of the CPU alone
        self.spent = 0.0  # seconds that the rounds of the newest process took
        self.outputs: Arrays = {}
        # that the machine used in its rounds, by ``gpu`` or ``cpu``
        self.joules: MutableMapping[str, float] = defaultdict(float)
        self.metered = 0.0  # seconds of these rounds
        self.is_metered = False  # whether it was done while it ran by itself

    @abstractmethod
    def time(self, seconds: float, runs: int | None) -> None:
        """Adds a round: of so many runs, or of so many seconds."""

    def runs_in(self, seconds: float) -> int:
        """Returns how many runs fit into so many seconds, one at least."""
        return min(_MOST_RUNS, ceil(seconds / self.warm))

    def energy(self, of: str, seconds: float) -> float | None:
        """Returns the joules of a run that takes so long; None where they are not counted, or too few."""
        is_known = of in self.joules and self.metered >= _METERED
        return self.joules[of] / self.metered * seconds if is_known else None

    def accuracy(self, base: MeasuredModel) -> Accuracy:
        """Compares the outputs with the base's."""
        return compared_outputs(base.outputs, self.outputs)

    def take_round(self, found: Mapping[str, Sequence[float]]) -> None:
        """Adds what was timed in a round."""
        self.processes[-1].append(found["wall"])
        self.cpu[-1].append(found["cpu"])

    def medians(self) -> Sequence[Sequence[float]]:
        """Returns the seconds of a call in each round, by process."""
        return _medians(self.processes)

    @property
    def times(self) -> Sequence[float]:
        """The seconds of all calls."""
        return list(chain.from_iterable(chain.from_iterable(self.processes)))

    @property
    def cpu_time(self) -> float | None:
        """Seconds of CPU time in a call; None where they were not taken."""
        processes = [median(rounds) for rounds in _medians(self.cpu) if rounds]
        return without_extremes(processes) if processes else None


def _medians(processes: Sequence[Sequence[Sequence[float]]]) -> Sequence[Sequence[float]]:
    return [list(map(median, rounds)) for rounds in processes]


def take_turns(
    models: Sequence[MeasuredModel],
    seconds: float,
    runs: int | None = None,
    processes: int = 1,
    joules: Callable[[], Mapping[str, float]] = dict,
) -> None:
    """Has models run in rounds: so many runs in all, or until more would change little or time is over.

    ``joules`` returns what the counters of the machine's energy show.
    """
    shares: Iterable[int | None] = repeat(None)
    if runs is not None:
        rounds = min(ROUNDS, runs)
        ends = [runs * number // rounds for number in range(rounds + 1)]
        shares = [end - begin for begin, end in pairwise(ends)]
    for number, share in enumerate(shares):
        alive = [each for each in models if not each.problem]
        if not alive or (share is None and _is_enough(alive, number, seconds, processes)):
            break
        turn = number % len(alive)
        for model in [*alive[turn:], *alive[:turn]]:  # the first of a round is after a pause
            before, began = joules(), time.perf_counter()
            model.time(min(ROUND, seconds / ROUNDS), share)
            took = time.perf_counter() - began
            model.spent, model.metered = model.spent + took, model.metered + took
            for of, counted in joules().items() if not model.is_metered else ():
                model.joules[of] += counted - before.get(of, counted)
    for model in models:
        if model.joules and not (model.problem or model.is_metered):
            is_short = model.metered < _METERED * len(model.processes[-1])
            if is_short and (runs is None or model.metered >= _METERED):
                _meter(model, joules)


def _meter(model: MeasuredModel, joules: Callable[[], Mapping[str, float]]) -> None:
    """Counts the energy of a model again while it runs by itself: in short rounds a good part of it is the other models'."""
    rounds, model.is_metered = (model.processes[-1], model.cpu[-1]), True
    model.processes[-1], model.cpu[-1] = [], []  # they are no rounds beside others
    for seconds in (_LAGS, _METERED):
        before, began = joules(), time.perf_counter()
        while (took := time.perf_counter() - began) < seconds and not model.problem:
            model.time(ROUND, None)
    found = joules()
    model.joules, model.metered = {of: found[of] - before[of] for of in found.keys() & before}, took
    model.processes[-1], model.cpu[-1] = rounds


def _is_enough(alive: Sequence[MeasuredModel], number: int, seconds: float, processes: int) -> bool:
    """Whether rounds so far suffice: time is over after the fewest, or more would change little."""
    is_over = max(each.spent for each in alive) >= seconds / processes
    if is_over and number >= ceil(_FEWEST / processes):
        return True
    return number >= ROUNDS and all(is_settled(each.medians()[-1], processes) for each in alive)


def latency(own: MeasuredModel, beside: MeasuredModel | None) -> Latency:
    """Sums up the times of a model, compared with another's if there is one."""
    medians = own.medians()
    times = own.times
    # With a single run, each figure is that run.
    tenths = quantiles(times, n=10, method="inclusive") if len(times) > 1 else times
    processes = tuple(map(median, medians))
    usual, spread = without_extremes(processes), noise(list(chain.from_iterable(medians)))
    runs = len(times) if own.runs_are_known else None
    found = Latency(
        *(usual, tenths[0], tenths[-1], runs, own.first[0], spread),
        processes=processes,
        cpu=own.cpu_time,
        gpu_energy=own.energy("gpu", usual),
        cpu_energy=own.energy("cpu", usual),
    )
    return found if beside is None else _judged(found, own, beside)


_OF_CPU: Final = 0.1
"""CPU time as a share of the fastest tenth of the runs, from which a model computes rather than waits."""


def _judged(found: Latency, own: MeasuredModel, beside: MeasuredModel) -> Latency:
    """Adds the ratio to another model's time: of CPU time where the clock cannot tell and that can."""
    wall = compared(own.medians(), beside.medians())
    if are_separate(own.times, beside.times):
        wall = RatioOfTimes(wall.ratio, True)
    usual = without_extremes([median(each) for each in beside.medians()])
    least = doubted(own.times, beside.times, found.median / usual)
    found = replace(found, is_in_doubt=least is not None)
    computes = all(
        it.is_on_one_thread and (it.cpu_time or 0.0) > _OF_CPU * min(it.times)
        for it in (own, beside)
    )
    if computes and (found.is_in_doubt or not wall.is_apart):
        cpu = compared(_medians(own.cpu), _medians(beside.cpu), OF_PROCESSES_CPU)
        if found.is_in_doubt or cpu.is_apart:
            return replace(found, **cpu._asdict(), is_by_cpu=True)
    if least is not None:
        why = "the machine was busy, so the ratio is in doubt"
        is_known = wall.is_apart and least.is_apart
        wall = least if is_known else RatioOfTimes(wall.ratio, False, why)
    return replace(found, **wall._asdict())


def beside(result: ModelResult, model: MeasuredModel, base: MeasuredModel) -> ModelResult:
    """Adds latency and accuracy of a model that was measured, compared with its base, which has none."""
    if model.problem:
        return result
    if model is base:
        return replace(result, latency=latency(model, None))
    if base.problem:
        unknown = Accuracy(problem=f"{base.name} was not measured")
        return replace(result, latency=latency(model, None), accuracy=unknown)
    return replace(result, latency=latency(model, base), accuracy=model.accuracy(base))
