"""Figures of a recording, the names by which its steps are found in another, and what the wait for a processor makes of times."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_quant.recordings.compared_runs import common_time, compared_run, fact_differences
from otel_quant.recordings.gate import GateVerdict, judge, parse
from otel_quant.recordings.model import Ending, path_text, script_of
from otel_quant.recordings.reader import read
from otel_quant.recordings.side_by_side import Comparison, Sample, Side, alone, side_by_side
from otel_quant.recordings.summary import (
    BY_NAME,
    CPU_WAIT,
    DISK_WRITE,
    GPU_ALLOCATED,
    GPU_PEAK,
    MEMORY_PEAK,
    SAMPLE_RATE,
    values,
)
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Place
from otel_quant.views.gate import check_text
from tests.fixtures.commands import Commands
from tests.fixtures.figures import named
from tests.fixtures.recorded import RecordedFolder
from tests.unit.recordings.comparison.recorded_runs import MIB, record

LINE = Place("/a/quantize.py", "main", 12, "")


def test_a_recording_has_totals(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    process = folder.process().begin(0)
    outer = process.step("Model Quantization", 1)
    step = process.step("Calibration", 2, outer)
    process.consume(outer, 8, 3)
    process.consume(step, 8, 3)
    used = [{semconv.GPU_ALLOCATED_PEAK: n * MIB} for n in (30, 40)]
    process.close(step, 6, attributes={semconv.GPU_MEMORY_PEAK: 90 * MIB}, devices=used)
    process.close(outer, 6, attributes={semconv.MEMORY_PEAK: 500 * MIB})
    figures = {"size": 400, "macs": 77, "sha256": "e3b0", "integer_mac_share": 0.5}
    process.models(7, {"role": "float", "figures": {"size": 1}})
    process.models(7, {"role": "float", "figures": figures}, {"role": "float", "error": "cut"})
    process.end(9, attributes={semconv.CACHE_GROWTH: 5 * MIB})
    worker = folder.process(4712, parent=4711).begin(2, run="f" * 16)
    worker.end(8, attributes={semconv.MEMORY_PEAK: 50 * MIB, semconv.DISK_WRITE: 7})
    folder.curve(
        [
            (1, {"memory": 300 * MIB}, {"cpu": 1.0, "cpu.wait": 0.5, "disk.write": 5}),
            (
                8,
                {"memory": 700 * MIB, "cache": 6 * MIB},
                {"cpu": 4.5, "cpu.wait": 1.5, "cpu.waits": 2.5, "disk.write": 90},
            ),
        ]
    )
    found = values(read(tmp_path / "r"))
    assert found.pop("duration") == pytest.approx(9, abs=0.1)
    assert found == {
        "cpu.time": 4.5, CPU_WAIT: 1.5, "cpu.waits": 2.5, SAMPLE_RATE: 8 / 5,
        MEMORY_PEAK: 700 * MIB, named("gpu.memory.peak"): 90 * MIB, "gpu.torch_allocated.peak": 70 * MIB,
        DISK_WRITE: 90, named("cache.disk.peak"): 6 * MIB, "model.float.size": 400,
        "model.float.macs": 77, "model.float.integer_mac_share": 0.5,
    }  # fmt: skip


def test_totals_without_a_launcher_come_from_the_outermost_processes(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    totals = [
        {semconv.CPU_USER: 3, semconv.CPU_SYSTEM: 1, semconv.CPU_WAIT: 0.5, semconv.DISK_READ: 7},
        {semconv.CPU_USER: 2, semconv.CPU_SYSTEM: 1, semconv.CPU_WAIT: 0.25},
        {semconv.CPU_USER: 1, semconv.CPU_SYSTEM: 1, semconv.CPU_WAIT: 0.75},
    ]
    # The second is a child of the first, whose totals have its own; the third read nothing of disks.
    for number, parent in enumerate((1, 4711, 1)):
        process = folder.process(4711 + number, parent).begin(0, run=f"{number:016x}")
        allocated = {semconv.GPU_ALLOCATED_PEAK: (number + 1) * 10}
        process.end(5, attributes=totals[number], devices=[allocated])
    assert values(read(tmp_path / "r")) == {
        "duration": 5, "cpu.time": 6, named("cpu.user"): 4, named("cpu.system"): 2, CPU_WAIT: 0.75,
        "gpu.torch_allocated.peak": 60,
    }  # fmt: skip


def test_totals_of_a_killed_run_come_from_the_last_reading_and_the_launcher(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = folder.process().begin(0)
    last = {semconv.READING_MEMORY_PEAK: 700, semconv.CACHE_GROWTH: 40}
    process.state(2, **last)
    process.gone()
    found = values(read(tmp_path / "r"))
    assert (found[MEMORY_PEAK], found[named("cache.disk.peak")]) == (700, 40)
    folder.ended(Ending(time=3, signal="SIGKILL", memory=900))
    assert values(read(tmp_path / "r"))[MEMORY_PEAK] == 900


def test_memory_seen_in_a_step_counts_for_its_parent_steps(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = folder.process().begin(0)
    seen = [{"checkpoint": {semconv.CHECKPOINT_MEMORY: memory}} for memory in range(10)]
    steps = [process.step("A", 1, **seen[1])]
    steps += [process.step("B", 2, steps[0], **seen[2])]
    steps += [process.step("C", 3, steps[1], **seen[9])]
    steps += [process.step("D", 4, steps[1], **seen[1])]
    for step, memory in reversed(list(zip(steps, (4, 3, 1, 7), strict=True))):
        process.close(step, 5, **seen[memory])
    process.end(6)
    found = compared_run("r", read(tmp_path / "r")).steps.values()
    assert [step.figures["memory.seen"] for step in found] == [9, 9, 9, 7]


def test_steps_are_identified_by_path_and_repetition(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    for pid, rank in ((4711, 0), (4712, 1)):
        process = folder.process(pid).begin(pid - 4711, run=f"{pid:016x}", rank=rank)
        outer = process.step("Fast Finetune", 1)
        for number in range(2):
            process.close(process.step("Layer", 2 + number, outer), 3 + number)
        process.close(outer, 5)
        again = process.step("Fast Finetune", 6)
        process.close(process.step("Layer", 6, again), 7)
        process.close(again, 7)
        process.end(8)
    found = compared_run("r", read(tmp_path / "r"))
    places = [
        "Fast Finetune", "Fast Finetune > Layer", "Fast Finetune > Layer #2", "Fast Finetune #2",
        "Fast Finetune #2 > Layer",
    ]  # fmt: skip
    assert list(map(path_text, found.steps)) == [*places, *(f"rank 1 > {each}" for each in places)]


def test_of_very_many_steps_the_first_are_compared(tmp_path: Path, command: Commands) -> None:
    for name, steps in (("few", 2), ("many", 10_001)):
        process = RecordedFolder(tmp_path / name).process().begin(0)
        for number in range(steps):
            process.close(process.step("Layer", number), number + 1)
        process.end(steps)
    few, many = (str(tmp_path / name) for name in ("few", "many"))
    rows = json.loads(command.output("compare", few, many, "--format", "json"))["rows"]
    assert [row["step"] for row in rows][:3] == ["total", "Layer", "Layer #2"]
    assert (len(rows), rows[-1]["step"]) == (10_001, "Layer #10000")
    shown = command.output("compare", few, many)
    assert "of a recording with more than 10,000 steps the first 10,000 are compared" in shown


def test_memory_that_was_read_only_at_checkpoints_is_a_difference(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = folder.process().begin(0)
    process.close(process.step("A", 1, checkpoint={semconv.CHECKPOINT_MEMORY: MIB}), 2)
    process.end(3)
    run = compared_run("r", read(folder.path))
    assert fact_differences([[run], [replace(run, when_read="all the time")]])[0].values == (
        ("at checkpoints",), ("all the time",)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("peaks", "sources", "is_worse"),
    [
        ((40, 290), ("at_least", "sampled"), False),  # the base may have had as much
        ((40, 290), ("sampled", "at_least"), True),
        ((40, 290), ("sampled", "sampled"), True),
        ((290, 40), ("sampled", "at_least"), False),
    ],
)
def test_a_peak_that_was_higher_than_known_is_no_difference(
    tmp_path: Path, command: Commands, peaks: tuple[int, int], sources: tuple[str, str], *, is_worse: bool
) -> None:  # fmt: skip
    for name, peak, source in zip(("base", "new"), peaks, sources, strict=True):
        process = RecordedFolder(tmp_path / name).process().begin(0)
        of_step = {semconv.MEMORY_PEAK: peak * 1_000_000, semconv.MEMORY_PEAK_SOURCE: source}
        process.close(process.step("Calibration", 1), 2, attributes=of_step)
        process.end(3)
        cell = "≥ " * (source == "at_least") + f"{peak}.0"
        assert f"  {cell}  " in command.output("show", tmp_path / name)
    limit = ("--fail-over", "Calibration:memory.peak=10%")
    ended = command("compare", tmp_path / "base", tmp_path / "new", *limit)
    assert ended.code == is_worse


def test_a_step_of_only_one_side_is_placed_after_its_predecessor(tmp_path: Path) -> None:
    sides = [
        Side(name, (compared_run(name, read(record(tmp_path / name, steps=steps))),))
        for name, steps in (("base", ("A", "B", "C")), ("new", ("A", "X", "C")))
    ]
    comparison = side_by_side(sides)
    assert [(path_text(row.path), row.runs) for row in comparison.rows] == [
        ("total", (1, 1)), ("A", (1, 1)), ("A > X", (0, 1)), ("A > B", (1, 0)), ("A > C", (1, 1)),
    ]  # fmt: skip
    assert comparison.rows[3].figures["duration"].samples == (Sample((10.0,)), None)


def test_a_step_begins_on_the_common_axis_when_both_runs_have_reached_it(tmp_path: Path) -> None:
    base, new = (
        compared_run(name, read(record(tmp_path / name, seconds=seconds)))
        for name, seconds in (("base", 10), ("new", 4))
    )
    time = common_time(base, new)
    assert time.until == 18
    assert [time.place(0, at) for at in (0, 2, 11, 12, 17)] == [0, 2, 11, 12, 17]
    assert [time.place(1, at) for at in (0, 2, 5.5, 6, 11)] == [0, 2, 5.5, 12, 17]


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python quantize.py --samples 8", "quantize.py"),
        ("python3 -u ./jobs/quantize.py", "jobs/quantize.py"),
        ("torchrun --nproc_per_node 8 /w/quantize.py", "/w/quantize.py"),
        ("python -m olive run --config c.json", "-m olive"),
        ("python -c 'import this'", "-c import this"),
        ("olive run", "olive"),
        ("python quantize.py --name 'cut off…", "quantize.py"),
        ("python <path>", None),
        ("", None),
    ],
)
def test_the_program_is_found_in_a_command_line(command: str, script: str | None) -> None:
    assert script_of(command) == script


LIMIT = semconv.CPU_LIMIT
CALIBRATION = (("Model Quantization", 1), ("Calibration", 1))


@pytest.mark.parametrize(
    ("name", "figures", "expected"),
    [
        ("duration", {"duration": 10, CPU_WAIT: 2, "cpu.waits": 3}, (8, 4)),
        ("duration", {"duration": 10, "cpu.time": 36, CPU_WAIT: 2, "cpu.waits": 3}, (9, 4)),
        ("duration", {"duration": 10, CPU_WAIT: 2}, (8, 6)),
        ("duration", {"duration": 10, CPU_WAIT: 2, "cpu.waits": 30}, (8, 0)),
        ("cpu.time", {"cpu.time": 20, "duration": 10, CPU_WAIT: 2, "cpu.waits": 3}, (20, 20)),
        (SAMPLE_RATE, {SAMPLE_RATE: 8, "duration": 10, CPU_WAIT: 2, "cpu.waits": 3}, (10, 20)),
        (SAMPLE_RATE,
         {SAMPLE_RATE: 8, "duration": 10, CPU_WAIT: 2, "cpu.waits": 9},
         (10, math.inf)),
        ("duration", {"duration": 1, "cpu.time": 8, CPU_WAIT: 0.5}, (1, 0)),
        (SAMPLE_RATE, {SAMPLE_RATE: 8, "duration": 1, CPU_WAIT: 1}, (8, math.inf)),
        (SAMPLE_RATE, {SAMPLE_RATE: 8, "duration": 0}, (8, 8)),
        ("cpu.time", {"cpu.time": 2, "duration": 0}, (2, 2)),
        (MEMORY_PEAK, {MEMORY_PEAK: 7, "duration": 10, CPU_WAIT: 2}, (7, 7)),
    ],
)  # fmt: skip
def test_the_duration_without_contention_is_bounded_by_the_measured_waits(
    name: str, figures: dict[str, float], expected: tuple[float, float]
) -> None:
    assert alone(name, figures, 4) == pytest.approx(expected)


READINGS = {
    "regular": [(at, {}, {"cpu.waits": at**2}) for at in range(6)],
    # Waits of many threads are read once a second.
    "rare": [(at, {}, {"cpu": at, **({"cpu.waits": at**2} if at in (0, 2, 5) else {})}) for at in range(6)],
    "none": [(1, {}, {"cpu": 1})],
    "no curve": [],
}  # fmt: skip


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
    assert compared_run("r", read(tmp_path / "r")).cpus == expected


def compared(tmp_path: Path, base: list[Path], new: list[Path]) -> Comparison:
    sides = (Side(name, tuple(compared_run(path.name, read(path)) for path in paths))
             for name, paths in (("base", base), ("new", new)))  # fmt: skip
    return side_by_side(tuple(sides))


def judged(comparison: Comparison, *, force: bool = False) -> GateVerdict:
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
    tmp_path: Path, seconds: float, waited: tuple[float, float] | None, outcome: str, is_clear: bool
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
    assert (verdict.exit_code, check_text(verdict.checks[0], 1, "base")) == (
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


def test_memory_of_gpus_is_not_compared_across_versions_of_the_driver(tmp_path: Path) -> None:
    drivers = {semconv.GPU_DRIVERS: ["nvidia 580.159"]}
    ours = {semconv.OTEL_QUANT_VERSION: "0.1.0"}
    newer = {semconv.GPU_MEMORY_SOURCE: "nvmlMemory_v2"}
    amd = {semconv.GPU_DRIVERS: ["amdgpu 6.3"]}

    def differences(name: str, base: dict[str, Any], new: dict[str, Any]) -> list[bool]:
        """Whether the total, the steps around and within it are compared, and a gate compares them."""
        sides = []
        for number, origin in enumerate((base, new)):
            path = record(
                tmp_path / f"{name}{number}", allocated=1000, reserved=number * 500, origin=origin
            )
            sides.append(Side(str(number), (compared_run(str(path), read(path)),)))
        found = side_by_side(sides)
        rows = [
            row.figures[GPU_PEAK].differences[0] for row in found.rows if GPU_PEAK in row.figures
        ]
        limit = replace(parse("gpu.memory.peak=5%"), figure=BY_NAME[GPU_PEAK])
        outcomes = {check.outcome for check in judge(found, [limit], force=False).checks}
        allocated = [
            row.figures[GPU_ALLOCATED].differences[0]
            for row in found.rows
            if GPU_ALLOCATED in row.figures
        ]
        assert all(each is not None for each in allocated)
        return [*(each is not None for each in rows), "worse" in outcomes]

    alike = [True] * 4
    assert differences("new", {**drivers, **ours, **newer}, {**drivers, **ours, **newer}) == alike
    assert differences("old", {**drivers, **ours}, {**drivers, **ours}) == alike
    assert (
        differences("amd", {**amd, **ours}, {**amd, **ours, semconv.GPU_MEMORY_SOURCE: "amdgpu"})
        == alike
    )
    assert differences("quark", drivers, {**drivers, **ours, **newer}) == alike
    assert differences("both", {**drivers, **ours}, {**drivers, **ours, **newer}) == [False] * 4


def test_a_comparison_says_that_memory_of_gpus_was_read_in_two_ways(
    tmp_path: Path, command: Commands
) -> None:
    ours = {semconv.OTEL_QUANT_VERSION: "0.1.0", semconv.GPU_NAMES: ["NVIDIA H100"]}
    old = record(tmp_path / "old", allocated=1000, origin=ours)
    newer = {**ours, semconv.GPU_MEMORY_SOURCE: "nvmlMemory_v2"}
    new = record(tmp_path / "new", allocated=1000, reserved=200, origin=newer)
    shown = command("compare", str(old), str(new)).out
    assert re.search("memory of GPUs was read from +nvmlMemory_v1 +nvmlMemory_v2", shown)
    assert "more GPU memory" not in shown
