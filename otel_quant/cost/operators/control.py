"""Operators that run graphs, If, Loop, Scan and their like, and those on sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import (
    MAX_DATA,
    RULE_ERRORS,
    Body,
    Carried,
    Operation,
    Shape,
    UnknownError,
    Value,
    axis_of,
    merged,
    reason_of,
)
from otel_quant.cost.operators.record import (
    BodyRule,
    Operator,
    RunGraph,
    ValuesOf,
    first_of,
    total,
    with_dim,
    zero,
)
from otel_quant.cost.structure import CostError, printable

_UNKNOWN_TIMES: Final = "{}: how often it runs its body is not known"

_PASSES: Final = 8
"""Walks over a body until the shapes it carries stop changing; each can only lose knowledge."""


def _if(op: Operation, run: RunGraph) -> list[Value]:
    """One branch where the condition is known, else what both have in common.

    Both are walked either way: the constants of a branch that is not taken are parameters too.
    """
    walked = [run(name, ()) for name in ("then_branch", "else_branch")]
    op.branches = branches = [Body(ops, outputs=outputs) for ops, outputs in walked]
    condition = first_of(op, 0)
    if condition is not None:
        op.taken = 0 if condition else 1
        return list(branches[op.taken].outputs)
    results = []
    for pair in zip(branches[0].outputs, branches[1].outputs, strict=False):
        value = merged(list(pair))
        if value.size is None and value.unknown is None:
            value.unknown = f"{op.title}: its branches give results of different shapes"
        results.append(value)
    return results


def _iterated(
    op: Operation, run: RunGraph, before: list[Value], carried: list[Value], after: list[Value]
) -> tuple[list[Operation], list[Value], list[Value]]:
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


def _loop(op: Operation, run: RunGraph) -> list[Value]:
    """A body, a trip count, and values carried from one iteration to the next."""
    carried = _entering(op.inputs[2:])
    counter = Value(dtypes.INT64, (), name="iteration")
    going = Value(dtypes.BOOL, (), (1,))  # else the body would not run
    ops, outputs, entering = _iterated(op, run, [counter, going], carried, [])
    handed = [Carried(*item) for item in zip(op.inputs[2:], entering, outputs[1:], strict=False)]
    times = _trips(op, outputs)
    op.bodies = [Body(ops, times, _UNKNOWN_TIMES.format(op.title), outputs, handed)]
    results = [_copied(value) for value in carried]
    if times == 0:
        results = [_copied(value) for value in op.inputs[2:]]
    return results + [_stacked(op, value, times, 0) for value in outputs[1 + len(carried) :]]


def _trips(op: Operation, outputs: Sequence[Value]) -> int | None:
    """Iterations, if they are counted and nothing in the body can end them."""
    limit, start = first_of(op, 0), first_of(op, 1)
    if op.has(1) and start == 0:
        return 0
    if limit is None or (op.has(1) and start is None) or not outputs or outputs[0].data != (1,):
        return None
    return max(0, limit)


def _copied(value: Value | None, *, name: str = "", whole: bool = False) -> Value:
    """A value of the same type and shape, of the same elements only if it is to be the whole."""
    if value is None:
        return Value()
    result = Value(value.dtype, value.shape, kind=value.kind, name=name)
    result.element = value.element
    result.unknown = value.unknown
    if whole:
        result.data, result.items = value.data, value.items
    return result


def _entering(values: Sequence[Value | None]) -> list[Value]:
    """What holds in every iteration of values that iterations change: not their elements."""
    return [_copied(value, name="" if value is None else value.name) for value in values]


def _widen(title: str, carried: list[Value], after: list[Value]) -> bool:
    """Drops from each carried value what an iteration changes; returns whether anything was."""
    changed = False
    for i, (before, new) in enumerate(zip(carried, after, strict=False)):
        both = merged([before, new])
        if before.kind == "sequence" and before.element is not None and new.element is not None:
            both.element = (
                new.element if before.items == () else merged([before.element, new.element])
            )
        both.data = None
        if both.size is None and both.unknown is None:
            both.unknown = f"{title}: the shape of '{printable(before.name)}' changes as it runs"
        if both.shape != before.shape or both.dtype != before.dtype or both.kind != before.kind:
            changed = True
        carried[i] = both
    return changed


def _stacked(op: Operation, value: Value, times: int | None, axis: int) -> Value:
    """A scan output: one slice per iteration along a new axis."""
    shape: Shape | None = None
    if value.shape is not None:
        at = axis + len(value.shape) + 1 if axis < 0 else axis
        shape = (*value.shape[:at], times, *value.shape[at:])
    result = Value(value.dtype, shape)
    result.unknown = value.unknown
    if times is None and result.unknown is None:
        result.unknown = _UNKNOWN_TIMES.format(op.title)
    return result


def _scan(op: Operation, run: RunGraph) -> list[Value]:
    """A body over slices of its last operands."""
    count = op.attr("num_scan_inputs", 0)
    if not 0 < count <= len(op.inputs):
        raise UnknownError(
            f"attribute 'num_scan_inputs' is {count}; 1 to {len(op.inputs)}, the number of operands, "
            "is expected"
        )
    if 0 < op.opset < 9:
        raise UnknownError("a Scan of version 8 has another form; version 9 or later is expected")
    states = op.inputs[: len(op.inputs) - count]
    carried = _entering(states)
    axes = op.attr_ints("scan_input_axes") or (0,) * count
    slices: list[Value] = []
    times: int | None = None
    for value, axis in zip(op.inputs[len(states) :], axes, strict=False):
        piece = Value() if value is None else Value(value.dtype)
        if value is not None and value.shape is not None:
            at = axis_of(axis, len(value.shape))
            times = value.shape[at] if times is None else times
            piece.shape = (*value.shape[:at], *value.shape[at + 1 :])
        slices.append(piece)
    ops, outputs, entering = _iterated(op, run, [], carried, slices)
    handed = [Carried(*item) for item in zip(states, entering, outputs, strict=False)]
    op.bodies = [Body(ops, times, _UNKNOWN_TIMES.format(op.title), outputs, handed)]
    out_axes = op.attr_ints("scan_output_axes") or ()
    return [_copied(value) for value in carried] + [
        _stacked(op, value, times, out_axes[i] if i < len(out_axes) else 0)
        for i, value in enumerate(outputs[len(carried) :])
    ]


def _sequence_map(op: Operation, run: RunGraph) -> list[Value]:
    """A body over the members of sequences."""
    first = op.input(0)
    members = [
        (value.element if value is not None and value.kind == "sequence" else value) or Value()
        for value in op.inputs
    ]
    ops, outputs = run("body", members)
    times = len(first.items) if first.items is not None else None
    op.bodies = [Body(ops, times, _UNKNOWN_TIMES.format(op.title), outputs)]
    return [sequence for value in outputs for sequence in _sequence(None, value)]


def _safely(rule: BodyRule) -> BodyRule:
    """Makes a node that breaks its operator's contract an unknown one."""

    def results(op: Operation, run: RunGraph) -> list[Value]:
        try:
            return rule(op, run)
        except CostError:  # of the model, not of the node; a ValueError too
            raise
        except RULE_ERRORS as error:
            reason = reason_of(error, op, "shape rule")
            op.bodies = [Body([], None, reason)]  # something runs, how often is not known
            op.branches = []
            return []

    return results


