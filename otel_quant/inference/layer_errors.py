"""How good each layer of a quantized ONNX model is, by a run of it and one of the float model, in the process of the model.

Both run without optimizations, so that every tensor of the files can be had. A layer's own error is what quantization
makes of its result; a Relu or Clip that is left to the QuantizeLinear is put back before. An operator on integers is
taken apart: dequantize, compute, quantize. Of a Loop the first pass is looked at. Imported when the model's memory has been measured.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from otel_quant.inference.fix.edited_graph import attributes, save
from otel_quant.inference.outputs import PROBABILITIES, sqnr

CLAMPS: Final = frozenset({"Clip", "Relu"})
CARRIES: Final = frozenset({
    "DequantizeLinear", "Flatten", "Identity", "QuantizeLinear", "Reshape", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
_SCALES: Final = frozenset({"Add", "Cast", "Mul"})
"""What dynamic quantization has behind a product of integers."""

CHANNELS: Final[Mapping[str, int]] = {
    "Conv": 0, "ConvInteger": 0, "ConvTranspose": 1, "Gather": 0, "Gemm": -1, "MatMul": -1, "MatMulInteger": -1, "MatMulNBits": -1,
}  # fmt: skip
"""Contraction -> axis of its weights along which the channels of its result lie."""

_QLINEAR: Final[Mapping[str, tuple[str, int, int]]] = {
    "QLinearConv": ("Conv", 6, 8), "QLinearMatMul": ("MatMul", 6, 99), "QGemm": ("Gemm", 7, 6),
    "QLinearAdd": ("Add", 6, 99), "QLinearMul": ("Mul", 6, 99),
}  # fmt: skip
"""Operator on integers -> what it computes, and where the scale of its result and its bias are."""

_BODIES: Final = frozenset({"If", "Loop"})

_SUFFIXES: Final = (
    "_MatMul_quant", "_Gemm_quant", "_quant", "_Q4G", "_Q4", "_Q8", "_output_quantized", "_quantized", "_QuantizeLinear_Input",
)  # fmt: skip
"""What quantizers add to the names of nodes and tensors."""

_NEAR: Final = 3.0
"""dB by which a layer may be better than the outputs, and yet be what they lose most by."""

_MOST_TRIED: Final = 5

_EXACT: Final = 140.0
"""dB of outputs that are equal: more than float32 has."""

_OTHER_WEIGHTS: Final = 10.0
"""dB by which a result is closer to the float model's than its weights are, if something is folded into these."""


@dataclass(slots=True)
class QuantizedLayer:
    """A tensor that is quantized, or the result of a contraction, with what it is in the float model."""

    node: str  # The node that makes it, conversions and clamps left out
    result: str  # It, in floats
    like: str = ""  # It in the float model; empty if that is not known
    clamps: Sequence[Any] = ()  # Nodes of the float model that are left to the quantization
    behind: Sequence[Any] = ()  # A clamp that alone reads it: what that changes is no error
    codes: str = ""  # Its integers
    after: str = ""  # What they are read as
    how: Sequence[str] = ()  # Scale and zero point
    # As they are read, their integers, their scale, and in the float model
    weights: Sequence[str] = ()
    axis: int = 0  # of the weights, along which the channels of the result lie


def _plain(name: str) -> str:
    """Returns a name as it was before quantization."""
    return next((name.removesuffix(end) for end in _SUFFIXES if name.endswith(end)), name)


def _rename(node: Any, names: Mapping[str, str]) -> None:
    """Gives tensors that a node reads and makes, and nodes in its bodies, other names."""
    for each in (node.input, node.output):
        each[:] = [names.get(name, name) for name in each]
    for body in (it.g for it in node.attribute if it.HasField("g")):
        for inner in body.node:
            _rename(inner, names)
        for result in body.output:
            result.name = names.get(result.name, result.name)


