"""Operators that move, cut, join, repeat or pick elements: free, but for those that search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import ceil, prod
from typing import Final

from otel_quant.cost.operation import (
    MAX_DATA,
    Data,
    MisfitError,
    Operation,
    Shape,
    UnknownError,
    Value,
    axis_of,
    volume,
)
from otel_quant.cost.operators.record import (
    CMP,
    FLOAT,
    INT64,
    MOVES,
    T0,
    Fold,
    Operator,
    Scalar,
    ShapesOf,
    agree,
    axes_operand,
    broadcast,
    copied,
    first_of,
    fixed,
    free,
    like,
    not_costed,
    per_input,
    scaled,
    stretched,
    strides_of,
    taken,
    target_shape,
    total,
    with_dim,
    zero,
)


def _reshaped(op: Operation) -> Sequence[Shape]:
    """0 copies a length, -1 takes what is left."""
    source = op.shape(0)
    attribute = op.attr_ints("shape")
    target: Shape = attribute if attribute is not None else target_shape(op, 1)
    copied = set() if op.attr("allowzero", 0) else {i for i, dim in enumerate(target) if dim == 0}
    result = [
        source[i] if i in copied else None if dim == -1 else dim for i, dim in enumerate(target)
    ]
    open_axes = [i for i, dim in enumerate(result) if dim is None and i not in copied]
    # What is copied is on both sides and cancels out, known or not.
    rest = volume(tuple(dim for i, dim in enumerate(source) if i not in copied))
    fixed = prod(dim for i, dim in enumerate(result) if dim is not None and i not in copied)
    misfit = f"{list(source)} cannot be reshaped to {result}"
    if rest is not None and fixed > 0 and len(open_axes) == 1:
        if rest % fixed:
            raise MisfitError(f"{misfit}: no length fits the open axis")
        result[open_axes[0]] = rest // fixed
    elif None not in result and volume(source) not in (None, volume(tuple(result))):
        raise MisfitError(f"{misfit}: other element counts")
    return [tuple(result)]


def _flatten(op: Operation) -> Sequence[Shape]:
    """The axes before ``axis`` and those from it on, each made one."""
    shape = op.shape(0)
    axis = op.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return [(volume(shape[:axis]), volume(shape[axis:]))]


def _squeeze(op: Operation) -> Sequence[Shape]:
    shape = op.shape(0)
    axes = axes_operand(op)
    if axes is None:
        if None in shape:
            raise UnknownError(
                "no axes are named, and which have length 1 is not known", op.input(0).unknown
            )
        return [tuple(dim for dim in shape if dim != 1)]
    gone = {axis_of(axis, len(shape)) for axis in axes}
    return [tuple(dim for i, dim in enumerate(shape) if i not in gone)]


def _unsqueeze(op: Operation) -> Sequence[Shape]:
    shape = op.shape(0)
    axes = axes_operand(op)
    if axes is None:
        raise UnknownError("neither the attribute 'axes' nor operand 1 is given")
    rank = len(shape) + len(axes)
    new = {axis_of(axis, rank) for axis in axes}
    if len(new) != len(axes):
        raise UnknownError(f"an axis is twice in {list(axes)}; different axes are expected")
    rest = iter(shape)
    return [tuple(1 if i in new else next(rest) for i in range(rank))]


def _transpose(op: Operation) -> Sequence[Shape]:
    """Axes in another order, reversed unless ``perm`` gives one."""
    shape = op.shape(0)
    order = op.attr_ints("perm")
    if order is None:
        return [shape[::-1]]
    return [tuple(shape[axis] for _, axis in zip(shape, order, strict=True))]


def _concat(op: Operation) -> Sequence[Shape]:
    """Lengths along ``axis`` added, all others equal."""
    shapes = [op.shape(i) for i in range(len(op.inputs))]
    axis = op.axis(1 if 0 < op.opset < 4 else 0)
    result: list[int | None] = []
    for i, column in enumerate(zip(*shapes, strict=True)):
        if i == axis:
            result.append(total(column))
        else:
            agree(f"lengths of axis {i} of the operands", *column)
            result.append(next((dim for dim in column if dim is not None), None))
    return [tuple(result)]


def _split(op: Operation) -> Sequence[Shape]:
    """Parts of given lengths along ``axis``, or equal ones."""
    shape = op.shape(0)
    axis = op.axis(0)
    count = len(op.node.outputs)
    parts: Sequence[int | float | None] | None = op.attr_ints("split")
    if op.has(1):
        parts = op.input(1).data or (None,) * count
    if parts is None:
        length = shape[axis]
        if length is None:
            parts = (None,) * count
        else:
            size = ceil(length / count)
            parts = [min(size, max(0, length - size * i)) for i in range(count)]
    return [with_dim(shape, axis, None if part is None else int(part)) for part in parts]


def _slices(op: Operation) -> list[tuple[int, int | None, int | None, int]]:
    """Axis, start, end and step of every axis that is cut; None for a bound that is not known."""
    rank = len(op.shape(0))
    if op.has(1):
        starts, ends = target_shape(op, 1), target_shape(op, 2)
        axes = op.ints(3) if op.has(3) else range(len(starts))
        steps = op.ints(4) if op.has(4) else (1,) * len(starts)
    else:
        starts, ends = op.attr_ints("starts") or (), op.attr_ints("ends") or ()
        axes, steps = op.attr_ints("axes") or range(len(starts)), (1,) * len(starts)
    return [(axis_of(axis, rank), starts[i], ends[i], int(steps[i])) for i, axis in enumerate(axes)]


def _taken(start: int, end: int, step: int, length: int) -> range:
    """Which elements of an axis a slice takes; ONNX's bounds beyond it mean its end, on either side."""
    low, high = (0, length) if step > 0 else (-1, length - 1)
    start = start + length if start < 0 else start
    end = end + length if end < 0 else end
    end = min(max(end, low), length)
    return range(length)[min(max(start, 0), high) : None if end < 0 else end : step]


