"""The graph of a model for other rooms: nodes, who makes and reads what, MACs, types, fused view.

What is here and in :mod:`otel_quant.cost` itself is all that others use of the package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

from otel_quant.cost import dtypes, obstacles
from otel_quant.cost.analysis import file_bytes, stored_in
from otel_quant.cost.execution import Execution, executions, multiplied, precision_of
from otel_quant.cost.fused import CLAMPS, DEQUANTIZES, QUANTIZES, AsRun, Fused, fused_kernels
from otel_quant.cost.inputs import BoundInputs, InputSpec, bind_inputs
from otel_quant.cost.left_in_float import PRODUCERS, Contractions
from otel_quant.cost.model_reader import read_model
from otel_quant.cost.operation import TypedNode, Value
from otel_quant.cost.operators import operator_of
from otel_quant.cost.runtimes import CARRIES, FUSIONS, Fusion, Onnxruntime, runtime_here
from otel_quant.cost.structure import Graph, GraphNode, Model, Tensor, node_name, printable
from otel_quant.cost.walk import Walk

__all__ = [
    "CARRIES", "CLAMPS", "DEQUANTIZES", "FUSIONS", "QDQ", "QUANTIZES", "Fusion", "Graph", "GraphNode", "ModelGraph",
    "Onnxruntime", "Tensor", "TypedNode", "Value", "converts", "dtypes", "node_name", "obstacles", "printable",
    "read_graph", "runtime_here",
]  # fmt: skip

QDQ: Final = QUANTIZES | DEQUANTIZES
"""ONNX's own operators, and onnxruntime's, that convert between floats and integers."""


def read_graph(path: str) -> Graph:
    """Returns a file's main graph as it is written there."""
    return read_model(path).graph


def converts(kind: str) -> bool:
    """Whether an operator, of any domain, only quantizes or dequantizes."""
    precision = operator_of(kind).precision
    return precision.quantizes or precision.dequantizes


class Contraction(NamedTuple):
    """A contraction by the type that it runs in."""

    asked: str  # Type that it asks for
    expected: str  # Type that it is expected to run in
    macs: int  # Of all its executions


class ModelGraph:
    """A model's nodes, also of bodies, with what is known of their tensors."""

    def __init__(
        self,
        path: Any,  # Or an ``onnx.ModelProto``
        inputs: Mapping[str, InputSpec],
        dims: Mapping[str, int],
        runtime: Onnxruntime | None = None,
    ) -> None:
        self.model: Model = read_model(path)
        self.bound: BoundInputs = bind_inputs(
            self.model.graph, inputs, self.model.source, dims=dims
        )
        walk = Walk(self.model, self.bound)
        self.main: Sequence[TypedNode] = walk.ops  # without operations of bodies
        self._constants = walk.constants.met
        self.fused: Fused = fused_kernels(walk.ops, walk.outputs, runtime)
        self.outputs = frozenset(info.name for info in self.model.graph.outputs)
        self.runs: dict[TypedNode, Execution] = {run.op: run for run in executions(self.main)}
        self.ops: Sequence[TypedNode] = list(self.runs)
        self._readers: dict[Value, list[TypedNode]] = {}
        self._makers: dict[Value, TypedNode] = {}
        made = (op for op in (*self.ops, *self.main) if op.kind != "Constant")
        self._by_tensor = {name: op for op in made for name in op.node.outputs}
        for op in self.ops:
            self._makers |= dict.fromkeys(op.outputs, op)
            for operand in op.given:
                self._readers.setdefault(operand, []).append(op)

    def maker(self, value: Value) -> TypedNode | None:
        """Returns the node that makes a value; None for inputs and constants."""
        return self._makers.get(value)

    def maker_of(self, tensor: str) -> TypedNode | None:
        """Returns the node that makes a tensor, of the main graph if one there does; None for constants."""
        return self._by_tensor.get(tensor)

    def readers(self, value: Value) -> Sequence[TypedNode]:
        """Returns the nodes that read a value."""
        return self._readers.get(value, ())

    def is_output(self, value: Value) -> bool:
        """Whether the model gives a value out."""
        return value.name in self.outputs

    def is_contraction(self, op: TypedNode) -> bool:
        """Whether a node multiplies and adds, as far as that is known."""
        run = self.runs.get(op)
        return run is not None and run.macs is not None and run.macs.contraction > 0

    def macs(self, ops: Sequence[TypedNode]) -> int | None:
        """Returns the MACs of nodes that run as one: of the contractions if there is one."""
        found = [run for op in ops if (run := self.runs.get(op)) is not None]
        known = [(run.macs, run.times) for run in found if run.macs is not None and run.times]
        if not known:
            return None
        contraction = sum(macs.contraction * times for macs, times in known)
        return contraction or sum(macs.total * times for macs, times in known)

    @cached_property
    def contractions(self) -> Mapping[TypedNode, Contraction]:
        """What each contraction asks for and is expected to run in, in order of execution."""
        types, found = AsRun(self.fused), {}
        for op, run in self.runs.items():
            if self.is_contraction(op) and run.macs is not None:
                asked = precision_of(op, self._makers)
                macs = multiplied(run.macs.contraction, run.times) or 0
                found[op] = Contraction(asked, types.expected(op, asked), macs)
        return found

    def left_in_float(self) -> list[obstacles.Hindered]:
        """Returns the contractions of a quantized model that were not quantized, by the reasons."""
        found = Contractions(self.main)
        for op, each in self.contractions.items():
            found.add(op, each.asked, each.expected, each.macs)
        others = any(converts(op.kind) for op in self.ops)
        return found.left(is_written=self.model.producer in PRODUCERS, others=others)

    @property
    def stored(self) -> Mapping[str, float]:
        """Shares of the bytes of its constants by type."""
        given = dict.fromkeys(chain.from_iterable(op.given for op in self.ops))
        return stored_in(each.weight for each in given if each.weight is not None)

    @property
    def file_bytes(self) -> int:
        """Bytes of the file and of those that its constants lie in."""
        return file_bytes(self.model, self._constants)
