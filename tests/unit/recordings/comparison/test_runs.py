"""Figures of a recording, and the names by which its steps are found again in another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from otel_quant.cli import main
from otel_quant.recordings.comparison.runs import (
    common_time,
    compared_run,
    compared_runs,
    fact_differences,
)
from otel_quant.recordings.comparison.side_by_side import Sample, Side, side_by_side
from otel_quant.recordings.model import Ending, path_text, script_of
from otel_quant.recordings.reader import read
from otel_quant.recordings.stacks import by_line, of_step, stacks_in
from otel_quant.recordings.summary import values
from otel_quant.schema.stacks import Amounts, Place, Stacks, to_lists
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
    used = [{"quant.gpu.device.torch_allocated.peak": n * MIB} for n in (30, 40)]
    process.close(step, 6, attributes={"quant.gpu.memory.peak": 90 * MIB}, devices=used)
    process.close(outer, 6, attributes={"quant.memory.peak": 500 * MIB})
    figures = {"size": 400, "macs": 77, "sha256": "e3b0", "integer_mac_share": 0.5}
    process.models(7, {"role": "float", "figures": {"size": 1}})
    process.models(7, {"role": "float", "figures": figures}, {"role": "float", "error": "cut"})
    process.end(9, attributes={"quant.cache.disk.peak": 5 * MIB})
    process.gone()
    worker = folder.process(4712, parent=4711).begin(2, run="f" * 16)
    worker.end(8, attributes={"quant.memory.peak": 50 * MIB, "quant.disk.write": 7})
    worker.gone()
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
        "cpu.time": 4.5,
        "cpu.wait": 1.5,
        "cpu.waits": 2.5,
        "calibration.sample_rate": 8 / 5,
        "memory.peak": 700 * MIB,
        "gpu.memory.peak": 90 * MIB,
        "gpu.torch_allocated.peak": 70 * MIB,
        "disk.write": 90,
        "cache.disk.peak": 6 * MIB,
        "model.float.size": 400,
        "model.float.macs": 77,
        "model.float.integer_mac_share": 0.5,
    }


def test_totals_without_a_launcher_come_from_the_outermost_processes(
    tmp_path: Path,
) -> None:
    folder = RecordedFolder(tmp_path / "r")
    totals = [
        {"quant.cpu.user": 3, "quant.cpu.system": 1, "quant.cpu.wait": 0.5, "quant.disk.read": 7},
        {"quant.cpu.user": 2, "quant.cpu.system": 1, "quant.cpu.wait": 0.25},
        {"quant.cpu.user": 1, "quant.cpu.system": 1, "quant.cpu.wait": 0.75},
    ]
    # The second is a child of the first, whose totals have its own; the third read nothing of disks.
    for number, parent in enumerate((1, 4711, 1)):
        process = folder.process(4711 + number, parent).begin(0, run=f"{number:016x}")
        allocated = {"quant.gpu.device.torch_allocated.peak": (number + 1) * 10}
        process.end(5, attributes=totals[number], devices=[allocated])
        process.gone()
    assert values(read(tmp_path / "r")) == {
        "duration": 5, "cpu.time": 6, "cpu.user": 4, "cpu.system": 2, "cpu.wait": 0.75,
        "gpu.torch_allocated.peak": 60,
    }  # fmt: skip


def test_totals_of_a_killed_run_come_from_the_last_reading_and_the_launcher(
    tmp_path: Path,
) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = folder.process().begin(0)
    last = {"quant.reading.memory_peak": 700, "quant.cache.disk.peak": 40}
    process.state(2, **last)
    process.gone()
    found = values(read(tmp_path / "r"))
    assert (found["memory.peak"], found["cache.disk.peak"]) == (700, 40)
    folder.ended(Ending(time=3, signal="SIGKILL", memory=900))
    assert values(read(tmp_path / "r"))["memory.peak"] == 900


def test_memory_seen_in_a_step_counts_for_its_parent_steps(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = folder.process().begin(0)
    seen = [{"checkpoint": {"quant.checkpoint.memory": memory}} for memory in range(10)]
    steps = [process.step("A", 1, **seen[1])]
    steps += [process.step("B", 2, steps[0], **seen[2])]
    steps += [process.step("C", 3, steps[1], **seen[9])]
    steps += [process.step("D", 4, steps[1], **seen[1])]
    for step, memory in reversed(list(zip(steps, (4, 3, 1, 7), strict=True))):
        process.close(step, 5, **seen[memory])
    process.end(6)
    process.gone()
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
        process.gone()
    found = compared_run("r", read(tmp_path / "r"))
    places = [
        "Fast Finetune",
        "Fast Finetune > Layer",
        "Fast Finetune > Layer #2",
        "Fast Finetune #2",
        "Fast Finetune #2 > Layer",
    ]
    assert list(map(path_text, found.steps)) == [*places, *(f"rank 1 > {each}" for each in places)]


def test_many_steps_with_the_same_name_are_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, blocks, peak in (("few", 2, 9), ("many", 101, 7)):
        folder = RecordedFolder(tmp_path / name)
        process, stacks = folder.process().begin(0), Stacks()
        for block in range(blocks):
            outer = process.step("Block", 10 * block)
            for _ in range(100):
                step = process.step("Layer", 10 * block, outer)
                process.close(step, 10 * block + 0.01, attributes={"quant.memory.peak": peak * MIB})
                stacks.add(step, (LINE,), Amounts(time=10_000_000))
                stacks.settle(step, ("Block", "Layer"))
            process.close(outer, 10 * block + 10, error="ValueError" if block == 7 else None)
        process.end(1010)
        process.gone()
        written = json.dumps({"schema": 1, **to_lists(stacks)})
        (folder.path / "stacks.4711.0123456789abcdef.json").write_text(written)
    assert main(["compare", str(tmp_path / "few"), str(tmp_path / "many"), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["step"] for row in rows] == ["total", "Block", "Block > Layer"]
    layer = {name: each["sides"] for name, each in rows[2]["figures"].items()}
    assert [side["median"] for side in layer["duration"]] == pytest.approx([2, 101])
    assert [side["median"] for side in layer["memory.peak"]] == [9 * MIB, 7 * MIB]
    few, many = (str(tmp_path / name) for name in ("few", "many"))
    assert main(["compare", few, many, "--fail-over", "Block:duration=10%"]) == 1
    shown = capsys.readouterr().out
    assert "worse: Block: Block:duration=10%: has failed" in shown
    assert "of more than 10,000 steps, steps of one name count as one" in shown
    (run,) = compared_runs([[many]], lambda name: read(Path(name)))[0]
    for name in ("Block", "Layer"):
        assert by_line(of_step(stacks_in(run.recording), name))[LINE].time == 101 * 10**9


def test_merged_steps_keep_the_times_of_their_memory_readings(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = folder.process().begin(0)
    process.close(process.step("A", 1, checkpoint={"quant.checkpoint.memory": MIB}), 2)
    process.end(3)
    sides = []
    for together in (False, True):
        run = compared_run("r", read(folder.path), together=together)
        sides.append([run])
    assert fact_differences(sides) == []
    assert fact_differences([*sides, [replace(run, when_read="all the time")]])[0].values == (
        ("at checkpoints",), ("at checkpoints",), ("all the time",)
    )  # fmt: skip


def test_a_step_of_only_one_side_is_placed_after_its_predecessor(tmp_path: Path) -> None:
    sides = [
        Side(name, (compared_run(name, read(record(tmp_path / name, steps=steps))),))
        for name, steps in (("base", ("A", "B", "C")), ("new", ("A", "X", "C")))
    ]
    comparison = side_by_side(sides)
    assert [(path_text(row.path), row.runs) for row in comparison.rows] == [
        ("total", (1, 1)),
        ("A", (1, 1)),
        ("A > X", (0, 1)),
        ("A > B", (1, 0)),
        ("A > C", (1, 1)),
    ]
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