_BODIES: Final = Operator("nothing itself; what it runs is costed", None, rest=zero)


def _sequence(items: tuple[Value, ...] | None, element: Value | None = None) -> list[Value]:
    result = Value(kind="sequence")
    result.items = items
    result.element = merged(list(items)) if items else element
    result.dtype = dtypes.UNKNOWN if result.element is None else result.element.dtype
    return [result]


def _member(value: Value | None) -> list[Value]:
    return [Value(kind="unknown") if value is None else _copied(value, whole=True)]


def _insert(op: Operation) -> list[Value]:
    """One member more."""
    sequence, new = op.input(0), op.input(1)
    at = first_of(op, 2)
    items = sequence.items
    if items is not None and (at is not None or not op.has(2)):
        where = len(items) if at is None else at
        return _sequence((*items[:where], new, *items[where:]))
    if items == ():
        return _sequence(None, new)
    known = sequence.element
    return _sequence(None, None if known is None else merged([known, new]))


def _erase(op: Operation) -> list[Value]:
    """One member fewer."""
    sequence = op.input(0)
    at = first_of(op, 1)
    items = sequence.items
    if items and (at is not None or not op.has(1)):
        where = (len(items) - 1 if at is None else at) % len(items)
        return _sequence((*items[:where], *items[where + 1 :]), sequence.element)
    return _sequence(None, sequence.element)


