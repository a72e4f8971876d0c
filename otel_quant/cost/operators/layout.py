"""Operators that move, cut, join, repeat or pick elements: free, but for those that search."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Final

from otel_quant.cost.operation import (
    Data,
    MisfitError,
    Operation,
    Shape,
    UnknownError,
    axis_of,
    volume,
)
from otel_quant.cost.operators import folding
from otel_quant.cost.operators.folding import axes_operand, slice_bounds, slices, target_shape
from otel_quant.cost.operators.record import (
    CMP,
    FLOAT,
    INT64,
    MOVES,
    T0,
    Fold,
    Operator,
    ShapesOf,
    agree,
    broadcast,
    first_of,
    free,
    like,
    not_costed,
    per_input,
    scaled,
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
    if len(order) != len(shape):
        raise UnknownError(
            f"attribute 'perm' has {len(order)} axes; all {len(shape)} of operand 0 are expected"
        )
    return [tuple(shape[axis] for axis in order)]


def _concat(op: Operation) -> Sequence[Shape]:
    """Lengths along ``axis`` added, all others equal."""
    shapes = [op.shape(i) for i in range(len(op.inputs))]
    axis = op.axis(1 if 0 < op.opset < 4 else 0)
    if len({len(shape) for shape in shapes}) > 1:
        raise UnknownError("the operands have different numbers of dimensions; one is expected")
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


def _sliced(op: Operation) -> Sequence[Shape]:
    """Along each axis that is cut, the number of elements taken."""
    result = list(op.shape(0))
    for axis, start, end, step in slices(op):
        length = result[axis]
        if length is None or start is None or end is None:
            # A slice from the front to a negative or unknown bound still leaves it unknown.
            result[axis] = None
        else:
            result[axis] = slice_bounds(start, end, step, length)[1]
    return [tuple(result)]


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
    shape = op.shape(0)
    times = target_shape(op, 1)
    if len(times) != len(shape):
        raise UnknownError(
            f"operand 1 has {len(times)} repeats; one for each of {len(shape)} dimensions is expected"
        )
    pairs = zip(shape, times, strict=True)
    return [tuple(None if many is None else scaled(dim, many) for dim, many in pairs)]


def _pad(op: Operation) -> Sequence[Shape]:
    """Each length with what is put before and behind it."""
    shape = op.shape(0)
    pads: Data | None = op.attr_ints("pads") or op.attr_ints("paddings")
    if op.has(1):
        pads = op.input(1).data
        if pads is None:
            return [(None,) * len(shape)]
    if pads is None:
        raise UnknownError("neither the attribute 'pads' nor operand 1 is given")
    axes = op.ints(3) if op.has(3) else range(len(shape))
    if len(pads) != 2 * len(axes):
        raise UnknownError(f"{len(pads)} pads; two for each of {len(axes)} axes are expected")
    result = list(shape)
    for i, axis in enumerate(axes):
        at = axis_of(axis, len(shape))
        before, after = pads[i], pads[i + len(axes)]
        known = before is not None and after is not None
        result[at] = total((result[at], int(before or 0), int(after or 0))) if known else None
    return [tuple(result)]


def _blocks(op: Operation, *, spread: bool) -> Sequence[Shape]:
    """DepthToSpace spreads blocks of channels over height and width; SpaceToDepth gathers them."""
    batch, channels, height, width = op.dims(0, exactly=4)
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


def _moves(shapes: ShapesOf, fold: Fold, *, view: bool = False) -> Operator:
    """An operator whose result has elements of its first operand."""
    return free(shapes, T0, fold, MOVES, view)


TABLE: Final[dict[str, Operator]] = {
    "Reshape": _moves(_reshaped, folding.copied, view=True),
    "Flatten": _moves(_flatten, folding.copied, view=True),
    "Squeeze": _moves(_squeeze, folding.copied, view=True),
    "Unsqueeze": _moves(_unsqueeze, folding.copied, view=True),
    "Transpose": _moves(_transpose, folding.fold_transpose),
    "Concat": _moves(_concat, folding.fold_concat),
    "Split": _moves(_split, folding.fold_split),
    "Slice": _moves(_sliced, folding.fold_slice),
    "Gather": _moves(
        lambda op: [gathered(op.shape(0), op.shape(1), op.axis(0))], folding.fold_gather
    ),
    "Expand": _moves(
        lambda op: [broadcast((op.shape(0), target_shape(op, 1)))], folding.fold_expand
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
    "Range": free(_range, fold=folding.fold_range),
    "ConstantOfShape": free(
        lambda op: [target_shape(op, 0)],
        (lambda op: FLOAT[0](op) if (fill := op.attr_tensor("value")) is None else fill.dtype,),
        folding.fold_filled,
    ),
    "Shape": free(
        lambda op: [(len(folding.lengths(op)),)], INT64, lambda op, outputs: [folding.lengths(op)]
    ),
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
