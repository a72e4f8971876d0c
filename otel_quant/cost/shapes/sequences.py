"""Operators on sequences and optionals."""

from __future__ import annotations

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.shapes.rule import axis_of, with_dim
from otel_quant.cost.structure import Type
from otel_quant.cost.values import MAX_DATA, Shape, Value, merged


def _sequence(items: tuple[Value, ...] | None, element: Value | None = None) -> Value:
    result = Value(kind="sequence")
    result.items = items
    if items:
        element = merged(list(items))
    result.element = element
    result.dtype = element.dtype if element is not None else dtypes.UNKNOWN
    return result


def _copy(value: Value | None) -> Value:
    if value is None:
        return Value(kind="unknown")
    result = Value(value.dtype, value.shape, value.data, kind=value.kind)
    result.unknown = value.unknown
    result.element = value.element
    result.items = value.items
    return result


def _index(op: Operation, i: int) -> int | None:
    data = op.input(i).data if op.has(i) else None
    return None if not data or data[0] is None else int(data[0])


def empty(op: Operation) -> list[Value]:
    """SequenceEmpty."""
    return [_sequence((), Value(op.attr("dtype", dtypes.FLOAT)))]


def construct(op: Operation) -> list[Value]:
    """SequenceConstruct: the operands."""
    return [_sequence(tuple(value for value in op.inputs if value is not None))]


def insert(op: Operation) -> list[Value]:
    """SequenceInsert: one member more."""
    sequence, new = op.input(0), op.input(1)
    at = _index(op, 2)
    items = sequence.items
    if items is not None and (at is not None or not op.has(2)):
        where = len(items) if at is None else at
        return [_sequence((*items[:where], new, *items[where:]))]
    if items == ():
        return [_sequence(None, new)]
    known = sequence.element
    return [_sequence(None, merged([known, new]) if known is not None else None)]


def erase(op: Operation) -> list[Value]:
    """SequenceErase: one member fewer."""
    sequence = op.input(0)
    at = _index(op, 1)
    items = sequence.items
    if items and (at is not None or not op.has(1)):
        where = (len(items) - 1 if at is None else at) % len(items)
        return [_sequence((*items[:where], *items[where + 1 :]), sequence.element)]
    return [_sequence(None, sequence.element)]


def at(op: Operation) -> list[Value]:
    """SequenceAt: one member."""
    sequence = op.input(0)
    at = _index(op, 1)
    if sequence.items is not None and at is not None:
        return [_copy(sequence.items[at])]
    return [_copy(sequence.element)]


def length(op: Operation) -> list[Value]:
    """SequenceLength: one integer."""
    items = op.input(0).items
    return [Value(dtypes.INT64, (), None if items is None else (len(items),))]


def split(op: Operation) -> list[Value]:
    """SplitToSequence: parts of a tensor."""
    shape = op.shape(0)
    dtype = op.dtype(0)
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
        if keep:
            return with_dim(shape, axis, size)
        return (*shape[:axis], *shape[axis + 1 :])

    if sizes is None or len(sizes) > MAX_DATA:
        return [_sequence(None, Value(dtype, piece(None)))]
    return [_sequence(tuple(Value(dtype, piece(size)) for size in sizes), Value(dtype))]


def concat(op: Operation) -> list[Value]:
    """ConcatFromSequence: the members in one tensor."""
    sequence = op.input(0)
    items = sequence.items
    element = sequence.element
    dtype = element.dtype if element is not None else dtypes.UNKNOWN
    if items is None or not items:
        return [Value(dtype)]
    shapes = [item.shape for item in items]
    first = shapes[0]
    if first is None or any(shape is None or len(shape) != len(first) for shape in shapes):
        return [Value(dtype)]
    stacked = op.attr("new_axis", 0) != 0
    axis = axis_of(op.attr("axis", 0), len(first) + (1 if stacked else 0))
    if stacked:
        return [Value(dtype, (*first[:axis], len(items), *first[axis:]))]
    lengths = [shape[axis] for shape in shapes if shape is not None]
    whole = [length for length in lengths if length is not None]
    total = sum(whole) if len(whole) == len(lengths) else None
    return [Value(dtype, with_dim(first, axis, total))]


def optional(op: Operation) -> list[Value]:
    """Optional: what it holds, or nothing."""
    result = Value(kind="optional")
    declared = op.attributes.get("type")
    if op.has(0):
        result.element = _copy(op.input(0))
        result.items = (op.input(0),)
    elif isinstance(declared, Type):
        result.element = Value(declared.dtype, kind=declared.kind)
        result.items = ()
    return [result]


def get_element(op: Operation) -> list[Value]:
    """OptionalGetElement: what is held."""
    value = op.input(0)
    if value.kind != "optional":
        return [_copy(value)]
    if value.element is None:
        raise UnknownError("what the optional holds is not known", value.unknown)
    return [_copy(value.element)]


def has_element(op: Operation) -> list[Value]:
    """OptionalHasElement: whether something is held."""
    result = Value(dtypes.BOOL, ())
    if not op.has(0):
        result.data = (0,)
    elif op.input(0).kind != "optional":
        result.data = (1,)
    elif op.input(0).items is not None:
        result.data = (len(op.input(0).items or ()),)
    return [result]
