"""Variants are told apart only by what another call of the command would show too."""

from __future__ import annotations

import random

import pytest
from otel_quant.inference.bench.noise import (
    is_settled,
    quartile_distance,
    speedup,
    without_extremes,
)

QUIET = [10.0, 10.01, 10.02, 9.99, 10.0, 10.01, 9.98, 10.0, 10.0, 10.01]


def test_a_clear_difference_is_told_even_where_each_round_is_noisy() -> None:
    noisy = [8.0, 12.0, 9.0, 15.0, 10.0, 11.0, 9.5, 14.0, 10.0, 9.0]
    slower = [time * factor for time, factor in zip(noisy, [1.8, 2.3] * 5, strict=True)]
    assert speedup([noisy], [slower]) == (pytest.approx(2.05, rel=0.02), True)


def test_less_than_two_processes_of_a_model_may_differ_by_is_no_difference() -> None:
    for factor, is_apart in ((0.95, False), (0.9, True), (1.05, False), (1.1, True)):
        found = speedup([[factor * time for time in QUIET]], [QUIET])
        assert found == (pytest.approx(1 / factor), is_apart)


def test_few_noisy_rounds_that_agree_by_chance_make_no_difference() -> None:
    others = [600.0, 550.0, 640.0, 500.0, 620.0, 570.0]
    slower = [
        time * factor for time, factor in zip(others, [1.02, 1.4, 1.1, 1.3, 1.05, 1.2], strict=True)
    ]
    assert speedup([slower], [others])[1] is False


@pytest.mark.parametrize("rounds", [5, 6, 8, 10, 20])
def test_chance_makes_a_difference_in_one_of_370_comparisons(rounds: int) -> None:
    drawn = random.Random(3)
    draws = [[drawn.lognormvariate(0, 0.3) for _ in range(rounds)] for _ in range(3700)]
    assert sum(speedup([draw], [[1.0] * rounds])[1] for draw in draws) <= 20


@pytest.mark.parametrize("processes", [3, 5, 10, 30])
def test_chance_makes_no_difference_of_few_processes_either(processes: int) -> None:
    drawn = random.Random(3)
    draws = [[[drawn.lognormvariate(0, 0.3)] * 5 for _ in range(processes)] for _ in range(3700)]
    assert sum(speedup(draw, [[1.0] * 5] * processes)[1] for draw in draws) <= 20


def test_processes_that_agree_show_smaller_differences_than_one_can() -> None:
    def found(factor: float, *processes: float) -> tuple[float, bool]:
        own = [[factor * process * time for time in QUIET] for process in processes]
        return speedup(own, [QUIET] * len(processes))

    assert found(0.95, 1.0) == (pytest.approx(1 / 0.95), False)
    assert found(0.95, 0.995, 1.0, 1.0, 1.005, 1.0) == (pytest.approx(1 / 0.95, rel=1e-4), True)
    assert found(0.95, 0.95, 1.0, 1.0, 1.0526, 1.0) == (pytest.approx(1 / 0.95, rel=1e-4), False)
    assert found(0.97, 0.995, 1.0, 1.0, 1.005, 1.0)[1] is False
    assert found(1.06, 0.995, 1.0, 1.0, 1.005, 1.0) == (pytest.approx(1 / 1.06, rel=1e-4), True)


def test_a_process_that_is_slow_for_as_long_as_it_lives_does_not_count() -> None:
    assert without_extremes([10.0, 10.1, 12.5, 9.9, 10.2]) == pytest.approx(10.1)
    assert without_extremes([9.0, 9.5, 10.0, 10.1, 10.2, 10.1, 12.0, 15.0]) == pytest.approx(10.1)
    assert without_extremes([9.0, 10.0, 12.0]) == 10.0
    assert without_extremes([10.0, 12.0]) == 11.0
    assert without_extremes([10.0]) == 10.0


def test_two_processes_are_judged_by_their_rounds() -> None:
    slower = [2 * time for time in QUIET]
    assert speedup([QUIET, QUIET], [slower, slower]) == (pytest.approx(2), True)
    noisy = [10.0, 60.0, 3.0, 14.0, 2.0]
    assert speedup([noisy, noisy], [[10.0] * 5] * 2)[1] is False


def test_a_process_that_only_the_other_variant_has_is_left_out() -> None:
    assert speedup([[1.0] * 5], [[2.0] * 5, [9.0] * 5]) == (pytest.approx(2), True)


def test_a_variant_is_not_apart_from_itself() -> None:
    assert speedup([QUIET], [QUIET]) == (1.0, False)
    assert speedup([QUIET] * 5, [QUIET] * 5) == (1.0, False)


def test_quiet_rounds_are_enough_and_noisy_ones_ask_for_more() -> None:
    assert is_settled(QUIET, processes=1)
    assert not is_settled([10.0, 12.0, 9.0, 11.0, 10.5, 13.0, 9.5, 10.0, 12.5, 11.0], processes=1)
    assert is_settled([10.0, 10.5] * 50, processes=1)


def test_each_of_several_processes_needs_fewer_rounds() -> None:
    rounds = [10.0, 10.1, 10.3, 9.9, 10.2]
    assert not is_settled(rounds, processes=1)
    assert is_settled(rounds, processes=5)


def test_blocks_of_a_fast_round_do_not_hide_the_slow_ones() -> None:
    assert quartile_distance([[1.0] * 100, [5.0], [5.0], [9.0]]) == 4.0
    assert quartile_distance([[1.0, 2.0, 3.0, 4.0]] * 5) == 2.0
