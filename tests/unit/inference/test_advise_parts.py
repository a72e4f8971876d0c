"""What can be left in float, what that takes away of the noise, and that the quantizer writes the same."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from otel_quant.inference.advise.choosing import Choice, Limit, Target
from otel_quant.inference.advise.noise import noise_of_parts
from otel_quant.inference.advise.quantized_parts import QuantizedParts
from otel_quant.inference.outputs import sqnr
from tests.fixtures.advised import SHAPE, float_net
from tests.fixtures.onnx_builder import Builder

onnxruntime = pytest.importorskip("onnxruntime")

FEEDS = {"x": np.random.default_rng(9).standard_normal(SHAPE, dtype=np.float32)}

Quantize = Callable[..., str]


@pytest.fixture
def quantize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quantize:
    """Quantizes ``float.onnx`` as onnxruntime does with some nodes excluded; returns the file."""
    monkeypatch.chdir(tmp_path)

    def quantized(*excluded: str) -> str:
        monkeypatch.setattr(sys, "argv", ["quantize.py", *excluded])
        runpy.run_path("quantize.py")
        return str(tmp_path / "int8.onnx")

    return quantized


def session(model: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    source = model if isinstance(model, str) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options)


def noise(parts: QuantizedParts) -> Any:
    models = (parts.with_errors(as_inputs=each).model for each in (False, True))
    return noise_of_parts(*map(session, models), session("float.onnx"), FEEDS)


@pytest.mark.parametrize(
    ("left", "in_float"),
    [
        (["c2"], set()),
        (["c1", "c2"], {"x", "c1_relu"}),
        (["c3", "pool"], {"c3_relu", "y"}),
        (["c1", "c2", "c3", "pool"], {"x", "c1_relu", "c2_out", "c3_relu", "y"}),
    ],
)
def test_the_forecast_is_what_the_quantizer_writes(
    tmp_path: Path, quantize: Quantize, left: Sequence[str], in_float: set[str]
) -> None:
    float_net(tmp_path)
    parts = QuantizedParts("float.onnx", quantize())
    gone = parts.sources.keys() - parts.quantized(left)
    assert {each.removesuffix("_QuantizeLinear_Output") for each in gone} == in_float
    forecast = parts.with_floats(left).model
    written = onnx.load(quantize(*left))
    counts = [Counter(each.op_type for each in it.graph.node) for it in (forecast, written)]
    assert counts[0] - Counter({"Identity": 99}) == counts[1] - Counter({"Identity": 99})
    outputs = [session(each).run(None, FEEDS)[0] for each in (written, forecast)]
    near = sqnr(*outputs)
    assert near is None or near > 45


@pytest.mark.parametrize(("spread", "is_planted"), [(60.0, True), (1.0, False)])
def test_noise_is_of_the_weights_that_make_it_and_adds_up_to_that_of_the_outputs(
    tmp_path: Path, quantize: Quantize, spread: float, is_planted: bool
) -> None:
    float_net(tmp_path, spread=spread)
    path = quantize()
    found = noise(QuantizedParts("float.onnx", path))
    total = sum(found["parts"].values())
    assert (found["parts"]["c2"] > 0.7 * total) is is_planted
    expected, actual = (session(each).run(None, FEEDS)[0] for each in ("float.onnx", path))
    power = ((actual - expected) ** 2).sum() / (expected**2).sum()
    assert 10 * abs(np.log10((total + found["rest"]) / power)) < 1
    assert found["rest"] < 0.05 * total


def test_a_quantized_constant_of_one_number_makes_its_noise_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("float", "int8"):
        graph, is_float = Builder(SHAPE), name == "float"
        value = "x" if is_float else graph.quantized("x", scale=0.04)
        factor = graph.constant("factor", np.float32(0.7) if is_float else np.uint8(200))
        factor = factor if is_float else graph.dequantized(factor, np.uint8(0), 0.0036)
        value = graph.node("Mul", [value, factor], "m")
        graph.output(value if is_float else graph.quantized(value, scale=0.03))
        graph.save(tmp_path / f"{name}.onnx")
    found = noise(QuantizedParts("float.onnx", "int8.onnx"))
    assert 0.1 < found["parts"]["m"] / sum(found["parts"].values()) < 0.99


@pytest.mark.parametrize(
    ("factors", "can_be_left"), [(np.linspace(0.2, 5, 32), True), (None, False)]
)
def test_weights_of_a_folded_batch_norm_are_the_float_models_and_others_are_not(
    tmp_path: Path, quantize: Quantize, factors: Any, can_be_left: bool
) -> None:
    float_net(tmp_path, spread=1.0)
    path = quantize()
    model = onnx.load("float.onnx")
    weights = next(each for each in model.graph.initializer if each.name == "c1_w")
    array = numpy_helper.to_array(weights)
    other = np.random.default_rng(1).standard_normal(array.shape)
    changed = other if factors is None else array * factors[:, None, None, None]
    weights.CopyFrom(numpy_helper.from_array(changed.astype(np.float32), "c1_w"))
    onnx.save(model, "float.onnx")
    parts = QuantizedParts("float.onnx", path)
    assert ("c1" in parts.growth) is can_be_left
    assert parts.growth.keys() >= {"c2", "c3", "pool"}
    if can_be_left:  # with the factors that the file has
        forecast, before = parts.with_floats(["c1"]).model, path
        assert (sqnr(*(session(it).run(None, FEEDS)[0] for it in (before, forecast))) or 99) > 20


@pytest.mark.parametrize(("is_rounded", "is_first"), [(False, True), (False, False), (True, True)])
def test_what_a_quantizer_joins_with_a_contraction_quantizes_its_own_result(
    tmp_path: Path, is_rounded: bool, is_first: bool
) -> None:
    """As AMD Quark writes a LeakyRelu; behind a Conv in float it is not the quantizer's."""
    for name in ("float", "int8"):
        graph, is_quantized = Builder([1, 8, 8, 8]), name == "int8"
        value = graph.quantized("x") if is_quantized and is_first else "x"
        first = graph.weights("w1", 8, 8, 1, 1, dtype=np.int8 if value != "x" else np.float32)
        second = graph.weights("w2", 8, 8, 1, 1, dtype=np.int8 if is_quantized else np.float32)
        first = graph.dequantized(first) if value != "x" else first
        value = graph.node("Conv", [value, first], "c1")
        value = graph.quantized(value, scale=1) if is_quantized and is_rounded else value
        value = graph.node("LeakyRelu", [value], "leaky")
        value = graph.quantized(value, scale=1) if is_quantized else value
        second = graph.dequantized(second) if is_quantized else second
        value = graph.node("Conv", [value, second], "c2")
        graph.output(graph.quantized(value, scale=9) if is_quantized else value)
        graph.save(tmp_path / f"{name}.onnx")
    parts = QuantizedParts(str(tmp_path / "float.onnx"), str(tmp_path / "int8.onnx"))
    names = [each.name for each in parts.nodes]
    assert ("leaky" in names) is is_first
    made = parts.of["leaky"]
    assert (made in parts.quantized(["c2"])) is is_first
    assert made not in parts.quantized(["leaky", "c2"])


