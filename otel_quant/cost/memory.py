"""Memory of nodes and of the model, as the file has them or as a runtime fuses them.

Of a whole run it is how many bytes of activations are alive at once when the graph runs in order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from otel_quant.cost.execution import RuleSet, executed
from otel_quant.cost.operation import Body, Operation, Value
from otel_quant.cost.operators import operator_of
from otel_quant.cost.walk import Walk

if TYPE_CHECKING:
    from otel_quant.cost.fused import Fused, Kernel

VIEWS: Final = ("fused", "file")
"""Quantized operators as runtimes run them, or every node by itself."""


class MemoryView:
    """Memory in one view, added up node by node."""

    def __init__(self, kernels: Mapping[Operation, Kernel], rules: RuleSet, walk: Walk) -> None:
        self._kernels = kernels
        self._rules = rules
        self.bytes = 0
        self.peak_bytes = _peak_bytes(walk.ops, walk.inputs.values(), walk.outputs, kernels)
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
                if memory is not None and (self._rules.corrected or value.shape != ()):
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
        return [value for value in made if not (self._rules.corrected and value.constant)]


def memory_views(walk: Walk, rules: RuleSet, fused: Fused | None) -> dict[str, MemoryView]:
    """Returns an empty view of memory for each of ``VIEWS``."""
    file = MemoryView({}, rules, walk)
    if fused is None:
        return dict.fromkeys(VIEWS, file)
    return {"fused": MemoryView(fused.kernels, rules, walk), "file": file}


def _folded(op: Operation, held: int) -> int:
    """What quantizing a constant when the model is loaded adds to its bytes, or takes away."""
    if not (operator_of(op.kind).precision.quantizes and op.outputs and op.has(0)):
        return 0
    weight, size = op.input(0).weight, op.outputs[0].bytes
    if weight is None or size is None or held < weight.stored:
        return 0
    return size - weight.stored


def _peak_bytes(
    ops: Sequence[Operation],
    inputs: Iterable[Value],
    outputs: Iterable[Value],
    kernels: Mapping[Operation, Kernel],
) -> int:
    """Returns the most bytes of activations alive at once.

    A tensor lives from the operation that makes it to its last reader; inputs from the
    start, outputs to the end; what a body reads from outside as long as the body runs. Constants
    do not count. A view keeps the tensor behind it alive. Tensors of unknown size count nothing.
    """
    timeline = _Timeline(kernels)
    for value in inputs:
        timeline.make(value)
    timeline.run(ops)
    timeline.now += 1
    for value in outputs:
        timeline.read(value)
    return timeline.peak()


class _Timeline:
    """When tensors are made and read for the last time."""

    def __init__(self, kernels: Mapping[Operation, Kernel]) -> None:
        self.now = 0
        self._kernels = kernels
        self._behind: dict[Value, Value] = {}
        self._index: dict[Value, int] = {}  # of each tensor in the arrays
        self._made = array("q")  # tensors may be many, and numbers in lists take five times as much
        self._last = array("q")
        self._unchanged: set[Value] = set()
        self._around: list[set[Value]] = []

    def make(self, value: Value) -> None:
        """Notes that a tensor comes into being, if its memory is its own."""
        held = self._behind.get(value, value)
        index = self._index.get(held)
        if index is not None:
            self._last[index] = self.now
        elif not held.constant:
            self._index[held] = len(self._made)
            self._made.append(self.now)
            self._last.append(self.now)

    def read(self, value: Value) -> None:
        """Notes that a tensor is still needed."""
        held = self._behind.get(value, value)
        index = self._index.get(held)
        if index is not None:
            self._last[index] = self.now
        if self._around:
            self._around[-1].add(held)

    def run(self, ops: Sequence[Operation]) -> None:
        """Runs operations one after the other, calls of functions in place."""
        for op in executed(ops):
            self.now += 1
            kernel = self._kernels.get(op)
            reads = op.inputs if kernel is None else kernel.reads
            makes = op.outputs if kernel is None else kernel.makes
            for value in reads:
                if value is not None:
                    self.read(value)
            if operator_of(op.kind).view and makes and reads and reads[0] is not None:
                # The root of its operand, not the operand: views of views may be many.
                self._behind[makes[0]] = self._root(reads[0])
            if op.bodies or op.branches:
                self._run_bodies(op)
            for value in makes:
                self.make(value)

    def _run_bodies(self, op: Operation) -> None:
        """Runs what an operation runs; its operands and what is captured live until then."""
        start = self.now
        self._around.append({self._root(value) for value in op.inputs if value is not None})
        for body in op.bodies:
            for value in op.outputs[len(body.carried) :]:  # a slice comes with each iteration
                self.make(value)
            self._run_body(body)
            for item, result in zip(body.carried, op.outputs, strict=False):
                if item.first is not None and self._root(item.leaving) is item.entering:
                    # No iteration changes it: it is the same tensor all the time.
                    self._unchanged.add(item.entering)
                    self._behind[result] = self._root(item.first)
        chosen = op.branches if op.taken is None else [op.branches[op.taken]]
        for body in chosen:
            self._run_body(body)
        self.now += 1
        used = self._around.pop()
        for held in used:
            index = self._index.get(held)
            if index is not None and self._made[index] < start:
                self._last[index] = self.now
        if self._around:
            self._around[-1] |= used

    def _run_body(self, body: Body) -> None:
        if body.times == 0:
            return
        self.now += 1
        for item in body.carried:
            if body.times == 1 and item.first is not None:
                self._behind[item.entering] = self._root(item.first)
            self.make(item.entering)
        self.run(body.ops)
        for value in body.outputs:
            self.read(value)

    def _root(self, value: Value) -> Value:
        return self._behind.get(value, value)

    def peak(self) -> int:
        """Returns the most bytes alive at once."""
        changes = [0] * (self.now + 2)
        for value, made, last in zip(self._index, self._made, self._last, strict=True):
            size = 0 if value in self._unchanged else value.bytes or 0
            changes[made] += size
            changes[last + 1] -= size
        return max(accumulate(changes))
