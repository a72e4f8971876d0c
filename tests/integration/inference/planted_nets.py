"""Nets as quantizers write them, with one planted defect of time or accuracy each, and healthy ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as q
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

from tests.fixtures.onnx_builder import model_of_text

_NETS: dict[str, str] = {
    "inverted": """(float[1,8,20,20] x) => (float[1,12] y) {
        [expand] e = Conv(x, we, be)
        [six] e6 = Clip(e, low, high)
        [deep] d = Conv<group=32, pads=[1,1,1,1]>(e6, wd, bd)
        [relu] d6 = Relu(d)
        [shrink] s = Conv(d6, ws, bs)
        [skip] a = Add(s, x)
        [pool] p = GlobalAveragePool(a)
        [flat] f = Flatten(p)
        [head] y = Gemm(f, wh, bh)
    }""",
    "sequence": """(float[2,24,32] x) => (float[2,24,32] y) {
        [up] u = MatMul(x, wu)
        [bias] ub = Add(u, bu)
        [act] r = Relu(ub)
        [down] m = MatMul(r, wo)
        [res] t = Add(m, x)
        [last] y = MatMul(t, wl)
    }""",
    "signal": """(float[2,4,96] x) => (float[2,4,96] y) {
        [in] c = Conv<pads=[2,2]>(x, wi, bi)
        [norm] n = BatchNormalization(c, gamma, beta, mean, var)
        [relu] r = Relu(n)
        [mid] m = Conv<pads=[1,1], strides=[2]>(r, wm, bm)
        [relu2] r2 = Relu(m)
        [wide] w = ConvTranspose<strides=[2]>(r2, ww)
        [out] y = Conv(w, wy, by)
    }""",
    "gate": """(float[2,24,32] x) => (float[2,24,32] y) {
        [first] h = MatMul(x, wl)
        [grow] g = Mul(h, three)
        [exp] e = Exp(g)
        [ratio] n = Div(h, e)
        [last] y = MatMul(n, wk)
    }""",
    "attention": """(float[1,16,32] x) => (float[1,16,32] y) {
        [query] qq = MatMul(x, wl)
        [key] k = MatMul(x, wk)
        [turn] kt = Transpose<perm=[0,2,1]>(k)
        [scores] sc = MatMul(qq, kt)
        [soft] pr = Softmax(sc)
        [mix] c = MatMul(pr, x)
        [last] y = MatMul(c, wl2)
    }""",
    "masked": """(float[1,16,32] x) => (float[1,16,32] y) {
        [query] qq = MatMul(x, wl)
        [turn] kt = Transpose<perm=[0,2,1]>(x)
        [scores] sc = MatMul(qq, kt)
        [later] ms = Add(sc, mask)
        [soft] pr = Softmax(ms)
        [mix] c = MatMul(pr, x)
        [last] y = MatMul(c, wl2)
    }""",
}  # fmt: skip

_SHAPES: dict[str, tuple[int, ...]] = {
    "we": (32, 8, 1, 1), "be": (32,), "wd": (32, 1, 3, 3), "bd": (32,), "ws": (8, 32, 1, 1), "bs": (8,),
    "wh": (8, 12), "bh": (12,), "wu": (32, 64), "bu": (64,), "wo": (64, 32), "wl": (32, 32), "wk": (32, 32),
    "wl2": (32, 32), "wi": (16, 4, 5), "bi": (16,), "gamma": (16,), "beta": (16,), "mean": (16,),
    "wm": (16, 16, 3), "bm": (16,), "ww": (16, 16, 2), "wy": (4, 16, 1), "by": (4,),
}  # fmt: skip


_BY_ROWS = frozenset({"wd", "we", "wi", "wm", "ws"})
"""Weights whose first axis is that of the result."""


def float_net(name: str) -> onnx.ModelProto:
    """Returns a net in float, with random weights."""
    drawn = np.random.default_rng(11)
    constants: dict[str, Any] = {}
    for key, shape in _SHAPES.items():
        summed = shape[1:] if key in _BY_ROWS else shape[:1]
        made = drawn.standard_normal(shape) / np.sqrt(np.prod(summed))
        constants[key] = made.astype(np.float32)
    rising = np.linspace(0.5, 2, 16, dtype=np.float32)
    constants |= {"low": np.float32(0), "high": np.float32(6), "three": np.float32(4.5)}
    constants |= {"var": rising, "gamma": rising}
    constants |= {"mask": np.triu(np.full((16, 16), -1e9, np.float32), 1)}
    words = set(re.findall(r"\w+", _NETS[name]))
    used = {key: each for key, each in constants.items() if key in words}
    return model_of_text(f'<ir_version: 8, opset_import: ["" : 17]> {name} {_NETS[name]}', **used)


class Samples(q.CalibrationDataReader):
    """Eight samples for the input of a net."""

    def __init__(self, model: onnx.ModelProto) -> None:
        [given] = model.graph.input
        shape = [each.dim_value for each in given.type.tensor_type.shape.dim]
        drawn = (np.random.default_rng(i) for i in range(8))
        self._left = iter([{"x": each.standard_normal(shape, np.float32)} for each in drawn])

    def get_next(self) -> Any:
        return next(self._left, None)


class Planting:
    """A model that gets a defect."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model, self.graph = model, model.graph
        self.named = {node.name: node for node in model.graph.node}

    def __getitem__(self, name: str) -> Any:
        found = (each for each in self.graph.initializer if each.name == name)
        return numpy_helper.to_array(next(found))

    def __setitem__(self, name: str, value: Any) -> None:
        for each in [it for it in self.graph.initializer if it.name == name]:
            self.graph.initializer.remove(each)
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))

    def insert(self, before: str, op_type: str, inputs: list[str], name: str, **how: Any) -> str:
        """Adds a node in front of another one; returns its result, which has its name."""
        node = helper.make_node(op_type, inputs, [name], name, **how)
        self.graph.node.insert(list(self.graph.node).index(self.named[before]), node)
        self.named[name] = next(each for each in self.graph.node if each.name == name)
        return name

    def rescale(self, tensor: str, factor: float, bias: str = "") -> None:
        """Gives a result another scale, and the bias of what reads it the one that follows."""
        self[f"{tensor}_scale"] = self[f"{tensor}_scale"] * np.float32(factor)
        if bias:
            self[f"{bias}_quantized"] = np.rint(self[f"{bias}_quantized"] / factor).astype(np.int32)
            self[f"{bias}_quantized_scale"] = self[f"{bias}_quantized_scale"] * np.float32(factor)