def replaced_net(folder: Path, left: Sequence[str], *, is_own: bool = False) -> str:
    """Writes what AMD Quark's XINT8 makes of a Sigmoid and a large pool; ``is_own``: the float net has it as well."""
    for name in ("float", "int8"):
        graph, is_quantized, is_made = (
            Builder([1, 4, 24, 24]),
            name == "int8",
            name == "int8" or is_own,
        )

        def quantized(value: str, graph: Builder = graph, is_quantized: bool = is_quantized) -> str:
            return graph.quantized(value, np.int8(0), 2**-6) if is_quantized else value

        factor = graph.constant("factor", np.float32(1.05)) if is_made else ""
        value = quantized("x") if "gate" not in left else "x"
        if is_made and "gate" not in left:
            value = graph.node("HardSigmoid", [value], "gate", alpha=1 / 6)
            value = graph.node("Mul", [value, factor], "gate_Mul")
        else:
            value = graph.node("Sigmoid", [value], "gate")
        value = quantized(value) if {"gate", "add"} - {*left} else value
        value = graph.node("Add", [value, value], "add")
        value = quantized(value) if {"add", "pool"} - {*left} else value
        if is_made and "pool" not in left:
            value = graph.node("AveragePool", [value], "split", kernel_shape=[4, 4], strides=[4, 4])
            value = quantized(graph.node("Mul", [value, factor], "split_Mul"))
            value = graph.node("GlobalAveragePool", [value], "pool")
            value = graph.node("Mul", [value, factor], "pool_Mul")
        else:
            value = graph.node("GlobalAveragePool", [value], "pool")
        graph.output(quantized(value) if "pool" not in left else value)
        graph.save(folder / f"{name}.onnx")
    return str(folder / "float.onnx")


