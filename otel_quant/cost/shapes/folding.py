"""Computes the small tensors that carry shapes: their elements, not only their lengths.

Each element is known or not by itself: ``Concat([batch, -1, 768])`` is known in two places even where
the batch is not. Floats are rounded to float32, because a Resize's scale that went through
float32 decides whether a length is 13 or 14.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from itertools import product as cartesian
from math import prod
from typing import TypeAlias

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.shapes.layout import axes_operand, half, single, slice_bounds, slices
from otel_quant.cost.shapes.rule import axis_of
from otel_quant.cost.values import MAX_DATA, Data, Value

Scalar: TypeAlias = int | float | None
Fold: TypeAlias = Callable[[Operation, list[Value]], list[Data]]


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
            return half(float(item))
        return None
    if dtype == dtypes.BOOL:
        return int(bool(item))
    if isinstance(item, float) and not math.isfinite(item):
        return None
    whole = int(item)
    return whole if -(1 << 63) <= whole < 1 << 64 else None


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _positions(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return _points([range(dim) for dim in shape])


def _points(ranges: list[range]) -> Iterator[tuple[int, ...]]:
    """Every combination; cartesian writes out all ranges first, long ones beside an empty one."""
    if not all(ranges):
        return iter(())
    if prod(len(each) for each in ranges) > MAX_DATA:
        raise UnknownError(f"the result has more than {MAX_DATA} elements; no more are computed")
    return cartesian(*ranges)


def _stretched(value: Value, shape: tuple[int, ...]) -> Data:
    """The elements of a tensor broadcast to ``shape``."""
    if value.data is None:
        return (None,) * prod(shape)
    own = value.shape
    if own is None:
        raise UnknownError("the shape of an operand is not known", value.unknown)
    if own == shape:
        return value.data
    if len(value.data) == 1:
        return value.data * prod(shape)
    dims = tuple(dim or 0 for dim in own)
    strides = _strides(dims)
    lead = len(shape) - len(dims)
    return tuple(
        value.data[
            sum(
                stride * (0 if dim == 1 else at)
                for stride, dim, at in zip(strides, dims, position[lead:], strict=True)
            )
        ]
        for position in _positions(shape)
    )


def fold_each(function: Callable[..., Scalar], operands: int | None = None) -> Fold:
    """Element by element, operands broadcast; an unknown operand makes an unknown result."""

    def fold(op: Operation, outputs: list[Value]) -> list[Data]:
        values = [value for value in op.inputs if value is not None]
        if operands not in (None, len(values)):
            raise UnknownError(f"{len(values)} operands; {operands} are expected")
        if any(value.data is None for value in values):
            raise UnknownError("no element of an operand is known")
        shape = op_shape(outputs[0])
        columns = [_stretched(value, shape) for value in values]
        return [tuple(_apply(function, row) for row in zip(*columns, strict=True))]

    return fold


def op_shape(value: Value) -> tuple[int, ...]:
    """Returns the shape of a value whose size is known."""
    return tuple(dim or 0 for dim in value.shape or ())


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
    if op.attr("fmod", 0):
        return fold_each(math.fmod, 2)(op, outputs)
    return fold_each(operator.mod, 2)(op, outputs)


def fold_where(op: Operation, outputs: list[Value]) -> list[Data]:
    """Where both sides are equal, the element is known even if the choice is not."""
    shape = op_shape(outputs[0])
    rows = zip(*(_stretched(op.input(i), shape) for i in range(3)), strict=True)
    return [
        tuple(
            (a if a == b else None) if test is None else (a if test else b) for test, a, b in rows
        )
    ]


def fold_and(op: Operation, outputs: list[Value]) -> list[Data]:
    """And: false if either is, whatever the other."""
    shape = op_shape(outputs[0])
    rows = zip(*(_stretched(op.input(i), shape) for i in range(2)), strict=True)
    return [tuple(0 if 0 in row else None if None in row else 1 for row in rows)]


def fold_or(op: Operation, outputs: list[Value]) -> list[Data]:
    """Or: true if either is, whatever the other."""
    shape = op_shape(outputs[0])
    rows = zip(*(_stretched(op.input(i), shape) for i in range(2)), strict=True)
    return [tuple(_either(row) for row in rows)]


def _either(row: tuple[Scalar, ...]) -> Scalar:
    if any(row):
        return 1
    return None if None in row else 0


def fold_shape(op: Operation, outputs: list[Value]) -> list[Data]:
    """Shape: the operand's lengths."""
    end = op.attr("end", 0) if "end" in op.attributes else None
    return [op.shape(0)[slice(op.attr("start", 0), end)]]


