"""Models take turns in rounds; two differ only if a repetition would show the difference, too."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from itertools import count, pairwise
from typing import ClassVar

import pytest

from otel_quant.inference.latency_statistics import compared, is_settled, noise, without_extremes
from otel_quant.inference.results import Latency
from otel_quant.inference.rounds import MeasuredModel, latency, take_turns

QUIET = [10.0, 10.01, 10.02, 9.99, 10.0, 10.01, 9.98, 10.0, 10.0, 10.01]
SLOWER = [2 * time for time in QUIET]


class Known(MeasuredModel):
    """A model whose times are known."""

    def __init__(
        self, name: str, *rounds: Sequence[float], warm: float = 1.0, fails_in: int = 0,
        takes: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self.first, self.warm, self.processes = [0.5], warm, [list(rounds)]
        self.turns: list[int] = []
        self._fails_in, self._takes = fails_in, takes

    def time(self, seconds: float, runs: int | None) -> None:
        self.turns.append(runs or self.runs_in(seconds))
        self.processes[-1].append([1.0])
        self.spent += self._takes
        if len(self.turns) == self._fails_in:
            self.problem = "it crashed"


def test_the_latency_is_the_median_and_the_deciles_of_all_runs() -> None:
    found = latency(Known("a", [10, 11], [12, 13], [14]), None)
    assert found == Latency(
        median=12.5, p10=pytest.approx(10.4), p90=pytest.approx(13.6), runs=5, first=0.5,
        noise=pytest.approx((13.25 - 11.5) / 2 / 12.5), processes=(12.5,),
    )  # fmt: skip


def test_every_figure_of_a_single_run_equals_that_run() -> None:
    assert latency(Known("a", [10]), None) == Latency(10, 10, 10, 1, 0.5, 0.0, processes=(10,))


def of_cpu(name: str, wall: float, cpu: float, *, waits: float = 0.0, threads: int = 1) -> Known:
    """Returns a model of which one call of two waits longer for a processor."""
    rounds = [[wall + waits * (number % 2)] * 2 for number in range(12)]
    model = Known(name, *rounds)
    model.cpu = [[[cpu] * 2 for _ in rounds]]
    model.is_on_one_thread = threads == 1
    return model


BUSY = "the machine was busy, so the ratio is in doubt"


@pytest.mark.parametrize(
    ("own", "other", "found"),
    [
        # Beside its wall time, which tells nothing, CPU time does.
        (of_cpu("a", 10, 5.5, waits=9), of_cpu("b", 10, 5, waits=8), (1.1, True, "", True, False)),
        (of_cpu("a", 10, 5.1, waits=9), of_cpu("b", 10, 5, waits=8),
         (1.028, False, "processes of one model differ by up to 8.0 %", False, False)),
        (of_cpu("a", 10, 5.5, waits=9, threads=2), of_cpu("b", 10, 5, waits=8),
         (1.028, False, "processes of one model differ by up to 8.0 %", False, False)),
        # Its fastest runs are 3 times as slow, and half of them 10 times.
        (of_cpu("a", 9, 3, waits=42), of_cpu("b", 3, 1), (3, True, "", True, True)),
        (of_cpu("a", 3, 3, waits=42, threads=2), of_cpu("b", 3, 1), (8, False, BUSY, False, True)),
        # At least the smaller one of the two is true, if both tell the models apart.
        (of_cpu("a", 9, 3, waits=42, threads=2), of_cpu("b", 3, 1), (3, True, "", False, True)),
        (of_cpu("a", 20, 20, threads=2), of_cpu("b", 60, 60, waits=60), (1 / 3, True, "", False, True)),
        (of_cpu("a", 0.9, 3, waits=42, threads=2), of_cpu("b", 3, 1), (7.3, False, BUSY, False, True)),
        # They wait rather than compute.
        (of_cpu("a", 60, 0.5), of_cpu("b", 60, 0.1),
         (1, False, "processes of one model differ by up to 8.0 %", False, False)),
    ],
)  # fmt: skip
def test_cpu_time_decides_on_one_thread_where_the_clock_cannot(
    own: Known, other: Known, found: tuple[float, bool, str, bool, bool]
) -> None:
    it = latency(own, other)
    assert (it.ratio, it.is_apart, it.why, it.is_by_cpu, it.is_in_doubt) == (
        pytest.approx(found[0], rel=0.01), *found[1:],
    )  # fmt: skip
    assert it.cpu == own.cpu[0][0][0]


@pytest.mark.parametrize(
    ("own", "other", "why"),
    [
        ([[30.0]] * 2, [[10.0]] * 2, "too few rounds (2) to say"),
        ([[60.4, 60.5, 60.6]] * 2, [[6.5, 6.54, 6.6]] * 2, ""),  # all calls of one, below the other's
        ([[11.0], [14.0], [10.2], [13.0], [12.0]], [[10.0]] * 5, "their noise explains up to 232.3 %"),
        ([[20.0], [2e3], [20.0], [2e3]], [[10.0], [10.0], [1e3], [1e3]], "their noise explains any difference"),
        ([[10.7]] * 10, [[10.0]] * 10, "processes of one model differ by up to 8.0 %"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_told_apart_have_the_reason(
    own: list[list[float]], other: list[list[float]], why: str
) -> None:
    found = latency(Known("a", *own), Known("b", *other))
    assert (found.is_apart, found.why) == (not why, why)


def test_medians_that_are_shown_and_differ_are_in_doubt_where_the_fastest_runs_are_alike() -> None:
    """A slow round has fewer calls, which do not count less for that."""
    fast, slow = [10.0] * 10, [20.0]
    own, other = [fast] * 3 + [slow] * 4, [fast] * 4 + [slow] * 3
    found = latency(Known("a", *own), Known("b", *other))
    assert (found.median, found.is_in_doubt, found.why) == (20, True, BUSY)


def test_two_rounds_are_enough_to_measure_noise() -> None:
    assert noise([1.0]) == 0.0
    assert noise([10.0, 14.0]) == pytest.approx(1 / 12)


def test_models_are_compared_round_by_round_so_that_a_slow_round_hits_both() -> None:
    first = Known("first", *([each] for each in (10, 50, 10, 20, 30)))
    half = Known("half", *([each] for each in (5, 25, 5, 10, 15)))
    found = latency(half, first)
    assert (found.ratio, found.speedup, found.is_apart) == (0.5, 2.0, True)


@pytest.mark.parametrize(
    ("own", "other", "found"),
    [
        ([9, 11, 10, 12], [10] * 4, (1.05, False)),
        ([11.0, 14.0, 10.2, 13.0, 12.0], [10.0] * 5, (1.2, False)),  # all agree, by chance
        ([11.8, 12.1, 12.0, 12.2, 11.9], [10.0] * 5, (1.2, True)),
        ([10.1] * 5 + [13.1] * 6 + [16.0] * 5, [10.0] * 16, (1.31, False)),
        ([720, 770, 704, 650, 651, 684], [600, 550, 640, 500, 620, 570], (1.2, False)),
        ([30.0], [10.0], (3.0, False)),
        ([30.0] * 2, [10.0] * 2, (3.0, False)),
        ([10.7] * 10, [10.0] * 10, (1.07, False)),  # two processes of a model may differ by that
        ([10.9] * 10, [10.0] * 10, (1.09, True)),
        ([9.5] * 10, [10.0] * 10, (0.95, False)),
        ([9.0] * 10, [10.0] * 10, (0.9, True)),
        (QUIET, QUIET, (1.0, False)),
    ],
)
def test_a_difference_is_significant_if_nearly_all_rounds_show_it(
    own: list[float], other: list[float], found: tuple[float, bool]
) -> None:
    assert compared([own], [other])[:2] == (pytest.approx(found[0], rel=0.02), found[1])


def test_a_clear_difference_is_found_even_in_noisy_rounds() -> None:
    noisy = [8.0, 12.0, 9.0, 15.0, 10.0, 11.0, 9.5, 14.0, 10.0, 9.0]
    slower = [time * factor for time, factor in zip(noisy, [1.8, 2.3] * 5, strict=True)]
    assert compared([slower], [noisy])[:2] == (pytest.approx(2.05, rel=0.02), True)


@pytest.mark.parametrize("spread", [0.05, 0.3])
@pytest.mark.parametrize("rounds", [3, 4, 5, 10, 20])
def test_at_most_one_of_370_comparisons_is_a_false_positive(rounds: int, spread: float) -> None:
    drawn = random.Random(3)

    def draw() -> list[list[float]]:
        return [[drawn.lognormvariate(0, spread) for _ in range(rounds)]]

    assert sum(compared(draw(), draw())[1] for _ in range(3700)) <= 20


@pytest.mark.parametrize("processes", [3, 5, 10, 30])
def test_few_processes_do_not_cause_false_positives(processes: int) -> None:
    drawn = random.Random(3)
    draws = [[[drawn.lognormvariate(0, 0.3)] * 5 for _ in range(processes)] for _ in range(3700)]
    assert sum(compared(draw, [[1.0] * 5] * processes)[1] for draw in draws) <= 20


@pytest.mark.parametrize(
    ("factor", "processes", "is_apart"),
    [
        (0.95, [1.0], False),
        (0.95, [0.995, 1.0, 1.0, 1.005, 1.0], True),
        (0.95, [0.95, 1.0, 1.0, 1.0526, 1.0], False),
        (0.97, [0.995, 1.0, 1.0, 1.005, 1.0], False),
        (1.06, [0.995, 1.0, 1.0, 1.005, 1.0], True),
        (1.0, [1.0] * 5, False),
    ],
)
def test_several_processes_show_smaller_differences_than_one_process(
    factor: float, processes: list[float], is_apart: bool
) -> None:
    own = [[factor * process * time for time in QUIET] for process in processes]
    found = compared(own, [QUIET] * len(processes))
    assert found[:2] == (pytest.approx(factor, rel=1e-4), is_apart)


def test_two_processes_are_compared_by_their_rounds() -> None:
    assert compared([SLOWER, SLOWER], [QUIET, QUIET])[:2] == (pytest.approx(2), True)
    assert compared([[10.0, 60.0, 3.0, 14.0, 2.0]] * 2, [[10.0] * 5] * 2)[1] is False


def test_a_process_without_a_counterpart_is_left_out() -> None:
    assert compared([[1.0] * 5], [[2.0] * 5, [9.0] * 5])[:2] == (0.5, True)


@pytest.mark.parametrize(
    ("processes", "middle"),
    [
        ([10.0, 10.1, 12.5, 9.9, 10.2], 10.1),
        ([9.0, 9.5, 10.0, 10.1, 10.2, 10.1, 12.0, 15.0], 10.1),
        ([9.0, 10.0, 12.0], 10.0),
        ([10.0, 12.0], 11.0),
        ([10.0], 10.0),
    ],
)
def test_a_process_that_is_slow_for_its_lifetime_does_not_affect_the_result(
    processes: list[float], middle: float
) -> None:
    assert without_extremes(processes) == pytest.approx(middle)


def test_a_quiet_machine_needs_fewer_rounds_and_several_processes_fewer_each() -> None:
    assert is_settled(QUIET, processes=1)
    assert not is_settled([10.0, 12.0, 9.0, 11.0, 10.5, 13.0, 9.5, 10.0, 12.5, 11.0], processes=1)
    assert is_settled([10.0, 10.5] * 50, processes=1)
    rounds = [10.0, 10.1, 10.3, 9.9, 10.2]
    assert not is_settled(rounds, processes=1)
    assert is_settled(rounds, processes=5)


@pytest.mark.parametrize(
    ("runs", "seconds", "warm", "takes", "turns"),
    [
        (13, 3.0, 1.0, 0.0, [1, 1, 1, 2, 1, 1, 2, 1, 1, 2]),
        (2, 3.0, 1.0, 9.0, [1, 1]),
        (None, 3.0, 0.001, 0.2, [200] * 10),  # rounds that agree are enough
        (None, 3.0, 1e-9, 0.2, [1000] * 10),
        (None, 1.0, 0.01, 0.1, [10] * 10),
        (None, 3.0, 2.0, 2.0, [1] * 5),  # five of a slow model, however long they take
    ],
)
def test_each_model_has_the_requested_runs_or_the_runs_that_time_allows(
    runs: int | None, seconds: float, warm: float, takes: float, turns: list[int]
) -> None:
    model, failed = Known("a", warm=warm, takes=takes), Known("b", fails_in=2)
    take_turns([model, failed], seconds, runs)
    assert (model.turns, len(failed.turns)) == (turns, 2)


@pytest.mark.parametrize(("seconds", "energy"), [(2.0, 25.0), (0.9, None)])
def test_a_run_has_the_energy_that_the_machine_used_in_the_rounds_of_its_model(
    seconds: float, energy: float | None
) -> None:
    models = [Known("a", warm=0.01, takes=0.1), Known("b", warm=0.01, takes=0.1)]
    counter = count(100, 5)  # two looks at it in each round
    take_turns(models, 1.0, 10, joules=lambda: {"gpu": next(counter)})
    for model in models:
        model.metered = seconds
        found = latency(model, None)
        expected = None if energy is None else pytest.approx(energy * found.median)
        assert (found.gpu_energy, found.cpu_energy) == (expected, None)


class Powered(Known):
    """A model that takes some time and power."""

    joules: ClassVar[list[tuple[float, float]]] = []  # Of all of them so far, with the time

    def __init__(self, name: str, watts: float) -> None:
        super().__init__(name, warm=0.00005)
        self.watts = watts

    def time(self, seconds: float, runs: int | None) -> None:
        time.sleep(0.06)
        now = time.monotonic()
        before, used = Powered.joules[-1] if Powered.joules else (now, 0.0)
        Powered.joules.append((now, used + self.watts * (now - before)))
        super().time(seconds, runs)


def joules_of_powered() -> dict[str, float]:
    """Returns what a counter shows that changes every tenth of a second."""
    tick = math.floor(10 * time.monotonic()) / 10
    for (began, before), (ended, after) in pairwise(Powered.joules):
        if began <= tick <= ended:
            return {"gpu": before + (after - before) * (tick - began) / (ended - began)}
    return {"gpu": Powered.joules[-1][1] if Powered.joules else 0.0}


def test_models_in_short_rounds_each_have_the_energy_that_they_use_by_themselves() -> None:
    models = [Powered("small", 100), Powered("large", 500)]
    take_turns(models, 1.0, joules=joules_of_powered)
    power = [model.energy("gpu", 1.0) for model in models]
    assert power == [pytest.approx(100, rel=0.2), pytest.approx(500, rel=0.2)]
    assert [(len(model.processes[-1]), model.energy("cpu", 1)) for model in models] == [
        (10, None)
    ] * 2