def static(net: str, **how: Any) -> Callable[[Path], onnx.ModelProto]:
    """Returns what quantizes a net by onnxruntime, to unsigned activations unless told."""

    def make(folder: Path) -> onnx.ModelProto:
        model = float_net(net)
        given = {"activation_type": q.QuantType.QUInt8, "weight_type": q.QuantType.QInt8, **how}
        q.quantize_static(model, folder / "made.onnx", Samples(model), **given)
        return onnx.load(folder / "made.onnx")

    return make


def dynamic(net: str) -> Callable[[Path], onnx.ModelProto]:
    """Returns what quantizes a net by onnxruntime, dynamically."""

    def make(folder: Path) -> onnx.ModelProto:
        q.quantize_dynamic(float_net(net), folder / "made.onnx")
        return onnx.load(folder / "made.onnx")

    return make


def four_bits(folder: Path) -> onnx.ModelProto:
    """A net whose weights have four bits in blocks of 32."""
    config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True)
    quantizer = MatMulNBitsQuantizer(float_net("sequence"), algo_config=config)
    quantizer.process()
    return quantizer.model.model


Making: TypeAlias = tuple[Callable[[Path], onnx.ModelProto], Callable[["Planting"], None]]
"""What quantizes a net, and what is then done to it."""


class PlantedNet(NamedTuple):
    """A net that is quantized and gets a defect, and the finding that is right."""

    net: str
    quantize: Callable[[Path], onnx.ModelProto]
    plant: Callable[[Planting], None]
    kind: str
    node: str
    says: str  # A part of its sentence
    # The same with what its remedy says; None where a rewrite of `fix` does that
    mended: Making | None = None
    beside: frozenset[str] = frozenset()  # Nodes of which findings are right, too


def _int8_bias(model: Planting) -> None:
    bias = model["bd_quantized"] * model["bd_quantized_scale"]
    scale = np.float32(np.abs(bias).max() / 127)
    model["bd_quantized"] = np.rint(bias / scale).astype(np.int8)
    model["bd_quantized_scale"], model["bd_quantized_zero_point"] = scale, np.int8(0)


