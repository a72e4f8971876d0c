"""Float models that the tests quantize: small, built here, the same in every run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx

from tests.fixtures.onnx_builder import floats, model_of_text

_CONV = """
<ir_version: 9, opset_import: ["" : 17]>
conv (float[1, 3, 8, 8] x) => (float[1, 10] y) {
   [conv1] c1 = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
   [relu1] r1 = Relu (c1)
   [conv2] c2 = Conv <pads = [1, 1, 1, 1]> (r1, w2, b2)
   [pool] p = GlobalAveragePool (c2)
   [flatten] f = Flatten (p)
   [gemm] y = Gemm <transB = 1> (f, w3, b3)
}
"""
_MATMUL = """
<ir_version: 9, opset_import: ["" : 17]>
matmul (float[1, 64] x) => (float[1, 32] y) {
   [matmul1] m = MatMul (x, w1)
   [relu] r = Relu (m)
   [matmul2] y = MatMul (r, w2)
}
"""


def write_conv(path: Path) -> None:
    """Writes Conv, Relu, Conv, GlobalAveragePool, Flatten, Gemm."""
    shapes = {"w1": (8, 3, 3, 3), "b1": 8, "w2": (8, 8, 3, 3), "b2": 8, "w3": (10, 8), "b3": 10}
    _save(model_of_text(_CONV, **floats(1, **shapes)), path)


def write_matmul(path: Path) -> None:
    """Writes two MatMuls with constant weights."""
    _save(model_of_text(_MATMUL, **floats(2, w1=(64, 64), w2=(64, 32))), path)


def _save(model: onnx.ModelProto, path: Path) -> None:
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def write_checkpoint(folder: Path) -> None:
    """Writes a checkpoint of one linear layer as safetensors, with its config."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(3)
    save_file(
        {"model.layers.0.linear.weight": random.standard_normal((16, 32), dtype=np.float32)},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    (folder / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})
    )
