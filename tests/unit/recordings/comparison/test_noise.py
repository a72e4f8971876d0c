"""The rank-sum test, and when a difference counts as more than noise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_quant.recordings.comparison.side_by_side import (
    Difference,
    Sample,
    can_tell,
    difference,
    mann_whitney,
    student,
)

VALUES = st.lists(st.integers(0, 6).map(float), min_size=2, max_size=9)


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([1], [2], 1.0),
        ([1, 2, 3], [4, 5, 6], 2 / 20),
        ([1, 2, 3, 4], [5, 6, 7, 8], 2 / 70),
        ([5, 6, 7, 8], [1, 2, 3, 4], 2 / 70),
        ([1, 3, 5, 7], [2, 4, 6, 8], 48 / 70),
        ([1, 1, 1, 1], [1, 1, 1, 1], 1.0),
        ([1, 1, 2, 2], [2, 2, 3, 3], 12 / 70),
        ([7] * 30, [7] * 30, 1.0),
    ],
)
def test_p_is_the_share_of_permutations_with_at_least_this_difference(
    first: list[float], second: list[float], p: float
) -> None:
    assert mann_whitney(first, second) == pytest.approx(p)


@settings(max_examples=60)
@given(VALUES, VALUES)
def test_p_equals_scipys_also_with_equal_values(first: list[float], second: list[float]) -> None:
    stats = pytest.importorskip("scipy.stats")
    every_order = stats.PermutationMethod(n_resamples=10**6)
    if len(first) + len(second) <= 8:
        theirs = stats.mannwhitneyu(first, second, method=every_order).pvalue
        assert mann_whitney(first, second) == pytest.approx(theirs)
    if len({*first, *second}) == len(first) + len(second):
        theirs = stats.mannwhitneyu(first, second, method="exact").pvalue
        assert mann_whitney(first, second) == pytest.approx(theirs)


@given(
    st.lists(st.integers(0, 40).map(float), min_size=11, max_size=30),
    st.lists(st.integers(20, 60).map(float), min_size=11, max_size=30),
)
def test_p_of_many_values_equals_scipys_approximation(
    first: list[float], second: list[float]
) -> None:
    stats = pytest.importorskip("scipy.stats")
    theirs = stats.mannwhitneyu(first, second, method="asymptotic").pvalue
    assert mann_whitney(first, second) == pytest.approx(theirs)


@given(
    st.lists(st.integers(0, 999).map(float), min_size=2, max_size=9),
    st.lists(st.integers(0, 999).map(float), min_size=2, max_size=9),
)
def test_the_p_of_students_test_equals_scipys(first: list[float], second: list[float]) -> None:
    stats = pytest.importorskip("scipy.stats")
    if len({*first}) == len({*second}) == 1:
        assert student(first, second) == float(first[0] == second[0])
    else:
        theirs = stats.ttest_ind(first, second).pvalue
        assert student(first, second) == pytest.approx(theirs, rel=1e-6, abs=1e-9)


def sample(*values: float) -> Sample:
    return Sample(values)


def one(value: float, alone: float, bound: float) -> Sample:
    return Sample((value,), (alone,), (bound,))


def test_a_sample_has_a_median_and_a_spread() -> None:
    several = sample(4, 1, 2, 9)
    assert (several.median, several.lowest, several.highest, several.spread) == (3, 1, 9, 6)


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [
        (sample(2), sample(3), Difference(1, 1.5, None, True)),
        (sample(2), sample(2), Difference(0, 1.0, None, False)),
        (sample(3), sample(2), Difference(-1, 2 / 3, None, True)),
        (sample(0), sample(3), Difference(3, None, None, True)),
        (sample(1, 2, 3), sample(3, 4, 5), Difference(2, 2.0, 0.2, False)),
        (sample(1, 2, 3), sample(4, 5, 6), Difference(3, 2.5, 0.1, True)),
        (sample(1, 2, 5), sample(4, 6, 7), Difference(4, 3.0, 0.2, False)),
        (sample(1, 2, 3, 4), sample(5, 6, 7, 8), Difference(4, 2.6, 2 / 70, True)),
        (sample(1, 2, 3, 5), sample(4, 6, 7, 8), Difference(4, 2.6, 4 / 70, False)),
        (one(20, 10, 10), one(30, 18, 12), Difference(10, 1.5, None, True)),
        (one(20, 10, 10), one(30, 18, 9), Difference(10, 1.5, None, False)),
        (one(20, 5, 5), one(18, 8, 8), Difference(-2, 0.9, None, False)),
        (one(20, 5, 5), one(20, 8, 8), Difference(0, 1.0, None, False)),
    ],
)
def test_a_difference_is_significant_if_p_is_small_or_no_runs_overlap(
    base: Sample, new: Sample, expected: Difference
) -> None:
    found = difference(base, new)
    assert found.p == pytest.approx(expected.p)
    assert (found.change, found.ratio, found.is_clear) == (
        expected.change, expected.ratio, expected.is_clear,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("base", "new", "enough"), [(1, 1, False), (3, 3, False), (4, 4, True), (1, 39, True)]
)
def test_the_test_needs_four_runs_on_each_side_or_many_on_one(
    base: int, new: int, enough: bool
) -> None:
    assert can_tell(sample(*range(base)), sample(*range(new))) is enough
