"""How good each layer of a quantized ONNX model is, by a run of it and one of the float model, in the process of the model.

Both run without optimizations, so that every tensor of the files can be had. A layer's own error is what quantization
makes of its result; a Relu or Clip that is left to the QuantizeLinear is put back before. An operator on integers is
taken apart: dequantize, compute, quantize. Imported when the model's memory has been measured.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from otel_quant.inference.outputs import sqnr

_CLAMPS: Final = frozenset({"Clip", "Relu"})
_QDQ: Final = frozenset({"DequantizeLinear", "QuantizeLinear"})
_CARRIES: Final = _QDQ | {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}

_CHANNELS: Final[Mapping[str, int]] = {
    "Conv": 0, "ConvInteger": 0, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1, "MatMulInteger": -1, "MatMulNBits": -1,
}  # fmt: skip
"""Contraction -> axis of its weights along which the channels of its result lie."""

_QLINEAR: Final[Mapping[str, tuple[str, int]]] = {
    "QLinearConv": ("Conv", 6), "QLinearMatMul": ("MatMul", 6), "QGemm": ("Gemm", 7), "QLinearAdd": ("Add", 6),
    "QLinearMul": ("Mul", 6),
}  # fmt: skip
"""Operator on integers -> what it computes, and which operand is the scale of its result."""

_BIAS: Final = {"QLinearConv": 8, "QGemm": 6}

_SUFFIXES: Final = ("_MatMul_quant", "_Gemm_quant", "_quant", "_Q4G", "_Q4", "_Q8", "_quantized")
"""What quantizers add to the names of nodes and tensors."""

_MOST_IN_MEMORY: Final = 1_500_000_000
"""Bytes of weights from which a model is run from a file: a message of protobuf has 2 GB at most."""


class _Weights(NamedTuple):
    """The weights of a contraction."""

    values: str  # As they are read
    like: str  # In the float model
    codes: str  # Their integers
    scale: str
    axis: int  # Of the channels of the result


class _Layer(NamedTuple):
    """A tensor that is quantized, or the result of a contraction, with what it is in the float model."""

    node: str  # The node that makes it, conversions and clamps left out
    result: str  # It, in floats
    like: str  # It in the float model; empty if that is not known
    clamps: Sequence[Any] = ()  # Nodes of the float model that are left to the quantization
    codes: str = ""  # Its integers
    after: str = ""  # What they are read as
    how: Sequence[str] = ()  # Scale and zero point
    weights: _Weights | None = None


def _plain(name: str) -> str:
    """Returns a name as it was before quantization."""
    return next((name.removesuffix(end) for end in _SUFFIXES if name.endswith(end)), name)


class _File:
    """A model whose tensors are looked at, and which gets more nodes for that."""

    def __init__(self, path: str) -> None:
        self.graph = (model := onnx.load(path)).graph
        self._model: Any = model
        self.nodes = list(self.graph.node)
        self.constants = {each.name: each for each in self.graph.initializer}
        self.makers: dict[str, Any] = {}
        self.readers: defaultdict[str, list[Any]] = defaultdict(list)
        for node in self.nodes:
            self.makers |= dict.fromkeys(node.output, node)
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
            for name in node.input:
                self.readers[name].append(node)
        self.named = {node.name: node for node in self.nodes if node.name}
        self.inputs = {each.name for each in self.graph.input} - self.constants.keys()

    def array(self, name: str) -> Any:
        """Returns a constant as an array; None if it is none."""
        found = self.constants.get(name)
        return None if found is None else numpy_helper.to_array(found)

    def front(self, name: str, kinds: Collection[str]) -> list[Any]:
        """Returns the nodes of some operators in front of a tensor, the nearest first."""
        found: list[Any] = []
        while (maker := self.makers.get(name)) is not None and maker.op_type in kinds:
            found.append(maker)
            name = maker.input[0]
        return found

    def origin(self, name: str) -> str:
        """Returns the tensor that another one holds in other numbers or another shape."""
        found = self.front(name, _CARRIES)
        return found[-1].input[0] if found else name

    def constant_of(self, node: Any) -> str:
        """Returns the operand of a contraction that comes from a constant; empty if none does."""
        found = (name for name in node.input[1::-1] if self.origin(name) in self.constants)
        return next(found, "")

    def clamped(self, array: Any, clamps: Sequence[Any]) -> Any:
        """Returns what clamps of this model make of an array."""
        for clamp in clamps:
            limits = {each.name: each.f for each in clamp.attribute}
            given = zip(("min", "max"), map(self.array, clamp.input[1:]), strict=False)
            limits |= {name: float(each) for name, each in given if each is not None}
            low = 0.0 if clamp.op_type == "Relu" else limits.get("min", -np.inf)
            array = np.clip(array, low, limits.get("max", np.inf))
        return array

    def add(
        self, op_type: str, inputs: Sequence[str], name: str, domain: str = "", **more: Any
    ) -> str:
        """Adds a node; returns its result."""
        self.graph.node.append(
            helper.make_node(op_type, inputs, [name], name, domain=domain, **more)
        )
        return name

    def run(
        self, names: Collection[str], feeds: Mapping[str, Any], options: Any, folder: Path
    ) -> dict[str, Any]:
        """Runs the model; returns some of its tensors, constants among them."""
        known = {name: self.array(name) for name in names if name in self.constants}
        wanted = sorted(set(names) - known.keys() - self.inputs)
        outputs = {each.name for each in self.graph.output}
        self.graph.output.extend(map(helper.make_empty_tensor_value_info, set(wanted) - outputs))
        source: Any = str(folder / "tensors.onnx")
        if sum(len(each.raw_data) for each in self.graph.initializer) < _MOST_IN_MEMORY:
            source = self._model.SerializeToString()
        else:
            onnx.save_model(
                copy.deepcopy(self._model),
                source,
                save_as_external_data=True,
                location="tensors.data",
            )
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        made = session.run(wanted, {name: feeds[name] for name in self.inputs}) if wanted else []
        return {**feeds, **known, **dict(zip(wanted, made, strict=True))}


class _Layers:
    """The layers of a quantized model."""

    def __init__(self, own: _File, base: _File) -> None:
        self._own, self._base = own, base
        self._seen: set[str] = set()  # results of contractions that have a layer

    def all(self) -> Iterator[_Layer]:
        """Yields them: what is quantized in the order of the file, then other contractions with integers."""
        for node in self._own.nodes:
            if (
                node.op_type == "QuantizeLinear"
                and self._own.origin(node.input[0]) not in self._own.constants
            ):
                yield self._quantized(node)
            elif node.op_type in _QLINEAR:
                yield self._taken_apart(node)
        for node in self._own.nodes:
            is_new = node.op_type in _CHANNELS and node.output[0] not in self._seen
            if is_new and (weights := self._weights(node)) is not None:
                result = node.output[0]
                like, clamps = self._counterpart(node, result)
                yield _Layer(
                    node.name, result, "" if clamps else like, after=result, weights=weights
                )

    def _quantized(self, node: Any) -> _Layer:
        own, result = self._own, node.input[0]
        readers = (
            each for each in own.readers[node.output[0]] if each.op_type == "DequantizeLinear"
        )
        after = next((each.output[0] for each in readers), "")
        clamps = own.front(result, _CLAMPS)
        maker = own.makers.get(own.origin(clamps[-1].input[0] if clamps else result))
        weights = None
        if maker is not None and maker.op_type in _CHANNELS:
            weights = self._weights(maker)
            self._seen.add(maker.output[0])
        name = "" if maker is None else maker.name
        placed = self._counterpart(maker, result)
        return _Layer(name, result, *placed, node.output[0], after, node.input[1:3], weights)

    def _taken_apart(self, node: Any) -> _Layer:
        """Returns the layer of an operator on integers, whose parts are added to the graph."""
        own, made, (op_type, scale) = self._own, f"{node.output[0]}:of", _QLINEAR[node.op_type]
        axis = _channels(node)
        parts = [
            own.add("DequantizeLinear", node.input[at : at + 3], f"{made}{at}", axis=axis)
            for at in (0, 3)
        ]
        bias = node.input[_BIAS.get(node.op_type, 99) :][:1]
        if any(bias):
            product = own.add("Mul", [node.input[1], node.input[4]], f"{made}_scale")
            parts.append(own.add("DequantizeLinear", [bias[0], product], f"{made}_bias", axis=0))
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        result = after = own.add(op_type, parts, f"{made}_result", **attributes)
        how = node.input[scale : scale + 2]
        if how:
            after = own.add("DequantizeLinear", [node.output[0], *how], f"{made}_after")
        weights = self._beside(node, parts[1], *node.input[3:5]) if op_type in _CHANNELS else None
        placed = self._counterpart(node, node.output[0])
        return _Layer(
            node.name, result, *placed, node.output[0] if how else "", after, how, weights
        )

    def _counterpart(self, node: Any, result: str) -> tuple[str, Sequence[Any]]:
        """Returns what a result is in the float model, and the clamps there that are left to its quantization."""
        base = self._base
        name = next(
            (it for it in (result, _plain(result)) if it in base.makers or it in base.inputs), ""
        )
        if not name and (partner := self._partner(node)) is not None:
            name = partner.output[0]
        clamps = [each for each in base.front(name, _CLAMPS) if self._lacks(each, result)][::-1]
        while len(base.readers[name]) == 1:
            [clamp] = base.readers[name]
            if clamp.op_type not in _CLAMPS or not self._lacks(clamp, result):
                break
            clamps.append(clamp)
            name = clamp.output[0]
        return name, clamps

    def _lacks(self, clamp: Any, result: str) -> bool:
        """Whether the quantized model does not have a clamp of the float model next to a result."""
        if clamp.name:
            return clamp.name not in self._own.named
        return all(each.op_type != clamp.op_type for each in self._own.front(result, _CLAMPS))

    def _partner(self, node: Any) -> Any:
        """Returns a node in the float model; None if it is not known there."""
        if node is None or (found := self._base.named.get(_plain(node.name))) is not None:
            return node and found
        name = _plain(node.output[0])
        clamps = self._base.front(name, _CLAMPS)
        return self._base.makers.get(clamps[-1].input[0] if clamps else name)

    def _weights(self, node: Any) -> _Weights | None:
        """Returns the weights of a contraction; None if they are no integers."""
        own, made = self._own, f"{node.output[0]}:weights"
        codes, scale = node.input[1], ""
        if node.op_type == "MatMulNBits":  # what it makes of the identity
            more = {
                it.name: helper.get_attribute_value(it)
                for it in node.attribute
                if it.name != "accuracy_level"
            }
            eye = np.eye(more["K"], dtype=own.array(node.input[2]).dtype)
            own.graph.initializer.append(numpy_helper.from_array(eye, f"{made}_eye"))
            own.add(node.op_type, [f"{made}_eye", *node.input[1:5]], made, node.domain, **more)
        elif node.op_type in ("MatMulInteger", "ConvInteger"):
            if (scale := f"{_plain(codes)}_scale") not in own.constants:
                return None
            own.add(
                "DequantizeLinear", [codes, scale, *node.input[3:4]], made, axis=_channels(node)
            )
        else:
            made = own.constant_of(node)
            codes = own.origin(made)
            moved = (
                each for each in own.front(made, _CARRIES) if each.op_type == "DequantizeLinear"
            )
            scale = next((each.input[1] for each in moved), "")
        return self._beside(node, made, codes, scale) if made != codes else None

    def _beside(self, node: Any, weights: str, codes: str, scale: str) -> _Weights | None:
        """Adds the float model's weights; None if they are not known, or a batch normalization is folded into them."""
        partner = self._partner(node)
        found = "" if partner is None else self._base.constant_of(partner)
        if not found or any(
            each.op_type == "BatchNormalization" for each in self._base.readers[partner.output[0]]
        ):
            return None
        return _Weights(weights, found, codes, scale, _channels(partner))