def _sliced(op: Operation) -> Sequence[Shape]:
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


def _fold_slice(op: Operation, outputs: list[Value]) -> list[Data]:
    ranges = list(map(range, op.dims(0)))
    for axis, start, end, step in _slices(op):
        if start is None or end is None:
            return []
        ranges[axis] = _taken(start, end, step, len(ranges[axis]))
    return [taken(op.data(0), strides_of(op.dims(0)), ranges)]


def gathered(shape: Shape, indices: Shape, axis: int) -> Shape:
    """Returns a shape with the indices' axes in the place of ``axis``."""
    return (*shape[:axis], *indices, *shape[axis + 1 :])


def _gather_nd(op: Operation) -> Sequence[Shape]:
    """The length of the indices' last axis is the number of axes that they address."""
    data, indices = op.shape(0), op.shape(1)
    depth = indices[-1] if indices else None
    if depth is None:
        raise UnknownError("how many axes the indices address is not known", op.input(1).unknown)
    return [(*indices[:-1], *data[op.attr("batch_dims", 0) + depth :])]


def _tile(op: Operation) -> Sequence[Shape]:
    """Each length times its number of repeats."""
    pairs = zip(op.shape(0), target_shape(op, 1), strict=True)
    return [tuple(None if many is None else scaled(dim, many) for dim, many in pairs)]


def _pad(op: Operation) -> Sequence[Shape]:
    """Each length with what is put before and behind it."""
    shape = op.shape(0)
    if op.has(1) and op.input(1).data is None:
        return [(None,) * len(shape)]
    pads = op.data(1) if op.has(1) else op.attr_ints("pads") or op.attr_ints("paddings") or ()
    axes = op.ints(3) if op.has(3) else range(len(shape))
    result = list(shape)
    for axis, *around in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        at = axis_of(axis, len(shape))
        result[at] = total((result[at], *(None if each is None else int(each) for each in around)))
    return [tuple(result)]


