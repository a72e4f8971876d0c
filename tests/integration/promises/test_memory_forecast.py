"""A calibration of onnxruntime whose reader keeps what it has read, under a real memory limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

CONTROLLER: Final = Path("/sys/fs/cgroup/memory")
LIMIT: Final = 1_000_000_000

PROGRAM: Final = """
import sys, time
import numpy, onnx
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
from onnxruntime.quantization.calibrate import create_calibrator

samples, kept_mb, at_start_mb = map(int, sys.argv[1:])
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
    [onnx.numpy_helper.from_array(numpy.ones((8, 8), numpy.float32), "w")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.save(model, "m.onnx")
kept = []


class Reader(CalibrationDataReader):
    def __init__(self):
        self.number = 0

    def __len__(self):
        return samples

    def get_next(self):
        if self.number == samples:
            return None
        if self.number == 2:
            kept.append(numpy.ones(at_start_mb << 20, numpy.uint8))
        kept.append(numpy.ones(kept_mb << 20, numpy.uint8))
        self.number += 1
        time.sleep(0.05)
        print(self.number, flush=True)
        return {"x": numpy.ones((1, 8), numpy.float32)}


calibrator = create_calibrator("m.onnx", None, calibrate_method=CalibrationMethod.MinMax)
calibrator.collect_data(Reader())
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group (version 1) with a memory limit."""
    own = next(
        line.rsplit(":", 1)[1]
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if ":memory:" in line
    ) if CONTROLLER.is_dir() else ""  # fmt: skip
    folder = CONTROLLER / own.lstrip("/") / f"otel-quant-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group for memory can be made here: {error}")
    (folder / "memory.limit_in_bytes").write_text(str(LIMIT))
    yield folder
    folder.rmdir()


def run(group: Path, folder: Path, *arguments: int) -> tuple[int, list[str], str]:
    """Returns the exit code, the samples that were read, and the log."""
    ended = subprocess.run(
        ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", sys.executable, "-c",
         "from otel_quant import QuantInstrumentor; QuantInstrumentor().instrument()\n" + PROGRAM,
         *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout.split(), ended.stderr


@pytest.mark.slow
def test_a_leak_is_warned_of_before_half_of_the_time_to_the_limit(
    group: Path, tmp_path: Path
) -> None:
    # 64 MB are in use at first, so that the limit is reached after about 220 samples of 4 MB.
    code, read, log = run(group, tmp_path, 512, 4, 0)
    assert code == -9
    assert 200 < len(read) < 260
    assert log.count("with each sample and would be") == 1
    sample = int(log.partition("sample ")[2].partition(" of 512")[0])
    assert sample < len(read) / 2, log


@pytest.mark.slow
def test_memory_taken_at_the_start_is_no_leak(group: Path, tmp_path: Path) -> None:
    code, read, log = run(group, tmp_path, 200, 0, 600)
    assert (code, len(read), log) == (0, 200, "")
