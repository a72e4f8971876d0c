"""Operators that move, cut, join or repeat elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, prod
from struct import pack, unpack
from typing import Final

from otel_quant.cost.operation import MisfitError, Operation, UnknownError, known
from otel_quant.cost.shapes.rule import (
    agree,
    axis_of,
    broadcast,
    with_dim,
)
from otel_quant.cost.values import Data, Shape, volume

_MAX_TARGET: Final = 64
"""Dimensions that a shape given as a tensor may have."""


def axes_operand(op: Operation, i: int) -> tuple[int, ...] | None:
    """Returns axes, an attribute in old operator sets and operand ``i`` in new ones."""
    if op.has(i):
        return op.ints(i)
    return op.attr_ints("axes")


def _target(op: Operation, i: int) -> Data:
    """Returns a shape given as a tensor; if only its length is known, that many unknowns."""
    data = op.input(i).data
    if data is not None:
        return data
    shape = op.dims(i)
    if len(shape) != 1 or shape[0] > _MAX_TARGET:
        raise UnknownError(
            f"operand {i} has shape {list(shape)}; one axis of at most {_MAX_TARGET} is expected"
        )
    (length,) = shape
    return (None,) * length


def reshaped(op: Operation) -> Sequence[Shape]:
    """Reshape: 0 copies a length, -1 takes what is left."""
    source = op.shape(0)
    attribute = op.attr_ints("shape")
    target: Data = attribute if attribute is not None else _target(op, 1)
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
            result.append(int(item))
    total = volume(source)
    fixed = prod(dim for dim in result if dim is not None)
    if total is not None and not open_axes and fixed != total:
        raise MisfitError(f"{list(source)} cannot be reshaped to {result}: other element counts")
    if total is not None and len(open_axes) == 1 and fixed > 0:
        if total % fixed:
            raise MisfitError(
                f"{list(source)} cannot be reshaped to {result}: no length fits the open axis"
            )
        result[open_axes[0]] = total // fixed
    elif len(open_axes) == 1 and target[open_axes[0]] == -1 and fixed > 0:
        result[open_axes[0]] = _left_over(source, target, result)
    return [tuple(result)]


def _left_over(source: Shape, target: Data, result: list[int | None]) -> int | None:
    """The length of a -1 where lengths that are not known are copied and so cancel out."""
    copied = {i for i, item in enumerate(target) if item == 0}
    if any(dim is None and i not in copied for i, dim in enumerate(source)):
        return None
    rest = prod(dim for i, dim in enumerate(source) if i not in copied and dim is not None)
    fixed = prod(dim for i, dim in enumerate(result) if i not in copied and dim is not None)
    return rest // fixed if fixed and rest % fixed == 0 else None


def flatten(op: Operation) -> Sequence[Shape]:
    """Flatten: the axes before ``axis`` and those from it on, each made one."""
    shape = op.shape(0)
    axis = op.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return [(volume(shape[:axis]), volume(shape[axis:]))]


def squeeze(op: Operation) -> Sequence[Shape]:
    """Squeeze: axes of length 1 left out."""
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


def unsqueeze(op: Operation) -> Sequence[Shape]:
    """Unsqueeze: axes of length 1 put in."""
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


def transpose(op: Operation) -> Sequence[Shape]:
    """Transpose: axes in another order, reversed unless ``perm`` gives one."""
    shape = op.shape(0)
    order = op.attr_ints("perm")
    if order is None:
        return [shape[::-1]]
    if len(order) != len(shape):
        raise UnknownError(
            f"attribute 'perm' has {len(order)} axes; all {len(shape)} of operand 0 are expected"
        )
    return [tuple(shape[axis] for axis in order)]


def concat(op: Operation) -> Sequence[Shape]:
    """Concat: lengths along ``axis`` added, all others equal."""
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
            lengths = [dim for dim in column if dim is not None]
            result.append(sum(lengths) if len(lengths) == len(column) else None)
        else:
            agree(f"lengths of axis {i} of the operands", *column)
            result.append(next((dim for dim in column if dim is not None), None))
    return [tuple(result)]


def split(op: Operation) -> Sequence[Shape]:
    """Split: parts of given lengths along ``axis``, or equal ones."""
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", 0), len(shape))
    parts: Sequence[int | float | None] | None = op.attr_ints("split")
    if op.has(1):
        parts = op.input(1).data or (None,) * len(op.node.outputs)
    if parts is None:
        count = len(op.node.outputs)
        length = shape[axis]
        if length is None:
            parts = (None,) * len(op.node.outputs)
        else:
            size = ceil(length / count)
            parts_made = min(count, len(op.node.outputs))
            parts = [min(size, max(0, length - size * i)) for i in range(parts_made)]
    return [with_dim(shape, axis, None if part is None else int(part)) for part in parts]


def slice_bounds(start: int, end: int, step: int, length: int) -> tuple[int, int]:
    """Returns where a slice of an axis starts and how many elements it takes."""
    if step == 0:
        raise UnknownError("a slice has a step of 0; any other step is expected")
    indices = range(length)[slice(*_clamped(start, end, step, length))]
    return (indices[0] if len(indices) else 0), len(indices)


def _clamped(start: int, end: int, step: int, length: int) -> tuple[int, int | None, int]:
    """ONNX's slice bounds as Python's: beyond the axis means its end, on either side."""
    low, high = (0, length) if step > 0 else (-1, length - 1)
    start = start + length if start < 0 else start
    end = end + length if end < 0 else end
    start = min(max(start, 0), high)
    end = min(max(end, low), length)
    return start, (None if end < 0 else end), step


def slices(op: Operation) -> list[tuple[int, int | None, int | None, int]]:
    """Returns (axis, start, end, step) of every axis cut; None for a bound not known."""
    rank = len(op.shape(0))
    steps: Data | None = None
    axes: Sequence[int] | None
    if op.has(1):
        starts, ends = _target(op, 1), _target(op, 2)
        axes = op.ints(3) if op.has(3) else None
        steps = op.ints(4) if op.has(4) else None
    else:
        starts, ends = op.attr_ints("starts") or (), op.attr_ints("ends") or ()
        axes = op.attr_ints("axes")
    if axes is None:
        axes = range(len(starts))
    return [
        (
            axis_of(axis, rank),
            _whole(starts[i]),
            _whole(ends[i]),
            int(steps[i] or 0) if steps is not None else 1,
        )
        for i, axis in enumerate(axes)
    ]


def _whole(item: int | float | None) -> int | None:
    return None if item is None else int(item)


def sliced(op: Operation) -> Sequence[Shape]:
    """Slice: along each axis that is cut, the number of elements taken."""
    result = list(op.shape(0))
    for axis, start, end, step in slices(op):
        length = result[axis]
        if length is None or start is None or end is None:
            # A slice from the front to a negative or unknown bound still leaves it unknown.
            result[axis] = None
        else:
            result[axis] = slice_bounds(start, end, step, length)[1]
    return [tuple(result)]


def gather(op: Operation) -> Sequence[Shape]:
    """Gather: the indices' axes in the place of ``axis``."""
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", 0), len(shape))
    return [(*shape[:axis], *op.shape(1), *shape[axis + 1 :])]


