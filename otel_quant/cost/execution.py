"""The operations of a walk as they are executed: how often, at what cost, in what memory.

There are two ways of reading the operators' formulas: ``corrected`` is what goes on spans;
``onnx_tool`` gives the figures of onnx_tool 1.0.1 so that numbers compare, and the corrected ones
where that tool has none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_quant.cost import dtypes
from otel_quant.cost.operation import (
    RULE_ERRORS,
    Body,
    Operation,
    UnknownError,
    Value,
    executed,
    reason_of,
)
from otel_quant.cost.operators import operator_of
from otel_quant.cost.walk import Walk

if TYPE_CHECKING:
    from otel_quant.cost.fused import Fused, Kernel

MAX_MACS: Final = (1 << 63) - 1
"""MACs that a node may have: what an attribute of a span can hold, and years of a GPU's work."""

TOO_MANY_MACS: Final = f"that is more than {MAX_MACS:,} MACs, which no machine runs"


class Macs(NamedTuple):
    """MACs of one execution of a node."""

    contraction: int  # Multiply-adds of contractions
    total: int  # All of them


def macs_of(op: Operation, *, corrected: bool) -> Macs:
    """Returns what one execution of a node costs, its bodies left out.

    What onnx_tool does otherwise beside the formulas: a rank-0 tensor has no element, what depends
    only on constants is computed in each run, and a Constant node's tensor is no parameter.
    """
    operator = operator_of(op.kind)
    if (
        corrected
        and operator.has_results
        and op.outputs
        and op.outputs[0].constant  # all() takes as long as the rest of this
        and all(value.constant for value in op.outputs)
    ):
        return Macs(0, 0)
    tool = None if corrected else operator.tool
    if tool is None and not operator.costed:
        raise UnknownError(operator.words)
    inner = _counted(operator.contraction(op)) if operator.contraction is not None else 0
    if tool is not None:
        total = _counted(tool(op))
        return Macs(min(inner, total), total)
    rest = _counted(operator.rest(op)) if operator.rest is not None else 0
    return Macs(inner, inner + rest)


def _counted(macs: object) -> int:
    """Checks that a formula gave a count; of a kernel below zero or a rank too low it gives none."""
    if not isinstance(macs, int) or macs < 0:
        raise UnknownError(
            "its cost formula gives no count of MACs: a length or attribute is wrong"
        )
    if macs > MAX_MACS:
        raise UnknownError(TOO_MANY_MACS)
    return macs


RULE_SETS: Final = ("corrected", "onnx_tool")
"""Ways of reading the operators' formulas."""


class Run(NamedTuple):
    """An operation as it is executed."""

    op: Operation  # The operation
    times: int | None  # How often; None if that is not known
    macs: Macs | None  # Of one execution; None if they are not known
    unknown: str | None  # Why ``times`` or ``macs`` is not known; None if both are
    idle: Sequence[Operation]  # Operations of branches not taken, whose constants it answers for
    # Of a node with branches that takes one on a condition that is not known: which is taken here,
    # and the MACs of each, None where they are not known
    assumed: tuple[int, Sequence[int | None]] | None = None


def executions(
    ops: Iterable[Operation],
    *,
    corrected: bool = True,
    times: int | None = 1,
    unknown: str | None = None,
) -> Iterator[Run]:
    """Yields operations in order of execution, bodies in place; of branches the taken or dearest."""
    for op in ops:
        if not op.bodies and not op.branches:
            yield _run(op, corrected, times, unknown)
            continue
        idle: list[Operation] = []
        assumed: tuple[int, Sequence[int | None]] | None = None
        inner: list[Run] = []
        endless: str | None = None
        for body in op.bodies:
            often = None if times is None or body.times is None else times * body.times
            if body.times is None:
                endless = endless or body.unknown
            why = unknown if times is None else endless
            inner += executions(body.ops, corrected=corrected, times=often, unknown=why)
        if op.branches:
            costed = [
                list(executions(body.ops, corrected=corrected, times=times, unknown=unknown))
                for body in op.branches
            ]
            taken = op.taken
            if taken is None:
                taken = max(range(len(costed)), key=lambda i: _total(costed[i]))
                assumed = taken, [_known_total(runs) for runs in costed]
            inner += costed.pop(taken)
            idle = [idle_op for runs in costed for run in runs for idle_op in (run.op, *run.idle)]
        if endless is not None and not op.inlined:
            yield Run(op, times, None, unknown or endless, idle)
        elif not op.inlined:
            yield _run(op, corrected, times, unknown)._replace(idle=idle, assumed=assumed)
        yield from inner


def _run(op: Operation, corrected: bool, times: int | None, unknown: str | None) -> Run:
    macs: Macs | None = None
    try:
        macs = macs_of(op, corrected=corrected)
    except RULE_ERRORS as error:
        unknown = unknown or _unsized(op) or reason_of(error, op, "cost rule")
    return Run(op, times, macs, unknown, ())


def _total(runs: list[Run]) -> int:
    return sum((run.times or 0) * run.macs.total for run in runs if run.macs is not None)


