"""Memory of nodes and of the model, as the file has them or as a runtime fuses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from otel_quant.cost.inference import Walk
from otel_quant.cost.liveness import peak_bytes
from otel_quant.cost.operation import Operation
from otel_quant.cost.operators import operator_of
from otel_quant.cost.results import Memory
from otel_quant.cost.rule_sets import RuleSet
from otel_quant.cost.values import Value

if TYPE_CHECKING:
    from otel_quant.cost.fusion import Kernel

VIEWS: Final = ("fused", "file")
"""Quantized operators as runtimes run them, or every node by itself."""


class MemoryView:
    """Memory in one view.

    Attributes:
        nodes: Bytes of each operation's constants and results; None where not known.
        total: Of the model.
        unsized: Results whose size is not known.
    """

    def __init__(
        self,
        kernels: Mapping[int, Kernel],
        rules: RuleSet,
        executed: Sequence[Operation],
        held: Sequence[int],
        ops: Sequence[Operation],
        walk: Walk,
    ) -> None:
        self._kernels = kernels
        self._rules = rules
        self.nodes = list(map(self._bytes, executed, held))
        self.unsized = sum(
            value.bytes is None
            for size, op in zip(self.nodes, executed, strict=True)
            if size is None
            for value in self.results(op)
        )
        self.total = Memory(
            sum(size or 0 for size in self.nodes),
            peak_bytes(ops, walk.inputs.values(), walk.outputs, kernels),
        )

    def _bytes(self, op: Operation, held: int) -> int | None:
        if operator_of(op.kind).results_in_bodies or op.kind == "Constant":
            return held
        total = held + (_folded(op, held) if self._kernels else 0)
        for value in self.results(op):
            size = value.bytes
            if size is None:
                return None
            if self._rules.scalars_count or value.shape != ():
                total += size
        return total

    def moved(self, op: Operation) -> int | None:
        """Returns the bytes that one execution reads and writes; None where not known."""
        if op.kind == "Constant":
            return 0
        kernel = self._kernels.get(id(op))
        total = 0
        seen: list[Value] = []
        for value in op.inputs if kernel is None else kernel.reads:
            if value is None or value in seen:  # an operand given twice is read once
                continue
            seen.append(value)
            size = value.bytes if value.weight is None else value.weight.stored
            if size is None:
                return None
            total += size
        if not operator_of(op.kind).results_in_bodies:
            for value in self.results(op):
                size = value.bytes
                if size is None:
                    return None
                total += size
        return total

    def results(self, op: Operation) -> list[Value]:
        """Returns what takes memory of an operation's results when the model runs."""
        kernel = self._kernels.get(id(op))
        if kernel is None:
            made = [value for value, name in zip(op.outputs, op.node.outputs, strict=False) if name]
        else:
            made = list(kernel.makes)
        return [value for value in made if not (self._rules.constants_once and value.constant)]


def memory_views(
    ops: Sequence[Operation],
    executed: Sequence[Operation],
    held: Sequence[int],
    walk: Walk,
    rules: RuleSet,
) -> dict[str, MemoryView]:
    """Returns memory in each of ``VIEWS``.

    Args:
        ops: Operations of the main graph.
        executed: All operations in order of execution.
        held: Bytes of the constants that each is the first to read.
        walk: The walk that found them.
        rules: What counts.
    """
    file = MemoryView({}, rules, executed, held, ops, walk)
    if not any(operator_of(op.kind).precision.dequantizes for op in executed):
        return dict.fromkeys(VIEWS, file)
    from otel_quant.cost.fusion import fused_kernels  # other models are not to wait for it

    kernels = fused_kernels(ops, walk.outputs)
    return {"fused": MemoryView(kernels, rules, executed, held, ops, walk), "file": file}


def _folded(op: Operation, held: int) -> int:
    """What quantizing a constant when the model is loaded adds to its bytes, or takes away."""
    if not (operator_of(op.kind).precision.quantizes and op.outputs and op.has(0)):
        return 0
    weight, size = op.input(0).weight, op.outputs[0].bytes
    if weight is None or size is None or held < weight.stored:
        return 0
    return size - weight.stored
