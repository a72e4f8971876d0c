# /// script
# dependencies = ["onnxconverter-common", "onnxruntime"]
# ///
"""Converts a model to float16 with onnxconverter-common in each of its ways, and with onnxruntime's function alone."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxconverter_common as converter
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16
from written_onnx import note_floats

import otel_quant

SAMPLE = {"x": np.ones((1, 64), np.float32)}


def write_float(path: str) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "xy"]
    node, weight = (
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        numpy_helper.from_array(weights, "w"),
    )
    graph = helper.make_graph([node], "one", ends[:1], ends[1:], [weight])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def in_memory() -> None:
    onnx.save(converter.float16.convert_float_to_float16(onnx.load("float.onnx")), "out.onnx")


def from_a_file() -> None:
    onnx.save(converter.convert_float_to_float16_model_path("float.onnx"), "out.onnx")


def mixed() -> None:
    found = converter.auto_convert_mixed_precision(onnx.load("float.onnx"), SAMPLE, rtol=1, atol=1)
    onnx.save(found, "out.onnx")


def mixed_file() -> None:
    converter.auto_convert_mixed_precision_model_path(
        "float.onnx", SAMPLE, "./out.onnx", ["CPUExecutionProvider"], rtol=1, atol=1
    )


def by_onnxruntime() -> None:
    onnx.save(convert_float_to_float16(onnx.load("float.onnx")), "out.onnx")


def main() -> None:
    assert "onnxruntime.quantization" not in sys.modules  # whose import sets the same hooks
    write_float("float.onnx")
    for way in (in_memory, from_a_file, mixed, mixed_file, by_onnxruntime):
        with otel_quant.step(way.__name__):
            way()
        note_floats("out.onnx", way.__name__)
        Path("out.onnx").unlink()


if __name__ == "__main__":
    main()