def with_names(model: Any) -> Any:
    """Gives nodes that have no name their first result's, as ``cost`` does; returns the model."""
    graphs = [model.graph]
    for graph in graphs:
        taken = {node.name for node in graph.node}
        for node in graph.node:
            name = node.output[0].removesuffix("_QuantizeLinear_Input")
            node.name = node.name or ("" if name in taken else name)
            graphs += (each.g for each in node.attribute if each.HasField("g"))
    return model


class TensorFile:
    """A model whose tensors are looked at, and which gets more nodes for that."""

    def __init__(self, path: str) -> None:
        self.model: Any = with_names(onnx.load(path))
        self.graph = self.model.graph
        self.outputs = [each.name for each in self.graph.output]
        self.copied: set[str] = set()  # Tensors of a first pass through a Loop, which runs beside
        self._index()

    def _index(self) -> None:
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
        given = (each for each in self.graph.input if each.name not in self.constants)
        self.inputs = {each.name: each.type.tensor_type.elem_type for each in given}

    def open_bodies(self, *how: Any) -> None:
        """Has the branch that an If takes in place of it, and the first pass of a Loop in front of that."""
        opened: set[str] = set()
        while now := {it.output[0] for it in self.nodes if it.op_type in _BODIES} - opened:
            opened |= now
            ran = self.run({it.input[0] for it in self.nodes if it.op_type == "If"}, *how)
            parts = (self._opened(it, ran) if it.output[0] in now else [it] for it in self.nodes)
            nodes = [copy.deepcopy(each) for part in parts for each in part]
            del self.graph.node[:]
            self.graph.node.extend(nodes)
            self._index()

    def _opened(self, node: Any, ran: Mapping[str, Any]) -> Iterator[Any]:
        """Yields what stands in place of an If or Loop, on tensors around it; nodes have the names of results."""
        is_loop, made = node.op_type == "Loop", node.output[0]
        part = "body" if is_loop else "then_branch" if ran[node.input[0]] else "else_branch"
        body = copy.deepcopy(attributes(node)[part])
        own = {it.name for it in body.initializer}.union(*(it.output for it in body.node))
        new = {name: f"{made}:{name}" for name in own if name}
        self.copied.update(new.values() if is_loop or made in self.copied else ())
        if is_loop:
            goes_on = node.input[1] or self.constant(f"{made}:goes on", np.array(True))
            given = [self.constant(f"{made}:pass", np.array(0)), goes_on, *node.input[2:]]
            new |= dict(zip((it.name for it in body.input), given, strict=True))
        else:
            new |= {it.name: name for it, name in zip(body.output, node.output, strict=True)}
        for each in body.initializer:
            each.name = new[each.name]
        self.graph.initializer.extend(body.initializer)
        for each in body.node:
            each.name = f"{node.name}/{part.removesuffix('_branch')}/{each.name}"
            _rename(each, new)
            yield each
        if is_loop:
            yield node

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

    def before(self, name: str, kinds: Collection[str]) -> str:
        """Returns the tensor that the first of the nodes of some operators in front of another one reads."""
        return next((each.input[0] for each in reversed(self.front(name, kinds))), name)

    def is_constant(self, name: str) -> bool:
        """Whether a tensor is a constant, or only handed on from one."""
        return self.before(name, CARRIES) in self.constants

    def clamped(self, array: Any, clamps: Sequence[Any]) -> Any:
        """Returns what clamps of this model make of an array."""
        for clamp in clamps:
            limits = {**attributes(clamp)} | {
                name: self.array(each)
                for name, each in zip(("min", "max"), clamp.input[1:], strict=False)
                if each
            }
            low = 0.0 if clamp.op_type == "Relu" else limits.get("min", -inf)
            array = array.clip(low, limits.get("max", inf))
        return array

    def add(self, op_type: str, inputs: Sequence[str], name: str, **more: Any) -> str:
        """Adds a node; returns its result."""
        self.graph.node.append(helper.make_node(op_type, inputs, [name], **more))
        return name

    def constant(self, name: str, array: Any) -> str:
        """Adds a constant; returns its name."""
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    @contextmanager
    def swapped(self, arrays: Mapping[str, Any]) -> Iterator[None]:
        """Has tensors be constants in the block."""
        for name, array in arrays.items():
            self.makers[name].output[0] += ":rounded"
            self.constant(name, array)
        yield
        for name in arrays:
            self.makers[name].output[0] = name
            self.graph.initializer.pop()

    def saved(self, path: Path) -> str:
        """Writes the model, a large one with its weights beside; returns the path."""
        save(self.model, path)
        return str(path)

    def run(
        self, names: Collection[str], feeds: Mapping[str, Any], options: Any, folder: Path
    ) -> dict[str, Any]:
        """Runs the model; returns some of its tensors, constants among them."""
        import onnxruntime

        known = {name: self.array(name) for name in names if name in self.constants}
        wanted = sorted(set(names) - known.keys() - self.inputs.keys() - {""})
        new = set(wanted) - {each.name for each in self.graph.output}
        self.graph.output.extend(map(helper.make_empty_tensor_value_info, new))
        source = self.saved(folder / "tensors.onnx")
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        fed = {
            name: feeds[name].astype(helper.tensor_dtype_to_np_dtype(kind))  # of another width
            for name, kind in self.inputs.items()
        }
        made = session.run(wanted, fed) if wanted else []
        return {**fed, **known, **dict(zip(wanted, made, strict=True))}


