"""Quantizes small models with NNCF: an ONNX model, and the weights of a PyTorch one."""

from __future__ import annotations

import nncf
import numpy as np
import onnx
import torch
from ort import write_model

import otel_quant


def main() -> None:
    write_model("float.onnx")
    random = np.random.default_rng(1)
    samples = [{"x": random.standard_normal((1, 64), dtype=np.float32)} for _ in range(5)]
    with otel_quant.step("onnx"):
        made = nncf.quantize(
            onnx.load("float.onnx"), nncf.Dataset(samples), subset_size=3,
            preset=nncf.QuantizationPreset.MIXED,
        )  # fmt: skip
    assert "QuantizeLinear" in {node.op_type for node in made.graph.node}
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    example = torch.ones(1, 64)
    with otel_quant.step("weights"):
        smaller = nncf.compress_weights(
            layers.eval(), mode=nncf.CompressWeightsMode.INT8_SYM, dataset=nncf.Dataset([example])
        )
    assert smaller(example).shape == (1, 8)


if __name__ == "__main__":
    main()
