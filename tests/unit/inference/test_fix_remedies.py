"""Each remedy on a model that has what it mends, and on one that nearly has: that is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from otel_quant.cost import analyze
from otel_quant.cost.graph import obstacles
from otel_quant.inference.fix import fix_results as results
from otel_quant.inference.fix.rewriting import REMEDIES, Rewritten, forecast_of, rewritten
from tests.fixtures.onnx_builder import Builder

onnxruntime = pytest.importorskip("onnxruntime")
PADS = [1, 1, 1, 1]
# Weights of most models here have 8 bits and a sign, of which "sums" has tests of its own
KINDS = [each.kind for each in REMEDIES if each.kind != "sums"]


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


def moved_weights(op: str, *, of: str = "constant") -> Builder:
    """A MatMul whose weights an operator moves behind their DequantizeLinear, or an activation."""
    graph = Builder([8, 16] if of == "constant" else [16, 16])
    value = graph.quantized("x")
    weight = value if of == "input" else graph.dequantized(graph.weights("w", 16, 16))
    more = [graph.constant("shape", np.array([16, -1]))] if op == "Reshape" else []
    moved = graph.node(op, [weight, *more], "moved")
    graph.output(graph.quantized(graph.node("MatMul", [value, moved], "m"), scale=0.4))
    return graph


def quantized_bias() -> Builder:
    """A Conv whose bias an Identity hands on, and is quantized as an activation is, as onnxruntime's quantizer has it."""
    graph, value = image()
    bias = graph.node("Identity", [graph.weights("b", 8, dtype=np.float32)], "identity")
    value = conv(graph, value, "c", graph.quantized(bias, scale=0.01))
    graph.output(graph.quantized(value, scale=0.2))
    return graph


def with_batch_norm(lowest: float, *, is_rounded: bool = False, read: bool = False) -> Builder:
    """A Conv and a BatchNormalization behind it, whose smallest factor is given."""
    graph, value = image()
    names = [
        graph.constant(name, np.linspace(low, 1.5, 8, dtype=np.float32))
        for name, low in (("gamma", lowest), ("beta", -1), ("mean", -2), ("var", 0.5))
    ]
    made = conv(graph, value, "c")
    made = graph.quantized(made, scale=0.25) if is_rounded else made
    value = graph.node("BatchNormalization", [made, *names], "norm")
    graph.output(graph.quantized(value, scale=0.3))
    if read:
        graph.output(made)
    return graph


def along(axis: int) -> Builder:
    """A Conv with a scale for each slice of its weights along an axis."""
    graph, value = image()
    made = conv(graph, value, "c", scale=SCALES, zero=np.zeros(8, np.int8), axis=axis)
    graph.output(graph.quantized(made, scale=0.3))
    return graph


