"""Computes the small tensors that carry shapes: their elements, not only their lengths.

Each element is known or not by itself: ``Concat([batch, -1, 768])`` is known in two places even where
the batch is not. Floats are rounded to float32, because a Resize's scale that went through
float32 decides whether a length is 13 or 14.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product as cartesian
from math import prod
from struct import pack, unpack
from typing import Final, TypeAlias

from otel_quant.cost import dtypes
from otel_quant.cost.operation import (
    MAX_DATA,
    Data,
    Operation,
    Shape,
    UnknownError,
    Value,
    axis_of,
)
from otel_quant.cost.operators.record import Fold

Scalar: TypeAlias = int | float | None

_MAX_TARGET: Final = 64
"""Dimensions that a shape given as a tensor may have."""


def folded(fold: Fold, op: Operation, outputs: list[Value]) -> None:
    """Sets the elements of the results that can be known."""
    size = outputs[0].size if outputs else None
    if size is None or size > MAX_DATA:
        return
    if size == 0:  # its other lengths may be anything, so that nothing may loop over them
        outputs[0].data = ()
        return
    for value, data in zip(outputs, fold(op, outputs), strict=False):
        if len(data) == value.size and (not data or any(item is not None for item in data)):
            value.data = tuple(_typed(item, value.dtype) for item in data)


def folding_effort(op: Operation, outputs: list[Value]) -> int:
    """Returns how many elements are looked at, at most, to compute the results' elements."""
    size = outputs[0].size if outputs else None
    if size is None or size > MAX_DATA:
        return 0
    known = sum(len(value.data) for value in op.inputs if value is not None and value.data)
    return known + size * (1 + len(op.inputs))


def single(value: float) -> float:
    """Returns the value rounded to float32, in which runtimes scale lengths."""
    rounded: float = unpack("<f", pack("<f", value))[0]
    return rounded


def _typed(item: Scalar, dtype: int) -> Scalar:
    """The element as its type holds it."""
    if item is None:
        return None
    if dtype in dtypes.FLOATS:
        if dtype == dtypes.DOUBLE or not math.isfinite(item):
            return float(item)
        if dtype == dtypes.FLOAT:
            return single(float(item)) if abs(item) < 3e38 else None
        if dtype == dtypes.FLOAT16 and abs(item) < 65504:
            half: float = unpack("<e", pack("<e", item))[0]
            return half
        return None
    if dtype == dtypes.BOOL:
        return int(bool(item))
    if isinstance(item, float) and not math.isfinite(item):
        return None
    whole = int(item)
    return whole if -(1 << 63) <= whole < 1 << 64 else None


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _points(ranges: list[range]) -> Iterator[tuple[int, ...]]:
    """Every combination; cartesian writes out all ranges first, long ones beside an empty one."""
    if not all(ranges):
        return iter(())
    if prod(len(each) for each in ranges) > MAX_DATA:
        raise UnknownError(f"the result has more than {MAX_DATA} elements; no more are computed")
    return cartesian(*ranges)


