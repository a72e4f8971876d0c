"""Operators that slide a window: convolutions and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.shapes.rule import agree
from otel_quant.cost.values import Shape


def window_count(
    length: int, kernel: int, stride: int, dilation: int, pads: int, ceil_mode: bool, before: int
) -> int:
    """Returns how many windows fit along one axis."""
    reach = dilation * (kernel - 1) + 1
    room = length + pads - reach
    if room < 0:
        raise UnknownError(
            f"a window of {reach} is longer than an axis of {length} with {pads} of padding"
        )
    if stride < 1:
        raise UnknownError(f"a stride of {stride}; 1 or more is expected")
    if not ceil_mode:
        return room // stride + 1
    count = -(-room // stride) + 1
    if (count - 1) * stride >= length + before:  # the last window would start in the padding
        count -= 1
    return count


def windows(op: Operation, spatial: Shape, kernel: Sequence[int | None], *, pool: bool) -> Shape:
    """Returns the lengths after sliding a window over ``spatial`` as the attributes say."""
    rank = len(spatial)
    if len(kernel) < rank:
        raise UnknownError(
            f"a kernel of {len(kernel)} dimensions on an input of {rank}; {rank} are expected"
        )
    strides = op.attr_ints("strides") or (1,) * rank
    dilations = op.attr_ints("dilations") or (1,) * rank
    pads = op.attr_ints("pads") or (0,) * (2 * rank)
    auto = op.attr_str("auto_pad", "NOTSET")
    ceil_mode = pool and op.attr("ceil_mode", 0) != 0
    result: list[int | None] = []
    for i in range(rank):
        length = spatial[i]
        size = kernel[i]
        if length is None or size is None:
            result.append(None)
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            result.append(-(-length // strides[i]))
        elif auto == "VALID":
            result.append(window_count(length, size, strides[i], dilations[i], 0, ceil_mode, 0))
        else:
            total = pads[i] + pads[i + rank]
            result.append(
                window_count(length, size, strides[i], dilations[i], total, ceil_mode, pads[i])
            )
    return tuple(result)


def _channels(op: Operation, filters: Shape) -> int | None:
    """Returns how many channels filters [M, C / group, ...] read."""
    return None if filters[1] is None else filters[1] * op.attr("group", 1)


def conv(x: int, w: int) -> Callable[[Operation], Sequence[Shape]]:
    """Convolution of operand ``x`` with filters ``w``."""

    def shapes(op: Operation) -> Sequence[Shape]:
        data = op.shape(x, 2)
        filters = op.shape(w, 2)
        agree("channels of input and weight", data[1], _channels(op, filters))
        kernel = op.attr_ints("kernel_shape") or filters[2:]
        return [(data[0], filters[0], *windows(op, data[2:], kernel, pool=False))]

    return shapes


def conv_nhwc(op: Operation) -> Sequence[Shape]:
    """Convolution of [N, H, W, C] with filters [M, C, kH, kW]."""
    data = op.shape(0, 1)
    filters = op.shape(1, 2)
    agree("channels of input and weight", data[-1], _channels(op, filters))
    kernel = op.attr_ints("kernel_shape") or filters[2:]
    return [(data[0], *windows(op, data[1:-1], kernel, pool=False), filters[0])]


def conv_transpose(op: Operation) -> Sequence[Shape]:
    """Transposed convolution: the length that a convolution would have taken to get here."""
    data = op.shape(0, 2)
    filters = op.shape(1, 2)
    agree("channels of input and weight", data[1], filters[0])
    rank = len(data) - 2
    channels = filters[1]
    if channels is None:
        raise UnknownError("the number of channels of the weight is not known")
    head = (data[0], channels * op.attr("group", 1))
    given = op.attr_ints("output_shape")
    if given:
        return [(*head, *given[-rank:])]
    kernel = op.attr_ints("kernel_shape") or filters[2:]
    strides = op.attr_ints("strides") or (1,) * rank
    dilations = op.attr_ints("dilations") or (1,) * rank
    extra = op.attr_ints("output_padding") or (0,) * rank
    pads = op.attr_ints("pads") or (0,) * (2 * rank)
    auto = op.attr_str("auto_pad", "NOTSET")
    result: list[int | None] = []
    for i in range(rank):
        length = data[2 + i]
        size = kernel[i]
        if length is None or size is None:
            result.append(None)
            continue
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            result.append(length * strides[i])
            continue
        total = 0 if auto == "VALID" else pads[i] + pads[i + rank]
        reach = dilations[i] * (size - 1) + 1
        result.append(strides[i] * (length - 1) + extra[i] + reach - total)
    return [(*head, *result)]


def window_lengths(op: Operation) -> tuple[int, ...]:
    """Returns the lengths of a pooling's window."""
    kernel = op.attr_ints("kernel_shape")
    if kernel is None:
        raise UnknownError("the attribute 'kernel_shape' is missing")
    return kernel


def pool(op: Operation) -> Sequence[Shape]:
    """Pooling; a second result has the indices."""
    data = op.shape(0)
    shape = (*data[:2], *windows(op, data[2:], window_lengths(op), pool=True))
    return [shape, shape]


def pool_nhwc(op: Operation) -> Sequence[Shape]:
    """Pooling of [N, ..., C]."""
    data = op.shape(0, 1)
    return [(data[0], *windows(op, data[1:-1], window_lengths(op), pool=True), data[-1])]


def global_pool(op: Operation) -> Sequence[Shape]:
    """One value per channel."""
    data = op.shape(0)
    return [(*data[:2], *(1,) * (len(data) - 2))]


def max_unpool(op: Operation) -> Sequence[Shape]:
    """MaxUnpool: the lengths before the pooling."""
    if op.has(2):
        return [op.ints(2)]
    data = op.shape(0)
    kernel = op.attr_ints("kernel_shape") or ()
    rank = len(data) - 2
    strides = op.attr_ints("strides") or (1,) * rank
    pads = op.attr_ints("pads") or (0,) * (2 * rank)
    lengths = tuple(
        None if length is None else (length - 1) * strides[i] - pads[i] - pads[i + rank] + kernel[i]
        for i, length in enumerate(data[2:])
    )
    return [(*data[:2], *lengths)]


def roi_align(op: Operation) -> Sequence[Shape]:
    """RoiAlign: one window per region."""
    return [
        (
            op.shape(1, 1)[0],
            op.shape(0, 2)[1],
            op.attr("output_height", 1),
            op.attr("output_width", 1),
        )
    ]


def max_roi_pool(op: Operation) -> Sequence[Shape]:
    """MaxRoiPool: one window per region."""
    return [(op.shape(1, 1)[0], op.shape(0, 2)[1], *(op.attr_ints("pooled_shape") or ()))]


def decoded(op: Operation) -> Sequence[Shape]:
    """ImageDecoder: height, width and channels."""
    return [(None, None, 1 if op.attr_str("pixel_format", "RGB") == "Grayscale" else 3)]