def fold_size(op: Operation, outputs: list[Value]) -> list[Data]:
    """Size: the operand's number of elements."""
    return [(op.size(0),)]


def fold_copy(op: Operation, outputs: list[Value]) -> list[Data]:
    """The operand's elements, unchanged."""
    return [op.data(0)]


def fold_cast(op: Operation, outputs: list[Value]) -> list[Data]:
    """Cast: the operand's elements; none as text."""
    if outputs[0].dtype == dtypes.STRING:
        raise UnknownError("the result is text; only elements that are numbers are computed")
    return [op.data(0)]


def fold_concat(op: Operation, outputs: list[Value]) -> list[Data]:
    """Concat: the operands' elements along an axis."""
    shape = op_shape(outputs[0])
    values = [op.input(i) for i in range(len(op.inputs))]
    if any(value.size is None or value.size > MAX_DATA for value in values):
        raise UnknownError(f"the size of an operand is not known or above {MAX_DATA} elements")
    if len(shape) != 1:
        axis = axis_of(op.attr("axis", 0), len(shape))
        outer = prod(shape[:axis])
        result: list[Scalar] = []
        for row in range(outer):
            for value in values:
                step = (value.size or 0) // max(outer, 1)
                data = value.data or (None,) * (value.size or 0)
                result.extend(data[row * step : (row + 1) * step])
        return [tuple(result)]
    parts: list[Scalar] = []
    for value in values:
        parts.extend(value.data if value.data is not None else (None,) * (value.size or 0))
    return [tuple(parts)]


def fold_gather(op: Operation, outputs: list[Value]) -> list[Data]:
    """Gather: elements by index."""
    data = op.data(0)
    shape = op.dims(0)
    indices = op.data(1)
    axis = axis_of(op.attr("axis", 0), len(shape))
    step = prod(shape[axis + 1 :])
    result: list[Scalar] = []
    for row in range(prod(shape[:axis])):
        for index in indices:
            if index is None:
                result.extend((None,) * step)
                continue
            at = (row * shape[axis] + int(index) % shape[axis]) * step
            result.extend(data[at : at + step])
    return [tuple(result)]


def _picked(op: Operation, ranges: list[range]) -> Data:
    data = op.data(0)
    strides = _strides(op.dims(0))
    return tuple(
        data[sum(stride * at for stride, at in zip(strides, position, strict=True))]
        for position in _points(ranges)
    )


def fold_slice(op: Operation, outputs: list[Value]) -> list[Data]:
    """Slice: the elements between the bounds."""
    shape = op.dims(0)
    ranges = [range(dim) for dim in shape]
    for axis, start, end, step in slices(op):
        if start is None or end is None:
            raise UnknownError(f"a bound of the slice of axis {axis} is not known")
        first, count = slice_bounds(start, end, step, shape[axis])
        ranges[axis] = range(first, first + step * count, step)
    return [_picked(op, ranges)]


def fold_split(op: Operation, outputs: list[Value]) -> list[Data]:
    """Split: the elements of each part."""
    shape = op.dims(0)
    axis = axis_of(op.attr("axis", 0), len(shape))
    result: list[Data] = []
    start = 0
    for value in outputs:
        length = op_shape(value)[axis]
        ranges = [range(dim) for dim in shape]
        ranges[axis] = range(start, start + length)
        result.append(_picked(op, ranges))
        start += length
    return result