def in_blocks(length: int) -> Builder:
    """A MatMul of floats by weights in blocks."""
    graph = Builder([8, 96], opset=21)
    shape = -(-96 // length), 16
    weight = graph.dequantized(
        graph.weights("w", 96, 16),
        np.zeros(shape, np.int8),
        np.full(shape, 0.02),
        axis=0,
        block_size=length,
    )
    graph.output(graph.node("MatMul", ["x", weight], "m"))
    return graph


def with_addition(rank: int, *, bias: tuple[int, ...] = (16,), quantized: bool = False) -> Builder:
    """A MatMul, and an Add behind it."""
    graph = Builder([2, 8, 16][-rank:])
    weight = graph.dequantized(graph.weights("w", 16, 16))
    made = graph.node("MatMul", [graph.quantized("x"), weight], "m")
    made = graph.node("Add", [made, graph.weights("b", *bias, dtype=np.float32)], "add")
    graph.output(
        graph.quantized(made, scale=0.3) if quantized else graph.node("Tanh", [made], "tanh")
    )
    return graph


def around_a_relu(*, read: bool = False) -> Builder:
    """A Conv whose result is quantized on both sides of a Relu, and perhaps given out."""
    graph, value = image()
    first = graph.quantized(conv(graph, value, "c"), scale=0.3)
    clamped = graph.node("Relu", [first], "relu")
    graph.output(
        graph.quantized(conv(graph, graph.quantized(clamped, np.uint8(0), 0.2), "d"), scale=0.5)
    )
    if read:
        graph.output(first)
    return graph


def rounded_twice(*, read: bool = False) -> Builder:
    """A Conv behind two quantizations in a row, of which another node reads the first."""
    graph = Builder([1, 8, 8, 8])
    first = graph.quantized("x", scale=0.03)
    made = conv(graph, graph.quantized(first, scale=0.025), "c")
    graph.output(graph.quantized(made, scale=0.3))
    if read:
        graph.output(graph.node("Exp", [first], "exp"))
    return graph


def pair(op: str, zero: int = 128) -> Builder:
    """A Conv, and behind it a pair that no kernel takes, or one that it takes."""
    graph, value = image()
    value = graph.quantized(conv(graph, value, "c"), scale=0.3)
    value = graph.quantized(graph.node("Tanh", [value], "tanh"), np.uint8(zero), scale=0.01)
    last = (
        graph.quantized(conv(graph, value, "d"))
        if op == "Conv"
        else graph.node(op, [value], "last")
    )
    graph.output(last)
    return graph


def island(op: str) -> Builder:
    """A Conv with a bias of int8 behind an operator in float, whose operand is dequantized."""
    graph, value = image()
    more = {"kernel_shape": [2, 2], "strides": [2, 2]} if op == "AveragePool" else {}
    value = graph.node(op, [value], "island", **more)
    bias = graph.dequantized(graph.weights("b", 8), scale=0.02)
    graph.output(graph.quantized(conv(graph, value, "c", bias), scale=0.3))
    return graph


def joined(*clamp: str) -> Builder:
    """Two Convs whose results a Concat joins, perhaps behind clamps."""
    graph, value = image()
    made = []
    for name in ("c", "d"):
        last = conv(graph, value, name)
        for op in clamp:
            last = graph.node(op, [last], f"{name}_clamp")
        made.append(graph.quantized(last, scale=0.3))
    graph.output(graph.quantized(graph.node("Concat", made, "joined", axis=1), scale=0.3))
    return graph


def left_in_float(*behind: str) -> Builder:
    """A Conv, and one behind it that was left in float, whose result is quantized, perhaps behind others."""
    graph, value = image()
    value = graph.quantized(conv(graph, value, "c"), scale=0.3)
    weight = graph.weights("d_w", 8, 8, 3, 3, dtype=np.float32)
    value = graph.node("Conv", [value, weight], "d", pads=PADS)
    for op in behind:
        value = graph.node(op, [value], "behind")
    graph.output(graph.quantized(value, scale=0.3))
    return graph


def before_a_bias(clamp: str) -> Builder:
    """A Conv with a clamp behind it, and another whose bias of int32 has the scale of its products."""
    graph, value = image()
    value = graph.node(clamp, [conv(graph, value, "c")], "clamp")
    value = graph.quantized(value, scale=0.25)
    bias = graph.dequantized(graph.weights("b", 8, dtype=np.int32), np.int32(0), 0.25 * 0.02)
    graph.output(graph.quantized(conv(graph, value, "d", bias), scale=0.5))
    return graph


def clamped_and_read_twice() -> Builder:
    """A Conv and a Relu whose result of int8 two others read."""
    graph, value = image()
    value = graph.node("Relu", [conv(graph, value, "c")], "clamp")
    value = graph.quantized(value, np.int8(0), 0.25)
    made = graph.quantized(conv(graph, value, "d"), np.uint8(128), 0.5)
    graph.output(graph.node("Exp", [value], "exp"))
    graph.output(made)
    return graph


def leaky(*, is_read: bool = False) -> Builder:
    """A Conv and a LeakyRelu, as AMD Quark quantizes them, perhaps with another reader between the two."""
    graph, value = image()
    made = conv(graph, value, "c")
    value = graph.node("LeakyRelu", [made], "leaky", alpha=0.2)
    graph.output(graph.quantized(value, scale=0.12))
    if is_read:
        graph.output(made)
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
    "range beyond a Clip": (
        "zero_point",
        lambda: behind_a_clamp(np.uint8(0), "Clip", 0, 6),
        lambda: behind_a_clamp(np.uint8(0), "Clip", 0, 6, scale=6 / 255),
        1,
    ),
    "Transpose of weights": ("constants", lambda: moved_weights("Transpose"), lambda: moved_weights("Transpose", of="input"), 1),
    "Reshape of weights": ("constants", lambda: moved_weights("Reshape"), lambda: moved_weights("Reshape", of="input"), 1),
    "bias of an Identity": ("constants", quantized_bias, lambda: with_bias(np.int8, 0.02), 1),
    "batch norm behind a rounding": (
        "batch_norm", lambda: with_batch_norm(-0.5, is_rounded=True), lambda: with_batch_norm(-0.5, is_rounded=True, read=True), 1
    ),
    "batch norm": ("batch_norm", lambda: with_batch_norm(-0.5), lambda: with_batch_norm(-0.6), 1),
    "axis": ("axis", lambda: along(1), lambda: along(0), 1),
    "blocks": ("blocks", lambda: in_blocks(48), lambda: in_blocks(32), 1),
    "addition of a matrix": ("matmul_add", lambda: with_addition(2), lambda: with_addition(2, quantized=True), 1),
    "addition of a row": (
        "matmul_add", lambda: with_addition(2, bias=(1, 16), quantized=True), lambda: with_addition(2, bias=(8, 16)), 1
    ),
    "addition": ("matmul_add", lambda: with_addition(3), lambda: with_addition(3, quantized=True), 1),
    "double around a Relu": ("double", around_a_relu, lambda: around_a_relu(read=True), 2),
    "double": ("double", rounded_twice, lambda: rounded_twice(read=True), 1),
    "pair that is a Relu too": (
        "pairs", lambda: pair("Exp", 0), lambda: pair("Conv", 0), 1
    ),
    "pair beside a Conv": (
        "pairs", lambda: pair("Exp"), lambda: with_bias(np.int8, 0.02), 1
    ),
    "pair": ("pairs", lambda: pair("Exp"), lambda: pair("Conv"), 1),
    "island": ("islands", lambda: island("Relu"), lambda: island("AveragePool"), 1),
    "LeakyRelu": ("leaky_relu", leaky, lambda: leaky(is_read=True), 1),
    "joined Relus": ("zero_point", lambda: joined("Relu"), joined, 2),
    "quantized on loading": ("session", left_in_float, lambda: left_in_float("Tanh"), 1),
    "bias behind a clamp": ("zero_point", lambda: before_a_bias("Relu"), lambda: before_a_bias("Tanh"), 2),
    "int8 read twice": ("unsigned", lambda: read_twice(np.int8), lambda: read_twice(np.uint8), 1),
}  # fmt: skip
"""Kind, a model that has what it mends, one that nearly has, and the contractions that run in integers then."""


