"""The model's file as the findings need it: who makes and reads what, at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from otel_quant.cost import CostError
from otel_quant.cost.binding import BoundInputs, bind_inputs
from otel_quant.cost.execution import Run, executions
from otel_quant.cost.fusion import Fused, fused_kernels
from otel_quant.cost.inference import Walk
from otel_quant.cost.inputs import InputSpec
from otel_quant.cost.operation import Operation
from otel_quant.cost.reader.model_reader import read_model
from otel_quant.cost.rule_sets import RULE_SETS
from otel_quant.cost.structure import Model
from otel_quant.cost.values import Value

_THROUGH: Final = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators behind which an index is still the same."""

_LOOKED_UP: Final = frozenset({"Gather", "GatherElements"})


class FileGraph:
    """A model's nodes, those of bodies included."""

    def __init__(self, path: str, inputs: Mapping[str, InputSpec], dims: Mapping[str, int]) -> None:
        self.model: Model = read_model(path)
        self.bound: BoundInputs = bind_inputs(self.model.graph, inputs, path, dims=dims)
        walk = Walk(
            self.model,
            self.bound.values,
            symbols=self.bound.symbols,
            trust_declared=not self.bound.overridden,
            dims=dims,
        )
        main = walk.run()
        self.fused: Fused = fused_kernels(main, walk.outputs)
        self.outputs = frozenset(info.name for info in self.model.graph.outputs)
        self.runs: dict[Operation, Run] = {
            run.op: run for run in executions(main, RULE_SETS["corrected"])
        }
        self.ops: Sequence[Operation] = list(self.runs)
        self._readers: dict[int, list[Operation]] = {}
        self._makers: dict[int, Operation] = {}
        self._by_tensor: dict[str, Operation] = {}
        self._by_name: dict[str, Operation] = {}
        self._unnamed: dict[int, Operation] = {}
        for op in self.ops:
            self._by_name.setdefault(op.node.name or op.name, op)
            for value in op.outputs:
                self._makers[id(value)] = op
            for operand in op.inputs:
                if operand is not None:
                    self._readers.setdefault(id(operand), []).append(op)
        numbered = [op for op in main if op.kind != "Constant"]  # those are no nodes at run time
        for number, op in enumerate(numbered):
            self._by_tensor.update(dict.fromkeys(op.node.outputs, op))
            if not op.node.name:
                self._unnamed[number] = op

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

    def maker(self, value: Value) -> Operation | None:
        """Returns the node that makes a value; None for inputs and constants."""
        return self._makers.get(id(value))

    def maker_of(self, tensor: str) -> Operation | None:
        """Returns the node of the main graph that makes a tensor."""
        return self._by_tensor.get(tensor)

    def readers(self, value: Value) -> Sequence[Operation]:
        """Returns the nodes that read a value."""
        return self._readers.get(id(value), ())

    def is_output(self, value: Value) -> bool:
        """Whether the model gives a value out."""
        return value.name in self.outputs

    def is_input(self, value: Value) -> bool:
        """Whether a value is an input of the model."""
        return self.bound.values.get(value.name) is value

    def macs(self, ops: Sequence[Operation]) -> int | None:
        """Returns the MACs of nodes that run as one: of the contractions if there is one."""
        found = [run for op in ops if (run := self.runs.get(op)) is not None]
        known = [(run.macs, run.times) for run in found if run.macs is not None and run.times]
        if not known:
            return None
        contraction = sum(macs.contraction * times for macs, times in known)
        return contraction or sum(macs.total * times for macs, times in known)

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