def _positions(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return _points([range(dim) for dim in shape])


def _taken(data: Data, strides: Sequence[int], points: Iterable[Sequence[int]]) -> Data:
    """The elements at some positions."""
    return tuple(data[sum(map(operator.mul, strides, point))] for point in points)


def _stretched(value: Value, shape: tuple[int, ...]) -> Data:
    """The elements of a tensor broadcast to ``shape``."""
    if value.data is None:
        return (None,) * prod(shape)
    if value.shape is None:
        raise UnknownError("the shape of an operand is not known", value.unknown)
    if value.shape == shape:
        return value.data
    if len(value.data) == 1:
        return value.data * prod(shape)
    own = _shape(value)
    strides = [0 if dim == 1 else stride for dim, stride in zip(own, _strides(own), strict=True)]
    return _taken(value.data, [0] * (len(shape) - len(own)) + strides, _positions(shape))


def _shape(value: Value) -> tuple[int, ...]:
    """The shape of a value whose size is known."""
    return tuple(dim or 0 for dim in value.shape or ())


def fold_each(function: Callable[..., Scalar], operands: int | None = None) -> Fold:
    """Element by element, operands broadcast; an unknown operand makes an unknown result."""

    def fold(op: Operation, outputs: list[Value]) -> list[Data]:
        values = [value for value in op.inputs if value is not None]
        if operands not in (None, len(values)):
            raise UnknownError(f"{len(values)} operands; {operands} are expected")
        if any(value.data is None for value in values):
            raise UnknownError("no element of an operand is known")
        columns = [_stretched(value, _shape(outputs[0])) for value in values]
        return [tuple(_apply(function, row) for row in zip(*columns, strict=True))]

    return fold


def _apply(function: Callable[..., Scalar], row: tuple[Scalar, ...]) -> Scalar:
    if None in row:
        return None
    try:
        return function(*row)
    except (ZeroDivisionError, OverflowError, ValueError):
        return None


def divide(a: int | float, b: int | float) -> int | float:
    """Integers divide as in C: towards zero."""
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return a / b


def power(a: int | float, b: int | float) -> int | float | None:
    """A power, unless it is too large or complex."""
    if abs(b) > 64 or abs(a) > 1 << 32:
        return None
    result = a**b
    return None if isinstance(result, complex) else result


def fold_mod(op: Operation, outputs: list[Value]) -> list[Data]:
    """Mod: the divisor's sign, or the dividend's with ``fmod``."""
    return fold_each(math.fmod if op.attr("fmod", 0) else operator.mod, 2)(op, outputs)


def _by_rows(function: Callable[..., Scalar], operands: int) -> Fold:
    """Element by element; the function is given unknown elements too."""

    def fold(op: Operation, outputs: list[Value]) -> list[Data]:
        columns = (_stretched(op.input(i), _shape(outputs[0])) for i in range(operands))
        return [tuple(function(*row) for row in zip(*columns, strict=True))]

    return fold


def _either(*row: Scalar) -> Scalar:
    if any(row):
        return 1
    return None if None in row else 0


def _chosen(test: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """Where both sides are equal, the element is known even if the choice is not."""
    if test is None:
        return a if a == b else None
    return a if test else b


fold_and: Final = _by_rows(lambda *row: 0 if 0 in row else None if None in row else 1, 2)
fold_or: Final = _by_rows(_either, 2)
fold_where: Final = _by_rows(_chosen, 3)


def axes_operand(op: Operation) -> tuple[int, ...] | None:
    """Returns axes, an attribute in old operator sets and operand 1 in new ones."""
    return op.ints(1) if op.has(1) else op.attr_ints("axes")


def reduced_axes(op: Operation, rank: int) -> set[int]:
    """Returns the axes that a reduction takes away; all of them where none are named."""
    axes = axes_operand(op)
    if not axes and op.attr("noop_with_empty_axes", 0):
        return set()
    return {axis_of(axis, rank) for axis in axes} if axes else set(range(rank))


def target_shape(op: Operation, i: int) -> tuple[int | None, ...]:
    """Returns a shape given as a tensor; if only its length is known, that many unknowns."""
    data = op.input(i).data
    if data is not None:
        return tuple(None if item is None else int(item) for item in data)
    shape = op.dims(i)
    if len(shape) != 1 or shape[0] > _MAX_TARGET:
        raise UnknownError(
            f"operand {i} has shape {list(shape)}; one axis of at most {_MAX_TARGET} is expected"
        )
    return (None,) * shape[0]


def slices(op: Operation) -> list[tuple[int, int | None, int | None, int]]:
    """Returns (axis, start, end, step) of every axis cut; None for a bound not known."""
    rank = len(op.shape(0))
    steps: Data | None = None
    axes: Sequence[int] | None
    starts: tuple[int | None, ...]
    ends: tuple[int | None, ...]
    if op.has(1):
        starts, ends = target_shape(op, 1), target_shape(op, 2)
        axes = op.ints(3) if op.has(3) else None
        steps = op.ints(4) if op.has(4) else None
    else:
        starts, ends = op.attr_ints("starts") or (), op.attr_ints("ends") or ()
        axes = op.attr_ints("axes")
    if axes is None:
        axes = range(len(starts))
    return [
        (axis_of(axis, rank), starts[i], ends[i], 1 if steps is None else int(steps[i] or 0))
        for i, axis in enumerate(axes)
    ]


def slice_bounds(start: int, end: int, step: int, length: int) -> tuple[int, int]:
    """Returns where a slice of an axis starts and how many elements it takes.

    ONNX's bounds beyond the axis mean its end, on either side.
    """
    if step == 0:
        raise UnknownError("a slice has a step of 0; any other step is expected")
    low, high = (0, length) if step > 0 else (-1, length - 1)
    start = start + length if start < 0 else start
    end = end + length if end < 0 else end
    start = min(max(start, 0), high)
    end = min(max(end, low), length)
    indices = range(length)[start : None if end < 0 else end : step]
    return (indices[0] if len(indices) else 0), len(indices)


def lengths(op: Operation) -> Shape:
    """Returns the lengths that Shape gives."""
    end = op.attr("end", 0) if "end" in op.attributes else None
    return op.shape(0)[op.attr("start", 0) : end]


def copied(op: Operation, outputs: list[Value]) -> list[Data]:
    """The operand's elements, unchanged."""
    return [op.data(0)]


def fold_cast(op: Operation, outputs: list[Value]) -> list[Data]:
    """Cast: the operand's elements; none as text."""
    if outputs[0].dtype == dtypes.STRING:
        raise UnknownError("the result is text; only elements that are numbers are computed")
    return [op.data(0)]


def fold_concat(op: Operation, outputs: list[Value]) -> list[Data]:
    """Concat: the operands' elements along an axis."""
    values = [op.input(i) for i in range(len(op.inputs))]
    if any(value.size is None or value.size > MAX_DATA for value in values):
        raise UnknownError(f"the size of an operand is not known or above {MAX_DATA} elements")
    columns = [value.data or (None,) * (value.size or 0) for value in values]
    outer = prod(_shape(outputs[0])[: op.axis(0)])
    steps = [len(data) // max(outer, 1) for data in columns]
    return [
        tuple(
            item
            for row in range(outer)
            for data, step in zip(columns, steps, strict=True)
            for item in data[row * step : (row + 1) * step]
        )
    ]


def fold_gather(op: Operation, outputs: list[Value]) -> list[Data]:
    """Gather: elements by index."""
    data, shape, axis = op.data(0), op.dims(0), op.axis(0)
    step = prod(shape[axis + 1 :])
    result: list[Scalar] = []
    for row in range(prod(shape[:axis])):
        for index in op.data(1):
            at = (row * shape[axis] + int(index or 0) % shape[axis]) * step
            result += (None,) * step if index is None else data[at : at + step]
    return [tuple(result)]


def fold_slice(op: Operation, outputs: list[Value]) -> list[Data]:
    """Slice: the elements between the bounds."""
    shape = op.dims(0)
    ranges = [range(dim) for dim in shape]
    for axis, start, end, step in slices(op):
        if start is None or end is None:
            raise UnknownError(f"a bound of the slice of axis {axis} is not known")
        first, count = slice_bounds(start, end, step, shape[axis])
        ranges[axis] = range(first, first + step * count, step)
    return [_taken(op.data(0), _strides(shape), _points(ranges))]


def fold_split(op: Operation, outputs: list[Value]) -> list[Data]:
    """Split: the elements of each part."""
    shape, axis = op.dims(0), op.axis(0)
    result: list[Data] = []
    start = 0
    for value in outputs:
        stop = start + _shape(value)[axis]
        ranges = [range(dim) for dim in shape]
        ranges[axis] = range(start, stop)
        result.append(_taken(op.data(0), _strides(shape), _points(ranges)))
        start = stop
    return result


def fold_transpose(op: Operation, outputs: list[Value]) -> list[Data]:
    """Transpose: the elements in another order."""
    strides = _strides(op.dims(0))
    order = op.attr_ints("perm") or range(len(strides))[::-1]
    moved = [strides[axis] for axis in order]
    return [_taken(op.data(0), moved, _positions(_shape(outputs[0])))]


def fold_expand(op: Operation, outputs: list[Value]) -> list[Data]:
    """Expand: the elements repeated."""
    return [_stretched(op.input(0), _shape(outputs[0]))]


def fold_range(op: Operation, outputs: list[Value]) -> list[Data]:
    """Range: start, start + step, and so on."""
    start, step = op.data(0)[0], op.data(2)[0]
    if start is None or step is None:
        raise UnknownError("start and step are not known")
    return [tuple(start + i * step for i in range(outputs[0].size or 0))]


def fold_filled(op: Operation, outputs: list[Value]) -> list[Data]:
    """ConstantOfShape: one value everywhere."""
    tensor = op.attr_tensor("value")
    if tensor is not None and not tensor.values:
        raise UnknownError("the value to fill with is not known")
    fill: Scalar = tensor.values[0] if tensor is not None and tensor.values else 0
    return [(fill,) * (outputs[0].size or 0)]


def fold_reduce(function: Callable[[list[int | float]], int | float]) -> Fold:
    """Elements along axes combined by a function."""

    def fold(op: Operation, outputs: list[Value]) -> list[Data]:
        shape = op.dims(0)
        gone = reduced_axes(op, len(shape))
        groups: dict[tuple[int, ...], list[Scalar]] = {}
        for item, position in zip(op.data(0), _positions(shape), strict=True):
            key = tuple(at for i, at in enumerate(position) if i not in gone)
            groups.setdefault(key, []).append(item)
        known = ([item for item in group if item is not None] for group in groups.values())
        pairs = zip(known, groups.values(), strict=True)
        return [tuple(function(some) if len(some) == len(all_) else None for some, all_ in pairs)]

    return fold


def fold_scatter_nd(op: Operation, outputs: list[Value]) -> list[Data]:
    """Replaces single elements of a vector, as exporters do to build a shape."""
    if op.attr_str("reduction", "none") != "none" or len(op.dims(0)) != 1:
        raise UnknownError("only a ScatterND into a vector without 'reduction' is computed")
    result = list(op.data(0))
    for index, update in zip(op.ints(1), op.data(2), strict=True):
        result[index] = update
    return [tuple(result)]
