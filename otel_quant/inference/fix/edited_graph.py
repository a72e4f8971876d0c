"""The graph of an ONNX model while it is rewritten: who makes and reads each tensor, and its constants."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

MOST_INSIDE: Final = 1_500_000_000
"""Bytes of weights from which they lie beside a file: a message of protobuf has 2 GB at most."""


class Scales(NamedTuple):
    """How a node quantizes or dequantizes; all of it is constant."""

    scale: Any  # Array of floats
    zero: Any  # Array of integers, of the type of what is quantized
    axis: int = 1
    block: int = 0  # 0: none
    domain: str = ""  # Of the operator

    @property
    def is_single(self) -> bool:
        """Whether scale and zero point are one number each."""
        return bool(self.scale.size == 1 and self.zero.size == 1)

    def equals(self, other: Scales) -> bool:
        """Whether integers mean the same by both."""
        pairs = ((self.scale, other.scale), (self.zero, other.zero))
        return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)

    def floats(self, codes: Any) -> Any:
        """Returns what integers stand for, in float64."""
        zero, scale = self._beside(codes, self.zero), self._beside(codes, self.scale)
        return (codes.astype(np.float64) - zero) * scale

    def codes(self, floats: Any) -> Any:
        """Returns the integers that stand for floats."""
        limits = np.iinfo(self.zero.dtype)
        codes = np.rint(floats / self._beside(floats, self.scale)) + self._beside(floats, self.zero)
        return np.clip(codes, limits.min, limits.max).astype(self.zero.dtype)

    def _beside(self, values: Any, each: Any) -> Any:
        """Returns scales or zero points in a shape that goes with the values."""
        if each.size == 1:
            return each.astype(np.float64).reshape(())
        shape = [-1 if i == self.axis % values.ndim else 1 for i in range(values.ndim)]
        return each.astype(np.float64).reshape(shape)


class EditedGraph:
    """The main graph of a model; :meth:`finished` gives the model with what was changed."""

    def __init__(self, model: Any, folder: Path) -> None:
        self._model, self._folder = model, str(folder)
        self.nodes: list[Any] = list(model.graph.node)
        self._index()

    def _index(self) -> None:
        graph = self._model.graph
        self._inputs = {each.name for each in graph.input}
        self._initializers = {each.name: each for each in graph.initializer}
        self._makers = {name: node for node in self.nodes for name in node.output if name}
        self._readers: defaultdict[str, list[Any]] = defaultdict(list)
        # What is read elsewhere than by nodes of this graph
        self.kept = {each.name for each in graph.output}.union(*map(_read_within, self.nodes))
        for node in self.nodes:
            for name in dict.fromkeys(node.input):
                self._readers[name].append(node)

    def of(self, *op_types: str) -> list[Any]:
        """Returns the nodes of some operators."""
        return [node for node in self.nodes if is_operator(node, *op_types)]

    def maker(self, name: str, *op_types: str) -> Any:
        """Returns the node that makes a tensor, if it is of one of these operators; else None."""
        node = self._makers.get(name)
        return node if node is not None and (not op_types or is_operator(node, *op_types)) else None

    def readers(self, name: str) -> Sequence[Any]:
        """Returns the nodes that read a tensor."""
        return self._readers.get(name, ())

    def only_reader(self, name: str) -> Any:
        """Returns the node that alone reads a tensor, once; None where there are others."""
        readers = self.readers(name)
        is_alone = len(readers) == 1 and list(readers[0].input).count(name) == 1
        return readers[0] if is_alone and name not in self.kept else None

    def quantizer(self, name: str) -> Any:
        """Returns the QuantizeLinear that alone reads a tensor; None where there is none."""
        reader = self.only_reader(name)
        return reader if reader is not None and is_operator(reader, "QuantizeLinear") else None

    def is_constant(self, name: str) -> bool:
        """Whether a tensor is a constant, or one dequantized; its weights may lie beside the file."""
        node = self.maker(name, "DequantizeLinear")
        source = name if node is None else node.input[0]
        return source in self._initializers or self.maker(source, "Constant") is not None

    def constant(self, name: str) -> Any:
        """Returns the array of a constant; None for what is none."""
        tensor, node = self._initializers.get(name), self.maker(name, "Constant")
        if node is not None:
            tensor = attributes(node).get("value")
        if tensor is None or name in self._inputs:
            return None
        try:
            return numpy_helper.to_array(tensor, self._folder)
        except (ValueError, onnx.checker.ValidationError) as error:  # its file is not whole
            raise OSError(0, str(error), f"weights of {name}") from error

    def dequantized(self, name: str) -> tuple[Any, Scales | None]:
        """Returns the integers that a tensor is dequantized from, and how, where both are constant."""
        by = self.scales_of(name)
        codes = None if by is None else self.constant(self._makers[name].input[0])
        return (None, None) if codes is None else (codes, by)

    def scales_of(self, name: str) -> Scales | None:
        """Returns how a tensor is dequantized; None where it is not, or that is not constant."""
        return self.scales(self.maker(name, "DequantizeLinear"))

    def scales(self, node: Any) -> Scales | None:
        """Returns how a node quantizes or dequantizes; None where that is not constant, or there is none."""
        if node is None:
            return None
        scale, given = self.constant(node.input[1]), attributes(node)
        is_given = len(node.input) > 2 and bool(node.input[2])
        zero = self.constant(node.input[2]) if is_given else None
        if scale is None or (is_given and zero is None):
            return None
        if zero is None:
            tensor = self._initializers.get(node.input[0])  # its type is known without its content
            kind = np.uint8 if tensor is None else helper.tensor_dtype_to_np_dtype(tensor.data_type)
            zero = np.zeros(scale.shape, kind)
        axis, block = given.get("axis", 1), given.get("block_size", 0)
        return Scales(scale, zero, axis, block, node.domain)

    def add_constant(self, like: str, array: Any) -> str:
        """Adds an initializer; returns its name, which begins as another's."""
        name, number = like, 0
        while name in self._initializers or name in self._makers or name in self._inputs:
            name, number = f"{like}_fixed{number or ''}", number + 1
        self._model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        self._initializers[name] = self._model.graph.initializer[-1]
        return name

    def add_dequantizer(self, like: str, codes: Any, by: Scales) -> str:
        """Adds a constant and the node that dequantizes it; returns the name of what this makes."""
        names = [self.add_constant(f"{like}_codes", codes), *self._add_scales(like, by)]
        made = f"{names[0]}_dequantized"
        more: dict[str, Any] = {} if by.is_single else {"axis": by.axis}
        node = helper.make_node(
            "DequantizeLinear", names, [made], name=made, domain=by.domain, **more
        )
        self.nodes.append(node)
        self._makers[made] = node
        return made

    def requantize(self, node: Any, new: Scales) -> None:
        """Has a node that quantizes or dequantizes do it otherwise."""
        node.input[:] = [node.input[0], *self._add_scales(node.output[0], new)]

    def add_pair(self, name: str, by: Scales) -> None:
        """Adds the nodes that quantize and dequantize a tensor for all that read it."""
        how = self._add_scales(name, by)
        codes, made = (f"{how[0]}_{what}" for what in ("quantized", "dequantized"))
        self.replace_reads(name, made)
        pair = ("QuantizeLinear", name, codes), ("DequantizeLinear", codes, made)
        for op, source, result in pair:
            more = {"name": result, "domain": by.domain}
            self.nodes.append(helper.make_node(op, [source, *how], [result], **more))

    def _add_scales(self, like: str, by: Scales) -> list[str]:
        arrays = {"scale": by.scale, "zero_point": by.zero}
        return [self.add_constant(f"{like}_{what}", array) for what, array in arrays.items()]

    def remove(self, *nodes: Any) -> None:
        """Takes nodes away."""
        gone = set(map(id, nodes))
        self.nodes = [each for each in self.nodes if id(each) not in gone]

    def replace_reads(self, old: str, new: str) -> None:
        """Has all nodes read another tensor in place of one."""
        for node in self._readers.pop(old, ()):
            node.input[:] = [new if name == old else name for name in node.input]
            self._readers[new].append(node)

    def bypass(self, *nodes: Any) -> None:
        """Takes nodes in a row away, and has their readers read what the first reads."""
        self.remove(*nodes)
        first = nodes[0].input[0]
        self._readers[first] = [it for it in self._readers[first] if it is not nodes[0]]
        self.replace_reads(nodes[-1].output[0], first)

    def finished(self) -> Any:
        """Returns the model with its nodes in order, without what nothing reads."""
        graph = self._model.graph
        self._index()
        while unread := [node for node in self.nodes if not any(map(self._is_used, node.output))]:
            self.remove(*unread)
            self._index()
        kept = type(graph)(node=self._ordered())
        kept.initializer.extend(it for it in graph.initializer if self._is_used(it.name))
        for field in ("node", "initializer"):
            graph.ClearField(field)
            getattr(graph, field).extend(getattr(kept, field))
        return self._model

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
            # What has no end is refused on loading
            left = behind if len(behind) < len(left) else []


def save(model: Any, path: Path) -> None:
    """Writes a model, a large one with its weights beside, in a file of its name that ends with ``.data``."""
    is_large = sum(len(each.raw_data) for each in model.graph.initializer) > MOST_INSIDE
    own = copy.deepcopy(model) if is_large else model  # what lies beside is taken out
    onnx.save_model(own, path, save_as_external_data=is_large, location=f"{path.stem}.data")


def is_operator(node: Any, *op_types: str) -> bool:
    """Whether a node is of one of ONNX's operators, or onnxruntime's of the same name."""
    return node.op_type in op_types and node.domain in ("", "ai.onnx", "com.microsoft")


def attributes(node: Any) -> Mapping[str, Any]:
    """Returns the attributes of a node by name."""
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def _read_within(node: Any) -> set[str]:
    """Returns the names that the bodies of a node read."""
    bodies = [each.g for each in node.attribute if each.type == AttributeProto.GRAPH]
    found = {each.name for body in bodies for each in body.output}
    return found.union(*((*it.input, *_read_within(it)) for body in bodies for it in body.node))
