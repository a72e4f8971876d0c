"""Memory of nodes and of the model, as the file has them or as a runtime fuses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from otel_quant.cost.inference import Walk
from otel_quant.cost.liveness import peak_bytes
from otel_quant.cost.operation import Operation
from otel_quant.cost.operators import operator_of
from otel_quant.cost.rule_sets import RuleSet
from otel_quant.cost.values import Value

if TYPE_CHECKING:
    from otel_quant.cost.fusion import Fused, Kernel

VIEWS: Final = ("fused", "file")
"""Quantized operators as runtimes run them, or every node by itself."""


class MemoryView:
    """Memory in one view, added up node by node."""

    def __init__(
        self,
        kernels: Mapping[Operation, Kernel],
        rules: RuleSet,
        ops: Sequence[Operation],
        walk: Walk,
    ) -> None:
        self._kernels = kernels
        self._rules = rules
        self.bytes = 0
        self.peak_bytes = peak_bytes(ops, walk.inputs.values(), walk.outputs, kernels)
        self.unsized = 0

    def add(self, op: Operation, held: int) -> tuple[int | None, int | None]:
        """Adds a node that is executed."""
        if op.kind == "Constant":
            self.bytes += held
            return held, 0
        memory: int | None = held + (_folded(op, held) if self._kernels else 0)
        moved = self._read(op)
        if operator_of(op.kind).results_in_bodies:
            self.bytes += held
            return held, moved
        for value in self.results(op):
            size = value.bytes
            if size is None:
                self.unsized += 1
                memory = moved = None
            else:
                if memory is not None and (self._rules.scalars_count or value.shape != ()):
                    memory += size
                if moved is not None:
                    moved += size
        self.bytes += memory or 0
        return memory, moved

    def _read(self, op: Operation) -> int | None:
        """Bytes that one execution of a node reads; None if they are not known."""
        kernel = self._kernels.get(op)
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
        return total

    def results(self, op: Operation) -> list[Value]:
        """Returns what takes memory of an operation's results when the model runs."""
        kernel = self._kernels.get(op)
        if kernel is None:
            made = [value for value, name in zip(op.outputs, op.node.outputs, strict=False) if name]
        else:
            made = list(kernel.makes)
        return [value for value in made if not (self._rules.constants_once and value.constant)]


def memory_views(
    ops: Sequence[Operation], walk: Walk, rules: RuleSet, fused: Fused | None
) -> dict[str, MemoryView]:
    """Returns an empty view of memory for each of ``VIEWS``."""
    file = MemoryView({}, rules, ops, walk)
    if fused is None:
        return dict.fromkeys(VIEWS, file)
    return {"fused": MemoryView(fused.kernels, rules, ops, walk), "file": file}


def _folded(op: Operation, held: int) -> int:
    """What quantizing a constant when the model is loaded adds to its bytes, or takes away."""
    if not (operator_of(op.kind).precision.quantizes and op.outputs and op.has(0)):
        return 0
    weight, size = op.input(0).weight, op.outputs[0].bytes
    if weight is None or size is None or held < weight.stored:
        return 0
    return size - weight.stored
