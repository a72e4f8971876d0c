"""Operators that move, cut, join, repeat or pick elements: free, but for those that search."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Final

from otel_quant.cost.operation import Data, MisfitError, Operation, Shape, UnknownError, volume
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
    Types,
    agree,
    as_operands,
    axis_of,
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
    result: list[int | None] = []
    open_axes: list[int] = []
    for i, item in enumerate(target):
        if item is None or item == -1:
            open_axes.append(i)
            result.append(None)
        elif item == 0 and not op.attr("allowzero", 0):
            result.append(source[i])
            if source[i] is None:
                open_axes.append(i)
        else:
            result.append(item)
    size = volume(source)
    fixed = prod(dim for dim in result if dim is not None)
    if size is not None and not open_axes and fixed != size:
        raise MisfitError(f"{list(source)} cannot be reshaped to {result}: other element counts")
    if size is not None and len(open_axes) == 1 and fixed > 0:
        if size % fixed:
            raise MisfitError(
                f"{list(source)} cannot be reshaped to {result}: no length fits the open axis"
            )
        result[open_axes[0]] = size // fixed
    elif len(open_axes) == 1 and target[open_axes[0]] == -1 and fixed > 0:
        result[open_axes[0]] = _left_over(source, target, result)
    return [tuple(result)]


def _left_over(source: Shape, target: Shape, result: list[int | None]) -> int | None:
    """The length of a -1 where lengths that are not known are copied and so cancel out."""
    copied = {i for i, item in enumerate(target) if item == 0}
    if any(dim is None and i not in copied for i, dim in enumerate(source)):
        return None
    rest = prod(dim for i, dim in enumerate(source) if i not in copied and dim is not None)
    fixed = prod(dim for i, dim in enumerate(result) if i not in copied and dim is not None)
    return rest // fixed if fixed and rest % fixed == 0 else None


def _flatten(op: Operation) -> Sequence[Shape]:
    """The axes before ``axis`` and those from it on, each made one."""
    shape = op.shape(0)
    axis = op.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return [(volume(shape[:axis]), volume(shape[axis:]))]


def _squeeze(op: Operation) -> Sequence[Shape]:
    shape = op.shape(0)
    axes = axes_operand(op, 1)
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
    axes = axes_operand(op, 1)
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
    if not shapes:
        raise UnknownError("there are no operands; one or more are expected")
    rank = len(shapes[0])
    if any(len(shape) < rank for shape in shapes):
        raise UnknownError("the operands have different numbers of dimensions; one is expected")
    axis = axis_of(op.attr("axis", 1 if 0 < op.opset < 4 else 0), rank)
    result: list[int | None] = []
    for i in range(rank):
        column = [shape[i] for shape in shapes]
        if i == axis:
            result.append(total(column))
        else:
            agree(f"lengths of axis {i} of the operands", *column)
            result.append(next((dim for dim in column if dim is not None), None))
    return [tuple(result)]


def _split(op: Operation) -> Sequence[Shape]:
    """Parts of given lengths along ``axis``, or equal ones."""
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", 0), len(shape))
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


def _gather(op: Operation) -> Sequence[Shape]:
    """The indices' axes in the place of ``axis``."""
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", 0), len(shape))
    return [(*shape[:axis], *op.shape(1), *shape[axis + 1 :])]


def _gather_nd(op: Operation) -> Sequence[Shape]:
    """The length of the indices' last axis is the number of axes that they address."""
    data, indices = op.shape(0), op.shape(1)
    depth = indices[-1] if indices else None
    if depth is None:
        raise UnknownError("how many axes the indices address is not known", op.input(1).unknown)
    return [(*indices[:-1], *data[op.attr("batch_dims", 0) + depth :])]


def _expand(op: Operation) -> Sequence[Shape]:
    return [broadcast((op.shape(0), target_shape(op, 1)))]


def _tile(op: Operation) -> Sequence[Shape]:
    """Each length times its number of repeats."""
    shape = op.shape(0)
    if 0 < op.opset < 6:
        axis = op.int_(2)
        return [with_dim(shape, axis, scaled(shape[axis], op.int_(1)))]
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


def _compress(op: Operation) -> Sequence[Shape]:
    """As many elements as the condition selects."""
    taken = op.input(1).data
    count = None if taken is None or None in taken else sum(1 for item in taken if item)
    if op.attributes.get("axis") is None:
        return [(count,)]
    shape = op.shape(0)
    return [with_dim(shape, axis_of(op.attr("axis", 0), len(shape)), count)]


def _one_hot(op: Operation) -> Sequence[Shape]:
    """An axis of length ``depth`` put in."""
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", -1), len(shape) + 1)
    return [(*shape[:axis], first_of(op, 1), *shape[axis:])]


def _range(op: Operation) -> Sequence[Shape]:
    """As many elements as steps from start to limit."""
    try:
        start, limit, step = (op.floats(i)[0] for i in range(3))
    except UnknownError:
        return [(None,)]
    return [(max(0, ceil((limit - start) / step)),)]


