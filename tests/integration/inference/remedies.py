"""For each remedy that a finding may name a model that has the defect, and the same with the remedy applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from onnx import TensorProto, helper

from tests.fixtures.onnx_builder import Builder, quantized_conv

_UINT8, _INT8, _UINT16 = np.uint8(128), np.int8(0), np.uint16(1000)
_SIZE: Final = 32
_PRODUCT: Final = 0.05 * 0.02  # of the scales that the builder gives operands and weights

Scale = float | np.ndarray


class Mended(NamedTuple):
    """A defect, and what its remedy makes of it."""

    remedy: str  # As findings print it
    node: str  # That the finding is of
    defect: Callable[[], Builder]
    mended: Callable[[], Builder]


def _weights(
    graph: Builder,
    shape: Sequence[int],
    dtype: int = TensorProto.INT8,
    scale: Scale = 0.02,
    **how: object,
) -> str:
    values = np.random.default_rng(3).integers(0, 8, int(np.prod(shape)))
    graph.tensor(helper.make_tensor("w", dtype, shape, values))
    zero = helper.make_tensor("w_zero", dtype, np.shape(scale), np.zeros(np.size(scale), int))
    graph.tensor(zero)
    scales = graph.constant("w_scale", np.asarray(scale, np.float32))
    return graph.node("DequantizeLinear", ["w", scales, "w_zero"], "w_DQ", **how)


def _bias(graph: Builder, dtype: type, scale: float) -> str:
    bias = graph.weights("bias", _SIZE, dtype=dtype)
    return bias if dtype is np.float32 else graph.dequantized(bias, dtype(0), scale)


def layer(
    op: str = "MatMul",
    x: object = _UINT8,
    result: object = _UINT8,
    bias: tuple[type, float] | None = None,
    opset: int = 21,
    **weights: object,
) -> Callable[[], Builder]:
    """A contraction `m` of `x` by weights; what is None instead of a zero point stays float."""

    def build() -> Builder:
        graph = Builder([1, _SIZE, 8, 8] if op == "Conv" else [4, _SIZE], opset)
        value = "x" if x is None else graph.quantized("x", x)
        shape = [_SIZE, _SIZE, 1, 1] if op == "Conv" else [_SIZE, _SIZE]
        operands = [value, _weights(graph, shape, **weights)]  # type: ignore[arg-type]
        if bias is not None:
            operands.append(_bias(graph, *bias))
        made = graph.node(op, operands, "m")
        graph.output(made if result is None else graph.quantized(made, result))
        return graph

    return build


def between(
    op: str, *, scale: float = 0.05, opset: int = 21, zero: object = _UINT8, **how: object
) -> Callable[[], Builder]:
    """An operator `m` between two convolutions, whose result has some scale."""

    def build() -> Builder:
        graph = Builder([1, 16, 16, 16], opset)
        value = quantized_conv(graph, graph.quantized("x"), "c1", 16, 16)
        value = graph.quantized(graph.node(op, [value], "m", **how), zero, scale)
        graph.output(quantized_conv(graph, value, "c2", 16, 16))
        return graph

    return build


def rescaled(*, scale: float) -> Callable[[], Builder]:
    """A result that is quantized, dequantized and quantized with some scale."""

    def build() -> Builder:
        graph = Builder([1, 16, 16, 16])
        value = quantized_conv(graph, graph.quantized("x"), "c1", 16, 16)
        graph.output(quantized_conv(graph, graph.quantized(value, scale=scale), "c2", 16, 16))
        return graph

    return build


def quantized_twice(*, is_mended: bool) -> Callable[[], Builder]:
    """A result of which two QuantizeLinear make the same."""

    def build() -> Builder:
        graph = Builder([1, 16, 16, 16])
        weights = graph.dequantized(graph.weights("w", 16, 16, 1, 1))
        result = graph.node("Conv", [graph.quantized("x"), weights], "m")
        first = second = graph.quantized(result)
        if not is_mended:
            how = graph.how("again", _UINT8, 0.05)
            again = graph.node("QuantizeLinear", [result, *how], "again_Q")
            second = graph.node("DequantizeLinear", [again, *how], "again_DQ")
        graph.output(quantized_conv(graph, first, "c2", 16, 16))
        graph.output(quantized_conv(graph, second, "c3", 16, 16))
        return graph

    return build


def also_an_output(*, is_mended: bool) -> Callable[[], Builder]:
    """A result that is quantized, and given out in floats as well."""

    def build() -> Builder:
        graph = Builder([1, 16, 16, 16])
        weights = graph.dequantized(graph.weights("w", 16, 16, 1, 1))
        result = graph.node("Conv", [graph.quantized("x"), weights], "m")
        graph.output(graph.quantized(result))
        if not is_mended:
            graph.output(result)
        return graph

    return build


def shared_weights(*, is_mended: bool) -> Callable[[], Builder]:
    """Dequantized weights that two nodes read, or a DequantizeLinear for each."""

    def build() -> Builder:
        graph = Builder([_SIZE, _SIZE], 21)
        weights = other = _weights(graph, [_SIZE, _SIZE])
        if is_mended:
            other = graph.node("DequantizeLinear", ["w", "w_scale", "w_zero"], "other_DQ")
        product = graph.node("MatMul", ["x", weights], "m")
        graph.output(graph.node("Mul", [product, graph.node("Exp", [other], "exp")], "last"))
        return graph

    return build


def bias_behind(*, is_mended: bool) -> Callable[[], Builder]:
    """A bias that another node makes of what was dequantized."""

    def build() -> Builder:
        graph = Builder([1, _SIZE, 8, 8], 21)
        operands = [graph.quantized("x"), _weights(graph, [_SIZE, _SIZE, 1, 1])]
        shape = [_SIZE] if is_mended else [1, _SIZE]
        bias = graph.dequantized(graph.weights("b", *shape, dtype=np.int32), np.int32(0), _PRODUCT)
        if not is_mended:
            bias = graph.node("Squeeze", [bias, graph.constant("first", np.array([0]))], "squeezed")
        graph.output(graph.quantized(graph.node("Conv", [*operands, bias], "m")))
        return graph

    return build


def computed_scale(*, is_mended: bool) -> Callable[[], Builder]:
    """A scale that is the largest number of the input."""

    def build() -> Builder:
        graph = Builder([4, _SIZE], 21)
        weights = _weights(graph, [_SIZE, _SIZE])
        scale, zero = graph.how("x", _UINT8, 0.05)
        if not is_mended:
            scale = graph.node("ReduceMax", ["x"], "largest", keepdims=0)
        value = graph.node("QuantizeLinear", ["x", scale, zero], "x_Q")
        value = graph.node("DequantizeLinear", [value, scale, zero], "x_DQ")
        graph.output(graph.quantized(graph.node("MatMul", [value, weights], "m")))
        return graph

    return build


_EIGHT_BITS: Final = "8 bits, all unsigned with int8 weights or all int8"
_COLUMNS: Final = np.full(_SIZE, 0.02, np.float32)

REMEDIES: Final = [
    Mended("a bias of int32", "m", layer("Gemm", bias=(np.int8, 0.02)), layer("Gemm", bias=(np.int32, _PRODUCT))),
    Mended("axis 0, of the output channels", "m", layer("Conv", scale=_COLUMNS, axis=1), layer("Conv", scale=_COLUMNS, axis=0)),
    Mended("scales along axis 1", "m", layer(x=None, result=None, scale=_COLUMNS, axis=0), layer(x=None, result=None, scale=_COLUMNS, axis=1)),
    Mended(_EIGHT_BITS, "m", layer("Conv", _UINT16, _UINT16), layer("Conv")),
    Mended(_EIGHT_BITS, "m", layer(dtype=TensorProto.INT4), layer()),
    Mended("QuantizeLinear and DequantizeLinear in front of it", "m", layer("Conv", None), layer("Conv")),
    Mended("uint8 for what is not a weight", "m", layer("MatMul", _INT8, None), layer("MatMul", result=None)),
    Mended("the same ones", "m", between("MaxPool", scale=0.03, kernel_shape=[2, 2]), between("MaxPool", kernel_shape=[2, 2])),
    Mended("opset 12", "m", between("MaxPool", opset=11, kernel_shape=[2, 2]), between("MaxPool", opset=12, kernel_shape=[2, 2])),
    Mended("the same scale and zero point", "c1_DQ", rescaled(scale=0.03), rescaled(scale=0.05)),
    Mended("a QuantizeLinear as the only reader of it", "m", quantized_twice(is_mended=False), quantized_twice(is_mended=True)),
    Mended("a QuantizeLinear as the only reader of it", "m", also_an_output(is_mended=False), also_an_output(is_mended=True)),
    Mended("a DequantizeLinear of its own for each", "m", shared_weights(is_mended=False), shared_weights(is_mended=True)),
    Mended("a DequantizeLinear of its own", "m", bias_behind(is_mended=False), bias_behind(is_mended=True)),
    Mended("a constant", "m", computed_scale(is_mended=False), computed_scale(is_mended=True)),
]  # fmt: skip
