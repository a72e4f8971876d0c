# /// script
# dependencies = ["olive-ai", "onnxruntime", "onnxscript", "torch"]
# ///
"""Runs passes of Microsoft's Olive over a small ONNX model."""

from __future__ import annotations

import shutil
from pathlib import Path

from olive.workflows import run
from ort import write_model
from written_onnx import note

import otel_quant


def workflow(per_channel: bool) -> None:
    """Runs two passes."""
    quantize = {
        "type": "OnnxDynamicQuantization",
        "quant_preprocess": False,
        "per_channel": per_channel,
    }
    with otel_quant.step(f"workflow {per_channel=}"):
        run({
            "input_model": {"type": "ONNXModel", "model_path": "float.onnx"},
            "passes": {"smaller": quantize, "folded": {"type": "OnnxPeepholeOptimizer"}},
            "output_dir": "made", "cache_dir": "cache",
        })  # fmt: skip
    [made] = Path("made").rglob("*.onnx")
    note(made, f"workflow {per_channel=}")
    shutil.rmtree("made")


def main() -> None:
    write_model("float.onnx")
    workflow(per_channel=False)
    workflow(per_channel=True)


if __name__ == "__main__":
    main()
