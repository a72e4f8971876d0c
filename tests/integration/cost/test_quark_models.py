"""What AMD Quark makes of a float model is costed whole, in the precision that was asked for, as it runs."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from otel_quant.cost import analyze
from otel_quant.cost.estimate import read
from tests.fixtures.onnx_builder import floats, model_of_text
from tests.integration.cost.exporting import export, samples
from tests.integration.cost.family.test_against_onnx_tool import ours, tool_graph, totals
from tests.integration.cost.kernels_run import (
    contractions_in_float,
    run_by_onnxruntime,
    run_by_the_fused_view,
    said_to_run_in_float,
)

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
    monkeypatch.setitem(sys.modules, "torchao", None)  # Quark would load it: 2 s of CPU time
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    images = np.random.default_rng(0).random((2, 1, 3, 16, 16), np.float32)
    case = export(Net(), {"x": torch.rand(1, 3, 16, 16)}, tmp_path / "net.onnx")
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


class _Found(BaseException):
    """Ends Quark when it has chosen a layer."""


def test_quark_finds_the_same_layer_largest_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Quark writes reports into the current folder
    monkeypatch.setitem(sys.modules, "torchao", None)  # Quark would load it: 2 s of CPU time
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType
    from quark.onnx import quantize_static
    from quark.onnx.algorithm.finetuning import fast_finetune, torch_utils

    class Samples(CalibrationDataReader):
        left = 2

        def __len__(self) -> int:
            return 2

        def reset_iter(self) -> None:
            self.left = 2

        def get_next(self) -> dict[str, np.ndarray] | None:
            self.left -= 1
            return {"x": np.ones((1, 3, 32, 32), np.float32)} if self.left >= 0 else None

    estimates: list[int] = []
    estimate_memory = torch_utils.estimate_memory

    def estimated(module: nn.Module, sample: Any) -> int:
        estimates.append(round(estimate_memory(module, sample) * 2**20))
        return estimates[-1]

    largest_layer = fast_finetune.estimate_largest_mem_layer

    def chosen(subgraphs: Any) -> Any:
        (index,) = largest_layer(subgraphs)
        nodes = subgraphs.subgraph_qmodel_list[index].graph.node
        raise _Found(nodes[-1].name, estimates[index])

    monkeypatch.setattr(torch_utils, "estimate_memory", estimated)
    monkeypatch.setattr(fast_finetune, "estimate_largest_mem_layer", chosen)
    path = tmp_path / "net.onnx"
    shapes = {"stem_w": (8, 3, 3, 3), "wide_w": (64, 8, 3, 3), "head_w": (64, 10)}
    weights = floats(0, **shapes, stem_b=8, wide_b=64, head_b=10)
    onnx.save(model_of_text(NETWORK, **weights), path)
    options = {"SelectMaxMemLayer": True, "NumIterations": 1, "DataSize": 2, "BatchSize": 1}
    with pytest.raises(_Found) as found:
        quantize_static(
            path, tmp_path / "quantized.onnx", Samples(), include_fast_ft=True,
            quant_format=QuantFormat.QDQ, activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8, extra_options={"FastFinetune": options},
        )  # fmt: skip
    layer = read(path).layers["quark"]
    assert (layer.name, layer.bytes) == found.value.args