def fixed(graph: Builder, *kinds: str) -> Rewritten:
    return rewritten(graph.model(), Path(), kinds or KINDS, {}, {})


def outputs(model: onnx.ModelProto, *, as_stored: bool = False, without: Any = ()) -> Any:
    """Runs a model as onnxruntime optimizes it, perhaps without some optimizers, or node by node."""
    options = onnxruntime.SessionOptions()
    # Without VNNI, x86 adds two products in 16 bits and saturates: that is the processor's, not the rewrite's.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if as_stored:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=list(without),
    )
    shapes = {each.name: each.shape for each in session.get_inputs()}
    random = np.random.default_rng(5)
    feed = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return session.run(None, feed)[0]


def sqnr(model: onnx.ModelProto, other: Rewritten) -> float:
    expected = outputs(model, as_stored=True)
    actual = outputs(other.model, without=other.disables)
    return 10 * np.log10((expected**2).sum() / max(((expected - actual) ** 2).sum(), 1e-20))


@pytest.mark.parametrize("name", PLANTED)
def test_a_remedy_gives_contractions_their_kernel_and_outputs_stay(name: str) -> None:
    kind, build, _, integers = PLANTED[name]
    found = fixed(build())
    assert kind in found.nodes
    assert (found.forecast.integers, found.forecast.obstacles) == (integers, ())
    assert sqnr(build().model(), found) > 30


@pytest.mark.parametrize("name", PLANTED)
def test_what_nearly_has_it_is_left_alone(name: str) -> None:
    kind, _, build, _ = PLANTED[name]
    assert fixed(build(), kind).nodes == {}


@pytest.mark.parametrize("name", PLANTED)
def test_what_runs_then_is_a_kernel_on_integers(name: str, tmp_path: Path) -> None:
    path, options = tmp_path / "ran.onnx", onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(path), 3
    _, build, _, integers = PLANTED[name]
    made = fixed(build())
    onnxruntime.InferenceSession(
        made.model.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=list(made.disables),
    )
    ran = [node.op_type for node in onnx.load(path).graph.node]
    kernels = {"QLinearConv", "QLinearMatMul", "QGemm", "MatMulIntegerToFloat", "MatMulNBits"}
    assert sum(each in kernels for each in ran) == integers


