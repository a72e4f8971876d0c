"""The gate on real runs: forty of one program, half of them with more memory in one step and more time in another."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from otel_quant.recordings.compared_runs import ComparedRun, compared_run
from otel_quant.recordings.gate import GateVerdict, judge, parse
from otel_quant.recordings.model import path_text
from otel_quant.recordings.reader import read
from otel_quant.recordings.side_by_side import Side, side_by_side
from tests.fixtures.programs import Launched, reader

COUNT: Final = 20

PROGRAM: Final = """\
import numpy, onnx, otel_quant, psutil
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_static

folder, more_memory, more_time = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])

with otel_quant.step("Model Loading"):
    weight = numpy_helper.from_array(numpy.ones((8, 8), numpy.float32), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8]) for n in "xy")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, f"{folder}/float.onnx")

with otel_quant.step("Dataset Loading"):
    peak = 240e6 + psutil.Process().memory_info().rss
    samples = numpy.full(round((240e6 + more_memory * peak) / 8), 1.0)
    del samples

with otel_quant.step("Float Model Validation"):  # waits, as for a disk
    time.sleep(1.0 * (1 + more_time))

with otel_quant.step("Bias Correction"):  # computes
    for number in range(round(40e6 * (1 + more_time))):
        number * number

quantize_static(f"{folder}/float.onnx", f"{folder}/int8.onnx", Reader())
"""
MEMORY, TIME = "memory.peak=10%", "duration=20%"
LARGER: Final = ("Dataset Loading", MEMORY)
SLOWER: Final = {("Float Model Validation", TIME), ("Bias Correction", TIME)}

BUSY: Final = "while True: pass"
"""Another program: one for each processor keeps the machine busy."""


def test_a_recording_is_within_its_own_profile(tmp_path: Path) -> None:
    program = "import time, otel_quant; time.sleep(2)\nwith otel_quant.step('Work'): bytes(10**8)"
    launched = Launched(tmp_path)
    command = [sys.executable, "-c", program]
    assert launched.run(command, "--quiet", "--out", "recording").returncode == 0
    limits = [f"--fail-over={name}=1%" for name in ("duration", "memory.peak", "disk.write")]
    profile = "recording/quark_profile.yaml"
    for pair in ((profile, "recording"), ("recording", profile)):
        done = launched.otel_quant("compare", *pair, *limits)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[ComparedRun], list[ComparedRun]]:
    """Twenty runs as they are, and twenty with 12 % more memory in one step and 30 % more time in two.

    Every second pair has the processors to itself, as far as the machine lets it.
    """
    folder = tmp_path_factory.mktemp("runs")
    (folder / "quantize.py").write_text(reader(1, 8, samples="4") + PROGRAM)

    def run(number: int, *more: str) -> ComparedRun:
        path, model = folder / f"run-{number}-{more[0]}", folder / f"model-{number}-{more[0]}"
        model.mkdir()
        program = [sys.executable, str(folder / "quantize.py"), str(model), *more]
        done = Launched(folder).run(program, "--quiet", "--out", str(path))
        assert done.returncode == 0, done.stderr
        return compared_run(path.name, read(path))

    same, worse = [], []
    for number in range(COUNT):
        with ExitStack() as others:
            for _ in range(number % 2 * (os.cpu_count() or 1)):
                other = others.enter_context(subprocess.Popen([sys.executable, "-c", BUSY]))
                others.callback(other.kill)
            same.append(run(number, "0", "0"))
            worse.append(run(number, "0.12", "0.3"))
    return same, worse


def verdict(base: Sequence[ComparedRun], new: Sequence[ComparedRun], *limits: str) -> GateVerdict:
    sides = Side("base", tuple(base)), Side("new", tuple(new))
    return judge(side_by_side(sides), [parse(limit) for limit in limits], force=False)


def worse_in(found: GateVerdict) -> set[tuple[str, str]]:
    return {
        (path_text(check.path), check.limit.text)
        for check in found.checks
        if check.outcome == "worse" and check.limit is not None
    }


@pytest.mark.slow
def test_identical_runs_never_fail_the_gate_even_on_a_busy_machine(
    runs: tuple[list[ComparedRun], list[ComparedRun]],
) -> None:
    same, _ = runs
    pairs = [(a, b) for a in same for b in same if a is not b]
    assert [worse_in(verdict([a], [b], MEMORY, TIME)) for a, b in pairs] == [set()] * len(pairs)
    first = [run for at, run in enumerate(same) if at % 4 < 2]  # half of them on a busy machine
    others = [run for run in same if run not in first]
    for base, new in ((first, others), (others, first)):
        assert worse_in(verdict(base, new, MEMORY, TIME)) == set()


@pytest.mark.slow
def test_more_memory_or_time_in_a_step_is_found_each_time_with_the_step(
    runs: tuple[list[ComparedRun], list[ComparedRun]],
) -> None:
    same, worse = runs
    for run in worse:
        for base in same:
            assert worse_in(verdict([base], [run], MEMORY)) == {LARGER, ("total", MEMORY)}
    chance = random.Random(12)
    for _ in range(COUNT):
        turns = chance.sample(range(COUNT), 10)  # in turns: both sides were as busy
        found = verdict([same[at] for at in turns], [worse[at] for at in turns], MEMORY, TIME)
        assert found.exit_code == 1
        # The two steps are most of the program.
        assert worse_in(found) - {("total", TIME)} == {LARGER, *SLOWER, ("total", MEMORY)}
