"""Latency is told with its spread; two models are told apart only where the machine lets them."""

from __future__ import annotations

import random

import pytest
from otel_quant.inference.noise import compared, noise
from otel_quant.inference.options import Options

from otel_quant.inference.results import Latency
from otel_quant.inference.rounds import Timed, in_turn, latency, plan, usual

MILLI = 1_000_000


def test_the_figures_are_the_median_and_the_tenths_of_all_runs() -> None:
    timed = Timed(0.5, [[10 * MILLI, 11 * MILLI], [12 * MILLI, 13 * MILLI], [14 * MILLI]])
    assert latency(timed, None, 1.5) == Latency(
        median=pytest.approx(0.012),
        p10=pytest.approx(0.0104),
        p90=pytest.approx(0.0136),
        runs=5,
        first=0.5,
        noise=pytest.approx((13.25 - 11.5) / 2 / 12.5),
        profiled=1.5,
    )


def test_of_a_single_run_every_figure_is_that_run() -> None:
    found = latency(Timed(0.5, [[10 * MILLI]]), None, None)
    assert found == Latency(0.01, 0.01, 0.01, 1, 0.5, 0.0)


def test_two_rounds_have_a_noise_already() -> None:
    assert noise([1.0]) == 0.0
    assert noise([10.0, 14.0]) == pytest.approx(1 / 12)


def test_models_are_compared_round_by_round_so_that_a_slow_round_hits_both() -> None:
    first = Timed(0.1, [[10 * MILLI], [50 * MILLI], [10 * MILLI], [20 * MILLI], [30 * MILLI]])
    half = Timed(0.1, [[5 * MILLI], [25 * MILLI], [5 * MILLI], [10 * MILLI], [15 * MILLI]])
    found = latency(half, first, None)
    assert (found.ratio, found.is_apart) == (pytest.approx(0.5), True)


def test_a_difference_that_not_most_rounds_show_is_none() -> None:
    first = Timed(0.1, [[10 * MILLI]] * 4)
    other = Timed(0.1, [[9 * MILLI], [11 * MILLI], [10 * MILLI], [12 * MILLI]])
    found = latency(other, first, None)
    assert (found.ratio, found.is_apart) == (pytest.approx(1.05), False)


def test_rounds_that_all_agree_by_chance_are_no_difference() -> None:
    assert compared([11.0, 14.0, 10.2, 13.0, 12.0], [10.0] * 5) == (1.2, False)
    assert compared([11.8, 12.1, 12.0, 12.2, 11.9], [10.0] * 5) == (1.2, True)
    assert compared([10.1] * 5 + [13.1] * 6 + [16.0] * 5, [10.0] * 16) == (1.31, False)


@pytest.mark.parametrize("rounds", [1, 2])
def test_one_or_two_rounds_cannot_tell_models_apart(rounds: int) -> None:
    assert compared([30.0] * rounds, [10.0] * rounds) == (3.0, False)


def test_less_than_two_processes_of_a_model_may_differ_by_is_no_difference() -> None:
    assert compared([10.7] * 10, [10.0] * 10) == (pytest.approx(1.07), False)
    assert compared([10.9] * 10, [10.0] * 10) == (pytest.approx(1.09), True)


@pytest.mark.parametrize("spread", [0.05, 0.3])
@pytest.mark.parametrize("rounds", [3, 4, 5, 10, 20])
def test_chance_makes_a_difference_in_one_of_370_comparisons_at_most(
    rounds: int, spread: float
) -> None:
    drawn = random.Random(3)

    def draw() -> list[float]:
        return [drawn.lognormvariate(0, spread) for _ in range(rounds)]

    assert sum(compared(draw(), draw())[1] for _ in range(3700)) <= 20


def test_the_runs_that_are_asked_for_are_spread_over_the_rounds() -> None:
    rounds = plan(Options(runs=13), {"a": 1})
    assert [each["a"] for each in rounds] == [1, 1, 1, 2, 1, 1, 2, 1, 1, 2]
    assert plan(Options(runs=2), {"a": 1, "b": 1}) == [{"a": 1, "b": 1}] * 2


def test_each_model_runs_as_often_as_its_time_allows() -> None:
    assert (
        plan(Options(seconds=2), {"fast": MILLI, "slow": 100 * MILLI})
        == [{"fast": 100, "slow": 2}] * 10
    )
    found = plan(Options(seconds=1), {"slow": 2000 * MILLI, "fast": MILLI, "faster": 1})
    assert found == [{"slow": 1, "fast": 200, "faster": 200}] * 5


def test_each_model_is_the_first_of_a_round_in_its_turn() -> None:
    found = list(in_turn(Options(runs=3), {0: MILLI, 2: MILLI}))
    assert found == [(0, 1), (2, 1), (2, 1), (0, 1), (0, 1), (2, 1)]
    assert list(in_turn(Options(), {})) == []


def test_a_usual_time_is_one_that_the_machine_has_not_made_slow() -> None:
    assert usual([9.0, 1.0, 2.0, 8.0, 3.0]) == 2.0
