"""Limits as they are written; what counts as worse: by more than the limit, by more than identical runs differ, and than noise."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.gate import SLOWER, worse, worse_of
from otel_quant.recordings.compared_runs import TOTAL, FactDifference, Value
from otel_quant.recordings.gate import GateLimit, LimitError, find, judge, load, parse
from otel_quant.recordings.model import State
from otel_quant.recordings.side_by_side import (
    Comparison,
    Difference,
    FigureRow,
    Sample,
    Side,
    StepSides,
    can_tell,
    difference,
    mann_whitney,
    student,
)
from otel_quant.recordings.summary import BY_NAME, GPU_ALLOCATED, MEMORY_PEAK, SAMPLE_RATE

MIB = 1 << 20


def one(value: float, alone: float, bound: float) -> Sample:
    return Sample((value,), (alone,), (bound,))


def several(*values: float) -> Sample:
    return Sample(values)


@pytest.mark.parametrize(
    ("limit", "base", "new", "outcome"),
    [
        ("duration=10%", several(1), several(1.25), "within"),
        ("duration=10%", several(1), several(1.3), "worse"),
        ("duration=20%", several(10), several(12), "within"),
        ("memory.peak=10%", several(10 * MIB), several(18 * MIB), "within"),
        ("memory.peak=10%", several(10 * MIB), several(19 * MIB), "worse"),
        ("model.float.size=10%", several(100), several(111), "worse"),
        # The best run of three against the worst of the base.
        ("duration=20%", several(10, 12, 14), several(15, 17, 19), "within"),
        ("duration=20%", several(10, 12, 14), several(17, 18, 19), "worse"),
        ("calibration.sample_rate=20%", several(10, 12, 14), several(5, 7, 9), "within"),
        ("calibration.sample_rate=20%", several(10, 12, 14), several(5, 6, 7), "worse"),
        # Four runs on each side: more than the limit, but not more than noise.
        ("duration=20%", several(10, 11, 12, 20), several(11.5, 14, 15, 16), "within"),
        ("duration=20%", several(10, 11, 12, 13), several(14, 15, 16, 17), "worse"),
        # Without waits: by the figures alone the first two would be worse, the third within.
        ("duration=20%", one(10, 10, 10), one(20, 12, 5), "within"),
        ("duration=20%", several(10, 11, 12, 13), Sample((30, 31, 32, 33), (12, 13, 14, 15), (1, 1, 1, 1)), "within"),
        ("duration=20%", one(40, 10, 10), one(41, 20, 20), "worse"),
        # What may have been lost at most decides whether anybody knows.
        ("duration=20%", one(10, 10, 1), one(20, 20, 11), "not comparable"),
        ("duration=20%", one(10, 10, 1), one(20, 20, 13), "worse"),
        ("duration<=15s", several(10), several(14, 15), "within"),
        ("duration<=15s", several(10), several(14, 16), "worse"),
        ("calibration.sample_rate>=15", several(20), several(16, 15), "within"),
        ("calibration.sample_rate>=15", several(20), several(16, 14), "worse"),
    ],
)  # fmt: skip
def test_a_figure_is_worse_only_if_noise_cannot_explain_the_difference(
    limit: str, base: Sample, new: Sample, outcome: str
) -> None:
    asked = parse(limit)
    row = FigureRow(asked.figure, (base, new), (difference(base, new),))
    whole = StepSides(TOTAL, (1, 1), (frozenset(), frozenset()), {asked.figure.name: row})
    sides = Side("base", ()), Side("new", ())
    waits = several(3), several(4, 5)
    whole.figures["cpu.waits"] = FigureRow(BY_NAME["cpu.waits"], waits, (difference(*waits),))
    verdict = judge(Comparison(sides, (whole,), (), (False,)), [asked], force=False)
    assert [(check.outcome, check.waits) for check in verdict.checks] == [
        (outcome, 5 if outcome == "not comparable" else None)
    ]


@pytest.mark.parametrize(
    ("base", "new", "outcome"),
    [
        ((), ("m1",), "worse"),
        (("m1",), (), "worse"),
        (("m1",), ("m2",), "not comparable"),
        (("m1", "m2"), ("m2", "m1"), "worse"),
        (("m1", "m2"), ("m1",), "not comparable"),
        ((64_000 * MIB,), (64_001 * MIB,), "worse"),
        ((64_000 * MIB,), (65_000 * MIB,), "not comparable"),
    ],
)
def test_sides_that_differ_from_the_base_in_a_fact_are_not_comparable(
    base: tuple[Value, ...], new: tuple[Value, ...], outcome: str
) -> None:
    fact = FactDifference("machine", (base, new, ("m3",)), frozenset({"time"}))
    limit = parse("duration=20%")
    samples = several(10), several(20), several(20)
    both = (difference(samples[0], samples[1]),) * 2
    rows = {limit.figure.name: FigureRow(limit.figure, samples, both)}
    whole = StepSides(TOTAL, (1, 1, 1), (frozenset(),) * 3, rows)
    sides = tuple(Side(name, ()) for name in ("base", "new 1", "new 2"))
    verdict = judge(Comparison(sides, (whole,), (fact,), (False, False)), [limit], force=False)
    assert [check.outcome for check in verdict.checks if check.side is sides[1]] == [outcome]


@pytest.mark.parametrize(("base", "outcome"), [("ended", "worse"), ("failed", "within")])
def test_a_step_that_has_failed_is_worse_unless_it_failed_in_the_base_too(
    base: State, outcome: str
) -> None:
    limit = parse("duration=20%")
    samples = several(10), several(10)
    rows = {limit.figure.name: FigureRow(limit.figure, samples, (difference(*samples),))}
    step = StepSides((("Export", 1),), (1, 1), (frozenset({base}), frozenset({"failed"})), rows)
    sides = Side("base", ()), Side("new", ())
    verdict = judge(Comparison(sides, (step,), (), (False,)), [limit], force=False)
    assert [check.outcome for check in verdict.checks] == [outcome]


BASE = (10, 11, 12, 13, 14)
CLEAR = (20, 21, 22, 23, 24)  # p = 0.008
LIKELY = (12.5, 20, 21, 22, 23)  # p = 0.032


@pytest.mark.parametrize(
    ("total", "steps", "expected"),
    [
        (None, [LIKELY], [0]),
        (None, [LIKELY, BASE], []),  # half of 0.05 is left for each of two
        (None, [CLEAR, LIKELY], [0, 1]),  # and the complete share for the last one
        (None, [LIKELY, (1, 2, 3, 4, 5)], []),  # one that is better leaves nothing to others
        (LIKELY, [LIKELY, BASE], ["total"]),  # the total is one figure, the steps are many
        (None, [(20, 21, 22, 23, 2000)], [0]),  # by the order, where that is rare enough
        (None, [CLEAR, *[BASE] * 6], [0]),  # else by the distance too
        (None, [(11.5, 5000, 5001, 5002, 5003), *[BASE] * 6], []),  # and not by that alone
    ],
)
def test_more_tested_steps_need_stronger_evidence(
    total: tuple[float, ...] | None, steps: list[tuple[float, ...]], expected: list[int | str]
) -> None:
    rows = {((str(at), 1),): (BASE, new) for at, new in enumerate(steps)}
    rows |= {((f"steady {at}", 1),): ((10,) * 5, (10.5,) * 5) for at in range(9)}  # cannot fail
    rows |= {} if total is None else {TOTAL: (BASE, total)}
    found = worse_of(rows, "duration=10%")
    assert found == {TOTAL if each == "total" else ((str(each), 1),) for each in expected}


@pytest.mark.parametrize(
    ("steps", "gates"),
    [
        (1, 1000),
        (20, 500),
        (60, 200),
        *(pytest.param(n, 10_000, marks=pytest.mark.slow) for n in (1, 20, 60)),
    ],
)
@pytest.mark.parametrize("runs", [5, 10])
def test_the_gate_fails_at_most_one_of_twenty_equal_comparisons(
    runs: int, steps: int, gates: int
) -> None:
    chance = random.Random(22)
    failed = [
        worse(chance, runs=runs, steps=steps, limit="duration=5%", noise=0.15) for _ in range(gates)
    ]
    assert sum(map(bool, failed)) <= gates / 20


@pytest.mark.parametrize(("runs", "factor"), [(5, 2.2), (10, 1.6)])
def test_a_regression_in_one_of_twenty_steps_is_found(runs: int, factor: float) -> None:
    chance = random.Random(22)
    found = [
        worse(chance, runs=runs, steps=20, limit="duration=10%", noise=0.15, factor=factor)
        for _ in range(100)
    ]
    assert sum(SLOWER in each for each in found) >= 90


@pytest.mark.parametrize(
    ("text", "step", "figure", "sign", "amount", "is_share"),
    [
        ("memory.peak=10%", None, MEMORY_PEAK, "=", 0.1, True),
        (" duration = 12.5 % ", None, "duration", "=", 0.125, True),
        ("Calibration:memory.peak=500MiB", "Calibration", MEMORY_PEAK, "=", 500 << 20, False),
        ("memory.peak <= 12 GiB", None, MEMORY_PEAK, "<=", 12 << 30, False),
        ("total:duration<=1.5h", "total", "duration", "<=", 5400, False),
        ("Load: all of it:duration=90 s", "Load: all of it", "duration", "=", 90, False),
        ("A=B <= C:cpu.time=5min", "A=B <= C", "cpu.time", "=", 300, False),
        ("calibration.sample_rate >= 40", None, SAMPLE_RATE, ">=", 40, False),
        ("model.quantized.macs<=4G", None, "model.quantized.macs", "<=", 4e9, False),
        ("model.quantized.integer_mac_share>=95%", None, "model.quantized.integer_mac_share", ">=", 0.95, False),
        ("gpu.memory.peak=5%", None, GPU_ALLOCATED, "=", 0.05, True),
        ("gpu.process_memory.peak=5%", None, GPU_ALLOCATED, "=", 0.05, True),
    ],
)  # fmt: skip
def test_a_limit_has_a_step_a_figure_and_an_amount(
    text: str, step: str | None, figure: str, sign: str, amount: float, is_share: bool
) -> None:
    assert parse(text) == GateLimit(
        text, step, BY_NAME[figure], sign, pytest.approx(amount), is_share
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memory.peak",
         "'memory.peak' is no limit; expected [STEP:]FIGURE=10%, [STEP:]FIGURE=500MiB or [STEP:]FIGURE<=12GiB"),
        ("memory.peek=10%",
         f"'memory.peek=10%': memory.peek is no figure; did you mean memory.peak? expected one of {', '.join(BY_NAME)}"),
        ("memory.peak=much",
         "'memory.peak=much': 'much' is no amount; expected a number and its unit, such as 10%, 500MiB or 90 s"),
        ("memory.peak=10",
         "'memory.peak=10': memory.peak cannot be given in a number without a unit; expected "
         "%, B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"),
        ("duration<=10%", "'duration<=10%': duration cannot be given in %; expected ms, s, min, h"),
    ],
)  # fmt: skip
def test_an_error_for_an_invalid_limit_shows_a_valid_one(text: str, said: str) -> None:
    with pytest.raises(LimitError) as caught:
        parse(text)
    assert str(caught.value) == said


def test_the_file_of_a_repository_has_limits_and_budgets(tmp_path: Path) -> None:
    file = tmp_path / "otel-quant.toml"
    file.write_text(
        '[compare]\nfail-over = ["memory.peak=10%"]\nbudgets = ["memory.peak <= 12 GiB"]\n'
    )
    assert load(file) == [parse("memory.peak=10%"), parse("memory.peak <= 12 GiB")]


def test_the_file_is_found_from_a_folder_of_the_repository_and_not_above_it(tmp_path: Path) -> None:
    (tmp_path / "otel-quant.toml").touch()
    inner = tmp_path / "repository" / "models"
    inner.mkdir(parents=True)
    assert find(inner) == tmp_path / "otel-quant.toml"
    (tmp_path / "repository" / ".git").mkdir()
    assert find(inner) is None
    (tmp_path / "repository" / "otel-quant.toml").touch()
    assert find(inner) == tmp_path / "repository" / "otel-quant.toml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[compare", "not TOML: Expected ']' at the end of a table declaration"),
        ("[gate]", "'gate' is not known; expected a table [compare]"),
        ("compare = 1", "'compare' is not known; expected a table [compare]"),
        ("[compare]\nlimit = []", "[compare] limit is []; expected fail-over and budgets, lists"),
        ('[compare]\nbudgets = "1"', "[compare] budgets is '1'; expected fail-over and budgets"),
        ('[compare]\nbudgets = ["x"]', "budgets: 'x' is no limit; expected"),
        ("[compare]\nfail-over = [1]", "fail-over: '1' is no limit; expected"),
    ],
)
def test_an_error_for_an_unknown_entry_of_the_file_names_it(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "otel-quant.toml"
    file.write_text(text)
    with pytest.raises(LimitError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: {said}")


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


def test_a_sample_has_a_median_and_a_spread() -> None:
    found = several(4, 1, 2, 9)
    assert (found.median, found.lowest, found.highest, found.spread) == (3, 1, 9, 6)


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [
        (several(2), several(3), Difference(1, 1.5, None, True)),
        (several(2), several(2), Difference(0, 1.0, None, False)),
        (several(3), several(2), Difference(-1, 2 / 3, None, True)),
        (several(0), several(3), Difference(3, None, None, True)),
        (several(1, 2, 3), several(3, 4, 5), Difference(2, 2.0, 0.2, False)),
        (several(1, 2, 3), several(4, 5, 6), Difference(3, 2.5, 0.1, True)),
        (several(1, 2, 5), several(4, 6, 7), Difference(4, 3.0, 0.2, False)),
        (several(1, 2, 3, 4), several(5, 6, 7, 8), Difference(4, 2.6, 2 / 70, True)),
        (several(1, 2, 3, 5), several(4, 6, 7, 8), Difference(4, 2.6, 4 / 70, False)),
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
    assert can_tell(several(*range(base)), several(*range(new))) is enough
