"""Models with one planted defect each, and models without any."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from onnx import TensorProto, helper

from tests.fixtures.onnx_builder import FLOAT16, Builder, quantized_conv, quantized_matmul

PADS = [1, 1, 1, 1]


class Planted(NamedTuple):
    """A model and the finding expected for it."""

    build: Callable[[], Builder]  # Builds it
    kind: str  # Kind of the finding
    node: str  # The node that it names
    says: str  # A part of its sentence
    kernels: frozenset[str]  # Names of the kernels whose time it is


def _image() -> tuple[Builder, str]:
    graph = Builder([1, 16, 32, 32])
    return graph, graph.quantized("x")


def unsupported_operator_between() -> Builder:
    graph, value = _image()
    value = quantized_conv(graph, value, "c1", 16, 16)
    value = graph.quantized(graph.node("Exp", [value], "exp"))
    graph.output(quantized_conv(graph, value, "c2", 16, 16))
    return graph


def int8_bias() -> Builder:
    graph = Builder([8, 64])
    value = graph.quantized("x")
    weights = graph.dequantized(graph.weights("w", 64, 64))
    bias = graph.dequantized(graph.weights("bias", 64), np.int8(0), 0.02)
    value = graph.node("Relu", [graph.node("Gemm", [value, weights, bias], "g1")], "relu")
    graph.output(graph.quantized(value, np.uint8(0)))
    return graph


def cast() -> Builder:
    graph = Builder([1, 64], dtype=FLOAT16)
    graph.output(graph.node("MatMul", ["x", graph.weights("w", 64, 64, dtype=np.float16)], "m1"))
    return graph


def transpose() -> Builder:
    graph, value = _image()
    value = quantized_conv(graph, value, "c1", 16, 16)
    value = graph.node("MaxPool", [value], "pool", kernel_shape=[2, 2])
    graph.output(quantized_conv(graph, graph.quantized(value, scale=0.03), "c2", 16, 16))
    return graph


def reorder() -> Builder:
    graph = Builder([1, 16, 32, 32])
    value = "x"
    for name in ("c1", "c2"):
        weights = graph.weights(f"{name}_w", 16, 16, 3, 3, dtype=np.float32)
        value = graph.node("Conv", [value, weights], name, pads=PADS)
        if name == "c1":
            value = graph.node("Softmax", [value], "soft", axis=1)
    graph.output(value)
    return graph


def dynamic_shape() -> Builder:
    graph = Builder(["batch", 64])
    first = graph.constant("first", np.array([0]))
    length = graph.node("Gather", [graph.node("Shape", ["x"], "shape"), first], "g")
    target = graph.node("Concat", [length, graph.constant("rest", np.array([64]))], "cat", axis=0)
    row = graph.node("Expand", [graph.weights("w", 1, 64, dtype=np.float32), target], "rows")
    graph.output(graph.node("Add", ["x", row], "sum"))
    return graph


def convolution_along_the_wrong_axis() -> Builder:
    graph, value = _image()
    scales, zeros = np.full(16, 0.02, np.float32), np.zeros(16, np.int8)
    weights = graph.dequantized(graph.weights("w", 16, 16, 3, 3), zeros, scales, axis=1)
    graph.output(graph.quantized(graph.node("Conv", [value, weights], "c1", pads=PADS)))
    return graph


def no_kernel_on_integers() -> Builder:
    graph, value = _image()
    weights = graph.dequantized(graph.weights("w", 16, 16, 3, 3))
    graph.output(graph.quantized(graph.node("ConvTranspose", [value, weights], "up")))
    return graph


DEFECTS: dict[str, Planted] = {
    "unsupported operator": Planted(
        unsupported_operator_between,
        "unfused", "exp", "there is no kernel on integers for it", frozenset({"c1_DQ", "exp", "exp_Q"}),
    ),
    "bias of 8 bits": Planted(
        int8_bias, "in_float", "g1", "its weights are int8: the bias is int8",
        frozenset({"g1", "bias_DQ", "w_DQ", "x_DQ", "relu_Q"}),
    ),
    "cast": Planted(
        cast, "inserted", "m1", "inserted a Cast in front of MatMul `m1`",
        frozenset({"InsertedPrecisionFreeCast_x"}),
    ),
    "transpose": Planted(
        transpose, "inserted", "c2", "inserted a Transpose between QuantizeLinear `pool_Q` and Conv `c2`",
        frozenset({"Transpose_token_5"}),
    ),
    "reorder": Planted(
        reorder, "inserted", "c2", "inserted a ReorderInput between Softmax `soft` and Conv `c2`",
        frozenset({"ReorderInput_token_4"}),
    ),
    "axis of a convolution": Planted(
        convolution_along_the_wrong_axis, "axis", "c1", "are quantized along axis 1",
        frozenset({"c1_token_2"}),
    ),
    "no kernel on integers": Planted(
        no_kernel_on_integers, "in_float", "up", "there is no kernel on integers for it",
        frozenset({"up", "up_Q", "w_DQ", "x_DQ"}),
    ),
}  # fmt: skip


def compiled_in_part() -> Builder:
    """A model of which OpenVINO compiles two parts: it has no Det."""
    graph, value = _image()
    value = quantized_conv(graph, value, "c1", 16, 16)
    graph.output(graph.node("Softmax", [graph.node("Det", [value], "det")], "soft"))
    return graph


def convolution_with_activation() -> Builder:
    """A Conv whose kernel has the name of the Relu behind it."""
    graph = Builder([1, 16, 32, 32])
    weights = graph.weights("w", 16, 16, 3, 3, dtype=np.float32)
    graph.output(
        graph.node("Relu", [graph.node("Conv", ["x", weights], "conv", pads=PADS)], "relu")
    )
    return graph


def quantized_convolutions() -> Builder:
    graph, value = _image()
    value = quantized_conv(graph, value, "c1", 16, 16)
    graph.output(quantized_conv(graph, value, "c2", 16, 16))
    return graph


def quantized_matmuls() -> Builder:
    graph = Builder([8, 64])
    value = quantized_matmul(graph, graph.quantized("x"), "m1", 64, 64)
    graph.output(quantized_matmul(graph, value, "m2", 64, 64))
    return graph


def float_matmuls() -> Builder:
    graph = Builder([8, 64])
    value = graph.node("MatMul", ["x", graph.weights("w", 64, 64, dtype=np.float32)], "m1")
    value = graph.node("Relu", [value], "relu")
    graph.output(graph.node("MatMul", [value, "w"], "m2"))
    return graph


def four_bits() -> Builder:
    graph = Builder([1, 64], opset=21)
    values = np.random.default_rng(3).integers(-8, 8, 64 * 64)
    graph.tensor(helper.make_tensor("w", TensorProto.INT4, [64, 64], values))
    scale = graph.constant("scale", np.full((2, 64), 0.1, np.float32))
    weights = graph.node("DequantizeLinear", ["w", scale], "w_DQ", axis=0, block_size=32)
    graph.output(graph.node("MatMul", ["x", weights], "m1"))
    return graph


def float_convolutions() -> Builder:
    graph, value = Builder([1, 16, 32, 32]), "x"
    for name in ("c1", "c2"):
        weights = graph.weights(f"{name}_w", 16, 16, 3, 3, dtype=np.float32)
        value = graph.node("Conv", [value, weights], name, pads=PADS)
        value = graph.node("Relu", [value], f"{name}_relu")
    graph.output(graph.node("GlobalAveragePool", [value], "pool"))
    return graph


def identity_at_the_end() -> Builder:
    """What exporters make of an output that has a name: onnxruntime leaves it there."""
    graph, value = _image()
    value = graph.node("Identity", [quantized_conv(graph, value, "c1", 16, 16)], "same")
    graph.output(graph.node("Identity", [value], "last"))
    return graph


def pooling_at_the_end() -> Builder:
    """What is behind the last kernel with channels last has to have them first again."""
    graph = Builder([1, 16, 24, 24])
    value = quantized_conv(graph, graph.quantized("x"), "c1", 16, 16)
    value = graph.quantized(graph.node("GlobalAveragePool", [value], "pool"))
    graph.output(graph.quantized(graph.node("Flatten", [value], "flat")))
    return graph


def signed_convolution() -> Builder:
    graph = Builder([1, 16, 32, 32])
    weights = graph.dequantized(graph.weights("w", 16, 16, 3, 3))
    result = graph.node("Conv", [graph.quantized("x", np.int8(0)), weights], "c1", pads=PADS)
    graph.output(graph.quantized(result, np.int8(0)))
    return graph


CLEAN: dict[str, Callable[[], Builder]] = {
    "quantized convolutions": quantized_convolutions,
    "quantized MatMuls": quantized_matmuls,
    "float MatMuls": float_matmuls,
    "4 bits in blocks": four_bits,
    "float convolutions": float_convolutions,
    "signed convolution": signed_convolution,
    "Identity at the end": identity_at_the_end,
    "pooling at the end": pooling_at_the_end,
}
