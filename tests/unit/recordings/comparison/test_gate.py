"""What counts as worse: by more than the limit, by more than identical runs differ, and than noise."""

from __future__ import annotations

import random

import pytest

from benchmarks.gate import SLOWER, worse, worse_of
from otel_quant.recordings.comparison.gate import judge, parse
from otel_quant.recordings.comparison.runs import TOTAL, FactDifference, Value
from otel_quant.recordings.comparison.side_by_side import (
    Comparison,
    FigureRow,
    Sample,
    Side,
    StepRow,
    difference,
)
from otel_quant.recordings.model import State
from otel_quant.recordings.summary import BY_NAME

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
        (
            "duration=20%",
            several(10, 11, 12, 13),
            Sample((30, 31, 32, 33), (12, 13, 14, 15), (1, 1, 1, 1)),
            "within",
        ),
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
    whole = StepRow(TOTAL, (1, 1), (frozenset(), frozenset()), {asked.figure.name: row})
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
    whole = StepRow(TOTAL, (1, 1, 1), (frozenset(),) * 3, rows)
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
    step = StepRow((("Export", 1),), (1, 1), (frozenset({base}), frozenset({"failed"})), rows)
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