def _channels(node: Any) -> int:
    """Returns the axis of a contraction's weights along which the channels of its result lie."""
    is_turned = any(each.name == "transB" and each.i for each in node.attribute)
    return 0 if is_turned else _CHANNELS.get(_QLINEAR.get(node.op_type, (node.op_type,))[0], -1)


def layer_errors(
    paths: Sequence[str],
    floats: Sequence[str],
    feeds: Mapping[str, Any],
    options: Any,
    folder: Path,
) -> Any:
    """Compares a model with the float one, whose path is first; ``floats`` are its tensors of floats in order.

    Returns what is known of each layer, and the first node that makes a value which is not finite.
    """
    base, own = map(_File, paths)
    layers = list(_Layers(own, base).all())
    wanted = {
        name
        for it in layers
        for name in (it.result, it.codes, it.after, *(it.weights or ())[:1])
        if name
    }
    before = {name for it in layers for name in (it.like, *(it.weights or ())[1:2]) if name}
    is_shared = {name for name in floats if name in base.makers}
    ran = own.run(wanted | set(floats), feeds, options, folder)
    expected = base.run(before | is_shared, feeds, options, folder)
    found = [_measured(each, own, base, ran, expected) for each in layers]
    changed = [each for each in found if each.get("own") is not None or "weights" in each]
    return {"layers": changed, "not_finite": _not_finite(own, floats, ran, expected)}


