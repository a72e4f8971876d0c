"""Operators on sequences and optionals."""

from __future__ import annotations

from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import MAX_DATA, Operation, Shape, UnknownError, Value, merged
from otel_quant.cost.operators.record import (
    Operator,
    ValuesOf,
    axis_of,
    first_of,
    total,
    with_dim,
    zero,
)
from otel_quant.cost.structure import Type


def _sequence(items: tuple[Value, ...] | None, element: Value | None = None) -> list[Value]:
    result = Value(kind="sequence")
    result.items = items
    result.element = merged(list(items)) if items else element
    result.dtype = dtypes.UNKNOWN if result.element is None else result.element.dtype
    return [result]


def _copy(value: Value | None) -> list[Value]:
    if value is None:
        return [Value(kind="unknown")]
    result = Value(value.dtype, value.shape, value.data, kind=value.kind)
    result.unknown = value.unknown
    result.element = value.element
    result.items = value.items
    return [result]


def _construct(op: Operation) -> list[Value]:
    return _sequence(tuple(value for value in op.inputs if value is not None))


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
    sequence = op.input(0)
    at = first_of(op, 1)
    if sequence.items is not None and at is not None:
        return _copy(sequence.items[at])
    return _copy(sequence.element)


def _length(op: Operation) -> list[Value]:
    items = op.input(0).items
    return [Value(dtypes.INT64, (), None if items is None else (len(items),))]


def _split(op: Operation) -> list[Value]:
    """Parts of a tensor."""
    shape, dtype = op.shape(0), op.dtype(0)
    axis = axis_of(op.attr("axis", 0), len(shape))
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


def _concat(op: Operation) -> list[Value]:
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


def _optional(op: Operation) -> list[Value]:
    """What it holds, or nothing."""
    result = Value(kind="optional")
    declared = op.attributes.get("type")
    if op.has(0):
        (result.element,) = _copy(op.input(0))
        result.items = (op.input(0),)
    elif isinstance(declared, Type):
        result.element = Value(declared.dtype, kind=declared.kind)
        result.items = ()
    return [result]


def _get_element(op: Operation) -> list[Value]:
    value = op.input(0)
    if value.kind != "optional":
        return _copy(value)
    if value.element is None:
        raise UnknownError("what the optional holds is not known", value.unknown)
    return _copy(value.element)


def _has_element(op: Operation) -> list[Value]:
    result = Value(dtypes.BOOL, ())
    if not op.has(0):
        result.data = (0,)
    elif op.input(0).kind != "optional":
        result.data = (1,)
    else:
        items = op.input(0).items
        result.data = None if items is None else (len(items),)
    return [result]


def _of(values: ValuesOf) -> Operator:
    return Operator("moves or makes elements", None, rest=zero, values=values)


TABLE: Final[dict[str, Operator]] = {
    "SequenceEmpty": _of(lambda op: _sequence((), Value(op.attr("dtype", dtypes.FLOAT)))),
    "SequenceConstruct": _of(_construct),
    "SequenceInsert": _of(_insert),
    "SequenceErase": _of(_erase),
    "SequenceAt": _of(_at),
    "SequenceLength": _of(_length),
    "SplitToSequence": _of(_split),
    "ConcatFromSequence": _of(_concat),
    "Optional": _of(_optional),
    "OptionalGetElement": _of(_get_element),
    "OptionalHasElement": _of(_has_element),
}
