"""Estimates against real quantizations, each in a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

from benchmarks.estimate_models import MODELS
from tests.fixtures.commands import Commands
from tests.fixtures.programs import clean_environment, run

ROOT = Path(__file__).resolve().parents[3]


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
    program = [sys.executable, ROOT / "benchmarks" / "estimate.py", *options.split()]
    benchmark = run(program, tmp_path, clean_environment({"PYTHONPATH": str(ROOT)}), 1200)
    assert benchmark.returncode == 0, benchmark.stdout + benchmark.stderr
    assert "4 runs: median error" in benchmark.stdout


def test_a_probe_measures_three_samples_and_extrapolates_within_its_bounds(
    tmp_path: Path, command: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tempfile.py").write_text("raise ValueError('not a module of ours')")
    path = tmp_path / "segmentation.onnx"
    MODELS["segmentation"](path)
    options = ("--method", "onnxruntime:Entropy", "--probe", "--format", "json")

    def estimated(samples: int) -> dict[str, Any]:
        (found,) = json.loads(command.output("estimate", path, *options, "--samples", samples))[
            "estimates"
        ]
        return dict(found)

    real, extrapolated = estimated(3), estimated(8)
    assert [part["name"] for part in real["memory"]] == ["real run"]
    assert [part["name"] for part in extrapolated["memory"]] == ["real run", "further samples"]
    assert (real["probed_samples"], extrapolated["probed_samples"]) == (3, 3)
    least, expected, most = extrapolated["seconds"]
    assert 0 < least <= expected <= most
    assert expected > real["seconds"][1]


def test_a_failed_probe_prints_the_reason_in_one_line(tmp_path: Path, command: Commands) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17, "own" : 1]>\n'
        "net (float[2, 8] x) => (float[2, 8] z) { y = own.Odd (x)  z = Relu (y) }"
    )
    path = tmp_path / "odd.onnx"
    path.write_bytes(model.SerializeToString())
    code, _, said = command("estimate", path, "--method", "onnxruntime:MinMax", "--probe")
    assert code == 1
    assert said.startswith("otel-quant: --probe: onnxruntime:MinMax: the probe failed: ")
    assert "own:Odd" in said
    assert said.count("\n") == 1
