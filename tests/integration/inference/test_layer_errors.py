"""How good each layer is, and what makes a model inaccurate: the figures of numpy, each planted defect by its node."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as q
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from otel_quant.inference.measure import measure_files
from otel_quant.inference.onnx_session import EXACT_SUMS
from otel_quant.inference.results import InferenceResult, ModelResult, TensorError
from otel_quant.inference.subjects import Options
from otel_quant.views.inference import document
from otel_quant.views.layers_beside import Beside
from otel_quant.views.writers import written
from tests.fixtures.onnx_builder import model_of_text
from tests.integration.inference.conftest import measured

_TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[2,8,16,16] x) => (float[2,10] y) {
    [conv0] c0 = Conv<pads=[1,1,1,1]>(x, w0, b0)
    [relu0] r0 = Relu(c0)
    [conv1] c1 = Conv<pads=[1,1,1,1]>(r0, w1, b1)
    [clip1] r1 = Clip(c1, low, high)
    [conv2] c2 = Conv<pads=[1,1,1,1]>(r1, w2, b2)
    [add] s = Add(c2, r0)
    [pool] g = GlobalAveragePool(s)
    [flat] f = Flatten(g)
    [fc] y = Gemm(f, wf, bf)
}"""


class Samples(q.CalibrationDataReader):
    def __init__(self) -> None:
        drawn = (np.random.default_rng(i) for i in range(8))
        self._left = iter(
            [{"x": each.standard_normal((2, 8, 16, 16), np.float32)} for each in drawn]
        )

    def get_next(self) -> Any:
        return next(self._left, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has a float model, inputs, and the model in several quantized forms, all of them healthy."""
    path = tmp_path_factory.mktemp("layers")
    drawn = np.random.default_rng(0)
    shapes = {"w0": (16, 8, 3, 3), "w1": (16, 16, 3, 3), "w2": (16, 16, 3, 3), "wf": (16, 10)}
    weights = {
        name: (drawn.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in shapes.items()
    }
    biases = {
        f"b{i}": np.full(length, 0.1, np.float32)
        for i, length in (*enumerate((16,) * 3), ("f", 10))
    }
    limits = {"low": np.float32(0), "high": np.float32(6)}
    onnx.save(model_of_text(_TEXT, **weights, **biases, **limits), path / "float.onnx")
    np.savez(path / "data.npz", **Samples().get_next())
    for name, how in {
        "channels": {"per_channel": True},
        "int8": {"activation_type": q.QuantType.QInt8},
        "operators": {"quant_format": q.QuantFormat.QOperator},
        "percentile": {"calibrate_method": q.CalibrationMethod.Percentile},
        "kept": {"extra_options": {"QDQKeepRemovableActivations": True}},
    }.items():
        how = {"activation_type": q.QuantType.QUInt8, "weight_type": q.QuantType.QInt8, **how}
        q.quantize_static(path / "float.onnx", path / f"{name}.onnx", Samples(), **how)
    q.quantize_dynamic(path / "float.onnx", path / "dynamic.onnx")
    return path


def _compared(folder: Path, *names: str) -> list[ModelResult]:
    paths = [folder / "float.onnx", *(folder / f"{name}.onnx" for name in names)]
    return [*measured(paths, _options(folder))][1:]


def _options(folder: Path) -> Options:
    """Returns options of sums that saturate on no processor: those have a finding of their own."""
    return Options(runs=2, data=str(folder / "data.npz"), entries=EXACT_SUMS)


def _about_accuracy(result: ModelResult) -> list[tuple[str, str]]:
    return [(each.kind, each.node) for each in result.findings if each.is_about_accuracy]


HEALTHY = ("channels", "int8", "operators", "percentile", "kept", "dynamic")


def test_healthy_models_have_no_finding_about_accuracy_and_a_row_for_each_contraction(
    folder: Path,
) -> None:
    for name, result in zip(HEALTHY, _compared(folder, *HEALTHY), strict=True):
        assert result.accuracy is not None
        worst_last = reversed(result.accuracy.layers)  # of a node with two roundings the worse one
        layers = {each.node.partition("_")[0]: each for each in worst_last}
        assert _about_accuracy(result) == [], name
        for node in ("conv0", "conv1", "conv2", "fc"):
            found = layers[node]
            assert (found.weights or 0) > 35, (name, found)
            assert (found.all or 0) > 30, (name, found)
            assert (found.own is None) == (name == "dynamic"), (name, found)
        worst = [each.worst for each in result.accuracy.layers]
        assert worst == sorted(worst)


def _run(model: onnx.ModelProto, names: list[str], fed: dict[str, Any]) -> list[Any]:
    model = copy.deepcopy(model)
    model.graph.output.extend(map(helper.make_empty_tensor_value_info, names))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(onnxruntime.InferenceSession(model.SerializeToString(), options).run(names, fed))


def _sqnr(expected: Any, actual: Any) -> Any:
    noise = ((expected.astype(float) - actual) ** 2).sum()
    return pytest.approx(10 * np.log10((expected.astype(float) ** 2).sum() / noise), abs=0.01)


@pytest.mark.parametrize("name", ["channels", "operators"])
def test_the_figures_of_a_layer_are_those_of_numpy_with_the_clamp_put_back(
    name: str, folder: Path
) -> None:
    [result] = _compared(folder, name)
    assert result.accuracy is not None
    found = {each.name: each for each in result.accuracy.layers}["r1"]
    model, fed = onnx.load(folder / f"{name}.onnx"), dict(np.load(folder / "data.npz"))
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    first, made = ("r0", "r1") if name == "channels" else ("c0", "c1")
    scale, zero = constants[f"{made}_scale"], constants[f"{made}_zero_point"]
    if name == "channels":
        before, codes = _run(model, ["r1", "r1_QuantizeLinear_Output"], fed)
    else:
        read, codes = _run(model, ["c0_quantized", "c1_quantized"], fed)
        weights = constants["w1_quantized"] * constants["w1_scale"]
        bias = constants["b1_quantized"] * (constants[f"{first}_scale"] * constants["w1_scale"])
        graph = helper.make_graph(
            [helper.make_node("Conv", ["a", "w", "b"], ["y"], pads=[1] * 4)], "conv",
            [helper.make_tensor_value_info("a", TensorProto.FLOAT, None)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(each.astype(np.float32), name)
             for name, each in (("w", weights), ("b", bias))],
        )  # fmt: skip
        conv = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        floats = (read.astype(np.float32) - constants[f"{first}_zero_point"]) * constants[
            f"{first}_scale"
        ]
        [before] = _run(conv, ["y"], {"a": floats.astype(np.float32)})[:1]
    after = (codes.astype(np.float32) - zero) * scale
    [like] = _run(onnx.load(folder / "float.onnx"), ["r1"], fed)
    clamped = np.clip(before, 0, 6)
    shape = (-1, 1, 1, 1) if name == "channels" else ()
    weights = constants["w1_quantized"] * constants["w1_scale"].reshape(shape)
    [original] = [
        numpy_helper.to_array(each)
        for each in onnx.load(folder / "float.onnx").graph.initializer
        if each.name == "w1"
    ]
    assert found == TensorError(
        "r1", _sqnr(clamped, after), _sqnr(like, after), found.node, _sqnr(like, clamped), _sqnr(original, weights),
        low=pytest.approx((codes == 0).mean()), high=pytest.approx((codes == 255).mean()),
        used=pytest.approx((int(codes.max()) - int(codes.min()) + 1) / 256),
        clipped=found.clipped, span=found.span, direct=found.direct, best=found.best, passed=0.0,
        best_scale=found.best_scale, best_zero=0, weights_best=found.weights_best,
        weights_used=(int(constants["w1_quantized"].max()) - int(constants["w1_quantized"].min()) + 1) / 256, weights_scales=constants["w1_scale"].size,
    )  # fmt: skip
    assert (found.own or 0) > 40  # not the 3 dB that are left of both sides of the clamp


class Planting:
    """A healthy model that gets a defect."""

    def __init__(self, path: Path) -> None:
        self.graph = (model := onnx.load(path)).graph
        self.model, self.named = model, {node.name: node for node in model.graph.node}

    def __getitem__(self, name: str) -> Any:
        found = (each for each in self.graph.initializer if each.name == name)
        return numpy_helper.to_array(next(found))

    def __setitem__(self, name: str, value: Any) -> None:
        for each in [it for it in self.graph.initializer if it.name == name]:
            self.graph.initializer.remove(each)
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))

    def scale(self, factor: float) -> None:
        """Makes the scale of conv1's result another one, and that of the bias that follows from it."""
        self["r1_scale"] = self["r1_scale"] * np.float32(factor)
        self["b2_quantized"] = np.rint(self["b2_quantized"] / factor).astype(np.int32)
        self["b2_quantized_scale"] = self["b2_quantized_scale"] * np.float32(factor)


def _clipped(model: Planting) -> None:
    model.scale(0.1)


def _ten_times(model: Planting) -> None:
    model.scale(10)


def _disagrees(model: Planting) -> None:
    model["other"] = np.uint8(100)
    model.named["r1_DequantizeLinear"].input[2] = "other"


def _input_disagrees(model: Planting) -> None:
    model["other"] = model["x_scale"] * np.float32(3)
    model.named["x_DequantizeLinear"].input[1] = "other"


def _lets_pass(model: Planting) -> None:
    model["r1_zero_point"] = np.uint8(128)
    model.scale(2)


def _behind_a_relu(model: Planting) -> None:
    _lets_pass(model)
    quantizer = model.named["r1_QuantizeLinear"]
    at = list(model.graph.node).index(quantizer)
    model.graph.node.insert(at, helper.make_node("Relu", ["r1"], ["kept"], "kept"))
    quantizer.input[0] = "kept"


def _outlier(model: Planting) -> None:
    """One scale for all weights, whose values are 40 times smaller."""
    weights = model["w1_quantized"] * model["w1_scale"].reshape(-1, 1, 1, 1)
    scale = np.float32(np.abs(weights).max() * 40 / 127)
    bias = model["b1_quantized"] * model["b1_quantized_scale"]
    model["w1_quantized"], model["w1_scale"] = np.rint(weights / scale).astype(np.int8), scale
    model["w1_zero_point"] = np.int8(0)
    model["b1_quantized_scale"] = model["r0_scale"] * scale
    model["b1_quantized"] = np.rint(bias / (model["r0_scale"] * scale)).astype(np.int32)
    model["b1_quantized_zero_point"] = np.int32(0)
    for name in ("w1_DequantizeLinear", "b1_DequantizeLinear"):
        del model.named[name].attribute[:]


PLANTED: dict[str, tuple[Callable[[Planting], None], str, str]] = {
    "clipped scale": (_clipped, "scale", "conv1"),
    "scale ten times too large": (_ten_times, "scale", "conv1"),
    "Q and DQ that disagree": (_disagrees, "disagree", "conv1"),
    "Q and DQ of an input that disagree": (_input_disagrees, "disagree", "x"),
    "Clip left to a zero point of 128": (_lets_pass, "zero_point", "conv1"),
    "zero point of 128 behind a Relu": (_behind_a_relu, "zero_point", "kept"),
    "outlier in weights": (_outlier, "weights", "conv1"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_of_accuracy_is_named_first_and_once_with_its_node(
    name: str, folder: Path
) -> None:
    plant, kind, node = PLANTED[name]
    model = Planting(folder / "channels.onnx")
    plant(model)
    onnx.checker.check_model(model.model)
    onnx.save(model.model, folder / "planted.onnx")
    [result] = _compared(folder, "planted")
    assert _about_accuracy(result) == [(kind, node)], result.findings
    assert (result.findings[0].kind, result.findings[0].node) == (kind, node)


def test_what_a_finding_about_a_scale_offers_removes_it(folder: Path) -> None:
    model = Planting(folder / "channels.onnx")
    model.scale(0.1)
    onnx.save(model.model, folder / "planted.onnx")
    [planted] = _compared(folder, "planted")
    words = planted.findings[0].remedy.split()
    model["r1_zero_point"] = np.uint8(words[-1])
    model.scale(float(words[1]) / float(model["r1_scale"]))
    onnx.save(model.model, folder / "mended.onnx")
    [mended] = _compared(folder, "mended")
    assert _about_accuracy(mended) == []
    assert planted.accuracy is not None
    assert mended.accuracy is not None
    assert (planted.accuracy.lowest_sqnr or 0) < 15 < 30 < (mended.accuracy.lowest_sqnr or 0)


@pytest.mark.parametrize("name", ["clipped scale", "outlier in weights"])
def test_what_the_outputs_lose_by_a_layer_is_what_they_have_more_if_it_is_left_in_float(
    name: str, folder: Path
) -> None:
    model = Planting(folder / "channels.onnx")
    PLANTED[name][0](model)
    onnx.save(model.model, folder / "planted.onnx")
    dequantizer = model.named["r1_DequantizeLinear"]
    operands = ["r1", "low", "high"]
    model["low"], model["high"] = np.float32(0), np.float32(6)
    if name != "clipped scale":
        dequantizer, operands = model.named["w1_DequantizeLinear"], ["w1"]
        model["w1"] = Planting(folder / "float.onnx")["w1"]
    instead = helper.make_node("Clip", operands, dequantizer.output)
    at = list(model.graph.node).index(dequantizer)
    model.graph.node.remove(dequantizer)
    model.graph.node.insert(at, instead)
    onnx.save(model.model, folder / "in_float.onnx")
    planted, better = (each.accuracy for each in _compared(folder, "planted", "in_float"))
    assert planted is not None
    assert better is not None
    worst = planted.layers[0]
    assert worst.node == "conv1"
    won = (better.lowest_sqnr or 0) - (planted.lowest_sqnr or 0)
    assert worst.lost == pytest.approx(won, abs=0.5)  # one of the two is optimized
    assert won > 20


def test_a_layer_that_hurts_accuracy_has_that_verdict_and_why(folder: Path) -> None:
    model = Planting(folder / "channels.onnx")
    _clipped(model)
    onnx.save(model.model, folder / "planted.onnx")
    paths = [str(folder / f"{name}.onnx") for name in ("float", "planted")]
    result = measure_files(paths, _options(folder))
    page = "".join(written(document(result, 20), "markdown"))
    [row] = [line for line in page.splitlines() if line.startswith("| conv1 ") and "hurts" in line]
    assert "dB are left of them" in row
    assert not TensorError("a", 12.0, lost=5.0).hurts(10.0, is_named=False)
    assert TensorError("a", 12.0, lost=20.0).hurts(10.0, is_named=False)
    assert not TensorError("a", 32.0, lost=20.0).hurts(31.0, is_named=False)


def test_what_is_within_a_function_of_the_model_has_no_row_and_the_others_have(
    folder: Path,
) -> None:
    model = onnx.load(folder / "channels.onnx")
    body = [
        helper.make_node("Abs", ["a"], ["within"]),
        helper.make_node("Identity", ["within"], ["b"]),
    ]
    opset = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "Size", ["a"], ["b"], body, opset))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node.append(helper.make_node("Size", ["y"], ["z"], "size", domain="own"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    onnx.save(model, folder / "function.onnx")
    (result,) = _compared(folder, "function")
    assert result.accuracy is not None
    assert {each.node for each in result.accuracy.layers} >= {"conv0", "conv1", "conv2", "fc"}


def test_weights_in_a_block_that_is_longer_than_they_are_are_no_finding(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
        net (float[4, 64] x) => (float[4, 32] y) { [mm] y = MatMul (x, w) }"""
    drawn = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    onnx.save(model_of_text(text, w=drawn), tmp_path / "float.onnx")
    np.savez(tmp_path / "data.npz", x=drawn[:, :4].T.copy())
    config = DefaultWeightOnlyQuantConfig(block_size=128, is_symmetric=True)
    quantizer = MatMulNBitsQuantizer(onnx.load(tmp_path / "float.onnx"), algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(tmp_path / "bits.onnx"))
    [result] = _compared(tmp_path, "bits")
    assert result.accuracy is not None
    assert 15 < (result.accuracy.layers[0].weights or 0) < 30
    assert _about_accuracy(result) == []


_NORMALIZED = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[2,8,16,16] x) => (float[2,16,16,16] y) {
    [conv0] c = Conv<pads=[1,1,1,1]>(x, w, b)
    [norm] n = BatchNormalization(c, s, b, b, v)
    [relu] y = Relu(n)
}"""


def test_a_batch_norm_that_is_not_folded_is_removed_by_what_its_finding_offers(
    tmp_path: Path,
) -> None:
    drawn = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype(np.float32)
    constants = {
        "w": drawn / 9,
        "b": np.full(16, 0.1),
        "s": np.linspace(0.3, 3, 16),
        "v": np.linspace(2, 1, 16),
    }
    constants = {name: each.astype(np.float32) for name, each in constants.items()}
    onnx.save(model_of_text(_NORMALIZED, **constants), tmp_path / "float.onnx")
    np.savez(tmp_path / "data.npz", **Samples().get_next())
    quant_pre_process(tmp_path / "float.onnx", tmp_path / "prepared.onnx")
    for name, source in (("plain", "float"), ("folded", "prepared")):
        q.quantize_static(tmp_path / f"{source}.onnx", tmp_path / f"{name}.onnx", Samples())
    plain, folded = _compared(tmp_path, "plain", "folded")
    assert [each.node for each in plain.findings if "quant_pre_process" in each.remedy] == ["norm"]
    assert [each.kind for each in folded.findings if each.kind in ("unfused", "in_float")] == []
    assert folded.accuracy is not None
    assert min(each.own or 0 for each in folded.accuracy.layers) > 35
    assert all(each.weights is None for each in folded.accuracy.layers)  # not those of the file


_DIVIDES = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[4,8] x) => (float[4,8] y) {
    [abs] a = Abs(x)
    [plus] d = Add(a, small)
    [div] n = Div(x, d)
    [half] y = Mul(n, large)
}"""


def test_the_first_values_that_are_not_finite_are_named_with_their_cause(tmp_path: Path) -> None:
    constants = {"small": np.float32(1e-3), "large": np.float32(1e5)}
    model = model_of_text(_DIVIDES, **constants)
    onnx.save(model, tmp_path / "float.onnx")
    [x] = Samples().get_next().values()
    np.savez(tmp_path / "data.npz", x=x.ravel()[:32].reshape(4, 8))
    quantized, half = copy.deepcopy(model), copy.deepcopy(model)
    for name, value in (("s", np.float32(0.5)), ("z", np.uint8(0))):
        quantized.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    for op, read, made in (("QuantizeLinear", "d", "dq"), ("DequantizeLinear", "dq", "dd")):
        quantized.graph.node.insert(
            len(quantized.graph.node) - 2, helper.make_node(op, [read, "s", "z"], [made], made)
        )
    quantized.graph.node[-2].input[1] = "dd"
    onnx.save(quantized, tmp_path / "zero.onnx")
    half.graph.node[-1].output[0] = "h"
    half.graph.node[-1].input[0] = "nh"
    half.graph.initializer[-1].CopyFrom(numpy_helper.from_array(np.float16(6e4), "large"))
    half.graph.node.insert(3, helper.make_node("Cast", ["n"], ["nh"], "to", to=TensorProto.FLOAT16))
    half.graph.node.append(helper.make_node("Mul", ["h", "large"], ["hh"], "over"))
    half.graph.node.append(helper.make_node("Cast", ["hh"], ["y"], "back", to=TensorProto.FLOAT))
    onnx.save(half, tmp_path / "half.onnx")
    zero, over = _compared(tmp_path, "zero", "half")
    assert _about_accuracy(zero)[0] == ("not_finite", "div")
    assert ": it divides by `plus`, of which quantization has rounded " in zero.findings[0].sentence
    assert _about_accuracy(over)[0][0] == "not_finite"


def _within(model: onnx.ModelProto, op_type: str) -> onnx.ModelProto:
    """Returns a model whose nodes are in the branch that an If takes, or in the body of a Loop of three passes."""
    graph, value = model.graph, helper.make_tensor_value_info
    nodes, result = list(graph.node), [value("y", TensorProto.FLOAT, [2, 10])]
    if op_type == "If":
        zeros = numpy_helper.from_array(np.zeros((2, 10), np.float32))
        other = [helper.make_node("Constant", [], ["zeros"], value=zeros)]
        held = {
            "then_branch": helper.make_graph(nodes, "then", [], result, graph.initializer),
            "else_branch": helper.make_graph(
                other, "else", [], [value("zeros", TensorProto.FLOAT, [2, 10])]
            ),
        }
        outer, constants = ["yes"], {"yes": np.array(True)}
    else:
        nodes.append(helper.make_node("Identity", ["goes"], ["on"], "on"))
        flags = [value(name, TensorProto.BOOL, []) for name in ("goes", "on")]
        given = [
            value("i", TensorProto.INT64, []),
            flags[0],
            value("state", TensorProto.FLOAT, [2, 10]),
        ]
        held = {
            "body": helper.make_graph(nodes, "body", given, [flags[1], *result], graph.initializer)
        }
        outer = ["three", "", "start"]
        constants = {"three": np.array(3), "start": np.zeros((2, 10), np.float32)}
    tensors = [numpy_helper.from_array(each, name) for name, each in constants.items()]
    made = helper.make_graph(
        [helper.make_node(op_type, outer, ["z"], "around", **held)], "net", list(graph.input),
        [value("z", TensorProto.FLOAT, [2, 10])], tensors,
    )  # fmt: skip
    return helper.make_model(made, opset_imports=model.opset_import, ir_version=8)


@pytest.mark.parametrize(("op_type", "body"), [("If", "then"), ("Loop", "body")])
def test_layers_in_bodies_have_the_errors_that_they_have_outside(
    op_type: str, body: str, folder: Path
) -> None:
    planted = Planting(folder / "channels.onnx")
    _clipped(planted)
    onnx.save(planted.model, folder / "planted.onnx")
    (folder / op_type).mkdir()
    for name in ("float", "planted"):
        model = _within(onnx.load(folder / f"{name}.onnx"), op_type)
        onnx.checker.check_model(model)
        onnx.save(model, folder / op_type / f"{name}.onnx")
    (folder / op_type / "data.npz").write_bytes((folder / "data.npz").read_bytes())
    [plain], [held] = _compared(folder, "planted"), _compared(folder / op_type, "planted")
    assert plain.accuracy is not None
    assert held.accuracy is not None

    def figures(layers: Sequence[TensorError], prefix: str) -> list[dict[str, Any]]:
        """Returns what is known of layers; what outputs lose is not known of one pass of several."""
        ours = {"name": "", **({"lost": None} if op_type == "Loop" else {})}
        found = [asdict(each) | ours for each in layers if each.node]
        return [{**each, "node": prefix + each["node"]} for each in found]

    expected = figures(plain.accuracy.layers, f"around/{body}/")
    assert figures(held.accuracy.layers, "") == expected
    assert len(expected) > 4
    assert any(each.lost for each in held.accuracy.layers) == (op_type == "If")
    assert [each.node for each in held.findings if each.kind == "scale"][:1] == [
        f"around/{body}/conv1"
    ]


_PROBABILITIES = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[2,8,16,16] x) => (float[2,16,16,16] y) {
    [conv0] c = Conv<pads=[1,1,1,1]>(x, w)
    [large] l = Mul(c, four)
    [last] y = %s(l)
}"""


@pytest.mark.parametrize("op_type", ["Softmax", "Sigmoid", "Tanh"])
def test_an_output_of_probabilities_has_the_error_of_what_they_are_made_of_too(
    op_type: str, tmp_path: Path
) -> None:
    drawn = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype(np.float32)
    constants = {"w": drawn / 9, "four": np.float32(4)}
    onnx.save(model_of_text(_PROBABILITIES % op_type, **constants), tmp_path / "float.onnx")
    fed = Samples().get_next()
    np.savez(tmp_path / "data.npz", **fed)
    how = {"activation_type": q.QuantType.QUInt8, "weight_type": q.QuantType.QInt8}
    q.quantize_static(tmp_path / "float.onnx", tmp_path / "int8.onnx", Samples(), **how)
    [result] = _compared(tmp_path, "int8")
    assert result.accuracy is not None
    [output] = result.accuracy.outputs
    if op_type == "Tanh":
        assert (output.behind, output.sqnr_in_front, result.accuracy.decisive_sqnr) == (
            None,
            None,
            output.sqnr,
        )
        return
    floats, ints = (
        _run(onnx.load(tmp_path / f"{name}.onnx"), ["l"], fed)[0] for name in ("float", "int8")
    )
    assert (output.behind, output.sqnr_in_front) == (op_type, _sqnr(floats, ints))
    page = "".join(written(document(InferenceResult((result,), "1", {}, None, 2), 20), "markdown"))
    assert f"dB in front of its {op_type})" in page


def test_probabilities_are_not_compared_with_what_they_are_made_of(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype(np.float32)
    for name, op_type in (("float", "Identity"), ("made", "Softmax")):
        model = model_of_text(_PROBABILITIES % op_type, w=drawn / 9, four=np.float32(4))
        onnx.save(model, tmp_path / f"{name}.onnx")
    np.savez(tmp_path / "data.npz", **Samples().get_next())
    [result] = _compared(tmp_path, "made")
    assert result.accuracy is not None
    assert result.accuracy.outputs == ()
    assert (
        result.accuracy.problem == "a Softmax or Sigmoid makes output 'y' of one of the two alone"
    )


def test_a_sigmoid_is_compared_with_the_hard_sigmoid_in_its_place(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype(np.float32)
    for name, op_type in (("float", "Sigmoid"), ("made", "HardSigmoid")):
        model = model_of_text(_PROBABILITIES % op_type, w=drawn / 9, four=np.float32(4))
        onnx.save(model, tmp_path / f"{name}.onnx")
    fed = Samples().get_next()
    np.savez(tmp_path / "data.npz", **fed)
    [result] = _compared(tmp_path, "made")
    floats, made = (
        _run(onnx.load(tmp_path / f"{name}.onnx"), ["y"], fed)[0] for name in ("float", "made")
    )
    assert result.accuracy is not None
    assert (result.accuracy.problem, result.accuracy.lowest_sqnr) == ("", _sqnr(floats, made))


_TWICE = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1,8,16,16] x) => (float[1,4,16,16] y)
<float s = {0.02}, float t = {0.021}, uint8 z = {128}, uint8 zero = {0}, int64[2] of = {4, 4}> {
    [conv] c = Conv<pads=[1,1,1,1]>(x, w)
    [] cq = QuantizeLinear(c, s, z)
    [] cd = DequantizeLinear(cq, s, z)
    [relu] r = Relu(cd)
    [] rq = QuantizeLinear(r, t, zero)
    [] rd = DequantizeLinear(rq, t, zero)
    [split] a, b = Split<axis=1>(rd, of)
    [] aq = QuantizeLinear(a, s, zero)
    [] ad = DequantizeLinear(aq, s, zero)
    [] bq = QuantizeLinear(b, s, zero)
    [] bd = DequantizeLinear(bq, s, zero)
    [] bq2 = QuantizeLinear(bd, t, zero)
    [] bd2 = DequantizeLinear(bq2, t, zero)
    [add] y = Add(ad, bd2)
}"""
_ONCE = "\n".join(line for line in _TWICE.splitlines() if "[] " not in line)


def test_no_two_rows_have_one_name_and_each_is_compared_with_its_own_result(tmp_path: Path) -> None:
    once = _ONCE.replace("cd)", "c)").replace("(rd,", "(r,").replace("(ad, bd2)", "(a, b)")
    weights = np.random.default_rng(0).standard_normal((8, 8, 3, 3), np.float32) / 8
    for name, text in (("float.onnx", once), ("twice.onnx", _TWICE)):
        model = model_of_text(text)
        model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
        onnx.save(model, tmp_path / name)
    paths = [str(tmp_path / "float.onnx"), str(tmp_path / "twice.onnx")]
    result = measure_files(paths, Options(runs=3, layers=True))
    accuracy = result.models[1].accuracy
    assert accuracy is not None
    found = {each.node: each for each in accuracy.layers}
    assert found.keys() == {"conv", "relu", "split"}
    assert all(each.carried is None or each.carried > 20 for each in accuracy.layers)
    [table] = [it for it in _parts(result) if getattr(it, "caption", "") == "Error of each layer"]
    names = [str(cells[0]) for cells in table.rows]
    assert sorted(names) == ["conv", "relu", "split (a)", "split (b)", "split (bq2)"]


def _parts(result: InferenceResult) -> list[Any]:
    """Returns the parts of a result, those within sections too."""
    parts = list(document(result, 40).parts)
    for part in parts:
        parts += getattr(part, "parts", ())
    return parts


def test_nodes_without_a_name_in_bodies_are_the_same_layers_in_both_models(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[16,64] x, bool yes) => (float[16,64] y) <int64 three = {3}> {
        first = MatMul (x, w0)
        branch = If (yes) <
            then_branch = then () => (float[16,64] made) { m = MatMul(first, w1) made = Relu(m) },
            else_branch = other () => (float[16,64] same) { same = Identity(first) }
        >
        y = Loop (three, yes, branch) <
            body = body (int64 i, bool goes, float[16,64] state) => (bool on, float[16,64] next) {
                n = MatMul(state, w2)
                next = Tanh(n)
                on = Identity(goes)
            }
        >
    }"""
    model = model_of_text(text)
    random = np.random.default_rng(0)
    for i in range(3):
        weights = random.standard_normal((64, 64), np.float32) / 8
        model.graph.initializer.append(numpy_helper.from_array(weights, f"w{i}"))
    before, after = str(tmp_path / "float.onnx"), str(tmp_path / "int8.onnx")
    onnx.save(model, before)
    q.quantize_dynamic(before, after, extra_options={"EnableSubgraph": True})
    result = measure_files([before, after], Options(runs=3, layers=True))
    beside = Beside(result.first, result.models[1])
    contractions = {"first", "branch/then/m", "y/body/n"}
    assert contractions < beside.before.keys() == beside.after.keys()
    for name in contractions:
        pair = beside.pair(name, [name])
        assert pair.error is not None
        assert pair.error > 25
    accuracy = result.models[1].accuracy
    assert accuracy is not None
    assert [(each.weights or 0) > 30 for each in accuracy.layers] == [True] * 3


def test_a_model_that_was_calibrated_with_images_is_measured_with_what_has_codes(
    tmp_path: Path,
) -> None:
    paths = []
    for name, front in (
        ("float", "q = Identity (x)"),
        ("int8", "c = QuantizeLinear (x, s, z) q = DequantizeLinear (c, s, z)"),
    ):
        model = model_of_text(
            '<ir_version: 8, opset_import: ["" : 17]> m (float[8, 64] x) => (float[8, 64] y)'
            f" <float s = {{0.00392156862}}, uint8 z = {{0}}, float f = {{0.5}}> {{ {front} y = Mul (q, f) }}"
        )
        onnx.save(model, tmp_path / f"{name}.onnx")
        paths.append(str(tmp_path / f"{name}.onnx"))
    _, found = measure_files(paths, Options(runs=2)).models
    assert found.accuracy is not None
    assert (found.accuracy.lowest_sqnr or 0) > 45  # of a normal distribution 3
    said = "x from 0 to 1; other values have no codes in the quantized model"
    assert found.facts["random inputs"] == said
