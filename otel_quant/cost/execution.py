"""The operations of a walk as they are executed: how often, at what cost, in what precision.

There are two ways of reading the operators' formulas: ``corrected`` is what goes on spans;
``onnx_tool`` gives the figures of onnx_tool 1.0.1 so that numbers compare, and the corrected ones
where that tool has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from otel_quant.cost import dtypes
from otel_quant.cost.operation import RULE_ERRORS, Operation, UnknownError, Value, reason_of
from otel_quant.cost.operators import operator_of

MAX_MACS: Final = (1 << 63) - 1
"""MACs that a node may have: what an attribute of a span can hold, and years of a GPU's work."""

TOO_MANY_MACS: Final = f"that is more than {MAX_MACS:,} MACs, which no machine runs"


class Macs(NamedTuple):
    """MACs of one execution of a node."""

    contraction: int  # Multiply-adds of contractions
    total: int  # All of them


@lru_cache(maxsize=4096)
def _macs(contraction: int, total: int) -> Macs:
    """One record for all nodes that cost the same: layers recur, and nodes may be many."""
    return Macs(contraction, total)


class RuleSet(NamedTuple):
    """One way of reading the rules."""

    name: str  # ``corrected`` or ``onnx_tool``
    # In all of this onnx_tool does otherwise: a rank-0 tensor has one element, what depends only on
    # constants is computed at load and not per run, and a Constant node's tensor is a parameter.
    corrected: bool

    def macs(self, op: Operation) -> Macs:
        """Returns what one execution of a node costs, its bodies left out."""
        operator = operator_of(op.kind)
        if (
            self.corrected
            and operator.has_results
            and op.outputs
            and op.outputs[0].constant  # all() takes as long as the rest of this
            and all(value.constant for value in op.outputs)
        ):
            return _macs(0, 0)
        inner = 0
        if not self.corrected and operator.tool is not None:
            total = _counted(operator.tool(op))
            if operator.contraction is not None:
                inner = _counted(operator.contraction(op))
            return Macs(min(inner, total), total)
        if not operator.costed:
            raise UnknownError(operator.words)
        if operator.contraction is not None:
            inner = _counted(operator.contraction(op))
        rest = _counted(operator.rest(op)) if operator.rest is not None else 0
        return _macs(inner, inner + rest)


def _counted(macs: object) -> int:
    """Checks that a formula gave a count; of a kernel below zero or a rank too low it gives none."""
    if not isinstance(macs, int) or macs < 0:
        raise UnknownError(
            "its cost formula gives no count of MACs: a length or attribute is wrong"
        )
    if macs > MAX_MACS:
        raise UnknownError(TOO_MANY_MACS)
    return macs


RULE_SETS: Final = {
    "corrected": RuleSet("corrected", corrected=True),
    "onnx_tool": RuleSet("onnx_tool", corrected=False),
}


class Run(NamedTuple):
    """An operation as it is executed."""

    op: Operation  # The operation
    times: int | None  # How often; None if that is not known
    macs: Macs | None  # Of one execution; None if they are not known
    unknown: str | None  # Why ``times`` or ``macs`` is not known; None if both are
    idle: Sequence[Operation]  # Operations of branches not taken, whose constants it answers for


def executions(
    ops: Iterable[Operation],
    rules: RuleSet,
    times: int | None = 1,
    unknown: str | None = None,
) -> Iterator[Run]:
    """Yields operations in order of execution, bodies in place; of branches the taken or dearest."""
    for op in ops:
        if not op.bodies and not op.branches:
            yield _run(op, times, unknown, (), rules, counted=True)
            continue
        idle: list[Operation] = []
        inner: list[Run] = []
        endless: str | None = None
        for body in op.bodies:
            often = None if times is None or body.times is None else times * body.times
            if body.times is None:
                endless = endless or body.unknown
            why = unknown if times is None else endless
            inner.extend(executions(body.ops, rules, often, why))
        if op.branches:
            costed = [list(executions(body.ops, rules, times, unknown)) for body in op.branches]
            chosen = op.taken
            if chosen is None:
                chosen = max(range(len(costed)), key=lambda i: _total(costed[i]))
            inner.extend(costed[chosen])
            left = [run for i, runs in enumerate(costed) if i != chosen for run in runs]
            idle = [idle_op for run in left for idle_op in (run.op, *run.idle)]
        if not op.inlined:
            yield _run(op, times, unknown or endless, idle, rules, counted=endless is None)
        yield from inner


def executed(ops: Sequence[Operation]) -> Iterator[Operation]:
    """Yields the operations of one graph in order, those of functions in place of their calls."""
    for op in ops:
        if op.bodies and op.inlined:
            for body in op.bodies:
                yield from executed(body.ops)
        else:
            yield op


def _run(
    op: Operation,
    times: int | None,
    unknown: str | None,
    idle: Sequence[Operation],
    rules: RuleSet,
    *,
    counted: bool,
) -> Run:
    macs: Macs | None = None
    if counted:
        try:
            macs = rules.macs(op)
        except RULE_ERRORS as error:
            unknown = unknown or _unsized(op) or reason_of(error, op, "cost rule")
    return Run(op, times, macs, unknown, idle)


def _total(runs: list[Run]) -> int:
    return sum((run.times or 0) * run.macs.total for run in runs if run.macs is not None)


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