def gather_nd(op: Operation) -> Sequence[Shape]:
    """GatherND: the length of the indices' last axis is the number of axes that they address."""
    data, indices = op.shape(0), op.shape(1)
    batch = op.attr("batch_dims", 0)
    depth = indices[-1] if indices else None
    if depth is None:
        raise UnknownError("how many axes the indices address is not known", op.input(1).unknown)
    return [(*indices[:-1], *data[batch + depth :])]


def expand(op: Operation) -> Sequence[Shape]:
    """Expand: broadcast to a shape given as a tensor."""
    target = tuple(None if item is None else int(item) for item in _target(op, 1))
    return [broadcast((op.shape(0), target))]


def tile(op: Operation) -> Sequence[Shape]:
    """Tile: each length times its number of repeats."""
    shape = op.shape(0)
    if 0 < op.opset < 6:
        axis = op.int_(2)
        length = shape[axis]
        return [with_dim(shape, axis, None if length is None else length * op.int_(1))]
    times = _target(op, 1)
    if len(times) != len(shape):
        raise UnknownError(
            f"operand 1 has {len(times)} repeats; one for each of {len(shape)} dimensions is expected"
        )
    return [
        tuple(
            None if dim is None or many is None else dim * int(many)
            for dim, many in zip(shape, times, strict=True)
        )
    ]


