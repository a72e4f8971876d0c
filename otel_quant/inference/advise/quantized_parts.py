"""What of a quantized ONNX model can be left in float, and the model with some of it so.

A quantizer that leaves a node out still quantizes what its neighbours read and make: a result stays in float where no
node that is left quantizes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from otel_quant.cost.graph import QDQ
from otel_quant.inference.fix.edited_graph import EditedGraph, attributes, set_inputs
from otel_quant.inference.layer_errors import (
    CARRIES,
    CHANNELS,
    CLAMPS,
    QuantizedLayer,
    QuantizedLayers,
    TensorFile,
)
from otel_quant.inference.outputs import sqnr

_FOLLOWS: Final = CLAMPS | {
    "AveragePool", "Flatten", "Gather", "GatherElements", "MaxPool", "Reshape", "Resize", "Slice", "Squeeze", "TopK",
    "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
"""Operators whose result quantizers quantize if what they read is quantized."""

_ALIKE: Final = 8.0
"""dB from which constants are the float model's: one scale for channels of other ranges may leave no more."""

_OPERANDS: Final = 2  # Before the bias, whose 32 bits lose nothing


ERROR: Final = "error of "


class TakenNode(NamedTuple):
    """A node that a quantizer has taken, by the integers that it reads and makes."""

    name: str
    op_type: str
    reads: Sequence[str]
    makes: Sequence[str]
    follows: bool  # Whether it quantizes its result only if what it reads is quantized

    @property
    def touches(self) -> set[str]:
        """All of these integers."""
        return {*self.reads, *self.makes}


class QuantizedParts:
    """Results and weights of a model that are quantized; each by a name of its own."""

    def __init__(self, floats: Path, path: Path) -> None:
        self._path, self._base = path, TensorFile(str(floats))
        own, layers = self._opened()
        graph = EditedGraph(own.model, path.parent)
        self._of = dict(_names_of(own, layers))
        self.nodes = list(self._taken(own))
        # Results that are quantized -> the one whose error they have: what is only moved is not rounded again
        self.sources = {each.codes: each.codes for each in layers if each.codes}
        scales = {it.codes: [own.array(name) for name in it.how] for it in layers if it.codes}
        for node in [each for each in self.nodes if each.follows and each.reads]:
            for made in node.makes:
                if all(map(np.array_equal, scales[made], scales[node.reads[0]])):
                    self.sources[made] = self.sources[node.reads[0]]
        constants = {
            each.name: list(self._constants(own, graph, own.named[each.name]))
            for each in self.nodes if each.name in own.named
        }  # fmt: skip
        # Those that can be left in float, with bytes that their weights take more then
        self.growth: Mapping[str, int] = {
            name: sum(array.nbytes - array.size for _, array, _ in found)
            for name, found in constants.items()
            if name in self._base.named
            and all(is_alike for i, _, is_alike in found if i < _OPERANDS)
        }

    def _opened(self) -> tuple[TensorFile, list[QuantizedLayer]]:
        own = TensorFile(str(self._path))
        return own, list(QuantizedLayers(own, self._base).all())

    def _taken(self, own: TensorFile) -> Iterator[TakenNode]:
        for node in own.nodes:
            if node.op_type in QDQ or node.op_type == "Constant":
                continue
            reads = [self._of[name] for name in node.input if name in self._of]
            makes = [self._of[it] for name in node.output if (it := self._behind(own, name))]
            follows = node.op_type in _FOLLOWS
            if follows or self._is_taken(own, node, bool(reads and makes)):
                yield TakenNode(node.name, node.op_type, reads, makes, follows)

    def _behind(self, own: TensorFile, name: str) -> str:
        """Returns what is quantized of a result, behind clamps that the file has kept; empty if nothing is."""
        while name not in self._of:
            [reader, *others] = own.readers[name] or [None]
            if others or reader is None or reader.op_type not in CLAMPS:
                return ""
            name = reader.output[0]
        return name

    def _is_taken(self, own: TensorFile, node: Any, is_between: bool) -> bool:
        if node.op_type not in CHANNELS:
            known = (name in self._of or own.is_constant(name) for name in node.input if name)
            return is_between and all(known)
        fronts = [own.front(name, CARRIES) for name in node.input[:2] if name not in self._of]
        return all(any(it.op_type == "DequantizeLinear" for it in front) for front in fronts)

    def _constants(
        self, own: TensorFile, graph: EditedGraph, node: Any
    ) -> Iterator[tuple[int, Any, bool]]:
        """Yields the quantized constants of a node: where, in floats, and whether the float model's are these."""
        partner = self._base.named.get(node.name)
        for i, name in enumerate(node.input):
            codes, by = graph.dequantized(name)
            if by is None or by.block:
                continue
            values = (by if codes.ndim > 1 else by._replace(axis=0)).floats(codes)
            given = partner.input[i : i + 1] if partner is not None and i < _OPERANDS else ()
            floats = [self._base.array(self._base.before(each, {"Identity"})) for each in given]
            found = _rescaled(floats[0], values) if floats and floats[0] is not None else None
            yield i, (values if found is None else found).astype(np.float32), found is not None

    def quantized(self, left: Collection[str]) -> set[str]:
        """Returns the results that are quantized if some nodes are left in float."""
        found: set[str] = set()
        for node in self.nodes:
            if node.name not in left and (not node.follows or found.intersection(node.reads)):
                found.update(node.makes if node.follows else node.touches)
        return found & self.sources.keys()

    def moves(self) -> set[frozenset[str]]:
        """Returns nodes that may be left in float together: each, and all that quantize the same values."""
        near: dict[str, set[str]] = {
            each.name: {each.name} for each in self.nodes if not each.follows
        }
        for node in [each for each in self.nodes if not each.follows]:
            for result in node.touches & self.sources.keys():
                near.setdefault(f"of {self.sources[result]}", set()).add(node.name)
        return {frozenset(each) for each in near.values() if each <= self.growth.keys()}

    def errors(self) -> TensorFile:
        """Returns the model with the error of each part as an output, :data:`ERROR` before its name."""
        own, layers = self._opened()
        for layer in self._sources(layers):
            own.add("Sub", [layer.after, self._clamped(own, layer)], f"{ERROR}{layer.codes}")
        for node, i, floats in self._weights(own):
            constant = _constant(own, f"{node.name}:float", floats)
            own.add("Sub", [node.input[i], constant], f"{ERROR}{node.name}")
        names = [each.output[0] for each in own.graph.node if each.output[0].startswith(ERROR)]
        own.graph.output.extend(map(helper.make_empty_tensor_value_info, names))
        return own

    def with_errors(self) -> TensorFile:
        """Returns the model in floats, with an input for the error of each part, which is added to it."""
        own, layers = self._opened()
        weights = list(self._weights(own))
        for layer in [each for each in layers if each.codes]:
            floats, is_source = self._clamped(own, layer), self.sources[layer.codes] == layer.codes
            for made in _set_aside(own, layer):
                added = [f"{ERROR}{layer.codes}"] * is_source
                own.add("Add" if is_source else "Identity", [floats, *added], made)
        for node, i, array in weights:
            floats = _constant(own, f"{node.name}:float", array)
            node.input[i] = own.add("Add", [floats, f"{ERROR}{node.name}"], f"{node.name}:{i}")
        parts = [*map(attrgetter("codes"), self._sources(layers)), *(it.name for it, *_ in weights)]
        infos = (
            helper.make_tensor_value_info(f"{ERROR}{it}", TensorProto.FLOAT, None) for it in parts
        )
        own.graph.input.extend(infos)
        EditedGraph(own.model, self._path.parent).finished()
        return own

    def _sources(self, layers: Iterable[QuantizedLayer]) -> Iterator[QuantizedLayer]:
        return (it for it in layers if it.codes and self.sources[it.codes] == it.codes)

    def _weights(self, own: TensorFile) -> Iterator[tuple[Any, int, Any]]:
        """Yields the nodes whose weights are quantized and known in floats, with where they are, and these."""
        graph = EditedGraph(own.model, self._path.parent)
        for name in self.growth:
            found = list(self._constants(own, graph, own.named[name]))
            for i, array, _ in [each for each in found if each[0] < _OPERANDS][:1]:
                yield own.named[name], i, array

    def with_floats(self, left: Collection[str]) -> TensorFile:
        """Returns the model with some nodes left in float, as the quantizer would have written it."""
        own, layers = self._opened()
        graph, kept = EditedGraph(own.model, self._path.parent), self.quantized(left)
        for layer in [each for each in layers if each.codes]:
            if layer.codes not in kept:
                floats = self._clamped(own, layer)
                for made in _set_aside(own, layer):
                    own.add("Identity", [floats], made)
            elif layer.node in left and layer.clamps:  # which the quantizer then does not leave out
                quantizer = own.makers[layer.codes]
                set_inputs(quantizer, [self._clamped(own, layer), *quantizer.input[1:]])
        for name in left:
            node = own.named[name]
            for i, array, _ in list(self._constants(own, graph, node)):
                node.input[i] = _constant(own, f"{name}:{i}:float", array)
        EditedGraph(own.model, self._path.parent).finished()
        return own

    def _clamped(self, own: TensorFile, layer: QuantizedLayer) -> str:
        """Adds the clamps that are left to the quantization of a result; returns the result behind them."""
        name = layer.result
        for number, clamp in enumerate(layer.clamps):
            made = f"{layer.result}:clamped{number}"
            limits = [
                it and _constant(own, f"{made}:{it}", self._base.array(it))
                for it in clamp.input[1:]
            ]
            name = own.add(clamp.op_type, [name, *limits], made, **attributes(clamp))
        return name


