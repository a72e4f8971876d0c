# /// script
# dependencies = ["olive-ai", "onnxruntime", "onnxscript", "torch"]
# ///
"""Runs passes of Microsoft's Olive over a small ONNX model."""

from __future__ import annotations

from olive.workflows import run
from ort import write_model

import otel_quant


def main() -> None:
    write_model("float.onnx")
    model = {"type": "ONNXModel", "model_path": "float.onnx"}
    passes = {
        "smaller": {"type": "OnnxDynamicQuantization", "quant_preprocess": False},
        "folded": {"type": "OnnxPeepholeOptimizer"},
    }
    with otel_quant.step("workflow"):
        run({"input_model": model, "passes": passes, "output_dir": "made", "cache_dir": "cache"})
    passes["smaller"]["per_channel"] = True
    with otel_quant.step("another"):
        run({"input_model": model, "passes": passes, "output_dir": "other", "cache_dir": "cache"})


if __name__ == "__main__":
    main()
