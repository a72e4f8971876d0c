"""Variants are told apart only by what another call of the command would show too."""

from __future__ import annotations

import random

import pytest

from otel_quant.inference.bench.noise import is_settled, quartile_distance, speedup

QUIET = [10.0, 10.01, 10.02, 9.99, 10.0, 10.01, 9.98, 10.0, 10.0, 10.01]


def test_a_clear_difference_is_told_even_where_each_round_is_noisy() -> None:
    noisy = [8.0, 12.0, 9.0, 15.0, 10.0, 11.0, 9.5, 14.0, 10.0, 9.0]
    slower = [time * factor for time, factor in zip(noisy, [1.8, 2.3] * 5, strict=True)]
    assert speedup(noisy, slower) == (pytest.approx(2.05, rel=0.02), True)


def test_less_than_two_processes_of_a_model_may_differ_by_is_no_difference() -> None:
    for factor, is_apart in ((0.95, False), (0.9, True), (1.05, False), (1.1, True)):
        found = speedup([factor * time for time in QUIET], QUIET)
        assert found == (pytest.approx(1 / factor), is_apart)


def test_few_noisy_rounds_that_agree_by_chance_make_no_difference() -> None:
    others = [600.0, 550.0, 640.0, 500.0, 620.0, 570.0]
    slower = [
        time * factor for time, factor in zip(others, [1.02, 1.4, 1.1, 1.3, 1.05, 1.2], strict=True)
    ]
    assert speedup(slower, others)[1] is False


@pytest.mark.parametrize("rounds", [5, 6, 8, 10, 20])
def test_chance_makes_a_difference_in_one_of_370_comparisons(rounds: int) -> None:
    drawn = random.Random(3)
    draws = [[drawn.lognormvariate(0, 0.3) for _ in range(rounds)] for _ in range(3700)]
    assert sum(speedup(draw, [1.0] * rounds)[1] for draw in draws) <= 20


def test_a_variant_is_not_apart_from_itself() -> None:
    assert speedup(QUIET, QUIET) == (1.0, False)


def test_quiet_rounds_are_enough_and_noisy_ones_ask_for_more() -> None:
    assert is_settled(QUIET)
    assert not is_settled([10.0, 12.0, 9.0, 11.0, 10.5, 13.0, 9.5, 10.0, 12.5, 11.0])
    assert is_settled([10.0, 10.5] * 50)


def test_blocks_of_a_fast_round_do_not_hide_the_slow_ones() -> None:
    assert quartile_distance([[1.0] * 100, [5.0], [5.0], [9.0]]) == 4.0
    assert quartile_distance([[1.0, 2.0, 3.0, 4.0]] * 5) == 2.0