def _twice(factor: float) -> Callable[[Planting], None]:
    def plant(model: Planting) -> None:
        model["again_scale"] = model["d6_scale"] * np.float32(factor)
        model["again_zero"] = np.uint8(0)
        how = ["again_scale", "again_zero"]
        made = model.insert(
            "shrink", "QuantizeLinear", [model.named["shrink"].input[0], *how], "again"
        )
        model.named["shrink"].input[0] = model.insert(
            "shrink", "DequantizeLinear", [made, *how], "again_back"
        )
        model["bs_quantized"] = np.rint(model["bs_quantized"] / factor).astype(np.int32)
        model["bs_quantized_scale"] = model["bs_quantized_scale"] * np.float32(factor)

    return plant


def _nothing(_: Planting) -> None:
    """The quantizer plants it."""


def _kept_relu(model: Planting) -> None:
    quantizer = model.named["d6_QuantizeLinear"]
    quantizer.input[0] = model.insert("d6_QuantizeLinear", "Relu", [quantizer.input[0]], "kept")
    model["d6_zero_point"] = np.uint8(128)
    model.rescale("d6", 255 / 127, "bs")


def _reshaped(model: Planting) -> None:
    model["wo_quantized"] = model["wo_quantized"].ravel()
    model["wo_shape"] = np.array([64, 32])
    made = model.insert("down", "Reshape", [model.named["down"].input[1], "wo_shape"], "formed")
    model.named["down"].input[1] = made


def _by_rows(model: Planting) -> None:
    weights = model["wo_quantized"] * model["wo_scale"]
    scales = (np.abs(weights).max(axis=1) / 127).astype(np.float32)
    model["wo_quantized"] = np.rint(weights / scales[:, None]).astype(np.int8)
    model["wo_scale"], model["wo_zero_point"] = scales, np.zeros(64, np.int8)
    node = model.named["wo_DequantizeLinear"]
    node.attribute.append(helper.make_attribute("axis", 0))


def _given_out(model: Planting) -> None:
    model.graph.output.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, None))


def _given_out_behind(model: Planting) -> None:
    del model.graph.output[1:]
    model.graph.output.append(
        helper.make_tensor_value_info("s_DequantizeLinear_Output", TensorProto.FLOAT, None)
    )


def _in_blocks(model: Planting, length: int = 8) -> None:
    """Weights of four bits in blocks of rows, in QDQ form."""
    weights = model["wl"]
    blocks = weights.reshape(-1, length, 32)
    scales = (np.abs(blocks).max(axis=1) / 7).astype(np.float32)
    codes = np.rint(blocks / scales[:, None]).astype(np.int8).reshape(32, 32)
    for each in [it for it in model.graph.initializer if it.name == "wl"]:
        model.graph.initializer.remove(each)
    model.graph.initializer.append(
        helper.make_tensor("wl4", TensorProto.INT4, [32, 32], codes.ravel())
    )
    model["wl_scale"] = scales
    made = model.insert(
        "last", "DequantizeLinear", ["wl4", "wl_scale"], "wl_DQ", axis=0, block_size=length
    )
    model.named["last"].input[1] = made


def _plain_sequence(_: Path) -> onnx.ModelProto:
    model = float_net("sequence")
    model.opset_import[0].version, model.ir_version = 21, 10
    return model


def loop(*, is_whole: bool) -> Callable[[Path], onnx.ModelProto]:
    """Returns what quantizes a net with a Loop dynamically, its body too or not."""

    def make(folder: Path) -> onnx.ModelProto:
        options = {"EnableSubgraph": True} if is_whole else {}
        q.quantize_dynamic(loop_net(), folder / "made.onnx", extra_options=options)
        return onnx.load(folder / "made.onnx")

    return make


