# /// script
# dependencies = ["nncf", "onnxruntime", "onnx-ir"]
# ///
"""Quantizes small models with NNCF: all of an ONNX model, and the weights of one."""

from __future__ import annotations

import nncf
import numpy as np
import onnx
from ort import write_model
from watched import Progress
from written_onnx import note

import otel_quant


def main() -> None:
    write_model("float.onnx")
    Progress()
    random = np.random.default_rng(1)
    samples = [{"x": random.standard_normal((1, 64), dtype=np.float32)} for _ in range(5)]
    with otel_quant.step("onnx"):
        made = nncf.quantize(
            onnx.load("float.onnx"), nncf.Dataset(samples), subset_size=3,
            preset=nncf.QuantizationPreset.MIXED,
        )  # fmt: skip
    note(made, "onnx")
    with otel_quant.step("weights"):
        smaller = nncf.compress_weights(
            onnx.load("float.onnx"), mode=nncf.CompressWeightsMode.INT8_SYM
        )
    note(smaller, "weights")
    with otel_quant.step("weights by data"):
        grouped = nncf.compress_weights(
            onnx.load("float.onnx"), mode=nncf.CompressWeightsMode.INT4_SYM, group_size=16,
            scale_estimation=True, all_layers=True, dataset=nncf.Dataset(samples), subset_size=3,
        )  # fmt: skip
    note(grouped, "weights by data")


if __name__ == "__main__":
    main()