class QuantizedLayers:
    """The layers of a quantized model."""

    def __init__(self, own: TensorFile, base: TensorFile) -> None:
        self._own, self._base = own, base

    def all(self) -> Iterator[QuantizedLayer]:
        """Yields them: what is quantized in the order of the file, then other contractions with integers."""
        seen: set[str] = set()
        for node in self._own.nodes:
            if node.op_type == "QuantizeLinear" and not self._own.is_constant(node.input[0]):
                maker = self._own.makers.get(self._own.before(node.input[0], CARRIES | CLAMPS))
                seen.update(() if maker is None else maker.output)
                yield self._quantized(node, maker)
            elif node.op_type in _QLINEAR:
                yield self._taken_apart(node)
        for node in self._own.nodes:
            if node.op_type in CHANNELS and seen.isdisjoint(node.output):
                result = node.output[0]
                while node.op_type.endswith("Integer") and self._like(node, result) != result:
                    behind = [each for each in self._own.readers[result] if each.op_type in _SCALES]
                    if not behind:
                        break
                    result = behind[0].output[0]
                layer = QuantizedLayer(node.name, result, self._like(node, result), after=result)
                yield self._weighed(layer, node)

    def _quantized(self, node: Any, maker: Any) -> QuantizedLayer:
        own, codes = self._own, node.output[0]
        readers = (each for each in own.readers[codes] if each.op_type == "DequantizeLinear")
        after = next((each.output[0] for each in readers), "")
        after = after or own.add("DequantizeLinear", [codes, *node.input[1:]], f"{codes}:after")
        front = own.front(node.input[0], CARRIES | CLAMPS)
        since = list(takewhile(lambda it: it.op_type != "DequantizeLinear", front))
        is_first = len(since) == len(front)
        clamp = next((each for each in since if each.op_type in CLAMPS), maker)
        named = maker if is_first else clamp  # a layer of its own where its operand is quantized
        name = "" if named is None else named.name
        found = QuantizedLayer(name, node.input[0], codes=codes, after=after, how=node.input[1:3])
        if [each.op_type in CLAMPS for each in own.readers[after]] == [True]:
            found.behind = own.readers[after]
        found = self._placed(found, named)
        return self._weighed(found, maker) if is_first else found

    def _taken_apart(self, node: Any) -> QuantizedLayer:
        """Returns the layer of an operator on integers, whose parts are added to the graph."""
        own, made = self._own, f"{node.output[0]}:of"
        op_type, scale, bias = _QLINEAR[node.op_type]
        axis = CHANNELS.get(op_type, -1) if not attributes(node).get("transB") else 0
        parts = [
            own.add("DequantizeLinear", node.input[at : at + 3], f"{made}{at}", axis=axis)
            for at in (0, 3)
        ]
        if any(node.input[bias : bias + 1]):
            product = own.add("Mul", [node.input[1], node.input[4]], f"{made}_scale")
            inputs = [node.input[bias], product]
            parts.append(own.add("DequantizeLinear", inputs, f"{made}_bias", axis=0))
        result = own.add(op_type, parts, f"{made}_result", **attributes(node))
        how = node.input[scale : scale + 2]
        found = QuantizedLayer(node.name, result, codes=node.output[0], after=result, how=how)
        if found.how:
            found.after = own.add("DequantizeLinear", [node.output[0], *found.how], f"{made}_after")
        else:
            found.codes = ""
        found = self._placed(found, node)
        weights = [parts[1], *node.input[3:5]]
        return self._weighed(found, node, weights) if op_type in CHANNELS else found

    def _like(self, node: Any, result: str) -> str:
        """Returns a tensor of the float model by its name, or by the name of the node; empty if none is known."""
        known = self._base.makers.keys() | self._base.inputs.keys()
        name = next((each for each in (result, _plain(result)) if each in known), "")
        partner = None if node is None else self._base.named.get(_plain(node.name))
        if name or partner is None:
            return name
        if len(partner.output) > 1:
            made = self._own.before(result, CARRIES | CLAMPS)
            return str(dict(zip(node.output, partner.output, strict=False)).get(made, ""))
        behind = self._base.readers[partner.output[0]]
        is_folded = [each.op_type for each in behind] == ["BatchNormalization"]
        return str((behind[0] if is_folded else partner).output[0])

    def _placed(self, layer: QuantizedLayer, node: Any) -> QuantizedLayer:
        """Adds what a result is in the float model, and the clamps there that are left to its quantization."""
        base, is_apart = self._base, node is not None and node.op_type in _QLINEAR
        name = self._like(node, layer.codes if is_apart else layer.result)

        def is_left(clamp: Any) -> bool:
            kept = self._own.named.get(clamp.name)
            is_kept = kept is not None and kept.op_type == clamp.op_type
            return clamp.op_type in CLAMPS and not is_kept

        layer.clamps = list(filter(is_left, reversed(base.front(name, CLAMPS))))
        while len(base.readers[name]) == 1 and is_left(base.readers[name][0]):
            layer.clamps.append(base.readers[name][0])
            name = layer.clamps[-1].output[0]
        layer.like = name
        return layer

    def _weighed(
        self, layer: QuantizedLayer, node: Any, weights: Sequence[str] = ()
    ) -> QuantizedLayer:
        """Adds the weights of a contraction, if they are integers and known in the float model."""
        like = self._like(node, node.output[0]) if node is not None else ""
        partner = self._base.makers.get(self._base.before(like, CLAMPS))
        if partner is None or (node.op_type not in CHANNELS and not weights):
            return layer
        floats = next(filter(self._base.is_constant, partner.input[1::-1]), "")
        weights = weights or self._weights(node)
        if floats and weights and weights[0] != weights[1]:
            layer.weights = [*weights, floats]
            layer.axis = (
                0 if attributes(partner).get("transB") else CHANNELS.get(partner.op_type, -1)
            )
        return layer

    def _weights(self, node: Any) -> Sequence[str]:
        """Returns the weights of a contraction as they are read, their integers and scale; empty if there are none."""
        own, made, codes = self._own, f"{node.output[0]}:weights", node.input[1]
        if node.op_type == "MatMulNBits":  # what it makes of the identity
            more = {
                name: value for name, value in attributes(node).items() if name != "accuracy_level"
            }
            array = np.eye(more["K"], dtype=own.array(node.input[2]).dtype)
            eye = own.constant(f"{made}_eye", array)
            own.add(node.op_type, [eye, *node.input[1:5]], made, domain=node.domain, **more)
            return made, "", node.input[2]
        if node.op_type.endswith("Integer"):
            scale, axis = f"{_plain(codes)}_scale", CHANNELS[node.op_type]
            if scale not in own.constants:
                return ()
            own.add("DequantizeLinear", [codes, scale, *node.input[3:4]], made, axis=axis)
            return made, codes, scale
        made = next(filter(own.is_constant, node.input[1::-1]), "")
        front = (it for it in own.front(made, CARRIES) if it.op_type == "DequantizeLinear")
        scale = next((each.input[1] for each in front), "")
        return (made, own.before(made, CARRIES), scale) if made else ()


