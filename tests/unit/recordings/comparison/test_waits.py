"""What the wait for a processor makes of times, and how a gate judges them on a busy machine."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from otel_quant.recordings.comparison.gate import Verdict, judge, parse
from otel_quant.recordings.comparison.runs import compared_run
from otel_quant.recordings.comparison.side_by_side import Comparison, Side, alone, side_by_side
from otel_quant.recordings.reader import read
from otel_quant.views.gate import check_text
from tests.fixtures.recorded import RecordedFolder
from tests.unit.recordings.comparison.recorded_runs import record

LIMIT = "quant.host.cpu_limit"
CALIBRATION = (("Model Quantization", 1), ("Calibration", 1))


@pytest.mark.parametrize(
    ("name", "figures", "expected"),
    [
        ("duration", {"duration": 10, "cpu.wait": 2, "cpu.waits": 3}, (8, 4)),
        ("duration", {"duration": 10, "cpu.time": 36, "cpu.wait": 2, "cpu.waits": 3}, (9, 4)),
        ("duration", {"duration": 10, "cpu.wait": 2}, (8, 6)),
        ("duration", {"duration": 10, "cpu.wait": 2, "cpu.waits": 30}, (8, 0)),
        ("cpu.time", {"cpu.time": 20, "duration": 10, "cpu.wait": 2, "cpu.waits": 3}, (20, 20)),
        (
            "calibration.sample_rate",
            {"calibration.sample_rate": 8, "duration": 10, "cpu.wait": 2, "cpu.waits": 3},
            (10, 20),
        ),
        (
            "calibration.sample_rate",
            {"calibration.sample_rate": 8, "duration": 10, "cpu.wait": 2, "cpu.waits": 9},
            (10, math.inf),
        ),
        ("duration", {"duration": 1, "cpu.time": 8, "cpu.wait": 0.5}, (1, 0)),
        (
            "calibration.sample_rate",
            {"calibration.sample_rate": 8, "duration": 1, "cpu.wait": 1},
            (8, math.inf),
        ),
        ("calibration.sample_rate", {"calibration.sample_rate": 8, "duration": 0}, (8, 8)),
        ("cpu.time", {"cpu.time": 2, "duration": 0}, (2, 2)),
        ("memory.peak", {"memory.peak": 7, "duration": 10, "cpu.wait": 2}, (7, 7)),
    ],
)
def test_the_duration_without_contention_is_bounded_by_the_measured_waits(
    name: str, figures: dict[str, float], expected: tuple[float, float]
) -> None:
    assert alone(name, figures, 4) == pytest.approx(expected)


READINGS = {
    "regular": [(at, {}, {"cpu.waits": at**2}) for at in range(6)],
    # Waits of many threads are read once a second.
    "rare": [
        (at, {}, {"cpu": at, **({"cpu.waits": at**2} if at in (0, 2, 5) else {})})
        for at in range(6)
    ],
    "none": [(1, {}, {"cpu": 1})],
    "no curve": [],
}


@pytest.mark.parametrize(
    ("readings", "steps", "expected"),
    [
        ("regular", ((0, 1), (2.5, 3.5), (4, 99)), [1, 16 - 1, 25 - 9]),
        ("rare", ((1.5, 1.9), (3.5, 4.5)), [4, 25 - 4]),
        ("none", ((0, 2),), [None]),
        ("no curve", ((0, 2),), [None]),
    ],
)
def test_the_waits_of_a_step_are_bounded_by_the_readings_around_it(
    tmp_path: Path,
    readings: str,
    steps: tuple[tuple[float, float], ...],
    expected: list[float | None],
) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    process = folder.process().begin(0)
    for start, end in steps:
        process.close(process.step("Calibration", start), end)
    process.gone()
    if READINGS[readings]:
        folder.curve(READINGS[readings], interval=1)
    found = compared_run("r", read(tmp_path / "r")).steps.values()
    assert [step.figures.get("cpu.waits") for step in found] == expected


@pytest.mark.parametrize(
    ("of_launcher", "of_processes", "expected"),
    [
        ({}, [{}], None),
        ({}, [{}, {LIMIT: 8}], 8),
        ({LIMIT: 4}, [{LIMIT: 8}], 4),
        ({}, [{LIMIT: 8}, {LIMIT: 2}, {LIMIT: 0}], 2),
    ],
)
def test_the_cpu_count_is_the_smallest_of_all_processes(
    tmp_path: Path,
    of_launcher: dict[str, float],
    of_processes: list[dict[str, float]],
    expected: float | None,
) -> None:
    folder = RecordedFolder(tmp_path / "r", of_launcher)
    for number, attributes in enumerate(of_processes):
        process = folder.process(4711 + number).begin(0, run=f"{number:016x}")
        process.end(1, attributes=attributes)
        process.gone()
    assert compared_run("r", read(tmp_path / "r")).cpus == expected


def compared(tmp_path: Path, base: list[Path], new: list[Path]) -> Comparison:
    sides = (Side(name, tuple(compared_run(path.name, read(path)) for path in paths))
             for name, paths in (("base", base), ("new", new)))  # fmt: skip
    return side_by_side(tuple(sides))


def judged(comparison: Comparison, *, force: bool = False) -> Verdict:
    return judge(comparison, [parse("Calibration:duration=20%")], force=force)


@pytest.mark.parametrize(
    ("seconds", "waited", "outcome", "is_clear"),
    [
        (13, (0.1, 0.3), "worse", True),
        (20, (9, 9), "within", False),
        (20, (5, 8), "not comparable", False),
        (13, (0.1, 4), "not comparable", False),
        (13, None, "worse", True),
    ],
)
def test_a_longer_time_of_a_single_run_is_worse_unless_waits_explain_it(
    tmp_path: Path,
    seconds: float,
    waited: tuple[float, float] | None,
    outcome: str,
    is_clear: bool,
) -> None:
    base = record(tmp_path / "base", waited=(0, 0))
    new = record(tmp_path / "new", seconds=seconds, waited=waited)
    comparison = compared(tmp_path, [base], [new])
    assert judged(comparison).outcome == outcome
    row = next(row for row in comparison.rows if row.path == CALIBRATION)
    (difference,) = row.figures["duration"].differences
    assert difference is not None
    assert difference.is_clear is is_clear


def test_waits_known_for_only_one_side_are_ignored(tmp_path: Path) -> None:
    base = record(tmp_path / "base", seconds=20, waited=(9, 9))
    new = record(tmp_path / "new", seconds=20)
    assert judged(compared(tmp_path, [base], [new])).outcome == "within"
    assert judged(compared(tmp_path, [new], [base])).outcome == "within"


def test_differences_explained_by_waits_are_marked_and_can_be_forced(tmp_path: Path) -> None:
    base = record(tmp_path / "base", waited=(0, 0))
    new = record(tmp_path / "new", seconds=20, waited=(5, 8))
    comparison = compared(tmp_path, [base], [new])
    verdict = judged(comparison)
    assert (verdict.exit_code, check_text(verdict.checks[0], 1)) == (
        3,
        "not comparable: Model Quantization > Calibration: duration 20.0 s, base 10.0 s; without "
        "waiting for a CPU 15.0 s, base 10.0 s (+50.0 %, limit Calibration:duration=20%): threads waited "
        "8.00 s for a CPU: possible contention; use 4 or more runs per side, or --force",
    )
    assert judged(comparison, force=True).outcome == "worse"


@pytest.mark.parametrize(("more", "outcome"), [(0, "within"), (3, "worse")])
def test_four_busy_runs_per_side_are_judged_without_main_thread_waits(
    tmp_path: Path, more: float, outcome: str
) -> None:
    def recorded(name: str, computed: float, waits: tuple[float, ...]) -> list[Path]:
        return [
            record(tmp_path / f"{name}{at}", seconds=computed + at / 10 + wait, waited=(wait, wait))
            for at, wait in enumerate(waits)
        ]

    base, new = recorded("base", 10, (9, 2, 14, 5)), recorded("new", 10 + more, (12, 17, 8, 20))
    assert judged(compared(tmp_path, base, new)).outcome == outcome
