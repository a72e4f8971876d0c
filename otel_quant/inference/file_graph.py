"""The model's file as the findings need it: who makes and reads what, at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from otel_quant.cost import CostError, InputSpec
from otel_quant.cost.graph import ModelGraph, Operation

_THROUGH: Final = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators behind which an index is still the same."""

_LOOKED_UP: Final = frozenset({"Gather", "GatherElements"})


class FileGraph(ModelGraph):
    """A model's nodes, by the names that they have at run time too."""

    def __init__(self, path: str, inputs: Mapping[str, InputSpec], dims: Mapping[str, int]) -> None:
        super().__init__(path, inputs, dims)
        self._by_name: dict[str, Operation] = {}
        for op in self.ops:
            self._by_name.setdefault(op.node.name or op.name, op)
        numbered = [
            op for op in self.main if op.kind != "Constant"
        ]  # those are no nodes at run time
        self._unnamed = {i: op for i, op in enumerate(numbered) if not op.node.name}

    def named(self, name: str) -> Operation | None:
        """Returns the node of a name."""
        return self._by_name.get(name)

    def numbered(self, index: int | None, op_type: str) -> Operation | None:
        """Returns the node without a name that has a number at run time."""
        op = None if index is None else self._unnamed.get(index)
        return op if op is not None and op.node.op_type == op_type else None

    def named_before(self, name: str) -> Operation | None:
        """Returns the node whose name a name begins with, as those that onnxruntime makes do."""
        for end in range(len(name) - 1, 0, -1):
            if not name[end].isalnum() and (op := self._by_name.get(name[:end])) is not None:
                return op
        return None

    def limits(self) -> Mapping[str, int]:
        """Returns the lengths of the tables that inputs are indices of."""
        return dict(self._limits())

    def _limits(self) -> Iterator[tuple[str, int]]:
        for op in self.ops:
            if op.kind not in _LOOKED_UP or not (op.has(0) and op.has(1)):
                continue
            index, shape = op.input(1), op.input(0).shape
            while (maker := self.maker(index)) is not None and maker.kind in _THROUGH:
                index = maker.input(0)
            axis = op.attributes.get("axis", 0)
            if self.is_input(index) and shape and isinstance(axis, int) and shape[axis]:
                yield index.name, int(shape[axis] or 1)


def contents_of(graph: FileGraph) -> tuple[int, int]:
    """Returns the bytes of a model's constants, and the number of its nodes."""
    seen: dict[int, int] = {}
    for op in graph.ops:
        for value in op.inputs:
            if value is not None and value.weight is not None:
                seen[id(value)] = value.weight.stored
    return sum(seen.values()), len(graph.ops)


__all__ = ["CostError", "FileGraph", "contents_of"]