@pytest.mark.parametrize("name", PLANTED)
def test_advice_is_the_rewrite_and_its_number_is_what_that_changes(name: str) -> None:
    model = PLANTED[name][1]().model()
    assert_claims_hold(model)


def assert_claims_hold(model: onnx.ModelProto) -> None:
    """Applies each rewrite that is named alone, and counts what it changes."""
    before = forecast_of(model, {}, {}).integers
    for found in analyze(model).in_float:
        known = (*obstacles.REWRITES.values(), obstacles.PAIRS_IN_FRONT)
        [kind] = [each.kind for each in known if each.text == found.remedy]
        gained = rewritten(model, Path(), ["constants", kind], {}, {}).forecast.integers - before
        assert gained == sum(found.ops.values()) - sum(found.then.values())


def test_what_a_zero_point_alone_does_not_change_is_not_claimed() -> None:
    model = clamped_and_read_twice().model()
    assert_claims_hold(model)
    [clamped, _] = analyze(model).in_float
    assert dict(clamped.then) == {obstacles.REWRITES["unsigned"].text: 1}


def test_what_is_joined_behind_clamps_has_one_scale() -> None:
    model = fixed(joined("Relu")).model
    values = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    how = [
        tuple(values[name].item() for name in node.input[1:])
        for node in model.graph.node
        if node.op_type == "QuantizeLinear" and "x" not in node.input
    ]
    assert how == [(pytest.approx(0.3 * 127 / 255), 0)] * 3


def test_what_an_identity_hands_on_is_read_itself_and_not_copied() -> None:
    graph, value = image()
    weight = graph.dequantized(graph.weights("w", 8, 8, 3, 3))
    handed = graph.node("Identity", [weight], "tied")
    graph.output(graph.quantized(graph.node("Conv", [value, handed], "c")))
    found = fixed(graph)
    assert found.nodes == {"constants": ["tied"]}
    assert next(it for it in found.model.graph.node if it.op_type == "Conv").input[1] == weight
    assert len(found.model.graph.initializer) == len(graph.model().graph.initializer)


def multiplied(*, most: int = 127, dtype: type = np.int8, shared: str = "") -> Builder:
    """Two MatMul in a row, whose weights or zero points may be one constant."""
    graph = Builder([8, 32])
    value, zero = graph.quantized("x"), np.array(128 if dtype is np.uint8 else 0, dtype)
    for name in ("m1", "m2"):
        of = "w1" if shared == "weights" else name.replace("m", "w")
        codes = np.random.default_rng(3).integers(-most, most + 1, (32, 32))
        codes[0, 0] = most
        how = graph.how("both" if shared == "zero points" else of, zero, 0.005)
        inputs = [graph.constant(f"{of}_codes", (codes + int(zero)).astype(dtype)), *how]
        made = f"{of}_DQ"
        if shared != "weights" or name == "m1":
            graph.node("DequantizeLinear", inputs, made)
        value = graph.quantized(graph.node("MatMul", [value, made], name))
    graph.output(value)
    return graph


@pytest.mark.parametrize("shared", ["", "weights", "zero points"])
def test_sums_of_32_bits_are_of_weights_of_8_bits_and_sign_and_nothing_is_shared_then(
    shared: str,
) -> None:
    model = multiplied(shared=shared).model()
    found = rewritten(model, Path(), ["sums"], {}, {})
    assert found.nodes == {"sums": ["m1", "m2"]}
    names = [sorted(it.name for it in each.graph.initializer) for each in (model, found.model)]
    assert (names[0] == names[1]) is (not shared)
    assert found.session == {"session_config": {"session.x64quantprecision": "1"}}
    assert (
        sqnr(model, found) > 30
    )  # with the option, which onnxruntime refuses where they are shared


@pytest.mark.parametrize("how", [{"most": 64}, {"dtype": np.uint8}])
def test_sums_of_weights_of_7_bits_or_without_a_sign_do_not_saturate(how: Any) -> None:
    assert rewritten(multiplied(**how).model(), Path(), ["sums"], {}, {}).nodes == {}


def test_the_kinds_that_a_user_may_name_are_those_that_there_are() -> None:
    assert tuple(each.kind for each in REMEDIES if not each.instead_of) == results.KINDS


def test_a_fixed_model_is_not_changed_again() -> None:
    once = fixed(with_bias(np.int8, 0.02)).model
    assert rewritten(once, Path(), KINDS, {}, {}).nodes == {}
