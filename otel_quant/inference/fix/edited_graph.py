"""The graph of an ONNX model while it is rewritten: who makes and reads each tensor, and its constants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from onnx import AttributeProto, helper, numpy_helper

_DOMAINS: Final = ("", "ai.onnx", "com.microsoft")


class Scales(NamedTuple):
    """How a node quantizes or dequantizes; all of it is constant."""

    scale: Any  # Array of floats
    zero: Any  # Array of integers, of the type of what is quantized
    axis: int = 1
    block: int = 0  # 0: none

    @property
    def is_single(self) -> bool:
        """Whether scale and zero point are one number each."""
        return bool(self.scale.size == 1 and self.zero.size == 1)

    def equals(self, other: Scales) -> bool:
        """Whether integers mean the same by both."""
        pairs = ((self.scale, other.scale), (self.zero, other.zero))
        same = all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)
        return same and self[2:] == other[2:]

    def floats(self, codes: Any) -> Any:
        """Returns what integers stand for, in float64."""
        zero, scale = (
            self._beside(codes, each.astype(np.float64)) for each in (self.zero, self.scale)
        )
        return (codes.astype(np.float64) - zero) * scale

    def codes(self, floats: Any) -> Any:
        """Returns the integers that stand for floats."""
        zero, scale = (
            self._beside(floats, each.astype(np.float64)) for each in (self.zero, self.scale)
        )
        limits = np.iinfo(self.zero.dtype)
        return np.clip(np.rint(floats / scale) + zero, limits.min, limits.max).astype(
            self.zero.dtype
        )

    def _beside(self, values: Any, each: Any) -> Any:
        """Returns scales or zero points in a shape that goes with the values."""
        if each.size == 1:
            return each.reshape(())
        if self.block:
            return np.repeat(each, self.block, self.axis).take(
                range(values.shape[self.axis]), self.axis
            )
        return each.reshape([-1 if i == self.axis % values.ndim else 1 for i in range(values.ndim)])


class EditedGraph:
    """The main graph of a model; :meth:`index` after nodes were added or taken away."""

    def __init__(self, model: Any, folder: Path) -> None:
        self.model, self._folder = model, str(folder)
        self.nodes: list[Any] = list(model.graph.node)
        self.outputs = {each.name for each in model.graph.output}
        self._inputs = {each.name for each in model.graph.input}
        self.index()

    def index(self) -> None:
        """Finds who makes and reads what."""
        self._initializers = {each.name: each for each in self.model.graph.initializer}
        self._makers = {name: node for node in self.nodes for name in node.output if name}
        self._readers: defaultdict[str, list[Any]] = defaultdict(list)
        self.kept = set(self.outputs)  # What is read elsewhere than by nodes of this graph
        for node in self.nodes:
            for name in dict.fromkeys(node.input):
                self._readers[name].append(node)
            self.kept.update(_read_within(node))

    def maker(self, name: str) -> Any:
        """Returns the node that makes a tensor; None for inputs and initializers."""
        return self._makers.get(name)

    def readers(self, name: str) -> Sequence[Any]:
        """Returns the nodes that read a tensor."""
        return self._readers.get(name, ())

    def only_reader(self, name: str) -> Any:
        """Returns the node that alone reads a tensor, once; None where there are others."""
        readers = self.readers(name)
        if name in self.kept or len(readers) != 1 or list(readers[0].input).count(name) > 1:
            return None
        return readers[0]

    def constant(self, name: str) -> Any:
        """Returns the array of a constant; None for what is none."""
        tensor, node = self._initializers.get(name), self.maker(name)
        if node is not None and node.op_type == "Constant":
            tensor = attributes(node).get("value")
        if tensor is None or name in self._inputs:
            return None
        return numpy_helper.to_array(tensor, self._folder)

    def add_constant(self, like: str, array: Any) -> str:
        """Adds an initializer; returns its name, which begins as another's."""
        name, number = like, 0
        while name in self._initializers or name in self._makers or name in self._inputs:
            name, number = f"{like}_fixed{number or ''}", number + 1
        tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        self.model.graph.initializer.append(tensor)
        self._initializers[name] = tensor
        return name

    def add_dequantizer(self, like: str, codes: Any, by: Scales) -> str:
        """Adds a constant and the node that dequantizes it; returns the name of what this makes."""
        names = [
            self.add_constant(f"{like}_{what}", array)
            for what, array in (("codes", codes), ("scale", by.scale), ("zero_point", by.zero))
        ]
        made = f"{names[0]}_dequantized"
        more: dict[str, Any] = {} if by.is_single else {"axis": by.axis}
        self.nodes.append(helper.make_node("DequantizeLinear", names, [made], name=made, **more))
        self._makers[made] = self.nodes[-1]
        for name in names:
            self._readers[name].append(self.nodes[-1])
        return made

    def dequantizer(self, name: str) -> Any:
        """Returns the DequantizeLinear that makes a tensor; None if none does."""
        node = self.maker(name)
        return node if node is not None and is_operator(node, "DequantizeLinear") else None

    def scales(self, node: Any) -> Scales | None:
        """Returns how a node quantizes or dequantizes; None where that is not constant."""
        scale = self.constant(node.input[1])
        zero = self.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        if scale is None or (zero is None and len(node.input) > 2 and node.input[2]):
            return None
        if zero is None:
            codes = self.constant(node.input[0]) if node.op_type == "DequantizeLinear" else None
            zero = np.zeros(scale.shape, np.uint8 if codes is None else codes.dtype)
        given = attributes(node)
        return Scales(scale, zero, given.get("axis", 1), given.get("block_size", 0))

    def remove(self, *nodes: Any) -> None:
        """Takes nodes away."""
        gone = set(map(id, nodes))
        self.nodes = [each for each in self.nodes if id(each) not in gone]

    def replace_reads(self, old: str, new: str) -> None:
        """Has all nodes read another tensor in place of one."""
        for node in self._readers.pop(old, ()):
            for i, name in enumerate(node.input):
                if name == old:
                    node.input[i] = new
            self._readers[new].append(node)

    def bypass(self, *nodes: Any) -> None:
        """Takes nodes in a row away, and has their readers read what the first reads; an output keeps its name."""
        self.remove(*nodes)
        first, last = nodes[0].input[0], nodes[-1].output[0]
        self._readers[first] = [it for it in self._readers[first] if it is not nodes[0]]
        self.replace_reads(last, first)

    def finished(self) -> Any:
        """Returns the model with its nodes in order, without what nothing reads."""
        graph = self.model.graph
        self.index()
        while unread := [it for it in self.nodes if not any(map(self._is_used, it.output))]:
            self.remove(*unread)
            self.index()
        ordered = [type(node).FromString(node.SerializeToString()) for node in self._ordered()]
        del graph.node[:]
        graph.node.extend(ordered)
        used = [each for each in graph.initializer if self._is_used(each.name)]
        if len(used) < len(graph.initializer):
            kept = type(graph)(initializer=used)
            del graph.initializer[:]
            graph.initializer.extend(kept.initializer)
        return self.model

    def _is_used(self, name: str) -> bool:
        return name in self.kept or bool(self.readers(name))

    def _ordered(self) -> Iterator[Any]:
        """Yields the nodes each after those whose results it reads, else as in the file."""
        left, waiting = self.nodes, set(self._makers)
        while left:
            behind = []
            for node in left:
                if waiting.isdisjoint(node.input) and waiting.isdisjoint(_read_within(node)):
                    waiting.difference_update(node.output)
                    yield node
                else:
                    behind.append(node)
            left = (
                behind if len(behind) < len(left) else []
            )  # a graph that never ends is refused on loading


def is_operator(node: Any, *op_types: str) -> bool:
    """Whether a node is of one of ONNX's operators, or onnxruntime's of the same name."""
    return node.op_type in op_types and node.domain in _DOMAINS


def attributes(node: Any) -> Mapping[str, Any]:
    """Returns the attributes of a node by name."""
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def _read_within(node: Any) -> set[str]:
    """Returns the names that the bodies of a node read."""
    found: set[str] = set()
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found.update(each.name for each in attribute.g.output)
            for inner in attribute.g.node:
                found.update(inner.input, _read_within(inner))
    return found
