"""What AMD Quark makes of a float model is costed whole, in the precision that was asked for, as it runs."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from otel_quant.cost import analyze
from tests.integration.cost.exporting import export, samples
from tests.integration.cost.kernels_run import (
    contractions_in_float,
    run_by_onnxruntime,
    run_by_the_fused_view,
    said_to_run_in_float,
)
from tests.integration.cost.test_against_onnx_tool import ours, tool_graph, totals

pytestmark = pytest.mark.quark


KNOWN_TO_THE_TOOL = {"XINT8", "A8W8", "A16W8", "INT16_CNN_DEFAULT"}
"""Presets of whose operators onnx_tool knows every one."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, groups=16, padding=1)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = nn.functional.silu(self.depthwise(x))
        result: torch.Tensor = self.head(x.mean(dim=(2, 3)))
        return result


@pytest.mark.parametrize(
    ("preset", "precision"),
    [
        ("XINT8", "int8"),
        ("A8W8", "int8"),
        ("A16W8", "int16"),
        ("INT16_CNN_DEFAULT", "int16"),
        ("BF16", "bfloat16"),
        ("BFP16", "block float"),
        ("MXINT8", "microscaling"),
        ("UINT8_DYNAMIC_QUANT", "int8"),
    ],
)
def test_quantization_leaves_no_operator_uncosted_and_the_contractions_unchanged(
    preset: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Quark writes reports into the current folder
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    images = np.random.default_rng(0).random((2, 1, 3, 16, 16), np.float32)
    case = export(Net(), (torch.rand(1, 3, 16, 16),), tmp_path / "net.onnx", names=["x"])
    path = tmp_path / "quantized.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = Config(global_quant_config=get_default_config(preset))
        ModelQuantizer(config).quantize_model(
            str(case.path), str(path), samples(*({"x": image} for image in images))
        )
    before, after = analyze(case.path), analyze(path)
    assert before.precision == {"float32": 1.0}
    assert after.precision == {precision: 1.0}
    assert after.macs_contraction == before.macs_contraction
    assert after.uncosted_ops == {}
    assert after.unsized_tensors == 0
    if preset in KNOWN_TO_THE_TOOL:
        assert ours(path, {}) == totals(tool_graph(path, None))
        assert run_by_the_fused_view(path) == run_by_onnxruntime(path, tmp_path)
        assert said_to_run_in_float(path) == contractions_in_float(path, tmp_path)
