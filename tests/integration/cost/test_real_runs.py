"""Estimates against real quantizations, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

from benchmarks.estimate_models import MODELS
from otel_quant.cli import main
from otel_quant.cost.estimate import read
from tests.fixtures.onnx_builder import floats, model_of_text

ROOT = Path(__file__).resolve().parents[3]


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        "--models segmentation --methods onnxruntime:MinMax onnxruntime:Percentile --samples 2 6",
        pytest.param(
            "--models linear transformer --methods onnxruntime:MinMax onnxruntime:Entropy "
            "--samples 4",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "--models segmentation transformer --methods quark:MinMax quark:Percentile --samples 3",
            marks=[pytest.mark.quark, pytest.mark.slow],
        ),
    ],
)
def test_half_of_the_estimates_are_within_15_percent_and_none_is_20_percent_too_small(
    options: str, tmp_path: Path
) -> None:
    benchmark = run(tmp_path, str(ROOT / "benchmarks" / "estimate.py"), *options.split())
    assert benchmark.returncode == 0, benchmark.stdout + benchmark.stderr
    assert "4 runs: median error" in benchmark.stdout


def test_a_probe_measures_two_samples_and_extrapolates_within_its_bounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tempfile.py").write_text("raise ValueError('not a module of ours')")
    path = tmp_path / "segmentation.onnx"
    MODELS["segmentation"](path)
    options = ("--method", "onnxruntime:Entropy", "--probe", "--format", "json")

    def estimated(samples: int) -> dict[str, object]:
        assert main(["estimate", str(path), *options, "--samples", str(samples)]) == 0
        (found,) = json.loads(capsys.readouterr().out)["estimates"]
        return dict(found)

    real, extrapolated = estimated(2), estimated(8)
    assert [part["name"] for part in real["memory"]] == ["real run"]
    assert [part["name"] for part in extrapolated["memory"]] == [
        "real run",
        "further samples",
    ]
    assert (real["probed_samples"], extrapolated["probed_samples"]) == (2, 2)


def test_a_failed_probe_prints_the_reason_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17, "own" : 1]>\n'
        "net (float[2, 8] x) => (float[2, 8] z) { y = own.Odd (x)  z = Relu (y) }"
    )
    path = tmp_path / "odd.onnx"
    path.write_bytes(model.SerializeToString())
    assert main(["estimate", str(path), "--method", "onnxruntime:MinMax", "--probe"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("otel-quant: --probe: onnxruntime:MinMax: the probe failed: ")
    assert "own:Odd" in said
    assert said.count("\n") == 1


LAYERS = """
import json, sys
import numpy as np
import quark.onnx.algorithm.finetuning.fast_finetune as fast_finetune
import quark.onnx.algorithm.finetuning.torch_utils as torch_utils
from onnxruntime.quantization import QuantFormat, QuantType
from onnxruntime.quantization.calibrate import CalibrationDataReader
from quark.onnx import quantize_static

class Samples(CalibrationDataReader):
    def __init__(self):
        self.left = 2
    def __len__(self):
        return 2
    def reset_iter(self):
        self.left = 2
    def get_next(self):
        self.left -= 1
        return {"x": np.ones((1, 3, 32, 32), np.float32)} if self.left >= 0 else None

class Enough(BaseException):
    pass

estimates = []
estimate_memory = torch_utils.estimate_memory
def estimated(module, sample):
    estimates.append(round(estimate_memory(module, sample) * 2**20))
    return estimates[-1]
torch_utils.estimate_memory = estimated
largest_layer = fast_finetune.estimate_largest_mem_layer
def chosen(subgraphs):
    (index,) = largest_layer(subgraphs)
    nodes = subgraphs.subgraph_qmodel_list[index].graph.node
    print("FOUND", json.dumps([nodes[-1].name, estimates[index]]))
    raise Enough
fast_finetune.estimate_largest_mem_layer = chosen
options = {"SelectMaxMemLayer": True, "NumIterations": 1, "DataSize": 2, "BatchSize": 1}
try:
    quantize_static(
        sys.argv[1], sys.argv[2], Samples(), include_fast_ft=True, quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
        extra_options={"FastFinetune": options},
    )
except Enough:
    pass
"""


NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 3, 32, 32] x) => (float[1, 10] y) {
   [stem] a = Conv <pads = [1, 1, 1, 1]> (x, stem_w, stem_b)
   b = Relu (a)
   [wide] c = Conv <strides = [2, 2]> (b, wide_w, wide_b)
   d = Relu (c)
   e = GlobalAveragePool (d)
   f = Flatten (e)
   [head] y = Gemm (f, head_w, head_b)
}
"""


@pytest.mark.quark
def test_quark_finds_the_same_layer_largest_with_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    weights = floats(
        0,
        stem_w=(8, 3, 3, 3),
        stem_b=8,
        wide_w=(64, 8, 3, 3),
        wide_b=64,
        head_w=(64, 10),
        head_b=10,
    )
    onnx.save(model_of_text(NETWORK, **weights), path)
    quark = run(tmp_path, "-c", LAYERS, str(path), str(tmp_path / "quantized.onnx"))
    found = [line for line in quark.stdout.splitlines() if line.startswith("FOUND ")]
    assert found, quark.stderr
    name, size = json.loads(found[0].removeprefix("FOUND "))
    layer = read(path).layers["quark"]
    assert (layer.name, layer.bytes) == (name, size)