def _measured(
    layer: _Layer, own: _File, base: _File, ran: Mapping[str, Any], expected: Mapping[str, Any]
) -> Any:
    """Returns what is known of a layer: decibels, and shares of the codes."""
    result, like = base.clamped(ran[layer.result], layer.clamps), expected.get(layer.like)
    after = ran.get(layer.after)
    found: dict[str, Any] = {"name": layer.like or layer.result, "node": layer.node}
    if after is not None and layer.codes:
        found["own"] = sqnr(result, after)
    if like is not None and like.shape == result.shape:
        found["carried"] = sqnr(like, result)
        found["all"] = None if after is None else sqnr(like, after)
    if (codes := ran.get(layer.codes)) is not None and codes.size:
        ends = np.iinfo(codes.dtype)
        found |= {
            "low": float((codes == ends.min).mean()),
            "high": float((codes == ends.max).mean()),
        }
        found["used"] = (int(codes.max()) - int(codes.min()) + 1) / (ends.max - ends.min + 1)
        scale = own.array(layer.how[0])
        if "carried" in found and scale is not None and scale.size == 1:
            zero = own.array(layer.how[1]) if len(layer.how) > 1 else None
            found |= _directly(
                like, float(scale.item()), 0 if zero is None else int(zero.item()), ends
            )
        if after is not None and layer.clamps:
            found["passed"] = float((base.clamped(after, layer.clamps) != after).mean())
    if layer.weights is not None:
        of, scales = layer.weights, own.array(layer.weights.scale)
        found |= _of_weights(ran[of.values], expected[of.like], own.array(of.codes), of.axis)
        found["weights_scales"] = None if scales is None else int(scales.size)
    return found


