"""For each remedy that a finding may print a model that has the defect, and the same with the remedy applied."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from otel_quant.cost.obstacles import PAIRS_IN_FRONT, REWRITES
from otel_quant.inference.fix.rewriting import rewritten
from scripts.onnxruntime_rules import Form, built
from tests.fixtures.onnx_builder import Builder, quantized_conv


class Remedy(NamedTuple):
    """What findings print, a model to which they do, and one where that was applied."""

    text: str
    defect: Callable[[], Any]
    mended: Callable[[], Any]


def _of(text: str, build: Callable[[bool], Builder]) -> Remedy:
    """Returns a remedy of a model that is built with and without the defect."""
    return Remedy(text, lambda: build(True).model(), lambda: build(False).model())


def _of_rewrite(kind: str, build: Callable[[], Any]) -> Remedy:
    """Returns a remedy that ``otel-quant fix`` applies."""
    return Remedy(
        REWRITES[kind].text, build, lambda: rewritten(build(), Path(), [kind], {}, {}).model
    )


def _of_forms(text: str, defect: Form, mended: Form) -> Remedy:
    return Remedy(text, lambda: built(defect), lambda: built(mended))


def _image(opset: int = 17) -> tuple[Builder, str]:
    graph = Builder([1, 16, 16, 16], opset)
    return graph, quantized_conv(graph, graph.quantized("x"), "c1", 16, 16)


def _conv(graph: Builder, *bias: str, **weights: Any) -> str:
    dequantized = graph.dequantized(graph.weights("w", 16, 16, 1, 1), **weights)
    return graph.node("Conv", [graph.quantized("x"), dequantized, *bias], "m")


def _along_channels() -> Builder:
    graph = Builder([1, 16, 16, 16])
    scales, zeros = np.full(16, 0.02, np.float32), np.zeros(16, np.int8)
    result = _conv(graph, scale=scales, zero=zeros, axis=1)
    graph.output(graph.quantized(result))
    return graph


def _behind_a_relu() -> Builder:
    graph = Builder([1, 16, 16, 16])
    graph.output(graph.quantized(graph.node("Relu", [_conv(graph)], "relu")))
    return graph


def _before_a_leaky_relu() -> Builder:
    graph = Builder([1, 16, 16, 16])
    graph.output(graph.quantized(graph.node("LeakyRelu", [_conv(graph)], "leaky", alpha=0.2)))
    return graph


def _normed() -> Builder:
    graph = Builder([1, 16, 16, 16])
    sizes = ("gamma", 1.5), ("beta", -1.0), ("mean", 0.5), ("var", 2.0)
    how = [graph.constant(name, np.full(16, size, np.float32)) for name, size in sizes]
    normed = graph.node("BatchNormalization", [_conv(graph), *how], "norm")
    graph.output(graph.quantized(normed))
    return graph


def _bias(scale: float = 0.05 * 0.02, *, is_reshaped: bool = False) -> Builder:
    graph = Builder([1, 16, 16, 16])
    bias = graph.weights("b", *([1] if is_reshaped else []), 16, dtype=np.int32)
    bias = graph.dequantized(bias, np.int32(0), scale)
    if is_reshaped:
        bias = graph.node("Squeeze", [bias, graph.constant("first", np.array([0]))], "squeezed")
    graph.output(graph.quantized(_conv(graph, bias)))
    return graph


def _quantized_twice(has_defect: bool) -> Builder:
    """Two QuantizeLinear of one scale, which onnxruntime does not join if the constants have two names."""
    graph = Builder([1, 16, 16, 16])
    result = _conv(graph)
    first = second = graph.quantized(result)
    if has_defect:
        how = graph.how("again", np.uint8(128), 0.05)
        again = graph.node("QuantizeLinear", [result, *how], "again_Q")
        second = graph.node("DequantizeLinear", [again, *how], "again_DQ")
    for name, value in (("c2", first), ("c3", second)):
        graph.output(quantized_conv(graph, value, name, 16, 16))
    return graph


def _also_an_output(has_defect: bool) -> Builder:
    graph = Builder([1, 16, 16, 16])
    result = _conv(graph)
    graph.output(graph.quantized(result))
    if has_defect:
        graph.output(result)
    return graph


def _shared_weights(has_defect: bool) -> Builder:
    graph = Builder([4, 32], 21)
    how = np.zeros(32, np.int8), np.full(32, 0.02, np.float32)
    values = np.random.default_rng(3).integers(-90, 90, (32, 32)).astype(np.int8)
    first = second = graph.dequantized(graph.constant("w", values), *how, axis=1)
    if not has_defect:
        second = graph.dequantized(graph.constant("w2", values), *how, axis=1)
    graph.output(graph.node("MatMul", [graph.node("MatMul", ["x", first], "m"), second], "m2"))
    return graph


def _rescaled(has_defect: bool) -> Builder:
    graph, value = _image()
    again = graph.quantized(value, scale=0.03) if has_defect else value
    graph.output(quantized_conv(graph, again, "c2", 16, 16))
    graph.output(quantized_conv(graph, value, "c3", 16, 16))
    return graph


def _pool(opset: int = 17, scale: float = 0.05) -> Builder:
    graph, value = _image(opset)
    value = graph.quantized(graph.node("MaxPool", [value], "m", kernel_shape=[2, 2]), scale=scale)
    graph.output(quantized_conv(graph, value, "c2", 16, 16))
    return graph


def _product(has_defect: bool, *, by_constant: bool) -> Builder:
    graph, value = _image()
    floats = [graph.node("Exp", [value], "exp")]
    if by_constant:
        floats.append(graph.constant("half", np.float32(0.5)))
    operands = floats if has_defect else [graph.quantized(each) for each in floats]
    operands = operands if by_constant else [value, *operands]
    graph.output(graph.quantized(graph.node("Mul", operands, "m")))
    return graph


def _clamped(has_defect: bool) -> Builder:
    graph = Builder([4, 32])
    weights = graph.dequantized(graph.weights("w", 32, 32))
    value = graph.node("Gemm", [graph.quantized("x"), weights], "m")
    value = graph.node("Relu", [value], "relu")
    graph.output(
        graph.node("Exp", [value if has_defect else graph.quantized(value, np.uint8(0))], "e")
    )
    return graph


_EIGHT_BITS: Final = "8 bits, all unsigned with int8 weights or all int8"
_ALONE: Final = REWRITES["islands"].text
_BY_COLUMNS: Final = Form("MatMul", "float", "int8", "float", "channels")

REMEDIES: Final = [
    _of_rewrite("bias", lambda: built(Form("Gemm", bias="int8"))),
    _of_rewrite("bias", lambda: _bias(0.005).model()),
    _of_rewrite("zero_point", lambda: _behind_a_relu().model()),
    _of_rewrite("leaky_relu", lambda: _before_a_leaky_relu().model()),
    _of_rewrite("batch_norm", lambda: _normed().model()),
    _of_rewrite("matmul_add", lambda: built(Form("MatMul", y="float", then="Add"))),
    _of_rewrite("constants", lambda: _bias(is_reshaped=True).model()),
    _of_rewrite("axis", lambda: _along_channels().model()),
    _of_rewrite("axis", lambda: built(_BY_COLUMNS._replace(scales="rows"))),
    *(
        _of_forms(
            REWRITES["blocks"].text,
            _BY_COLUMNS._replace(w=weight, scales=scales),
            _BY_COLUMNS._replace(w=weight, scales="blocks"),
        )
        for weight in ("int4", "int8")
        for scales in ("blocks of 8", "blocks across")
    ),
    _of_rewrite("axis", lambda: built(Form("Gemm", scales="rows"))),
    _of_forms("a zero point, even if it is 0", Form("Gemm", zero_points=False), Form("Gemm")),
    _of_forms("beta 1", Form("Gemm", bias="int32", attribute="beta"), Form("Gemm", bias="int32")),
    _of_forms(
        "transA and transB 0, alpha and beta 1, a bias of one dimension",
        _BY_COLUMNS._replace(kind="Gemm", attribute="alpha"), _BY_COLUMNS._replace(kind="Gemm"),
    ),
    _of_forms("weights of 2, 4 or 8 bits", _BY_COLUMNS._replace(w="int16"), _BY_COLUMNS),
    _of_forms("no QuantizeLinear behind it", _BY_COLUMNS._replace(y="uint8"), _BY_COLUMNS),
    _of_rewrite("unsigned", lambda: built(Form("Conv", "int8", y="int8", shared="x"))),
    _of_forms(_EIGHT_BITS, Form("Conv", "uint16", y="uint16"), Form("Conv")),
    _of_forms(_EIGHT_BITS, Form("MatMul", w="int4"), Form("MatMul")),
    _of_forms(_EIGHT_BITS, _BY_COLUMNS._replace(x="uint16", y="uint16"), Form("MatMul")),
    _of_forms("scales of float32", Form("Conv", half=True), Form("Conv")),
    _of_forms(PAIRS_IN_FRONT.text, Form("Conv", "float"), Form("Conv")),
    *(
        _of(PAIRS_IN_FRONT.text, partial(_product, by_constant=by_constant))
        for by_constant in (False, True)
    ),
    _of("a QuantizeLinear right behind that, with a range that makes it superfluous", _clamped),
    _of(_ALONE, _quantized_twice),
    _of(_ALONE, _also_an_output),
    _of("weights and a DequantizeLinear of its own for each", _shared_weights),
    _of(REWRITES["double"].text, _rescaled),
    _of("the same ones", lambda has_defect: _pool(scale=0.03 if has_defect else 0.05)),
    _of("opset 12", lambda has_defect: _pool(opset=11 if has_defect else 12)),
]  # fmt: skip
