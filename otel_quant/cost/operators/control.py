"""Operators that run graphs, If, Loop and Scan, and those on sequences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Final

from otel_quant.cost import dtypes, operation
from otel_quant.cost.operation import Body, Carried, TypedNode, UnknownError, Value, merged
from otel_quant.cost.operators import rule
from otel_quant.cost.operators.rule import BodyRule, Rule, RunGraph, ValuesOf
from otel_quant.cost.structure import CostError, printable

_UNKNOWN_TIMES: Final = "{}: how often it runs its body is not known"

_PASSES: Final = 8
"""Walks over a body until the shapes it carries stop changing; each can only lose knowledge."""


def _if(op: TypedNode, run: RunGraph) -> list[Value]:
    """One branch where the condition is known, else what both have in common.

    Both are walked either way: the constants of a branch that is not taken are parameters too.
    """
    walked = [run(name, ()) for name in ("then_branch", "else_branch")]
    op.branches = branches = [Body(ops, outputs=outputs) for ops, outputs in walked]
    condition = rule.first_of(op, 0)
    if condition is not None:
        op.taken = 0 if condition else 1
        return list(branches[op.taken].outputs)
    results = []
    for pair in zip(branches[0].outputs, branches[1].outputs, strict=False):
        value = merged(*pair)
        value.explain(f"{op.title}: its branches give results of different shapes")
        results.append(value)
    return results


def _iterated(
    op: TypedNode, run: RunGraph, before: list[Value], carried: list[Value], after: list[Value]
) -> tuple[list[TypedNode], list[Value], list[Value]]:
    """Walks a body until what it carries stops changing; ``carried`` is widened.

    Returns its operations, its outputs, and what entered it on the last walk.
    """
    given = len(before) - 1 if before else 0  # a loop's body also gives whether it goes on
    for turn in range(_PASSES):
        if turn == _PASSES - 1:
            carried[:] = [Value() for _ in carried]
        entering = list(carried)
        ops, outputs = run("body", [*before, *entering, *after])
        if not _widen(op.title, carried, outputs[given : given + len(carried)]):
            break
    return ops, outputs, entering


def _loop(op: TypedNode, run: RunGraph) -> list[Value]:
    """A body, a trip count, and values carried from one iteration to the next."""
    initial = _given(op.inputs[2:])
    carried = _entering(initial)
    counter = Value(dtypes.INT64, (), name="iteration")
    going = Value(dtypes.BOOL, (), (1,))  # else the body would not run
    ops, outputs, entering = _iterated(op, run, [counter, going], carried, [])
    handed = [Carried(*item) for item in zip(op.inputs[2:], entering, outputs[1:], strict=False)]
    times = _trips(op, outputs)
    op.bodies = [Body(ops, times, _UNKNOWN_TIMES.format(op.title), outputs, handed)]
    results = map(_copied, initial if times == 0 else carried)
    return [*results, *(_stacked(op, value, times, 0) for value in outputs[1 + len(carried) :])]


def _trips(op: TypedNode, outputs: Sequence[Value]) -> int | None:
    """Iterations, if they are counted and nothing in the body can end them."""
    limit, start = rule.first_of(op, 0), rule.first_of(op, 1) if op.has(1) else 1
    if start == 0:
        return 0
    if limit is None or start is None or [value.data for value in outputs[:1]] != [(1,)]:
        return None
    return max(0, limit)


def _given(values: Sequence[Value | None]) -> list[Value]:
    """Operands; nothing is known of one that is left out."""
    return [value or Value() for value in values]


def _copied(value: Value, name: str = "") -> Value:
    """A value of the same type and shape; its elements are not known."""
    result = Value(value.dtype, value.shape, kind=value.kind, name=name)
    result.unknown = value.unknown
    return result


def _entering(values: Sequence[Value]) -> list[Value]:
    """What holds in every iteration of values that iterations change: not their elements."""
    return [_copied(value, value.name) for value in values]


def _widen(title: str, carried: list[Value], after: list[Value]) -> bool:
    """Drops from each carried value what an iteration changes; returns whether anything was."""
    changed = False
    for i, (before, new) in enumerate(zip(carried, after, strict=False)):
        both = merged(before, new)
        both.data = None
        both.explain(f"{title}: the shape of '{printable(before.name)}' changes as it runs")
        was = (before.shape, before.dtype, before.kind)
        changed |= (both.shape, both.dtype, both.kind) != was
        carried[i] = both
    return changed


def _stacked(op: TypedNode, value: Value, times: int | None, axis: int) -> Value:
    """A scan output: one slice per iteration along a new axis."""
    result = Value(value.dtype)
    result.unknown = value.unknown
    if value.shape is not None:
        at = axis + len(value.shape) + 1 if axis < 0 else axis
        result.shape = (*value.shape[:at], times, *value.shape[at:])
    if times is None and result.unknown is None:
        result.unknown = _UNKNOWN_TIMES.format(op.title)
    return result


def _scan(op: TypedNode, run: RunGraph) -> list[Value]:
    """A body over slices of its last operands, as torch's exporter writes a ``scan`` over a sequence."""
    count = op.attr("num_scan_inputs", 0)
    if 0 < op.opset < 9:
        raise UnknownError("a Scan of version 8 has another form; version 9 or later is expected")
    states = op.inputs[: len(op.inputs) - count]
    carried = _entering(_given(states))
    times, slices = _sliced(op, _given(op.inputs[len(states) :]))
    ops, outputs, entering = _iterated(op, run, [], carried, slices)
    handed = [Carried(*item) for item in zip(states, entering, outputs, strict=False)]
    op.bodies = [Body(ops, times, _UNKNOWN_TIMES.format(op.title), outputs, handed)]
    scanned = outputs[len(carried) :]
    axes = chain(op.attr_list("scan_output_axes"), repeat(0))
    stacked = (_stacked(op, value, times, axis) for value, axis in zip(scanned, axes, strict=False))
    return [*map(_copied, carried), *stacked]