def layer_errors(
    paths: Sequence[str],
    floats: Collection[str],
    feeds: Mapping[str, Any],
    options: Any,
    folder: Path,
) -> Any:
    """Compares a model with the float one, whose path is first; ``floats`` are its tensors of floats.

    Returns what is known of each layer, of the first node whose results are not finite, and of outputs
    that are probabilities by what these are made of.
    """
    base, own = map(TensorFile, paths)
    for file in (base, own):
        file.open_bodies(feeds, options, folder)
    layers = list(QuantizedLayers(own, base).all())
    wanted = {name for it in layers for name in (it.result, it.codes, it.after, *it.weights[:1])}
    likes = {name for it in layers for name in (it.like, *it.weights[3:])}
    given = [each for each in own.outputs if each in floats]
    names = given if set(given) <= set(base.outputs) else base.outputs
    judged = {it: _judged(own, it, base, of) for it, of in zip(given, names, strict=False)}
    wanted |= {its for its, _, _ in judged.values()}
    likes |= {like for _, like, _ in judged.values()}
    known = own.makers.keys() & set(floats)  # others are within functions of the model
    ran = own.run(wanted | known, feeds, options, folder)
    likes |= {*base.outputs} | base.makers.keys() & set(floats)
    expected = base.run(likes, feeds, options, folder)
    found = [_measured(each, own, base, ran, expected) for each in layers]
    known_as: set[tuple[str, str]] = set()
    for each, layer in zip(found, layers, strict=True):
        if (both := (each["node"], each["name"])) in known_as:
            each["name"] = layer.codes or layer.result
        known_as.add(both)
    likes_of = {its: expected[like] for its, like, _ in judged.values()}

    def tried(rounded: Mapping[str, Any]) -> float:
        with own.swapped(rounded):
            return _worst(likes_of, own.run(likes_of, feeds, options, folder))

    worst = _worst(likes_of, ran)
    _add_lost(found, layers, worst, tried, (own, base, {**expected, **ran}))
    changed = [each for each in found if each.get("own") is not None or "weights" in each]
    in_front = {
        it: [kind, sqnr(expected[of], ran[its])]
        for it, (its, of, kind) in judged.items()
        if kind and expected[of].shape == ran[its].shape
    }
    not_finite = _not_finite(own, floats, ran, expected)
    outputs = min(worst, _EXACT)
    return {"layers": changed, "not_finite": not_finite, "in_front": in_front, "outputs": outputs}


