"""Latency is told with its spread; two models are told apart only where the machine lets them."""

from __future__ import annotations

import pytest

from otel_quant.inference.options import Options
from otel_quant.inference.results import Latency
from otel_quant.inference.rounds import Timed, latency, plan

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


def test_a_difference_within_the_noise_is_none_in_few_rounds() -> None:
    first = Timed(0.1, [[10 * MILLI], [20 * MILLI], [30 * MILLI], [40 * MILLI]])
    slower = Timed(0.1, [[11 * MILLI], [22 * MILLI], [33 * MILLI], [44 * MILLI]])
    found = latency(slower, first, None)
    assert (found.ratio, found.is_apart) == (pytest.approx(1.1), False)


def test_the_runs_that_are_asked_for_are_spread_over_the_rounds() -> None:
    rounds = plan(Options(runs=13), {"a": 1})
    assert [each["a"] for each in rounds] == [1, 1, 1, 2, 1, 1, 2, 1, 1, 2]
    assert plan(Options(runs=2), {"a": 1, "b": 1}) == [{"a": 1, "b": 1}] * 2


def test_each_model_runs_as_often_as_its_time_allows() -> None:
    assert (
        plan(Options(seconds=2), {"fast": MILLI, "slow": 100 * MILLI})
        == [{"fast": 100, "slow": 2}] * 10
    )
    assert plan(Options(seconds=1), {"a": 2000 * MILLI}) == [{"a": 1}] * 5