def _blocks(op: Operation, *, spread: bool) -> Sequence[Shape]:
    """DepthToSpace spreads blocks of channels over height and width; SpaceToDepth gathers them."""
    batch, channels, height, width = op.dims(0)
    block = op.attr("blocksize", 1)
    if spread:
        return [(batch, channels // block**2, height * block, width * block)]
    return [(batch, channels * block**2, height // block, width // block)]


def _range(op: Operation) -> Sequence[Shape]:
    """As many elements as steps from start to limit."""
    try:
        start, limit, step = (op.floats(i)[0] for i in range(3))
    except UnknownError:
        return [(None,)]
    return [(max(0, ceil((limit - start) / step)),)]


def _fold_concat(op: Operation, outputs: list[Value]) -> list[Data]:
    """The operands' elements along an axis."""
    values = [op.input(i) for i in range(len(op.inputs))]
    if any(value.size is None or value.size > MAX_DATA for value in values):
        return []
    columns = [value.data or (None,) * (value.size or 0) for value in values]
    outer = prod(fixed(outputs[0])[: op.axis(0)])
    rows = (
        [data[row * len(data) // outer :][: len(data) // outer] for data in columns]
        for row in range(outer)
    )
    return [tuple(chain.from_iterable(chain.from_iterable(rows)))]


def _fold_gather(op: Operation, outputs: list[Value]) -> list[Data]:
    """Elements by index."""
    data, shape, axis = op.data(0), op.dims(0), op.axis(0)
    step = prod(shape[axis + 1 :])
    result: list[Scalar] = []
    for row in range(prod(shape[:axis])):
        for index in op.data(1):
            at = (row * shape[axis] + int(index or 0) % shape[axis]) * step
            result += (None,) * step if index is None else data[at : at + step]
    return [tuple(result)]


def _fold_split(op: Operation, outputs: list[Value]) -> list[Data]:
    """The elements of each part."""
    shape, axis, start = op.dims(0), op.axis(0), 0
    result = []
    for value in outputs:
        stop = start + fixed(value)[axis]
        ranges = [*map(range, shape)]
        ranges[axis] = range(start, stop)
        result.append(taken(op.data(0), strides_of(shape), ranges))
        start = stop
    return result


def _fold_transpose(op: Operation, outputs: list[Value]) -> list[Data]:
    """The elements in another order."""
    strides = strides_of(op.dims(0))
    order = op.attr_ints("perm") or range(len(strides))[::-1]
    return [taken(op.data(0), [strides[at] for at in order], list(map(range, fixed(outputs[0]))))]


def _fold_range(op: Operation, outputs: list[Value]) -> list[Data]:
    """Start, start + step, and so on."""
    start, step = op.data(0)[0], op.data(2)[0]
    if start is None or step is None:
        return []
    return [tuple(start + i * step for i in range(outputs[0].size or 0))]


def _fold_filled(op: Operation, outputs: list[Value]) -> list[Data]:
    """One value everywhere, 0 unless it is given."""
    tensor = op.attr_tensor("value")
    fill = (0,) if tensor is None else tensor.values
    return [(fill[0],) * (outputs[0].size or 0)] if fill else []


def _lengths(op: Operation) -> Shape:
    """The lengths that Shape gives."""
    end = op.attr("end", 0) if "end" in op.attributes else None
    return op.shape(0)[op.attr("start", 0) : end]


def _moves(shapes: ShapesOf, fold: Fold, *, view: bool = False) -> Operator:
    """An operator whose result has elements of its first operand."""
    return free(shapes, T0, fold, MOVES, view)


TABLE: Final[dict[str, Operator]] = {
    "Reshape": _moves(_reshaped, copied, view=True),
    "Flatten": _moves(_flatten, copied, view=True),
    "Squeeze": _moves(_squeeze, copied, view=True),
    "Unsqueeze": _moves(_unsqueeze, copied, view=True),
    "Transpose": _moves(_transpose, _fold_transpose),
    "Concat": _moves(_concat, _fold_concat),
    "Split": _moves(_split, _fold_split),
    "Slice": _moves(_sliced, _fold_slice),
    "Gather": _moves(lambda op: [gathered(op.shape(0), op.shape(1), op.axis(0))], _fold_gather),
    "Expand": _moves(
        lambda op: [broadcast((op.shape(0), target_shape(op, 1)))],
        lambda op, outputs: [stretched(op.input(0), fixed(outputs[0]))],
    ),
    "Tile": free(_tile),
    "GatherElements": free(lambda op: [op.shape(1)]),
    "GatherND": free(_gather_nd),
    "Pad": free(_pad),
    "DepthToSpace": free(lambda op: _blocks(op, spread=True)),
    "SpaceToDepth": free(lambda op: _blocks(op, spread=False)),
    "OneHot": free(
        lambda op: [
            (*op.shape(0)[: (axis := op.axis(-1, extra=1))], first_of(op, 1), *op.shape(0)[axis:])
        ],
        like(2),
    ),
    "Range": free(_range, fold=_fold_range),
    "ConstantOfShape": free(
        lambda op: [target_shape(op, 0)],
        (lambda op: FLOAT[0](op) if (fill := op.attr_tensor("value")) is None else fill.dtype,),
        _fold_filled,
    ),
    "Shape": free(lambda op: [(len(_lengths(op)),)], INT64, lambda op, outputs: [_lengths(op)]),
    "Size": free(lambda op: [()], INT64, lambda op, outputs: [(op.size(0),)]),
    "NonZero": free(lambda op: [(len(op.shape(0)), None)], INT64),
    "TopK": Operator(
        "|x| comparisons at least (onnx_tool: 0)",
        lambda op: (
            [with_dim(op.shape(0), op.axis(-1), first_of(op, 1) if op.has(1) else op.attr("k", 0))]
            * 2
        ),
        T0 + INT64,
        rest=per_input(CMP),
        tool=zero,
    ),
    "NonMaxSuppression": not_costed(
        "the number of boxes compared is data (onnx_tool: 0)",
        lambda op: [(None, 3)],
        INT64,
        tool=zero,
    ),
}