def _filled_type(op: Operation) -> int:
    """ConstantOfShape: the type of its value, float32 if it has none."""
    tensor = op.attr_tensor("value")
    return 1 if tensor is None else tensor.dtype


def _shape_of(op: Operation) -> Sequence[Shape]:
    """One element per axis of the operand."""
    end = op.attr("end", 0) if "end" in op.attributes else None
    return [(len(op.shape(0)[op.attr("start", 0) : end]),)]


def _top_k(op: Operation) -> Sequence[Shape]:
    """``k`` along ``axis``, values and indices."""
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", -1), len(shape))
    return [with_dim(shape, axis, first_of(op, 1) if op.has(1) else op.attr("k", 0))] * 2


def _non_zero(op: Operation) -> Sequence[Shape]:
    """One row per axis; how many columns depends on the data."""
    return [(len(op.shape(0)), None)]


def _unique(op: Operation) -> Sequence[Shape]:
    """How many elements depends on the data."""
    shape = op.shape(0)
    if "axis" not in op.attributes:
        return [(None,), (None,), (volume(shape),), (None,)]
    axis = axis_of(op.attr("axis", 0), len(shape))
    return [with_dim(shape, axis, None), (None,), (shape[axis],), (None,)]


def _affine_grid(op: Operation) -> Sequence[Shape]:
    """One coordinate per axis for each position."""
    size = op.ints(1)
    return [(size[0], *size[2:], len(size) - 2)]


def _col2im(op: Operation) -> Sequence[Shape]:
    """Columns of blocks put together to an image."""
    batch, columns, _ = op.shape(0, exactly=3)
    block = prod(op.ints(2))
    return [(batch, None if columns is None else columns // block, *op.ints(1))]


def _center_crop_pad(op: Operation) -> Sequence[Shape]:
    """Lengths as given on the axes named."""
    result = list(op.shape(0))
    axes = op.attr_ints("axes") or range(len(result))
    for axis, size in zip(axes, target_shape(op, 1), strict=True):
        result[axis_of(axis, len(result))] = size
    return [tuple(result)]


def _tf_idf(op: Operation) -> Sequence[Shape]:
    """One column per n-gram index."""
    return [(*op.shape(0)[:-1], max(op.attr_ints("ngram_indexes") or (-1,)) + 1)]


def _moves(shapes: ShapesOf, fold: Fold, types: Types = T0, *, view: bool = False) -> Operator:
    """An operator whose result has elements of its first operand."""
    return free(shapes, types, fold, MOVES, view)


TABLE: Final[dict[str, Operator]] = {
    "Reshape": _moves(_reshaped, folding.fold_copy, view=True),
    "Flatten": _moves(_flatten, folding.fold_copy, view=True),
    "Squeeze": _moves(_squeeze, folding.fold_copy, view=True),
    "Unsqueeze": _moves(_unsqueeze, folding.fold_copy, view=True),
    "Transpose": _moves(_transpose, folding.fold_transpose),
    "Concat": _moves(_concat, folding.fold_concat),
    "Split": _moves(_split, folding.fold_split),
    "Slice": _moves(_sliced, folding.fold_slice),
    "Gather": _moves(_gather, folding.fold_gather),
    "Expand": _moves(_expand, folding.fold_expand),
    "Tile": free(_tile, fold=folding.fold_tile),
    "GatherElements": free(as_operands(1)),
    "GatherND": free(_gather_nd),
    "Pad": free(_pad),
    "DepthToSpace": free(lambda op: _blocks(op, spread=True)),
    "SpaceToDepth": free(lambda op: _blocks(op, spread=False)),
    "Compress": free(_compress),
    "OneHot": free(_one_hot, like(2)),
    "Range": free(_range, fold=folding.fold_range),
    "ConstantOfShape": free(lambda op: [target_shape(op, 0)], (_filled_type,), folding.fold_filled),
    "Shape": free(_shape_of, INT64, folding.fold_shape),
    "Size": free(lambda op: [()], INT64, folding.fold_size),
    "NonZero": free(_non_zero, INT64),
    "AffineGrid": free(_affine_grid),
    "Col2Im": free(_col2im),
    "CenterCropPad": free(_center_crop_pad),
    "TopK": Operator(
        "|x| comparisons at least (onnx_tool: 0)",
        _top_k,
        T0 + INT64,
        rest=per_input(CMP),
        tool=zero,
    ),
    "Unique": not_costed("how it searches is left to the runtime", _unique, T0 + INT64),
    "NonMaxSuppression": not_costed(
        "the number of boxes compared is data (onnx_tool: 0)",
        lambda op: [(None, 3)],
        INT64,
        tool=zero,
    ),
    "TfIdfVectorizer": not_costed("depends on the length of texts", _tf_idf, FLOAT),
}