def _directly(values: Any, scale: float, zero: int, ends: Any) -> Mapping[str, float | None]:
    """Returns what a scale and a zero point make of the float model's own values, and what the best ones would."""
    highest, lowest = float(max(values.max(), 0)), float(min(values.min(), 0))
    best = (highest - lowest) / (ends.max - ends.min) or 1.0
    best_zero = round(ends.min - lowest / best)
    clipped, kept = _rounded(values, scale, zero, ends)
    _, would_be = _rounded(values, best, best_zero, ends)
    found = {"direct": sqnr(values, kept), "best": sqnr(values, would_be)}
    return {
        "clipped": clipped,
        "span": best / scale,
        "best_scale": best,
        "best_zero": best_zero,
        **found,
    }


def _rounded(values: Any, scale: float, zero: int, ends: Any) -> tuple[float, Any]:
    """Returns the share of values beyond the codes, and what all become."""
    steps = np.rint(values.astype(np.float64) / scale) + zero
    inside = np.clip(steps, ends.min, ends.max)
    return float((steps != inside).mean()), (inside - zero) * scale


def _uniform(values: Any, step: Any) -> float | None:
    """Returns the dB that rounding to steps leaves: its noise is a twelfth of their square."""
    power, noise = (
        float((values.astype(np.float64) ** 2).mean()),
        float(np.mean(np.square(step)) / 12),
    )
    return 10 * float(np.log10(power / noise)) if power and noise else None