def _names_of(own: TensorFile, layers: Sequence[QuantizedLayer]) -> Iterator[tuple[str, str]]:
    """Yields the tensors in floats that stand for integers, with these."""
    for layer in [each for each in layers if each.codes]:
        yield layer.result, layer.codes
        for each in own.readers[layer.codes]:
            if each.op_type == "DequantizeLinear":
                yield each.output[0], layer.codes


def _set_aside(own: TensorFile, layer: QuantizedLayer) -> Iterator[str]:
    """Gives what dequantizes a result another name for what it makes; yields the former ones."""
    for each in own.readers[layer.codes]:
        if each.op_type == "DequantizeLinear":
            made, each.output[0] = each.output[0], f"{each.output[0]}:quantized"
            yield made


def _rescaled(floats: Any, values: Any) -> Any:
    """Returns constants with the factors of channels that the quantized ones have; None if they are others.

    Batch norms that were folded in have such factors, and weights that were equalized.
    """
    if floats.shape != values.shape:
        return None
    found = floats.astype(np.float64)
    for axis in (0, 1, 0, 1) if found.ndim > 1 else ():
        others = tuple({*range(found.ndim)} - {axis})
        power = (found**2).sum(others, keepdims=True)
        found *= (found * values).sum(others, keepdims=True) / np.where(power, power, 1)
    direct, scaled = _error(floats, values), _error(found, values)
    return None if max(direct, scaled) < _ALIKE else found if scaled > direct + _ALIKE else floats


def _error(floats: Any, values: Any) -> float:
    found = sqnr(floats, values)
    return inf if found is None else found


def _constant(own: TensorFile, name: str, array: Any) -> str:
    own.graph.initializer.append(numpy_helper.from_array(array, name))
    return name