def _at(op: Operation) -> list[Value]:
    sequence, at = op.input(0), first_of(op, 1)
    if sequence.items is not None and at is not None:
        return _member(sequence.items[at])
    return _member(sequence.element)


def _length(op: Operation) -> list[Value]:
    items = op.input(0).items
    return [Value(dtypes.INT64, (), None if items is None else (len(items),))]


def _parts(op: Operation) -> list[Value]:
    """Parts of a tensor."""
    shape, dtype = op.shape(0), op.dtype(0)
    axis = op.axis(0)
    length = shape[axis]
    sizes: tuple[int, ...] | None = None
    keep = True
    if op.has(1):
        parts = op.ints(1)
        if op.input(1).shape == () and length is not None and parts[0] > 0:
            size = parts[0]
            count = -(-length // size)
            if count <= MAX_DATA:
                sizes = tuple(min(size, length - size * i) for i in range(count))
        elif op.input(1).shape != ():
            sizes = parts
    elif length is not None:
        keep = op.attr("keepdims", 1) != 0
        if length <= MAX_DATA:
            sizes = (1,) * length

    def piece(size: int | None) -> Shape:
        return with_dim(shape, axis, size) if keep else (*shape[:axis], *shape[axis + 1 :])

    if sizes is None or len(sizes) > MAX_DATA:
        return _sequence(None, Value(dtype, piece(None)))
    return _sequence(tuple(Value(dtype, piece(size)) for size in sizes), Value(dtype))


def _joined(op: Operation) -> list[Value]:
    """The members in one tensor."""
    sequence = op.input(0)
    dtype = dtypes.UNKNOWN if sequence.element is None else sequence.element.dtype
    shapes = [item.shape for item in sequence.items or ()]
    known = [shape for shape in shapes if shape is not None]
    if not known or len(known) != len(shapes) or len({len(shape) for shape in known}) > 1:
        return [Value(dtype)]
    first = known[0]
    stacked = op.attr("new_axis", 0) != 0
    axis = axis_of(op.attr("axis", 0), len(first) + (1 if stacked else 0))
    if stacked:
        return [Value(dtype, (*first[:axis], len(known), *first[axis:]))]
    return [Value(dtype, with_dim(first, axis, total([shape[axis] for shape in known])))]


def _of(values: ValuesOf) -> Operator:
    return Operator("moves or makes elements", None, rest=zero, values=values)


TABLE: Final[dict[str, Operator]] = {
    "If": _BODIES._replace(bodies=_safely(_if), results_in_bodies=True),
    "Loop": _BODIES._replace(bodies=_safely(_loop)),
    "Scan": _BODIES._replace(bodies=_safely(_scan)),
    "SequenceMap": _BODIES._replace(bodies=_safely(_sequence_map)),
    "SequenceEmpty": _of(lambda op: _sequence((), Value(op.attr("dtype", dtypes.FLOAT)))),
    "SequenceConstruct": _of(
        lambda op: _sequence(tuple(value for value in op.inputs if value is not None))
    ),
    "SequenceInsert": _of(_insert),
    "SequenceErase": _of(_erase),
    "SequenceAt": _of(_at),
    "SequenceLength": _of(_length),
    "SplitToSequence": _of(_parts),
    "ConcatFromSequence": _of(_joined),
    # Exporters write none of these: what they hold is not followed.
    **dict.fromkeys(("Optional", "OptionalGetElement"), _of(lambda op: _member(None))),
    "OptionalHasElement": _of(lambda op: [Value(dtypes.BOOL, ())]),
}