def _sliced(op: TypedNode, values: list[Value]) -> tuple[int | None, list[Value]]:
    """How many slices a Scan takes, None if that is not known, and what one of each operand is."""
    slices: list[Value] = []
    lengths: list[int | None] = []
    axes = op.attr_list("scan_input_axes", (0,) * len(values))
    for value, axis in zip(values, axes, strict=False):
        piece = Value(value.dtype)
        if value.shape is not None:
            at = operation.axis_of(axis, len(value.shape))
            lengths += value.shape[at : at + 1]
            piece.shape = rule.without(value.shape, (at,))
        slices.append(piece)
    return operation.first_known(lengths), slices


def _safely(walk: BodyRule) -> BodyRule:
    """Makes a node that breaks its operator's contract an unknown one."""

    def results(op: TypedNode, run: RunGraph) -> list[Value]:
        try:
            return walk(op, run)
        except CostError:  # of the model, not of the node; a ValueError too
            raise
        except operation.RULE_ERRORS as error:
            reason = operation.reason_of(error, op, "shape rule")
            op.bodies = [Body([], None, reason)]  # something runs, how often is not known
            op.branches = []
            return []

    return results


_BODIES: Final = Rule("nothing itself; what it runs is costed", None, rest=rule.zero)


def _sequence(items: Sequence[Value] | None) -> list[Value]:
    result = Value(kind="sequence")
    result.items = None if items is None else tuple(items)
    return [result]


def _at(op: TypedNode) -> list[Value]:
    """A member: the one at a known place, else what all have in common."""
    items, at = op.input(0).items, rule.first_of(op, 1)
    if not items:
        return [Value(kind="unknown")]
    return [merged(*items) if at is None else merged(items[at])]


def _parts(op: TypedNode) -> list[Value]:
    """Parts of a tensor along an axis: of given lengths, of one length, or single slices."""
    shape, axis = op.shape(0), op.axis(0)
    sizes = _part_lengths(op, shape[axis])
    if sizes is None:
        return _sequence(None)
    keeps = op.has(1) or op.attr("keepdims", 1)
    rest = rule.without(shape, (axis,))
    shapes = (rule.with_dim(shape, axis, size) if keeps else rest for size in sizes)
    return _sequence([Value(op.dtype(0), each) for each in shapes])


def _part_lengths(op: TypedNode, length: int | None) -> Sequence[int] | None:
    """The lengths of the parts of an axis; None if they are not known or too many to follow."""
    if op.has(1) and op.input(1).shape != ():
        return op.ints(1)
    if length is None:
        return None
    size = op.ints(1)[0] if op.has(1) else 1
    if size < 1 or -(-length // size) > operation.MAX_DATA:
        return None
    return [min(size, length - start) for start in range(0, length, size)]


def _joined(op: TypedNode) -> list[Value]:
    """The members in one tensor."""
    items = op.input(0).items or ()
    shapes = [item.shape for item in items if item.shape is not None]
    if not shapes or len(shapes) < len(items) or len({len(shape) for shape in shapes}) > 1:
        return [Value()]
    first, dtype, stacked = shapes[0], items[0].dtype, op.attr("new_axis", 0)
    axis = operation.axis_of(op.attr("axis", 0), len(first) + bool(stacked))
    if stacked:
        return [Value(dtype, (*first[:axis], len(shapes), *first[axis:]))]
    return [Value(dtype, rule.with_dim(first, axis, rule.total([shape[axis] for shape in shapes])))]


def _of(values: ValuesOf) -> Rule:
    return Rule("moves or makes elements", None, rest=rule.zero, values=values)


TABLE: Final[dict[str, Rule]] = {
    "If": _BODIES._replace(bodies=_safely(_if), results_in_bodies=True),
    "Loop": _BODIES._replace(bodies=_safely(_loop)),
    "Scan": _BODIES._replace(bodies=_safely(_scan)),
    # As torch's exporters write them; sequences that grow, such as in a loop, are not followed.
    "SequenceConstruct": _of(lambda op: _sequence(op.given)),
    "SequenceAt": _of(_at),
    "SplitToSequence": _of(_parts),
    "ConcatFromSequence": _of(_joined),
}
