"""The operations of a walk as they are executed: how often each one runs, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from otel_quant.cost.operation import RULE_ERRORS, Operation, reason_of
from otel_quant.cost.operators import operator_of
from otel_quant.cost.rule_sets import Macs, RuleSet


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
    rule = operator_of(op.kind).cost
    if rule.contraction is None and rule.rest is None:
        return None
    reasons = (value.unknown for value in op.outputs if value.size is None)
    return next((reason for reason in reasons if reason is not None), None)