def fold_transpose(op: Operation, outputs: list[Value]) -> list[Data]:
    """Transpose: the elements in another order."""
    data = op.data(0)
    shape = op.dims(0)
    order = op.attr_ints("perm") or tuple(range(len(shape)))[::-1]
    strides = _strides(shape)
    moved = tuple(strides[axis] for axis in order)
    return [
        tuple(
            data[sum(stride * at for stride, at in zip(moved, position, strict=True))]
            for position in _positions(op_shape(outputs[0]))
        )
    ]


def fold_expand(op: Operation, outputs: list[Value]) -> list[Data]:
    """Expand: the elements repeated."""
    return [_stretched(op.input(0), op_shape(outputs[0]))]


def fold_tile(op: Operation, outputs: list[Value]) -> list[Data]:
    """Tile: the elements repeated."""
    data = op.data(0)
    shape = op.dims(0)
    strides = _strides(shape)
    return [
        tuple(
            data[
                sum(
                    stride * (at % dim)
                    for stride, at, dim in zip(strides, position, shape, strict=True)
                )
            ]
            for position in _positions(op_shape(outputs[0]))
        )
    ]


def fold_range(op: Operation, outputs: list[Value]) -> list[Data]:
    """Range: start, start + step, and so on."""
    start, step = op.data(0)[0], op.data(2)[0]
    if start is None or step is None:
        raise UnknownError("start and step are not known")
    return [tuple(start + i * step for i in range(outputs[0].size or 0))]


def fold_filled(op: Operation, outputs: list[Value]) -> list[Data]:
    """ConstantOfShape: one value everywhere."""
    tensor = op.attr_tensor("value")
    fill: Scalar = 0
    if tensor is not None:
        if not tensor.values:
            raise UnknownError("the value to fill with is not known")
        fill = tensor.values[0]
    return [(fill,) * (outputs[0].size or 0)]


def fold_reduce(function: Callable[[list[int | float]], int | float]) -> Fold:
    """Elements along axes combined by a function."""

    def fold(op: Operation, outputs: list[Value]) -> list[Data]:
        data = op.data(0)
        shape = op.dims(0)
        axes = axes_operand(op, 1)
        if not axes and op.attr("noop_with_empty_axes", 0):
            return [data]
        gone = {axis_of(axis, len(shape)) for axis in axes} if axes else set(range(len(shape)))
        groups: dict[tuple[int, ...], list[Scalar]] = {}
        for item, position in zip(data, _positions(shape), strict=True):
            key = tuple(at for i, at in enumerate(position) if i not in gone)
            groups.setdefault(key, []).append(item)
        results: list[Scalar] = []
        for group in groups.values():
            numbers = [item for item in group if item is not None]
            results.append(function(numbers) if len(numbers) == len(group) else None)
        return [tuple(results)]

    return fold


def fold_cumulative(op: Operation, outputs: list[Value]) -> list[Data]:
    """CumSum of a vector."""
    data = op.ints(0)
    if len(op.dims(0)) != 1 or op.attr("exclusive", 0) or op.attr("reverse", 0):
        raise UnknownError(
            "only the CumSum of a vector without 'exclusive' and 'reverse' is computed"
        )
    total = 0
    result: list[Scalar] = []
    for item in data:
        total += item
        result.append(total)
    return [tuple(result)]


def fold_scatter_nd(op: Operation, outputs: list[Value]) -> list[Data]:
    """Replaces single elements of a vector, as exporters do to build a shape."""
    if op.attr_str("reduction", "none") != "none" or len(op.dims(0)) != 1:
        raise UnknownError("only a ScatterND into a vector without 'reduction' is computed")
    result = list(op.data(0))
    for index, update in zip(op.ints(1), op.data(2), strict=True):
        result[index] = update
    return [tuple(result)]


def round_half_even(value: float) -> float:
    """Round: to the nearest integer, halves to the even one."""
    return float(round(value))
