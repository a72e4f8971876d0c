"""Operators that move, cut, join, repeat or pick elements: free, but for those that search."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from math import ceil, prod
from typing import Final

from otel_quant.cost import operation
from otel_quant.cost.operation import Data, Shape, TypedNode, UnknownError, Value, axis_of, volume
from otel_quant.cost.operators import rule
from otel_quant.cost.operators.rule import T0, Fold, Rule, ShapesOf


def _reshaped(op: TypedNode) -> Sequence[Shape]:
    """0 copies a length, -1 takes what is left."""
    source = op.shape(0)
    attribute = op.attr_ints("shape")
    target = rule.target_shape(op, 1) if attribute is None else attribute
    copied = _places_of(() if op.attr("allowzero", 0) else (0,), target)
    open_axes = _places_of((-1, None), target)
    result = [source[i] if i in copied else dim for i, dim in enumerate(target)]
    for axis in open_axes:
        result[axis] = None
    # What is copied is on both sides and cancels out, known or not.
    rest = volume(rule.without(source, copied))
    fixed = volume(rule.without(target, copied + open_axes)) or 0
    misfit = f"{list(source)} cannot be reshaped to {result}"
    if len(open_axes) == 1 and rest is not None and fixed > 0:
        if rest % fixed:
            raise operation.MismatchError(f"{misfit}: no length fits the open axis")
        result[open_axes[0]] = rest // fixed
    elif None not in result and volume(source) not in (None, volume(tuple(result))):
        raise operation.MismatchError(f"{misfit}: other element counts")
    return [tuple(result)]


def _places_of(wanted: Collection[int | None], lengths: Shape) -> list[int]:
    return [i for i, dim in enumerate(lengths) if dim in wanted]


def _flatten(op: TypedNode) -> Sequence[Shape]:
    """The axes before ``axis`` and those from it on, each made one."""
    shape, axis = op.shape(0), op.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return [(volume(shape[:axis]), volume(shape[axis:]))]


def _squeeze(op: TypedNode) -> Sequence[Shape]:
    shape, axes = op.shape(0), rule.axes_operand(op)
    if axes is None and None in shape:
        problem = "no axes are named, and which have length 1 is not known"
        raise UnknownError(problem, op.input(0).unknown)
    gone = _places_of((1,), shape) if axes is None else axes
    return [rule.without(shape, {axis_of(axis, len(shape)) for axis in gone})]


def _unsqueeze(op: TypedNode) -> Sequence[Shape]:
    shape, axes = op.shape(0), rule.axes_operand(op)
    if axes is None:
        raise UnknownError("neither the attribute 'axes' nor operand 1 is given")
    rank = len(shape) + len(axes)
    new = {axis_of(axis, rank) for axis in axes}
    if len(new) != len(axes):
        raise UnknownError(f"an axis is twice in {list(axes)}; different axes are expected")
    rest = iter(shape)
    return [tuple(1 if i in new else next(rest) for i in range(rank))]


def _transpose(op: TypedNode) -> Sequence[Shape]:
    """Axes in another order, reversed unless ``perm`` gives one."""
    shape = op.shape(0)
    order = op.attr_ints("perm")
    if order is None:
        return [shape[::-1]]
    return [tuple(shape[axis] for _, axis in zip(shape, order, strict=True))]


def _concat(op: TypedNode) -> Sequence[Shape]:
    """Lengths along ``axis`` added, all others equal."""
    shapes = [op.shape(i) for i in range(len(op.inputs))]
    axis = op.axis(1 if 0 < op.opset < 4 else 0)
    result: list[int | None] = []
    for i, column in enumerate(zip(*shapes, strict=True)):
        if i == axis:
            result.append(rule.total(column))
        else:
            rule.agree(f"lengths of axis {i} of the operands", *column)
            result.append(operation.first_known(column))
    return [tuple(result)]


def _split(op: TypedNode) -> Sequence[Shape]:
    """Parts of given lengths along ``axis``, or equal ones."""
    shape, axis, count = op.shape(0), op.axis(0), len(op.node.outputs)
    parts: Shape | None = op.attr_ints("split")
    if op.has(1):
        parts = rule.whole(op.known_data(1)) or (None,) * count
    if parts is None:
        parts = _equal_parts(shape[axis], count)
    return [rule.with_dim(shape, axis, part) for part in parts]


def _equal_parts(length: int | None, count: int) -> Shape:
    """The lengths of so many parts, the last one perhaps shorter."""
    if length is None:
        return (None,) * count
    size = ceil(length / count)
    return tuple(min(size, max(0, length - size * i)) for i in range(count))


def _slices(op: TypedNode) -> list[tuple[int, int | None, int | None, int]]:
    """Axis, start, end and step of every axis that is cut; None for a bound that is not known."""
    rank = len(op.shape(0))
    if op.has(1):
        starts, ends = rule.target_shape(op, 1), rule.target_shape(op, 2)
        axes: Sequence[int] = op.ints(3) if op.has(3) else range(len(starts))
        steps = op.ints(4) if op.has(4) else (1,) * len(starts)
    else:
        starts, ends = tuple(op.attr_list("starts")), tuple(op.attr_list("ends"))
        axes, steps = op.attr_list("axes", range(len(starts))), (1,) * len(starts)
    return [(axis_of(axis, rank), starts[i], ends[i], steps[i]) for i, axis in enumerate(axes)]


def _taken(start: int, end: int, step: int, length: int) -> range:
    """Which elements of an axis a slice takes; as in Python, but a start before the front is the front."""
    return range(length)[max(start, -length) : end : step]


def _sliced(op: TypedNode) -> Sequence[Shape]:
    """Along each axis that is cut, the number of elements taken."""
    result = list(op.shape(0))
    for axis, start, end, step in _slices(op):
        length = result[axis]
        if length is None or start is None or end is None:
            # A slice from the front to a negative or unknown bound still leaves it unknown.
            result[axis] = None
        else:
            result[axis] = len(_taken(start, end, step, length))
    return [tuple(result)]


def _fold_slice(op: TypedNode, outputs: list[Value]) -> list[Data]:
    ranges = list(map(range, op.dims(0)))
    for axis, start, end, step in _slices(op):
        if start is None or end is None:
            return []
        ranges[axis] = _taken(start, end, step, len(ranges[axis]))
    return [rule.taken(op.data(0), rule.strides_of(op.dims(0)), ranges)]


def gathered(shape: Shape, indices: Shape, axis: int) -> Shape:
    """Returns a shape with the indices' axes in the place of ``axis``."""
    return (*shape[:axis], *indices, *shape[axis + 1 :])