def _add_lost(
    found: Sequence[Any], layers: Sequence[QuantizedLayer], worst: float,
    tried: Callable[[Mapping[str, Any]], float], given: tuple[TensorFile, TensorFile, Any],
) -> None:  # fmt: skip
    """Adds what the outputs lose by the worst layers: a run each, with what it was before rounding."""
    near = sorted(
        (decibels, i, part)
        for i, each in enumerate(found)
        for part in ("own", "weights")
        if (decibels := each.get(part)) is not None and decibels <= worst + _NEAR < inf
    )
    for _, i, part in near[:_MOST_TRIED]:
        is_known = "lost" in found[i] or layers[i].result in given[0].copied
        if not is_known and (rounded := _in_float(layers[i], part, *given)):
            found[i]["lost"] = tried(rounded) - worst


def _judged(own: TensorFile, output: str, base: TensorFile, like: str) -> tuple[str, str, str]:
    """Returns what tells how good an output is: it, or what a Softmax makes it of, in both, and that operator."""
    ways = (own, output), (base, like)
    found = [it for file, name in ways if (it := file.makers.get(file.before(name, CARRIES)))]
    kinds = [each.op_type for each in found]
    if len(found) < 2 or kinds[0] != kinds[1] or kinds[0] not in PROBABILITIES:
        return output, like, ""
    return found[0].input[0], found[1].input[0], kinds[0]