_NO_QUANTIZATION: Final = 10.0
"""dB below which weights may be others than the float model's."""


def _of_weights(values: Any, floats: Any, codes: Any, axis: int) -> Mapping[str, Any]:
    """Returns the error of weights, what scales by channel would leave, and the share of the codes in use."""
    values = values if values.shape == floats.shape else values.T
    if values.shape != floats.shape or (found := sqnr(floats, values)) is None:
        return {}
    by_channel = [
        np.moveaxis(each, axis, 0).reshape(floats.shape[axis], -1) for each in (values, floats)
    ]
    if found < _NO_QUANTIZATION and _are_others(*by_channel):
        return {}
    if codes is None or codes.dtype.kind not in "iu" or codes.size != floats.size:
        return {"weights": found}
    ends = np.iinfo(codes.dtype)
    steps = 2 * np.abs(by_channel[1]).max(axis=1) / (ends.max - ends.min)
    used = (int(codes.max()) - int(codes.min()) + 1) / (ends.max - ends.min + 1)
    return {"weights": found, "weights_best": _uniform(floats, steps), "weights_used": used}


def _are_others(values: Any, floats: Any) -> bool:
    """Whether weights were scaled by channel before they were quantized: same signs, but steps apart."""
    large = np.abs(floats) > np.abs(floats).mean()
    gaps = np.diff(np.sort(values, axis=1), axis=1)
    steps = np.where(gaps > 0, gaps, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    is_alike = (np.sign(values) == np.sign(floats))[large].mean() > 0.95
    is_off = (np.abs(values - floats) > steps).mean() > 0.2
    factor = float((values * floats).sum() / (floats**2).sum())
    return (
        bool(is_alike and is_off) and (sqnr(values, factor * floats) or 0.0) < 2 * _NO_QUANTIZATION
    )


def _not_finite(
    own: _File, floats: Collection[str], ran: Mapping[str, Any], expected: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Returns the first node that makes values which are not finite where the float model's are."""
    of_floats = {*floats}
    is_known = all(np.isfinite(each).all() for each in expected.values() if each.dtype.kind == "f")
    for node in own.nodes:
        for name in filter(of_floats.__contains__, node.output):
            like = expected.get(name)
            is_new = is_known if like is None else np.isfinite(like).all()
            if not is_new or np.isfinite(ran[name]).all():
                continue
            divisor = ran.get(node.input[-1]) if node.op_type in ("Div", "Reciprocal") else None
            zeros = 0 if divisor is None else int((divisor == 0).sum())
            largest = None if like is None else float(np.abs(like).max())
            count = int((~np.isfinite(ran[name])).sum())
            front, type_name = own.origin(node.input[-1]), str(ran[name].dtype)
            of = own.makers[front].name if front in own.makers else front
            return {
                "node": node.name, "op_type": node.op_type, "count": count, "size": ran[name].size, "zeros": zeros,
                "of": of, "largest": largest, "type": type_name,
            }  # fmt: skip
    return None