def _gather_nd(op: TypedNode) -> Sequence[Shape]:
    """The length of the indices' last axis is the number of axes that they address."""
    data, indices = op.shape(0), op.shape(1)
    depth = indices[-1] if indices else None
    if depth is None:
        raise UnknownError("how many axes the indices address is not known", op.input(1).unknown)
    return [(*indices[:-1], *data[op.attr("batch_dims", 0) + depth :])]


def _tile(op: TypedNode) -> Sequence[Shape]:
    """Each length times its number of repeats."""
    pairs = zip(op.shape(0), rule.target_shape(op, 1), strict=True)
    return [tuple(None if many is None else rule.scaled(dim, many) for dim, many in pairs)]


def _pad(op: TypedNode) -> Sequence[Shape]:
    """Each length with what is put before and behind it."""
    shape = op.shape(0)
    if op.has(1) and op.input(1).data is None:
        return [(None,) * len(shape)]
    pads = rule.whole(op.data(1)) if op.has(1) else op.attr_list("pads", op.attr_list("paddings"))
    axes = op.ints(3) if op.has(3) else range(len(shape))
    result = list(shape)
    for axis, *around in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        at = axis_of(axis, len(shape))
        result[at] = rule.total((result[at], *around))
    return [tuple(result)]


def _depth_to_space(op: TypedNode) -> Sequence[Shape]:
    """Blocks of channels spread over height and width."""
    batch, channels, height, width = op.dims(0)
    block = op.attr("blocksize", 1)
    return [(batch, channels // block**2, height * block, width * block)]


def _space_to_depth(op: TypedNode) -> Sequence[Shape]:
    """Blocks of height and width gathered into channels."""
    batch, channels, height, width = op.dims(0)
    block = op.attr("blocksize", 1)
    return [(batch, channels * block**2, height // block, width // block)]


def _range(op: TypedNode) -> Sequence[Shape]:
    """As many elements as steps from start to limit."""
    try:
        start, limit, step = (op.floats(i)[0] for i in range(3))
    except UnknownError:
        return [(None,)]
    return [(max(0, ceil((limit - start) / step)),)]


def _fold_concat(op: TypedNode, outputs: list[Value]) -> list[Data]:
    """The operands' elements along an axis."""
    values = [op.input(i) for i in range(len(op.inputs))]
    if any(value.size is None or value.size > operation.MAX_DATA for value in values):
        return []
    columns = [value.data or (None,) * prod(rule.fixed(value)) for value in values]
    outer = prod(rule.fixed(outputs[0])[: op.axis(0)])
    rows = (
        [data[row * len(data) // outer :][: len(data) // outer] for data in columns]
        for row in range(outer)
    )
    return [tuple(chain.from_iterable(chain.from_iterable(rows)))]


def _fold_gather(op: TypedNode, outputs: list[Value]) -> list[Data]:
    """Elements by index."""
    data, shape, axis = op.data(0), op.dims(0), op.axis(0)
    step = prod(shape[axis + 1 :])
    result: list[rule.Scalar] = []
    for row in range(prod(shape[:axis])):
        for index in op.data(1):
            at = (row * shape[axis] + int(index or 0) % shape[axis]) * step
            result += (None,) * step if index is None else data[at : at + step]
    return [tuple(result)]


def _fold_split(op: TypedNode, outputs: list[Value]) -> list[Data]:
    """The elements of each part."""
    shape, axis, start = op.dims(0), op.axis(0), 0
    result = []
    for value in outputs:
        stop = start + rule.fixed(value)[axis]
        ranges = [*map(range, shape)]
        ranges[axis] = range(start, stop)
        result.append(rule.taken(op.data(0), rule.strides_of(shape), ranges))
        start = stop
    return result


def _fold_transpose(op: TypedNode, outputs: list[Value]) -> list[Data]:
    """The elements in another order."""
    strides = rule.strides_of(op.dims(0))
    order = op.attr_ints("perm") or range(len(strides))[::-1]
    ranges = list(map(range, rule.fixed(outputs[0])))
    return [rule.taken(op.data(0), [strides[at] for at in order], ranges)]


def _fold_range(op: TypedNode, outputs: list[Value]) -> list[Data]:
    """Start, start + step, and so on."""
    start, step = op.data(0)[0], op.data(2)[0]
    if start is None or step is None:
        return []
    return [tuple(start + i * step for i in range(prod(rule.fixed(outputs[0]))))]


def _fold_filled(op: TypedNode, outputs: list[Value]) -> list[Data]:
    """One value everywhere, 0 unless it is given."""
    tensor = op.attr_tensor("value")
    fill = (0,) if tensor is None else tensor.values
    return [fill[:1] * prod(rule.fixed(outputs[0]))] if fill else []


def _lengths(op: TypedNode) -> Shape:
    """The lengths that Shape gives."""
    end = op.attr("end", 0) if "end" in op.attributes else None
    return op.shape(0)[op.attr("start", 0) : end]


def _moves(shapes: ShapesOf, fold: Fold, *, view: bool = False) -> Rule:
    """An operator whose result has elements of its first operand."""
    return rule.free(shapes, T0, fold, rule.MOVES, view)


TABLE: Final[dict[str, Rule]] = {
    "Reshape": _moves(_reshaped, rule.copied, view=True),
    "Flatten": _moves(_flatten, rule.copied, view=True),
    "Squeeze": _moves(_squeeze, rule.copied, view=True),
    "Unsqueeze": _moves(_unsqueeze, rule.copied, view=True),
    "Transpose": _moves(_transpose, _fold_transpose),
    "Concat": _moves(_concat, _fold_concat),
    "Split": _moves(_split, _fold_split),
    "Slice": _moves(_sliced, _fold_slice),
    "Gather": _moves(lambda op: [gathered(op.shape(0), op.shape(1), op.axis(0))], _fold_gather),
    "Expand": _moves(lambda op: [rule.broadcast((op.shape(0), rule.target_shape(op, 1)))],
        lambda op, outputs: [rule.stretched(op.input(0), rule.fixed(outputs[0]))]),
    "Tile": rule.free(_tile),
    "GatherElements": rule.free(lambda op: [op.shape(1)]),
    "GatherND": rule.free(_gather_nd),
    "Pad": rule.free(_pad),
    "DepthToSpace": rule.free(_depth_to_space),
    "SpaceToDepth": rule.free(_space_to_depth),
    "OneHot": rule.free(
        lambda op: [(*op.shape(0)[: (axis := op.axis(-1, extra=1))], rule.first_of(op, 1), *op.shape(0)[axis:])], rule.like(2)),
    "Range": rule.free(_range, fold=_fold_range),
    "ConstantOfShape": rule.free(lambda op: [rule.target_shape(op, 0)],
        (lambda op: rule.FLOAT[0](op) if (fill := op.attr_tensor("value")) is None else fill.dtype,), _fold_filled),
    "Shape": rule.free(lambda op: [(len(_lengths(op)),)], rule.INT64, lambda op, outputs: [_lengths(op)]),
    "Size": rule.free(lambda op: [()], rule.INT64, lambda op, outputs: [(op.size(0),)]),
    "NonZero": rule.free(lambda op: [(len(op.shape(0)), None)], rule.INT64),
    "TopK": Rule("|x| comparisons at least (onnx_tool: 0)",
        lambda op: [rule.with_dim(op.shape(0), op.axis(-1), rule.first_of(op, 1) if op.has(1) else op.attr("k", 0))] * 2,
        T0 + rule.INT64, rest=rule.per_input(rule.CMP), tool=rule.zero),
    "NonMaxSuppression": rule.not_costed("the number of boxes compared is data (onnx_tool: 0)", lambda op: [(None, 3)],
        rule.INT64, tool=rule.zero),
}  # fmt: skip