def _known_total(runs: list[Run]) -> int | None:
    known = all(run.macs is not None and run.times is not None for run in runs)
    return _total(runs) if known else None


def _unsized(op: Operation) -> str | None:
    """Why an operator that has a formula could not give a shape to put into it; None if it could."""
    if not operator_of(op.kind).costed:
        return None
    reasons = (value.unknown for value in op.outputs if value.size is None)
    return next((reason for reason in reasons if reason is not None), None)


_MAX_STEPS: Final = 16
"""Operators that are looked through behind one operand."""

_WIDTH: Final = ("int2", "int4", "float4", "float8", "int8", "int16")


def precision_of(op: Operation, makers: Mapping[Value, Operation]) -> str:
    """Returns what a contraction executes in.

    Two quantized operands execute in the wider of their types; a quantized weight against a
    float activation is dequantized first, which is ``weight-only``. An operand counts as
    quantized if it is one, or a DequantizeLinear makes it.
    """
    rule = operator_of(op.kind).precision
    if rule.executes_in is not None:
        try:
            return rule.executes_in(op)
        except UnknownError:  # an attribute of the wrong type
            return "unknown"
    values = [op.inputs[i] for i in rule.operands if i < len(op.inputs)]
    stored = [_stored(value, makers) for value in values if value is not None]
    quantized = [name for name in stored if name is not None]
    if quantized and len(quantized) == len(stored):
        return max(quantized, key=lambda name: _WIDTH.index(name) if name in _WIDTH else -1)
    if len(stored) == 2 and stored[1] is not None:
        return f"{stored[1]} weight-only"
    first = values[0] if values else None
    return dtypes.name_of(first.dtype) if first is not None else "unknown"


def _stored(value: Value, makers: Mapping[Value, Operation]) -> str | None:
    """The quantized type behind an operand, or None if it is a float one."""
    for _ in range(_MAX_STEPS):
        if value.dtype in dtypes.QUANTIZED:
            return dtypes.QUANTIZED[value.dtype]
        maker = makers.get(value)
        if maker is None or not maker.inputs:
            return None
        source = maker.inputs[0]
        if source is None:
            return None
        rule = operator_of(maker.kind).precision
        if rule.rounds_to:
            return rule.rounds_to
        if rule.dequantizes:
            if source.dtype in dtypes.QUANTIZED:
                return dtypes.QUANTIZED[source.dtype]
            name = dtypes.name_of(source.dtype)
            return None if source.dtype in (dtypes.UNKNOWN, dtypes.INT32) else name
        if not rule.moves:
            return None
        value = source
    return None


VIEWS: Final = ("fused", "file")
"""Quantized operators as runtimes run them, or every node by itself."""


class MemoryView:
    """Memory in one view, added up node by node."""

    def __init__(self, kernels: Mapping[Operation, Kernel], walk: Walk, *, corrected: bool) -> None:
        self._kernels = kernels
        self._corrected = corrected
        self.bytes = 0
        self.peak_bytes = _Timeline(kernels).peak(walk)
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
                if memory is not None and (self._corrected or value.shape != ()):
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
        return [value for value in made if not (self._corrected and value.constant)]


def memory_views(walk: Walk, fused: Fused | None, *, corrected: bool) -> dict[str, MemoryView]:
    """Returns an empty view of memory for each of ``VIEWS``."""
    file = MemoryView({}, walk, corrected=corrected)
    if fused is None:
        return dict.fromkeys(VIEWS, file)
    return {"fused": MemoryView(fused.kernels, walk, corrected=corrected), "file": file}


def _folded(op: Operation, held: int) -> int:
    """What quantizing a constant when the model is loaded adds to its bytes, or takes away."""
    if not (operator_of(op.kind).precision.quantizes and op.outputs and op.has(0)):
        return 0
    weight, size = op.input(0).weight, op.outputs[0].bytes
    if weight is None or size is None or held < weight.stored:
        return 0
    return size - weight.stored


class _Timeline:
    """When tensors are made and read for the last time.

    A tensor lives from the operation that makes it to its last reader; inputs from the
    start, outputs to the end; what a body reads from outside as long as the body runs. Constants
    do not count. A view keeps the tensor behind it alive. Tensors of unknown size count nothing.
    """

    def __init__(self, kernels: Mapping[Operation, Kernel]) -> None:
        self.now = 0
        self._kernels = kernels
        self._behind: dict[Value, Value] = {}
        self._index: dict[Value, int] = {}  # of each tensor in the arrays
        self._made = array("q")  # tensors may be many, and numbers in lists take five times as much
        self._last = array("q")
        self._unchanged: set[Value] = set()
        self._around: list[set[Value]] = []

    def peak(self, walk: Walk) -> int:
        """Returns the most bytes of activations alive at once."""
        for value in walk.inputs.values():
            self.make(value)
        self.run(walk.ops)
        self.now += 1
        for value in walk.outputs:
            self.read(value)
        changes = [0] * (self.now + 2)
        for value, made, last in zip(self._index, self._made, self._last, strict=True):
            size = 0 if value in self._unchanged else value.bytes or 0
            changes[made] += size
            changes[last + 1] -= size
        return max(accumulate(changes))

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
