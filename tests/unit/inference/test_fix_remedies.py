"""Each remedy on a model that has what it mends, and on one that nearly has: that is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from otel_quant.inference.fix.rewriting import REMEDIES, Rewritten, rewritten
from tests.fixtures.onnx_builder import Builder

PADS = [1, 1, 1, 1]
KINDS = [each.kind for each in REMEDIES]


def conv(graph: Builder, value: str, name: str, bias: str = "", **more: Any) -> str:
    """Adds a Conv of 8 channels by 8 bits."""
    weight = graph.dequantized(graph.weights(f"{name}_w", 8, 8, 3, 3), **more)
    return graph.node("Conv", [value, weight, *filter(None, [bias])], name, pads=PADS)


def image() -> tuple[Builder, str]:
    graph = Builder([1, 8, 8, 8])
    return graph, graph.quantized("x", scale=0.03)


def with_bias(
    dtype: type, scale: float | np.ndarray, weights: float | np.ndarray = 0.02
) -> Builder:
    """A Conv whose bias is quantized with a scale of its own."""
    graph, value = image()
    codes, channels = graph.weights("b", 8, dtype=dtype), np.size(scale) > 1
    bias = graph.dequantized(codes, np.zeros_like(scale, dtype), scale, axis=0)
    more = {"zero": np.zeros(8, np.int8), "axis": 0} if channels else {}
    graph.output(graph.quantized(conv(graph, value, "c", bias, scale=weights, **more)))
    return graph


def behind_a_clamp(zero: Any, op: str = "Relu", *limits: float, scale: float = 0.4) -> Builder:
    """A Conv, a clamp and a quantization behind it, and a MaxPool with the same scale."""
    graph, value = image()
    ends = [graph.constant(f"limit{i}", np.float32(limit)) for i, limit in enumerate(limits)]
    value = graph.node(op, [conv(graph, value, "c"), *ends], "clamp")
    value = graph.quantized(value, zero, scale)
    value = graph.node("MaxPool", [value], "pool", kernel_shape=[2, 2])
    graph.output(graph.quantized(value, zero, scale))
    return graph


def read_twice(dtype: Any) -> Builder:
    """A Conv whose operand, of int8 or uint8, an Add reads, too."""
    graph = Builder([1, 8, 8, 8])
    value = graph.quantized("x", dtype(0), 0.03)
    made = graph.quantized(conv(graph, value, "c"), dtype(0), 0.05)
    graph.output(graph.quantized(graph.node("Add", [made, value], "add"), dtype(0), 0.05))
    return graph


SCALES = np.linspace(0.01, 0.03, 8, dtype=np.float32)

PLANTED: dict[str, tuple[str, Callable[[], Builder], Callable[[], Builder], int]] = {
    "int8 bias": ("bias", lambda: with_bias(np.int8, 0.02), lambda: with_bias(np.int32, 0.0006), 1),
    "scale of the bias": ("bias", lambda: with_bias(np.int32, 0.001), lambda: with_bias(np.int32, 0.000602), 1),
    "bias by channels": (
        "bias",
        lambda: with_bias(np.int8, SCALES, SCALES),
        lambda: with_bias(np.int32, SCALES * np.float32(0.03), SCALES),
        1,
    ),
    "bias beyond int32": ("bias", lambda: with_bias(np.int8, 0.02), lambda: with_bias(np.int8, 1e6), 1),
    "Relu": ("zero_point", lambda: behind_a_clamp(np.uint8(128)), lambda: behind_a_clamp(np.uint8(0)), 1),
    "Relu of int8": ("zero_point", lambda: behind_a_clamp(np.int8(0)), lambda: behind_a_clamp(np.int8(-128)), 1),
    "Clip": (
        "zero_point",
        lambda: behind_a_clamp(np.uint8(128), "Clip", 0, 6),
        lambda: behind_a_clamp(np.uint8(128), "Clip", -1, 6),
        1,
    ),
    "int8 read twice": ("unsigned", lambda: read_twice(np.int8), lambda: read_twice(np.uint8), 1),
}  # fmt: skip
"""Kind, a model that has what it mends, one that nearly has, and the contractions that run in integers then."""


def fixed(graph: Builder, *kinds: str) -> Rewritten:
    return rewritten(graph.model(), Path(), kinds or KINDS, {}, {})


def outputs(model: onnx.ModelProto, *, as_stored: bool = False) -> Any:
    """Runs a model as onnxruntime optimizes it, or node by node."""
    options = onnxruntime.SessionOptions()
    if as_stored:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    shapes = {each.name: each.shape for each in session.get_inputs()}
    random = np.random.default_rng(5)
    feed = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return session.run(None, feed)[0]


def sqnr(model: onnx.ModelProto, other: onnx.ModelProto) -> float:
    expected, actual = outputs(model, as_stored=True), outputs(other)
    return 10 * np.log10((expected**2).sum() / max(((expected - actual) ** 2).sum(), 1e-20))


@pytest.mark.parametrize("name", PLANTED)
def test_a_remedy_gives_contractions_their_kernel_and_outputs_stay(name: str) -> None:
    kind, build, _, integers = PLANTED[name]
    found = fixed(build())
    assert kind in found.nodes
    assert (found.forecast.integers, found.forecast.obstacles) == (integers, ())
    assert sqnr(build().model(), found.model) > 30


@pytest.mark.parametrize("name", PLANTED)
def test_what_nearly_has_it_is_left_alone(name: str) -> None:
    kind, _, build, _ = PLANTED[name]
    assert fixed(build(), kind).nodes == {}


def test_a_fixed_model_is_not_changed_again() -> None:
    once = fixed(with_bias(np.int8, 0.02)).model
    assert rewritten(once, Path(), KINDS, {}, {}).nodes == {}
