"""What of a quantized ONNX model can be left in float, and the model with some of it so.

A quantizer that leaves a node out still quantizes what its neighbours read and make: a result stays in float where no
node that is left quantizes it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from onnx import TensorProto, helper

from otel_quant.cost.graph import QDQ
from otel_quant.inference import layer_errors as of
from otel_quant.inference.fix.edited_graph import EditedGraph, attributes
from otel_quant.inference.outputs import sqnr

ERROR: Final = "error of "
"""Before the name of a part, what a model has its error as."""

AT: Final = "\n"
"""Before the place of a constant among the inputs of a node, behind its name: all of them are one part."""

_MOVES: Final = frozenset(
    {
        "AveragePool",
        "Flatten",
        "Gather",
        "GatherElements",
        "MaxPool",
        "Reshape",
        "Resize",
        "Slice",
        "Squeeze",
        "TopK",
        "Transpose",
        "Unsqueeze",
        "Where",
    }
)
"""Operators whose result quantizers quantize if what they read is quantized, as they do behind a clamp."""

_FORCES: Final = "quark.onnx"
"""Producer of files in which such operators are quantized in any case (ForceQuantizeNoInputCheck)."""

_ALIKE: Final = 8.0
"""dB from which constants are the float model's: one scale for channels of other ranges may leave no more."""

_SCOPES: Final = "pkg.torch.onnx.name_scopes"
_SCOPE: Final = re.compile(r"'([^']*)'")
_HANDED_ON: Final = frozenset({"DequantizeLinear", "Identity", "QuantizeLinear"})
_OPERANDS: Final = 2  # Before the bias


class TakenNode(NamedTuple):
    """A node that a quantizer has taken, by the integers that it reads and makes."""

    name: str
    op_type: str
    reads: Sequence[str]
    makes: Sequence[str]
    follows: bool  # Whether it quantizes its result only if what it reads is quantized


class _Constant(NamedTuple):
    """A quantized constant of a node."""

    place: int  # Among its inputs
    name: str
    array: Any  # It in floats
    growth: int  # Bytes that it takes more then
    is_other: bool = False  # Whether the float model has others