def _worst(likes: Mapping[str, Any], ran: Mapping[str, Any]) -> float:
    """Returns the lowest dB of outputs; infinity if none is known."""
    alike = (sqnr(like, ran[at]) for at, like in likes.items() if like.shape == ran[at].shape)
    return min(filter(isfinite, (_EXACT if it is None else it for it in alike)), default=inf)


def _in_float(
    layer: QuantizedLayer, part: str, own: TensorFile, base: TensorFile, ran: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns what a layer's result, or its weights, were before rounding, by the tensors that are read of them."""
    if part == "weights":
        name, floats = layer.weights[0], ran[layer.weights[3]]
        floats = floats if floats.shape == ran[name].shape else floats.T
        return {name: floats.astype(ran[name].dtype)} if own.readers[name] else {}
    readers = own.readers[layer.codes]
    is_all = {each.op_type for each in readers} == {"DequantizeLinear"}
    floats = base.clamped(ran[layer.result], layer.clamps)
    return {each.output[0]: floats.astype(ran[layer.after].dtype) for each in readers if is_all}


def _measured(
    layer: QuantizedLayer,
    own: TensorFile,
    base: TensorFile,
    ran: Mapping[str, Any],
    expected: Mapping[str, Any],
) -> Any:
    """Returns what is known of a layer: decibels, and shares of the codes."""
    result = own.clamped(base.clamped(ran[layer.result], layer.clamps), layer.behind)
    after, like = own.clamped(ran[layer.after], layer.behind), expected.get(layer.like)
    like = like if like is None else own.clamped(like, layer.behind)
    like = None if like is None or like.shape != result.shape else like
    usual, extreme = _usual(result)
    result, after = result[usual], after[usual]
    found: dict[str, Any] = {"name": layer.like or layer.result, "node": layer.node}
    found["extreme"] = extreme
    if like is not None:
        like = like[usual]
        found |= {"carried": sqnr(like, result), "all": sqnr(like, after)}
    if layer.codes:
        codes, scale = ran[layer.codes], own.array(layer.how[0])
        low, high = _ends(codes)
        found |= {"own": sqnr(result, after), "used": _used(codes)}
        found |= {"low": float((codes == low).mean()), "high": float((codes == high).mean())}
        if layer.clamps:
            found["passed"] = float((base.clamped(after, layer.clamps) != after).mean())
        if like is not None and scale is not None and scale.size == 1:
            zero = own.array(layer.how[1]) if len(layer.how) > 1 else None
            found |= _directly(like, scale.item(), 0 if zero is None else zero.item(), (low, high))
    if layer.weights:
        values, codes, scale, floats = layer.weights
        error = _of_weights(ran[values], expected[floats], own.array(codes), layer.axis)
        if error.get("weights", inf) > (found.get("carried") or 0.0) - _OTHER_WEIGHTS:
            scales = own.array(scale)
            found |= {**error, "weights_scales": None if scales is None else int(scales.size)}
    return found


def _usual(values: Any) -> tuple[Any, float | None]:
    """Returns which values are to be compared: not a mask, beside which others are too small to count; and it, if any."""
    sizes = abs(values)
    extreme = sizes.max(initial=0)
    others = sizes < extreme / 2
    most = sizes[others].max(initial=0)
    if (
        others.sum() < _FEWEST_USUAL * others.size
        or not 0 < most < extreme / _EXTREME
        or not extreme < inf
    ):
        return ..., None
    return others, float(values[~others].flat[0])


_EXTREME: Final = 1000
"""How many times as far from 0 as all others what is taken for a mask is."""

_FEWEST_USUAL: Final = 0.01


def _ends(codes: Any) -> tuple[int, int]:
    """Returns the lowest and the highest number of a type of integers."""
    bits = 8 * codes.dtype.itemsize
    low = -(1 << (bits - 1)) if codes.dtype.kind == "i" else 0
    return low, low + (1 << bits) - 1


def _used(codes: Any) -> float:
    """Returns the share of the codes between the lowest and the highest of some."""
    low, high = _ends(codes)
    return float((int(codes.max()) - int(codes.min()) + 1) / (high - low + 1))


def _directly(
    values: Any, scale: float, zero: int, ends: tuple[int, int]
) -> Mapping[str, float | None]:
    """Returns what a scale and a zero point make of the float model's own values, and what the best ones would."""
    highest, lowest = float(max(values.max(), 0)), float(min(values.min(), 0))
    best = (highest - lowest) / (ends[1] - ends[0]) or 1.0
    best_zero = round(ends[0] - lowest / best)
    clipped, kept = _rounded(values, scale, zero, ends)
    _, would_be = _rounded(values, best, best_zero, ends)
    found = {"direct": sqnr(values, kept), "best": sqnr(values, would_be), "clipped": clipped}
    return {**found, "span": best / scale, "best_scale": best, "best_zero": best_zero}


def _rounded(values: Any, scale: float, zero: int, ends: tuple[int, int]) -> tuple[float, Any]:
    """Returns the share of values beyond the codes, and what all become."""
    steps = (values.astype(float) / scale).round() + zero
    inside = steps.clip(*ends)
    return float((steps != inside).mean()), (inside - zero) * scale


def _of_weights(values: Any, floats: Any, codes: Any, axis: int) -> Mapping[str, Any]:
    """Returns the error of weights, what scales by channel would leave, and the share of the codes in use."""
    values = values if values.shape == floats.shape else values.T
    if values.shape != floats.shape or (found := sqnr(floats, values)) is None:
        return {}
    if codes is None or codes.dtype.kind not in "iu" or codes.size != floats.size:
        return {"weights": found}
    (low, high), others = _ends(codes), tuple({*range(floats.ndim)} - {axis % floats.ndim})
    steps = 2 * abs(floats).max(axis=others, keepdims=True) / (high - low)
    best = sqnr(floats, (floats / (steps + (steps == 0))).round() * steps)
    return {"weights": found, "weights_best": best, "weights_used": _used(codes)}


def _not_finite(
    own: TensorFile, floats: Collection[str], ran: Mapping[str, Any], expected: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Returns the first node that makes values which are not finite where the float model's are."""
    of_floats = {name: it for name, it in expected.items() if it.dtype.kind == "f"}
    is_finite = {name: (abs(it) < inf).all() for name, it in of_floats.items()}
    is_usual = all(is_finite.values())
    for node in own.nodes:
        for name in set(node.output).intersection(floats):
            bad = ~(abs(ran[name]) < inf)  # NaN is below nothing
            if not bad.any() or not is_finite.get(name, is_usual):
                continue
            divisor, like = node.input[-1], expected.get(name)
            front = own.before(divisor, CARRIES)
            divides = node.op_type in ("Div", "Reciprocal")
            return {
                "node": node.name, "op_type": node.op_type, "count": int(bad.sum()), "size": bad.size,
                "zeros": int((ran[divisor] == 0).sum()) if divides else 0,
                "of": own.makers[front].name if front in own.makers else front, "type": str(ran[name].dtype),
                "largest": 0.0 if like is None else float(abs(like).max()),
            }  # fmt: skip
    return None