def pad(op: Operation) -> Sequence[Shape]:
    """Pad: each length with what is put before and behind it."""
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
        length, before, after = result[at], pads[i], pads[i + len(axes)]
        if length is None or before is None or after is None:
            result[at] = None
        else:
            result[at] = length + int(before) + int(after)
    return [tuple(result)]


def depth_to_space(op: Operation) -> Sequence[Shape]:
    """DepthToSpace: blocks of channels spread over height and width."""
    batch, channels, height, width = op.dims(0, exactly=4)
    block = op.attr("blocksize", 1)
    return [(batch, channels // block**2, height * block, width * block)]


def space_to_depth(op: Operation) -> Sequence[Shape]:
    """SpaceToDepth: blocks of height and width gathered in channels."""
    batch, channels, height, width = op.dims(0, exactly=4)
    block = op.attr("blocksize", 1)
    return [(batch, channels * block**2, height // block, width // block)]


def single(value: float) -> float:
    """Returns the value rounded to float32, in which runtimes scale lengths."""
    rounded: float = unpack("<f", pack("<f", value))[0]
    return rounded


def half(value: float) -> float:
    """Returns the value rounded to float16."""
    rounded: float = unpack("<e", pack("<e", value))[0]
    return rounded


def resize(op: Operation) -> Sequence[Shape]:
    """Resize and Upsample: lengths times scales, or sizes as given."""
    shape = op.shape(0)
    rank = len(shape)
    axes = op.attr_ints("axes") or tuple(range(rank))
    axes = tuple(axis_of(axis, rank) for axis in axes)
    old = 0 < op.opset < 11 or op.kind == "Upsample"
    scales_at = 1 if old else 2
    if not old and op.has(3) and op.input(3).shape != (0,):
        return [_resized_to(op, shape, axes, _target(op, 3))]
    scales = op.attr_floats("scales")
    if scales is None:
        scales = op.floats(scales_at)
    crop = op.attr_str("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    region = op.floats(1) if crop else ()
    result = list(shape)
    for i, axis in enumerate(axes):
        length = result[axis]
        if length is None:
            continue
        if crop:
            length_cut = single(length * single(region[i + len(axes)] - region[i]))
            result[axis] = floor(single(length_cut * scales[i]))
        else:
            result[axis] = floor(single(length * single(scales[i])))
    return [tuple(result)]


def _resized_to(op: Operation, shape: Shape, axes: tuple[int, ...], sizes: Data) -> Shape:
    policy = op.attr_str("keep_aspect_ratio_policy", "stretch")
    result = list(shape)
    if policy == "stretch":
        for i, axis in enumerate(axes):
            size = sizes[i]
            result[axis] = None if size is None else int(size)
        return tuple(result)
    lengths = known([shape[axis] for axis in axes], "the operand", op.input(0).unknown)
    lengths_after = known([None if size is None else int(size) for size in sizes], "the result")
    ratios = [single(size / length) for size, length in zip(lengths_after, lengths, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    for axis, length in zip(axes, lengths, strict=True):
        result[axis] = floor(single(scale * length) + 0.5)
    return tuple(result)


def compress(op: Operation) -> Sequence[Shape]:
    """Compress: as many elements as the condition selects."""
    axis = op.attributes.get("axis")
    taken = op.input(1).data
    count = None if taken is None or None in taken else sum(1 for item in taken if item)
    if axis is None:
        return [(count,)]
    shape = op.shape(0)
    return [with_dim(shape, axis_of(op.attr("axis", 0), len(shape)), count)]


def one_hot(op: Operation) -> Sequence[Shape]:
    """OneHot: an axis of length ``depth`` put in."""
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", -1), len(shape) + 1)
    depth = op.input(1).data
    length = None if not depth or depth[0] is None else int(depth[0])
    return [(*shape[:axis], length, *shape[axis:])]


def range_length(op: Operation) -> Sequence[Shape]:
    """Range: as many elements as steps from start to limit."""
    try:
        start, limit, step = (op.floats(i)[0] for i in range(3))
    except UnknownError:
        return [(None,)]
    return [(max(0, ceil((limit - start) / step)),)]


def constant_of_shape(op: Operation) -> Sequence[Shape]:
    """ConstantOfShape: a shape given as a tensor."""
    return [tuple(None if item is None else int(item) for item in _target(op, 0))]


def filled_type(op: Operation) -> int:
    """ConstantOfShape: the type of its value, float32 if it has none."""
    tensor = op.attr_tensor("value")
    return 1 if tensor is None else tensor.dtype


def shape_of(op: Operation) -> Sequence[Shape]:
    """Shape: one element per axis of the operand."""
    return [(len(op.shape(0)[slice(op.attr("start", 0), _end(op))]),)]


def _end(op: Operation) -> int | None:
    return op.attr("end", 0) if "end" in op.attributes else None


def top_k(op: Operation) -> Sequence[Shape]:
    """TopK: ``k`` along ``axis``, values and indices."""
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", -1), len(shape))
    if op.has(1):
        data = op.input(1).data
        count = None if not data or data[0] is None else int(data[0])
    else:
        count = op.attr("k", 0)
    return [with_dim(shape, axis, count)] * 2


def non_zero(op: Operation) -> Sequence[Shape]:
    """NonZero: one row per axis; how many columns depends on the data."""
    rank = len(op.shape(0))
    return [(max(rank, 1) if rank else 0, None)]


def unique(op: Operation) -> Sequence[Shape]:
    """Unique: how many elements depends on the data."""
    if "axis" not in op.attributes:
        return [(None,), (None,), (volume(op.shape(0)),), (None,)]
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", 0), len(shape))
    return [with_dim(shape, axis, None), (None,), (shape[axis],), (None,)]


def grid_sample(op: Operation) -> Sequence[Shape]:
    """GridSample: batch and channels of the data, the grid's lengths."""
    return [(*op.shape(0)[:2], *op.shape(1)[1:-1])]


def affine_grid(op: Operation) -> Sequence[Shape]:
    """AffineGrid: one coordinate per axis for each position."""
    size = op.ints(1)
    return [(size[0], *size[2:], len(size) - 2)]


def col2im(op: Operation) -> Sequence[Shape]:
    """Col2Im: columns of blocks put together to an image."""
    batch, columns, _ = op.shape(0, exactly=3)
    block = prod(op.ints(2))
    return [(batch, None if columns is None else columns // block, *op.ints(1))]


def center_crop_pad(op: Operation) -> Sequence[Shape]:
    """CenterCropPad: lengths as given on the axes named."""
    shape = op.shape(0)
    axes = op.attr_ints("axes") or tuple(range(len(shape)))
    result = list(shape)
    for axis, size in zip(axes, _target(op, 1), strict=True):
        result[axis_of(axis, len(shape))] = None if size is None else int(size)
    return [tuple(result)]


def tf_idf(op: Operation) -> Sequence[Shape]:
    """TfIdfVectorizer: one column per n-gram index."""
    return [(*op.shape(0)[:-1], max(op.attr_ints("ngram_indexes") or (-1,)) + 1)]
