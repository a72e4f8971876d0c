"""Models whose lengths are open, run by onnxruntime: every result has the shape that was found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto
from torch import nn

from otel_quant.cost import ModelCost, analyze
from tests.fixtures.onnx_builder import floats, model_of_text

_TYPES = {TensorProto.FLOAT: np.float32, TensorProto.INT64: np.int64}


def shapes_when_run(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Shape of the first result of each node, in order, as onnxruntime computes it."""
    model = onnx.load(path)
    static = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, Any] = {
        info.name: np.ones(shapes[info.name], _TYPES[info.type.tensor_type.elem_type])
        for info in model.graph.input
        if info.name not in static
    }
    wanted = [node.output[0] for node in model.graph.node]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [value.shape for value in session.run(wanted, feeds)]


def check(cost: ModelCost, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    assert [node.outputs[0] for node in cost.nodes] == shapes_when_run(path, shapes)
    assert (cost.assumed, cost.uncosted_ops, cost.unsized_tensors) == ((), {}, 0)


RECOGNIZER = """
<ir_version: 9, opset_import: ["" : 17]>
rec (float["?", 3, 48, "?"] x) => (float["?", "?", 37] y) {
   a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w1)
   b = HardSwish (a)
   c = Conv <strides = [2, 1], pads = [1, 1, 1, 1]> (b, w2)
   d = AveragePool <kernel_shape = [12, 2], strides = [12, 2]> (c)
   e = Squeeze (d, two)
   f = Transpose <perm = [0, 2, 1]> (e)
   g = MatMul (f, head)
   y = Softmax <axis = 2> (g)
}
"""


def recognizer(path: Path) -> Path:
    """Layers as of PaddleOCR's recognition models, every open length written ``?``."""
    weights = floats(0, w1=(8, 3, 3, 3), w2=(16, 8, 3, 3), head=(16, 37))
    onnx.save(model_of_text(RECOGNIZER, **weights, two=np.array([2])), path)
    return path


def test_a_model_that_names_every_open_length_with_a_question_mark(tmp_path: Path) -> None:
    path = recognizer(tmp_path / "rec.onnx")
    shapes = {"x": (1, 3, 48, 192)}

    check(analyze(path, inputs=shapes), path, shapes)
    open_ = analyze(path)
    assert {each.option for each in open_.assumed} == {"--input x=1x3x48x1"}


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(32, 32)
        self.key = nn.Linear(32, 32)

    def forward(
        self, x: torch.Tensor, past: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch, tokens, _ = x.shape
        query = self.query(x).view(batch, tokens, 4, 8).transpose(1, 2)
        key = self.key(x).view(batch, tokens, 4, 8).transpose(1, 2)
        keys = torch.cat([past, key], 2)
        shares = (query @ keys.transpose(-1, -2) + mask[:, None, None, :]).softmax(-1)
        return (shares @ keys).transpose(1, 2).reshape(batch, tokens, 32), keys


def test_a_decoder_that_torch_exports_with_named_lengths(tmp_path: Path) -> None:
    path = tmp_path / "torch.onnx"
    batch, tokens, past = (torch.export.Dim(name) for name in ("batch", "seq", "past"))
    torch.onnx.export(
        Decoder().eval(),
        (torch.rand(2, 3, 32), torch.rand(2, 4, 5, 8), torch.rand(2, 8)),
        path, dynamo=True, input_names=["x", "past_key", "mask"], output_names=["y", "keys"],
        dynamic_shapes=({0: batch, 1: tokens}, {0: batch, 2: past}, {0: batch, 1: torch.export.Dim.AUTO}),
    )  # fmt: skip
    declared = {
        value.name: [dim.dim_param for dim in value.type.tensor_type.shape.dim]
        for value in onnx.load(path).graph.output
    }
    assert declared["keys"][2] in ("past + seq", "seq + past")
    shapes = {"x": (3, 2, 32), "past_key": (3, 4, 9, 8), "mask": (3, 11)}

    check(analyze(path, inputs=shapes), path, shapes)


def test_lengths_named_by_onnx_itself_are_accepted(tmp_path: Path) -> None:
    path = recognizer(tmp_path / "rec.onnx")
    onnx.save(onnx.shape_inference.infer_shapes(onnx.load(path)), path)
    names = {
        dim.dim_param
        for value in onnx.load(path).graph.value_info
        for dim in value.type.tensor_type.shape.dim
    }
    assert any(name.startswith("unk__") for name in names)
    shapes = {"x": (2, 3, 48, 320)}

    check(analyze(path, inputs=shapes), path, shapes)
