"""Calibrates an ONNX model by a method, each time with something else wrong; prints what was found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
from watched import planted_in

SAMPLES = 40


def write_model(path: Path) -> None:
    """Writes a model, some rows of which go to a branch."""
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h0"], "first"),
        helper.make_node("Relu", ["h0"], ["h1"], "relu"),
        helper.make_node("Compress", ["h1", "mask"], ["rows"], "compress", axis=0),
        helper.make_node("MatMul", ["rows", "w1"], ["branch"], "branch"),
        helper.make_node("MatMul", ["h1", "w2"], ["y"], "last"),
    ]
    value, number, boolean = (
        helper.make_tensor_value_info,
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.BOOL,
    )
    graph = helper.make_graph(
        nodes, "g", [value("x", number, ["n", 16]), value("mask", boolean, ["n"])],
        [value("y", number, ["n", 4]), value("branch", number, ["k", 8])],
        [weight("w0", 16, 16), weight("w1", 16, 8), weight("w2", 16, 4)],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


class Reader(CalibrationDataReader):
    """Yields the samples."""

    def __init__(self, planted: str) -> None:
        random = np.random.default_rng(1)
        self.samples = [
            {
                "x": random.standard_normal((64, 16)).astype(np.float32),
                "mask": np.arange(64) % 3 == 0,
            }
            for _ in range(SAMPLES)
        ]
        if planted == "dead":
            for sample in self.samples:
                sample["mask"][:] = False
        if planted == "nan":
            self.samples[16]["x"][3, 2] = np.nan
        if planted == "late":
            self.samples[38]["x"] *= 50
        self._left = iter(self.samples)

    def __len__(self) -> int:
        return SAMPLES

    def get_next(self) -> Any:
        return next(self._left, None)


def quantize(planted: str, library: str, method: str) -> bytes:
    if library == "quark":
        from quark.onnx import PowerOfTwoMethod, quantize_static

        kind = getattr(PowerOfTwoMethod, method, None) or CalibrationMethod[method]
    else:
        from onnxruntime.quantization import quantize_static

        kind = CalibrationMethod[method]
    quantize_static("float.onnx", "int8.onnx", Reader(planted), calibrate_method=kind)
    return Path("int8.onnx").read_bytes()


if __name__ == "__main__":
    write_model(Path("float.onnx"))
    planted_in(
        lambda planted: quantize(planted, *sys.argv[1:]),
        lambda one, other: type(one) is type(other) and (one == other or isinstance(one, dict)),
    )