class QuantizedParts:
    """Results of a model that are quantized, by their integers, and its weights, by their nodes."""

    def __init__(self, floats: str, path: str) -> None:
        self._path, self._base = path, of.TensorFile(floats)
        own, layers = self._opened()
        # Tensors in floats -> the integers that they stand for, results first
        self.of = {it.result: it.codes for it in layers}
        self.of |= {each.output[0]: it.codes for it in layers for each in _dequantizers(own, it)}
        self.nodes = list(self._taken(own))
        # Results -> the node that makes them, where the quantizer has put another function in its place
        self._other = {it.makes[0]: it.name for it in self.nodes if self._is_other(own, it)}
        # Results -> the one whose error they have: what is only moved is not rounded again
        self.sources = {each.codes: each.codes for each in layers}
        scales = {it.codes: [own.array(name) for name in it.how] for it in layers}
        for node in self.nodes:
            for made in node.makes if node.reads and node.op_type in _MOVES | of.CLAMPS else ():
                is_moved = all(map(np.array_equal, scales[made], scales[node.reads[0]]))
                if is_moved and made not in self._other:
                    self.sources[made] = self.sources[node.reads[0]]
        known = [each.name for each in self.nodes if each.name in self._base.named]
        found = {name: list(self._constants(own, own.named[name])) for name in known}
        # Nodes that can be left in float, with the bytes that their constants take more then
        self.growth = {
            name: sum(each.growth for each in constants)
            for name, constants in found.items()
            if not any(each.is_other for each in constants)
        }

    def _opened(self) -> tuple[of.TensorFile, list[of.QuantizedLayer]]:
        own = of.TensorFile(self._path)
        return own, [each for each in of.QuantizedLayers(own, self._base).all() if each.codes]

    def _taken(self, own: of.TensorFile) -> Iterator[TakenNode]:
        is_forced = own.model.producer_name == _FORCES
        split = [each for node in own.nodes for each in self._split(own, node)]
        for node in [each for each in own.nodes if each not in split]:
            parts = [node, *self._split(own, node)]
            reads = [self.of[name] for each in parts for name in each.input if name in self.of]
            made = (self._behind(own, name) for each in parts for name in each.output)
            makes = [self.of[it] for it in made if it]
            moves, clamps = node.op_type in _MOVES, node.op_type in of.CLAMPS
            is_own = node.op_type in QDQ or node.op_type == "Constant"
            if not is_own and (moves or clamps or self._is_taken(own, node, makes)):
                follows = clamps or (moves and not (is_forced and reads))
                yield TakenNode(node.name, node.op_type, reads, makes, follows)

    def _split(self, own: of.TensorFile, node: Any) -> list[Any]:
        """Returns the pool that a quantizer has put in front of a large one, as Quark does."""
        is_pool = node.op_type == "GlobalAveragePool"
        front = own.front(node.input[0], {"AveragePool", "Mul", *QDQ}) if is_pool else []
        found = [each for each in front if each.op_type == "AveragePool"]
        return [each for each in found[:1] if each.name not in self._base.named]

    def _behind(self, own: of.TensorFile, name: str) -> str:
        """Returns what is quantized of a result, behind clamps that the file has kept; empty if nothing is."""
        while name not in self.of:
            readers = own.readers[name]
            is_kept = len(readers) == 1 and readers[0].op_type in of.CLAMPS
            if not is_kept and not self._is_scaled(own, name):
                return ""
            name = readers[0].output[0]
        return name

    def _is_scaled(self, own: of.TensorFile, name: str) -> bool:
        """Whether all that reads a result is a factor of the quantizer's, as Quark's behind pools and HardSigmoids."""
        kinds = [each.op_type for each in own.readers[name] if each.name not in self._base.named]
        is_alone = kinds == ["Mul"] and len(own.readers[name]) == 1
        return is_alone and own.readers[name][0].input[1] in own.constants

    def _is_other(self, own: of.TensorFile, taken: TakenNode) -> bool:
        """Whether the quantizer has put another function in place of one of a single tensor."""
        node, partner = own.named.get(taken.name), self._base.named.get(taken.name)
        if node is None or partner is None or len(node.input) != len(partner.input):
            return False
        both = [(each.op_type, attributes(each)) for each in (node, partner)]
        is_added = bool(self._split(own, node)) or self._is_scaled(own, node.output[0])
        return (is_added or both[0] != both[1]) and own.constants.keys() >= {*node.input[1:]}

    def _is_taken(self, own: of.TensorFile, node: Any, makes: object) -> bool:
        if node.op_type not in of.CHANNELS:
            given = [name for name in node.input if name and not own.is_constant(name)]
            are_known = all(it in self.of or self._is_joined(own, it) for it in given)
            return bool(makes and given) and are_known
        fronts = [own.front(name, of.CARRIES) for name in node.input[:2] if name not in self.of]
        return all(any(it.op_type == "DequantizeLinear" for it in front) for front in fronts)

    def _is_joined(self, own: of.TensorFile, name: str) -> bool:
        """Whether a tensor is between a contraction and what a quantizer has taken together with that, as Quark a LeakyRelu."""
        maker = own.makers.get(name)
        if maker is None or len(own.readers[name]) > 1 or maker.op_type not in of.CHANNELS:
            return False
        return self._is_taken(own, maker, ())

    def _constants(self, own: of.TensorFile, node: Any) -> Iterator[_Constant]:
        """Yields the quantized constants of a node in floats: the float model's, of a bias the same as it is."""
        graph, partner = EditedGraph(own.model, Path()), self._base.named.get(node.name)
        is_scaled = False
        for i, name in enumerate(node.input):
            front, source = own.front(name, _HANDED_ON), own.before(name, _HANDED_ON)
            first = [each.output[0] for each in front if each.op_type == "DequantizeLinear"][-1:]
            if not first or source not in own.constants:
                continue
            if own.constants[source].data_type == TensorProto.FLOAT:  # quantized on loading
                yield _Constant(i, source, own.array(source), 0)
                continue
            codes, by = graph.dequantized(first[0])
            if by is None or by.block:
                continue
            is_exact = codes.dtype == np.int32  # a bias, which such steps cost nothing
            values = (by if codes.ndim > 1 else by._replace(axis=0)).floats(codes)
            is_unknown = is_exact or (is_scaled and i >= _OPERANDS)
            given = () if partner is None or is_unknown else partner.input[i : i + 1]
            floats = [self._base.array(self._base.before(each, {"Identity"})) for each in given]
            found = _rescaled(floats[0], values) if floats and floats[0] is not None else None
            array = (values if found is None else found).astype(np.float32)
            is_other = i < _OPERANDS and found is None
            is_scaled |= found is not None and found is not floats[0]  # and then the bias is too
            yield _Constant(i, source, array, array.nbytes - codes.nbytes, is_other)

    def quantized(self, left: Collection[str]) -> set[str]:
        """Returns the results that are quantized if some nodes are left in float."""
        found: set[str] = set()
        for node in self.nodes:
            if node.name not in left and (not node.follows or found.intersection(node.reads)):
                found.update(node.makes, () if node.follows else node.reads)
        return found

    def moves(self) -> set[frozenset[str]]:
        """Returns nodes that may be left in float together: each, and all that quantize the same values."""
        near: dict[str, set[str]] = {}
        for node in [each for each in self.nodes if not each.follows]:
            near[f"node {node.name}"] = {node.name}
            for result in (*node.reads, *node.makes):
                near.setdefault(self.sources[result], set()).add(node.name)
        return {frozenset(each) for each in near.values() if each <= self.growth.keys()}

    def modules(self, names: Sequence[str]) -> list[str]:
        """Returns the modules of PyTorch that nodes were exported from; nothing where not each has one."""
        entries = [it for name in names for it in self._base.named[name].metadata_props]
        scopes = [_SCOPE.findall(it.value) for it in entries if it.key == _SCOPES]
        found = [each[-2] for each in scopes if each[-2:-1] not in ([], [""])]
        return list(dict.fromkeys(found)) if len(found) == len(names) else []

    def with_errors(self, *, as_inputs: bool) -> of.TensorFile:
        """Returns the model with the error of each part as an output; or in floats, with inputs that are added there."""
        own, layers = self._opened()
        parts = []
        for layer in layers:
            floats = self._clamped(own, layer, self.growth)
            is_source = self.sources[layer.codes] == layer.codes
            parts += [layer.codes] * is_source
            if is_source and not as_inputs:
                own.add("Sub", [layer.after, floats], f"{ERROR}{layer.codes}")
            for made in _set_aside(own, layer) if as_inputs else ():
                added = [f"{ERROR}{layer.codes}"] * is_source
                own.add("Add" if is_source else "Identity", [floats, *added], made)
        for name in self.growth:
            node = own.named[name]
            for i, source, array, *_ in list(self._constants(own, node)):
                parts.append(f"{name}{AT}{i}")
                floats, error = _added(own, f"{source}:float", array), f"{ERROR}{parts[-1]}"
                if as_inputs:
                    node.input[i] = own.add("Add", [floats, error], f"{name}:{i}")
                else:
                    own.add("Sub", [node.input[i], floats], error)
        make, kind = helper.make_tensor_value_info, TensorProto.FLOAT
        infos = [make(f"{ERROR}{it}", kind, None) for it in parts]
        (own.graph.input if as_inputs else own.graph.output).extend(infos)
        EditedGraph(own.model, Path()).finished()
        return own

    def with_floats(self, left: Collection[str]) -> of.TensorFile:
        """Returns the model with some nodes left in float, as the quantizer would have written it."""
        own, layers = self._opened()
        kept = self.quantized(left)
        for layer in layers:
            if layer.codes not in kept:
                floats = self._clamped(own, layer, left)
                for made in _set_aside(own, layer):
                    own.add("Identity", [floats], made)
            elif {layer.node, self._other.get(layer.codes)}.intersection(left):
                quantizer = own.makers[layer.codes]  # behind what it then does not leave out
                quantizer.input[:] = [self._clamped(own, layer, left), *quantizer.input[1:]]
        others = {each.name for each in self.nodes} - set(left)
        for node in map(own.named.__getitem__, left):
            for each in list(self._constants(own, node)):
                given = node.input[each.place]
                front = own.front(given, _HANDED_ON)
                again = [it for it in front if it.op_type == "QuantizeLinear"]
                if again:
                    node.input[each.place] = again[0].input[0]
                elif others.isdisjoint(
                    it.name for it in own.readers[given]
                ):  # else it is quantized for these
                    own.makers[given].output[0] = f"{given}:quantized"
                    _added(own, given, each.array)
        EditedGraph(own.model, Path()).finished()
        return own

    def _clamped(self, own: of.TensorFile, layer: of.QuantizedLayer, left: Collection[str]) -> str:
        """Adds the float model's node, if another is in its place, and clamps left to the quantization; returns the result."""
        name, other = layer.result, self._other.get(layer.codes, "")
        if other in left:
            node, own_node = self._base.named[other], own.named[other]
            given = [own_node, *self._split(own, own_node)][-1].input
            how = {**attributes(node), "domain": node.domain}
            name = own.add(node.op_type, given, f"{name}:float", **how)
        for number, clamp in enumerate(layer.clamps):
            made, more = f"{layer.result}:clamped{number}", attributes(clamp)
            array, given = self._base.array, clamp.input[1:]
            limits = [it and _added(own, f"{made}:{it}", array(it)) for it in given]
            name = own.add(clamp.op_type, [name, *limits], made, **more)
        return name


def _dequantizers(own: of.TensorFile, layer: of.QuantizedLayer) -> list[Any]:
    return [it for it in own.readers[layer.codes] if it.op_type == "DequantizeLinear"]


def _set_aside(own: of.TensorFile, layer: of.QuantizedLayer) -> Iterator[str]:
    """Gives what dequantizes a result another name for what it makes; yields the former ones."""
    for each in _dequantizers(own, layer):
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
    errors = [sqnr(each, values) for each in (floats, found)]
    direct, scaled = (inf if each is None else each for each in errors)
    return None if max(direct, scaled) < _ALIKE else found if scaled > direct + _ALIKE else floats


def _added(own: of.TensorFile, name: str, array: Any) -> str:
    """Adds a constant, unless it is there; returns its name."""
    if name not in own.constants:
        own.constant(name, array)
        own.constants[name] = own.graph.initializer[-1]
    return name