@pytest.mark.parametrize("left", [["gate"], ["pool"], ["add", "gate"], ["add", "gate", "pool"]])
def test_what_a_quantizer_has_replaced_is_as_in_the_float_model_where_it_is_left_out(
    tmp_path: Path, left: Sequence[str]
) -> None:
    floats = replaced_net(tmp_path, left)
    written = onnx.load(tmp_path / "int8.onnx")
    replaced_net(tmp_path, ())
    parts = QuantizedParts(floats, str(tmp_path / "int8.onnx"))
    assert [each.name for each in parts.nodes] == ["gate", "add", "pool"]
    models = written, parts.with_floats(left).model
    counts = [Counter(each.op_type for each in it.graph.node) for it in models]
    assert counts[0] == counts[1] - Counter({"Identity": 99})
    feeds = {"x": np.random.default_rng(9).standard_normal((1, 4, 24, 24), dtype=np.float32)}
    results = [session(each).run(None, feeds)[0] for each in models]
    np.testing.assert_allclose(*results, atol=1e-6)


def test_the_noise_of_what_was_replaced_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    floats = replaced_net(tmp_path, ())
    models = [QuantizedParts(floats, "int8.onnx").with_errors(as_inputs=it) for it in (False, True)]
    feeds = {"x": np.random.default_rng(9).standard_normal((1, 4, 24, 24), dtype=np.float32)}
    found = noise_of_parts(*(session(each.model) for each in models), session(floats), feeds)
    assert found["rest"] < 1e-9
    most = sorted(found["parts"], key=found["parts"].__getitem__)[-2:]
    assert set(most) == {"gate_Mul_Q", "pool_Mul_Q"}  # not the pool that was put in front


def test_a_factor_of_the_float_models_own_is_not_the_quantizers(tmp_path: Path) -> None:
    floats = replaced_net(tmp_path, (), is_own=True)
    parts = QuantizedParts(floats, str(tmp_path / "int8.onnx"))
    assert "gate_Mul_Q" not in {result for each in parts.nodes for result in each.makes}
    kinds = Counter(each.op_type for each in parts.with_floats(["add"]).model.graph.node)
    assert (kinds["HardSigmoid"], kinds["AveragePool"], kinds["Sigmoid"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("target", "limit", "left"),
    [
        ("accuracy", Limit("noise", 0.5), {"c2"}),
        ("accuracy", Limit("noise", 2.0), set()),
        ("size", Limit("noise", 0.05), {"c2", "c3"}),
        ("accuracy", Limit("seconds", 470.0), {"c2"}),
        ("accuracy", Limit("bytes", 100.0), set()),
        ("latency", None, {"pool"}),
        ("latency", Limit("noise", 0.5), {"c2", "pool"}),
    ],
)
def test_what_gives_most_for_its_cost_is_left_in_float(
    tmp_path: Path, quantize: Quantize, target: Target, limit: Limit | None, left: set[str]
) -> None:
    float_net(tmp_path)
    parts = QuantizedParts("float.onnx", quantize())
    times = {"c1": 100.0, "c2": 100.0, "c3": 100.0, "pool": 50.0}
    floats = {**dict.fromkeys(times, 200.0), "pool": 20.0}
    powers = {"c1": 0.01, "c2": 0.8, "c3": 0.15}
    conversions = dict.fromkeys(parts.sources, 5.0)
    choice = Choice(parts, powers, 0.001, times, floats, conversions, 100)
    assert choice.nodes(target, limit) == left
