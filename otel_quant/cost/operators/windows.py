"""Operators that slide a window, convolutions and pooling, or sample an image."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, prod
from typing import Final, TypeAlias

from otel_quant.cost.operation import Shape, TypedNode, UnknownError, axis_of, known
from otel_quant.cost.operators import rule
from otel_quant.cost.operators.rule import ADD, CMP, DIV, MUL, SQRT, T0, Formula, Rule, ShapesOf

_Slid: TypeAlias = tuple[int, int, int, int]


def _slid(op: TypedNode, rank: int) -> list[_Slid]:
    """Stride, dilation, and padding before and behind, of each axis."""
    strides = op.attr_list("strides", (1,) * rank)
    dilations = op.attr_list("dilations", (1,) * rank)
    pads = op.attr_list("pads", (0,) * (2 * rank))
    if op.attr_str("auto_pad", "NOTSET") == "VALID":
        pads = (0,) * (2 * rank)
    return [(strides[i], dilations[i], pads[i], pads[i + rank]) for i in range(rank)]


def _is_same(op: TypedNode) -> bool:
    """Whether the padding is whatever keeps the lengths, but for the strides."""
    return op.attr_str("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")


def _windows(op: TypedNode, spatial: Shape, kernel: Shape) -> Shape:
    """Returns how often a window fits along each axis, by the attributes."""
    slid = zip(spatial, kernel, _slid(op, len(spatial)), strict=True)
    return tuple(_fitting(op, *each) for each in slid)


def _fitting(op: TypedNode, length: int | None, size: int | None, slid: _Slid) -> int | None:
    """How often a window fits along one axis."""
    stride, dilation, before, behind = slid
    if length is None or size is None:
        return None
    if _is_same(op):
        return -(-length // stride)
    reach = dilation * (size - 1) + 1
    room = length + before + behind - reach
    if room < 0:
        axis = f"an axis of {length} with {before + behind} of padding"
        raise UnknownError(f"a window of {reach} is longer than {axis}")
    if not op.attr("ceil_mode", 0):  # with which the last window may reach beyond the end
        return room // stride + 1
    steps = -(-room // stride)
    in_padding = steps * stride >= length + before  # where none starts
    return steps + 1 - in_padding


def conv(w: int) -> ShapesOf:
    """Convolution with filters of operand ``w`` [M, C / group, ...]."""

    def shapes(op: TypedNode) -> Sequence[Shape]:
        data, filters = op.shape(0), op.shape(w)
        channels = rule.scaled(filters[1], op.attr("group", 1))
        rule.agree("channels of input and weight", data[1], channels)
        return [(data[0], filters[0], *_windows(op, data[2:], _kernel(op, filters)))]

    return shapes


def _kernel(op: TypedNode, filters: Shape) -> Shape:
    return op.attr_ints("kernel_shape") or filters[2:]


def conv_products(w: int) -> Formula:
    """Every result sums the products of one filter: |y| * |W[1:]|."""
    return lambda op: op.out_size() * prod(op.dims(w)[1:])


def _conv_tool(op: TypedNode) -> int:
    return op.out_size() * (prod(op.dims(1)[1:]) + (len(op.inputs) > 2))


def _conv_transpose(op: TypedNode) -> Sequence[Shape]:
    """The length that a convolution would have taken to get here."""
    data, filters = op.shape(0), op.shape(1)
    rule.agree("channels of input and weight", data[1], filters[0])
    rank = len(data) - 2
    head = (data[0], rule.scaled(filters[1], op.attr("group", 1)))
    given = op.attr_list("output_shape")
    if given:
        return [(*head, *given[-rank:])]
    kernel, extra = _kernel(op, filters), op.attr_list("output_padding", (0,) * rank)
    result: list[int | None] = []
    for i, (stride, dilation, before, behind) in enumerate(_slid(op, rank)):
        length, size = data[2 + i], kernel[i]
        if length is None or size is None:
            result.append(None)
        elif _is_same(op):
            result.append(length * stride)
        else:
            reach = dilation * (size - 1) + 1
            result.append(stride * (length - 1) + extra[i] + reach - before - behind)
    return [(*head, *result)]


def pool(op: TypedNode) -> Sequence[Shape]:
    """Pooling; a second result has the indices."""
    data, kernel = op.shape(0), op.attr_list("kernel_shape")
    return [(*data[:2], *_windows(op, data[2:], tuple(kernel)))] * 2


def global_pool(op: TypedNode) -> Sequence[Shape]:
    """One value per channel."""
    data = op.shape(0)
    return [(*data[:2], *(1,) * (len(data) - 2))]


def pool_macs(op: TypedNode) -> int:
    """As many MACs for each result as a window has elements."""
    return op.out_size() * prod(op.attr_list("kernel_shape"))


def _pool_tool(op: TypedNode) -> int:
    kernel = op.attr_list("kernel_shape", (3, 3))
    return rule.volume0(op.out()) * kernel[0] * (kernel[1] if len(kernel) == 2 else 1)


def _roi_align(op: TypedNode) -> int:
    """Four taps per sample; how many samples is only known from an attribute."""
    ratio = op.attr("sampling_ratio", 0)
    if ratio <= 0:
        raise UnknownError("the number of samples per window is left to the runtime")
    return (4 * MUL + ADD) * ratio**2 * op.out_size()


_TAPS: Final = {"nearest": 0, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}
_RESIZE: Final = {"nearest": 0, "linear": 4, "bilinear": 4, "cubic": 8}


def _grid_sample(op: TypedNode) -> int:
    """Taps per result: 2 or 4 along each sampled axis, none for nearest."""
    taps = op.attr_choice("mode", "linear", _TAPS)
    return taps ** (len(op.dims(0)) - 2) * op.out_size() if taps else 0


def _resize(op: TypedNode) -> Sequence[Shape]:
    """Resize and Upsample: lengths times scales, or sizes as given."""
    shape = op.shape(0)
    rank = len(shape)
    axes = tuple(axis_of(axis, rank) for axis in op.attr_list("axes", range(rank)))
    old = 0 < op.opset < 11 or op.kind == "Upsample"
    if not old and op.has(3) and op.input(3).shape != (0,):
        return [_resized_to(op, shape, axes, rule.target_shape(op, 3))]
    scales = op.floats(1 if old else 2)
    cropped = op.attr_str("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    region = op.floats(1) if cropped else (0.0,) * len(axes) + (1.0,) * len(axes)
    result = list(shape)
    for i, axis in enumerate(axes):
        length = shape[axis]
        if length is not None:
            taken = rule.single(length * rule.single(region[i + len(axes)] - region[i]))
            result[axis] = floor(rule.single(taken * rule.single(scales[i])))
    return [tuple(result)]


def _resized_to(op: TypedNode, shape: Shape, axes: tuple[int, ...], sizes: Shape) -> Shape:
    policy = op.attr_str("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        lengths = known([shape[axis] for axis in axes], "the operand", op.input(0).unknown)
        pairs = zip(known(sizes, "the result"), lengths, strict=True)
        scale = (min if policy == "not_larger" else max)(rule.single(to / of) for to, of in pairs)
        sizes = tuple(floor(rule.single(scale * length) + 0.5) for length in lengths)
    result = dict(enumerate(shape)) | dict(zip(axes, sizes, strict=True))
    return tuple(result.values())


_POOLED: Final = Rule("window size per result (onnx_tool: two axes at most)",
    pool, T0 + rule.INT64, rest=pool_macs, tool=_pool_tool)  # fmt: skip
_RESIZED: Final = Rule("nearest 0, linear 4, cubic 8 per result",
    _resize, T0, rest=lambda op: op.attr_choice("mode", "nearest", _RESIZE) * op.out_size())  # fmt: skip


def _global(words: str, per_element: int, per_result: int = 0) -> Rule:
    rest = rule.added(rule.per_input(per_element), rule.per_output(per_result))
    return Rule(words, global_pool, T0, rest=rest)


TABLE: Final[dict[str, Rule]] = {
    "Conv": Rule("|y|*|W[1:]|, +|y| with bias", conv(1), T0, conv_products(1), rule.present(2), _conv_tool),
    # Every input element is spread by its filters.
    "ConvTranspose": Rule("|x|*|W[1:]|, +|y| with bias (onnx_tool: |y|*|W[1:]|)", _conv_transpose, T0,
        lambda op: op.size(0) * prod(op.dims(1)[1:]), rule.present(2), _conv_tool),
    "DeformConv": Rule("|y|*|W[1:]| and bilinear sampling of each tap", conv(1), T0, conv_products(1),
        lambda op: 4 * op.out_size() // op.dims(1)[0] * prod(op.dims(1)[1:])),
    "ConvInteger": Rule("|y|*|W[1:]|", conv(1), rule.INT32, conv_products(1), precision=rule.Precision(zero_point=(1, 3))),
    "QLinearConv": Rule("|y|*|W[1:]|, +|y| with bias", conv(3), rule.like(7), conv_products(3), rule.present(8),
        precision=rule.Precision(operands=(0, 3), zero_point=(3, 5))),
    "MaxPool": _POOLED,
    "AveragePool": _POOLED,
    "LpPool": Rule("window size and a square root per result", pool, T0 + rule.INT64,
        rest=rule.added(pool_macs, rule.per_output(SQRT))),
    "GlobalAveragePool": _global("|x| + 4|y|", ADD, DIV),
    "GlobalMaxPool": _global("|x|", CMP),
    "GlobalLpPool": _global("|x| and a square root per result", MUL, SQRT),
    "RoiAlign": Rule("5 per sample of a result (onnx_tool: 0)",
        lambda op: [(op.shape(1)[0], op.shape(0)[1], op.attr("output_height", 1), op.attr("output_width", 1))], T0,
        rest=_roi_align, tool=rule.zero),
    "GridSample": Rule("2 or 4 taps per axis and result (onnx_tool: 0)",
        lambda op: [(*op.shape(0)[:2], *op.shape(1)[1:-1])], T0, rest=_grid_sample, tool=rule.zero),
    "Resize": _RESIZED,
    "Upsample": _RESIZED,
}  # fmt: skip