def loop_net() -> onnx.ModelProto:
    """A net whose Loop multiplies four times by the same weights."""
    drawn = np.random.default_rng(5)
    weights = {
        n: numpy_helper.from_array(drawn.standard_normal((64, 64), np.float32) / 8, n)
        for n in ("wa", "wb")
    }
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("MatMul", ["s", "wb"], ["t"], "inner"), helper.make_node("Tanh", ["t"], ["u"], "tanh"),
         helper.make_node("Identity", ["c"], ["d"], "same")],
        "body", [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("s", 1, [8, 64])],
        [value("d", TensorProto.BOOL, []), value("u", 1, [8, 64])], [weights["wb"]],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "wa"], ["h"], "outer"),
         helper.make_node("Loop", ["four", "", "h"], ["y"], "loop", body=body)],
        "looped", [value("x", 1, [8, 64])], [value("y", 1, [8, 64])],
        [weights["wa"], numpy_helper.from_array(np.array(4), "four")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _disagrees(model: Planting) -> None:
    model["other_scale"] = model["s_scale"] * np.float32(1.7)
    model.named["s_DequantizeLinear"].input[1] = "other_scale"


def _outlier(model: Planting) -> None:
    """One scale for all weights, of which one outlier takes the range."""
    weights = model["wo_quantized"] * model["wo_scale"]
    scale = np.float32(np.abs(weights).max() * 30 / 127)
    model["wo_quantized"], model["wo_scale"] = np.rint(weights / scale).astype(np.int8), scale


def _passes(model: Planting) -> None:
    model["e6_zero_point"] = np.uint8(128)
    model.rescale("e6", 255 / 127, "bd")


def _over_half(model: Planting) -> None:
    """An exponential in float16."""
    exp = model.named["exp"]
    exp.input[0] = model.insert("exp", "Cast", ["g"], "to_half", to=TensorProto.FLOAT16)
    back = model.insert("ratio", "Cast", ["e"], "from_half", to=TensorProto.FLOAT)
    model.named["ratio"].input[1] = back


def _rounded_exp(model: Planting) -> None:
    """The exponential in eight bits."""
    model["e_scale"], model["e_zero_point"] = np.float32(400), np.uint8(0)
    how = ["e_scale", "e_zero_point"]
    made = model.insert("ratio", "QuantizeLinear", ["e", *how], "e_QuantizeLinear")
    back = model.insert("ratio", "DequantizeLinear", [made, *how], "e_DequantizeLinear")
    model.named["ratio"].input[1] = back


def _along_inputs(model: Planting) -> None:
    weights = model["wm_quantized"] * model["wm_scale"]
    scales = (np.abs(weights).max(axis=(0, 2)) / 127).astype(np.float32)
    model["wm_quantized"] = np.rint(weights / scales[:, None]).astype(np.int8)
    model["wm_scale"], model["wm_zero_point"] = scales, np.zeros(16, np.int8)
    del model.named["mid"].input[2]
    model.named["wm_DequantizeLinear"].attribute.append(helper.make_attribute("axis", 1))


def _scaled(tensor: str, factor: float, bias: str) -> Callable[[Planting], None]:
    return lambda model: model.rescale(tensor, factor, bias)


_KEPT = {"extra_options": {"QDQKeepRemovableActivations": True}}
_INT8 = {"activation_type": q.QuantType.QInt8}

_INVERTED, _SIGNAL = static("inverted"), static("signal")
_UNTOUCHED: Making = (_INVERTED, _nothing)

PLANTED: dict[str, PlantedNet] = {
    "bias of int8 in a depthwise Conv": PlantedNet(
        "inverted", _INVERTED, _int8_bias, "in_float", "deep", "the bias is int8"),
    "quantized twice, the second time wider": PlantedNet(
        "inverted", _INVERTED, _twice(1.6), "in_float", "shrink", "of which onnxruntime makes one quantization"),
    "int8 that two read": PlantedNet(
        "inverted", static("inverted", **_INT8), _nothing, "in_float", "expand", "its operand or result is int8",
        beside=frozenset({"skip"})),
    "128 behind a Relu that is kept": PlantedNet(
        "inverted", _INVERTED, _kept_relu, "in_float", "deep", "a Relu or Clip stands between it",
        beside=frozenset({"kept"})),
    "MatMul, Add and a float result": PlantedNet(
        "sequence", static("sequence", op_types_to_quantize=["MatMul"], extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul"]}),
        _nothing, "in_float", "up", "fuses it with the Add", beside=frozenset({"bias", "res"})),
    "left in float between quantized neighbours": PlantedNet(
        "inverted", static("inverted", nodes_to_exclude=["deep"]), _nothing, "undone", "deep", "WeightBiasQuantization"),
    "weights behind a Reshape": PlantedNet(
        "sequence", static("sequence"), _reshaped, "in_float", "down", "stands between it and the DequantizeLinear"),
    "scales along the axis that is summed": PlantedNet(
        "sequence", static("sequence"), _by_rows, "in_float", "down", "its weight has other scales than one"),
    "blocks of eight": PlantedNet(
        "sequence", _plain_sequence, _in_blocks, "in_float", "last", "scales that the kernel for floats by integers does not take",
        (_plain_sequence, partial(_in_blocks, length=16)), beside=frozenset({"up"})),
    "result that is given out": PlantedNet(
        "inverted", _INVERTED, _given_out, "in_float", "shrink", "also an output of the model", (_INVERTED, _given_out_behind)),
    "batch norm behind a Conv": PlantedNet(
        "signal", _SIGNAL, _nothing, "unfused", "norm", "there is no kernel on integers for it", beside=frozenset({"wide"})),
    "body of a Loop": PlantedNet(
        "loop", loop(is_whole=False), _nothing, "left_in_float", "loop/body/inner", "in a body of If, Loop or Scan",
        (loop(is_whole=True), _nothing)),
    "scale that clips": PlantedNet(
        "inverted", _INVERTED, _scaled("e6", 0.12, "bd"), "scale", "expand", "lie beyond its codes", _UNTOUCHED),
    "scale ten times too large": PlantedNet(
        "inverted", _INVERTED, _scaled("d6", 12, "bs"), "scale", "deep", "of its codes", _UNTOUCHED),
    "mask in eight bits": PlantedNet(
        "masked", static("masked"), _nothing, "scale", "later", "hardly told apart",
        (static("masked", nodes_to_exclude=["later", "soft"]), _nothing), beside=frozenset({"soft"})),
    "scale of probabilities sixteen times too large": PlantedNet(
        "attention", static("attention"), _scaled("pr", 16, ""), "scale", "soft", "of its codes", (static("attention"), _nothing)),
    "Q and DQ that disagree": PlantedNet(
        "inverted", _INVERTED, _disagrees, "disagree", "shrink", "is quantized with scale", _UNTOUCHED),
    "one scale for weights with an outlier": PlantedNet(
        "sequence", static("sequence"), _outlier, "weights", "down", "are left of the weights",
        (static("sequence", per_channel=True), _nothing)),
    "Clip left to a zero point of 128": PlantedNet(
        "inverted", _INVERTED, _passes, "zero_point", "expand", "pass as they are", _UNTOUCHED),
    "divisor rounded to 0": PlantedNet(
        "gate", static("gate", op_types_to_quantize=["MatMul", "Mul"]), _rounded_exp, "not_finite", "ratio", "has rounded",
        (static("gate", op_types_to_quantize=["MatMul", "Mul"]), _nothing), beside=frozenset({"exp"})),
    "beyond float16": PlantedNet(
        "gate", lambda _: float_net("gate"), _over_half, "not_finite", "exp", "float16 ends at 65,504",
        (lambda _: float_net("gate"), _nothing)),
    "Conv weights along the inputs": PlantedNet(
        "signal", _SIGNAL, _along_inputs, "axis", "mid", "are quantized along axis 1", beside=frozenset({"norm", "wide"})),
}  # fmt: skip

HEALTHY: dict[str, tuple[str, Callable[[Path], onnx.ModelProto]]] = {
    "inverted residual": ("inverted", static("inverted")),
    "by channel": ("inverted", static("inverted", per_channel=True)),
    "percentile": ("inverted", static("inverted", calibrate_method=q.CalibrationMethod.Percentile)),
    "operators on integers": ("inverted", static("inverted", quant_format=q.QuantFormat.QOperator)),
    "kept Relus": ("inverted", static("inverted", **_KEPT)),
    "MatMuls": ("sequence", static("sequence")),
    "dynamic": ("sequence", dynamic("sequence")),
    "four bits": ("sequence", four_bits),
    "attention": ("attention", static("attention")),
    "body of a Loop": ("loop", loop(is_whole=True)),
    "float": ("inverted", lambda _: float_net("inverted")),
}


def saved(folder: Path) -> dict[str, list[tuple[str, Path]]]:
    """Writes all nets; returns by the path of a float one the quantized ones by their names, mended ones too."""
    made: dict[str, tuple[str, Making]] = {}
    for name, it in PLANTED.items():
        made[name] = it.net, (it.quantize, it.plant)
        if it.mended is not None:
            made[f"mended: {name}"] = it.net, it.mended
    made |= {
        f"healthy: {name}": (net, (quantize, _nothing)) for name, (net, quantize) in HEALTHY.items()
    }
    found: dict[str, list[tuple[str, Path]]] = {}
    for number, (name, (net, (quantize, plant))) in enumerate(made.items()):
        planting = Planting(quantize(folder))
        plant(planting)
        onnx.save(planting.model, folder / f"{number}.onnx")
        found.setdefault(net, []).append((name, folder / f"{number}.onnx"))
    return found
