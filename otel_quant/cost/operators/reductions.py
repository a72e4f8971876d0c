"""Operators that reduce axes or normalize along them, those of signal processing, and losses."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from otel_quant.cost.operation import Operation, Shape, axis_of
from otel_quant.cost.operators.folding import fold_reduce, reduced_axes
from otel_quant.cost.operators.record import (
    ADD,
    CMP,
    DIV,
    EXP,
    FLOAT,
    INT64,
    LOG,
    MUL,
    ROW,
    SIN,
    SQRT,
    T0,
    Fold,
    Formula,
    Operator,
    added,
    agree,
    elementwise,
    like,
    named,
    per_input,
    per_input0,
    per_output,
    per_output0,
    same,
    volume0,
    with_dim,
    zero,
)


def without_axes(shape: Shape, gone: set[int], keep: int) -> Shape:
    """Returns a shape whose reduced axes are left out, or kept with length 1."""
    if keep:
        return tuple(1 if i in gone else dim for i, dim in enumerate(shape))
    return tuple(dim for i, dim in enumerate(shape) if i not in gone)


def _reduced(op: Operation) -> Sequence[Shape]:
    shape = op.shape(0)
    return [without_axes(shape, reduced_axes(op, len(shape)), op.attr("keepdims", 1))]


def _arg(op: Operation) -> Sequence[Shape]:
    """One axis reduced."""
    shape = op.shape(0)
    axis = op.axis(0)
    return [without_axes(shape, {axis}, op.attr("keepdims", 1))]


def _reduction(
    words: str, per_element: int, per_result: int = 0, *, tool: int = 0, fold: Fold | None = None
) -> Operator:
    rest = added(per_input(per_element), per_output(per_result))
    tools = per_input0(tool or per_element)
    return Operator(words, _reduced, T0, rest=rest, tool=tools, fold=fold)


def _rows(op: Operation) -> int:
    shape = op.dims(0)
    axis = op.attr("axis", -1)
    return prod(shape[: axis + len(shape) if axis < 0 else axis])


def normalized(per_element: int, rows: Formula) -> Formula:
    """Some MACs per element, and a square root with its reciprocal per row."""
    return lambda op: per_element * op.size(0) + ROW * rows(op)


def _layer_tool(op: Operation) -> int:
    shape = op.dims(0)
    return 7 * volume0(shape) + ROW * (volume0(shape) // shape[op.attr("axis", -1)])


def _lp_normalization(op: Operation) -> int:
    shape = op.dims(0, 1)
    return (MUL + DIV) * prod(shape) + SQRT * (prod(shape) // max(1, shape[op.attr("axis", -1)]))


def _batch(op: Operation) -> Sequence[Shape]:
    """The data's shape, then one value per channel."""
    data, channels = op.shape(0), op.shape(1)
    if len(data) > 1:
        agree("channels of input and scale", data[1], channels[0])
    return [data, channels, channels, channels, channels]


def _layer(op: Operation) -> Sequence[Shape]:
    """Mean and inverse deviation keep the axes before ``axis``."""
    shape = op.shape(0)
    axis = op.axis(-1)
    row = (*shape[:axis], *(1,) * (len(shape) - axis))
    return [shape, row, row]


_LAYER_TYPES: Final = (*T0, lambda op: op.attr("stash_type", 1))  # of mean and deviation


def _fourier(op: Operation) -> int:
    """Fast Fourier transform: n/2 * log2 n butterflies of four MACs."""
    shape = op.dims(0)
    length = shape[op.attr("axis", 1) if op.opset < 20 else -2]
    lines = prod(shape[:-1]) // max(1, length)
    return 2 * length * max(1, length - 1).bit_length() * lines


def _dft(op: Operation) -> Sequence[Shape]:
    """A last axis of real and imaginary part; half of the bins if one-sided."""
    shape = op.shape(0)
    axis = op.attr("axis", 1)
    if op.opset >= 20:
        axis = op.int_(2) if op.has(2) else -2
    axis = axis_of(axis, len(shape))
    length = op.int_(1) if op.has(1) else shape[axis]
    parts = 2
    if length is not None and op.attr("onesided", 0):
        if op.attr("inverse", 0):
            length, parts = length if op.has(1) else 2 * (length - 1), 1
        else:
            length = length // 2 + 1
    return [(*with_dim(shape, axis, length)[:-1], parts)]


def _stft(op: Operation) -> Sequence[Shape]:
    """Frames, bins, real and imaginary part."""
    signal, step = op.shape(0), op.int_(1)
    frame = op.int_(3) if op.has(3) else op.shape(2)[0]
    length = signal[1]
    if length is None or frame is None:
        return [(signal[0], None, None, 2)]
    bins = frame // 2 + 1 if op.attr("onesided", 1) else frame
    return [(signal[0], (length - frame) // step + 1, bins, 2)]


def _short_fourier(op: Operation) -> int:
    """A Fourier transform for each frame, and its product with the window."""
    length = op.int_(3) if op.has(3) else op.dims(2)[0]
    window = MUL if op.has(2) else 0
    return prod(op.out()[:2]) * length * (2 * max(1, length - 1).bit_length() + window)


def _mel(op: Operation) -> int:
    """The bounds of the bands, and the slopes of each element."""
    return (op.int_(0) + 2) * (EXP + 2 * MUL + DIV + ADD) + 2 * LOG + (ADD + DIV) * op.out_size()


def _loss(op: Operation) -> tuple[int | None, ...]:
    return op.shape(1) if op.attr_str("reduction", "mean") == "none" else ()


_WINDOW_TYPE: Final = named("output_datatype", FLOAT)


def _window(words: str, macs: int) -> Operator:
    return elementwise(macs, lambda op: [(op.int_(0),)], _WINDOW_TYPE, words=words)


_ARG: Final = Operator(
    "|x| comparisons (onnx_tool: 0)", _arg, INT64, rest=per_input(CMP), tool=zero
)

TABLE: Final[dict[str, Operator]] = {
    "ReduceMean": _reduction("|x| + 4|y| (onnx_tool: |x|)", ADD, DIV),
    "ReduceSum": _reduction("|x|", ADD, fold=fold_reduce(sum)),
    "ReduceProd": _reduction("|x|", MUL, fold=fold_reduce(prod)),
    "ReduceMax": _reduction("|x|", CMP, fold=fold_reduce(max)),
    "ReduceMin": _reduction("|x|", CMP, fold=fold_reduce(min)),
    "ReduceL1": _reduction("2|x|", CMP + ADD),
    "ReduceL2": _reduction("|x| + 24|y| (onnx_tool: 25|x|)", MUL, SQRT, tool=ADD + SQRT),
    "ReduceSumSquare": _reduction("|x|", MUL),
    "ReduceLogSum": _reduction("|x| + 43|y|", ADD, LOG),
    "ReduceLogSumExp": _reduction("33|x| + 43|y|", EXP + ADD, LOG),
    "ArgMax": _ARG,
    "ArgMin": _ARG,
    "BatchNormalization": Operator(
        "3 per element, 28 per channel (onnx_tool: 31 per element)",
        _batch,
        T0 + like(3),
        # Shift, scale, shift per element; the square root and the reciprocal once per channel.
        rest=lambda op: 3 * op.out_size() + (SQRT + DIV) * op.size(1),
        tool=per_output0(2 * ADD + SQRT + DIV + MUL),
    ),
    "InstanceNormalization": same(
        "7 per element, 29 per channel (onnx_tool: 7 per element)",
        normalized(7, lambda op: prod(op.dims(0)[:2])),
        per_output0(7),
    ),
    "GroupNormalization": same(
        "7 per element, 29 per group",
        normalized(7, lambda op: op.dims(0, 1)[0] * op.attr("num_groups", 1)),
    ),
    "LayerNormalization": Operator(
        "7 per element, 29 per row (onnx_tool: rows of one axis)",
        _layer,
        _LAYER_TYPES,
        rest=normalized(7, _rows),
        tool=_layer_tool,
    ),
    "RMSNormalization": same("3 per element, 29 per row", normalized(3, _rows)),
    "SimplifiedLayerNormalization": Operator(
        "3 per element, 29 per row", _layer, _LAYER_TYPES, rest=normalized(3, _rows)
    ),
    "MeanVarianceNormalization": same(
        "5 per element, 29 per channel", normalized(5, lambda op: op.dims(0, 2)[1])
    ),
    "LpNormalization": same(
        "5 per element, a square root per row (onnx_tool: 33 per element)",
        _lp_normalization,
        per_output0(EXP + ADD),
    ),
    "LRN": same(
        "37 + size per element", lambda op: (DIV + EXP + ADD + op.attr("size", 1)) * op.out_size()
    ),
    "NegativeLogLikelihoodLoss": Operator(
        "|target|", lambda op: [_loss(op)], T0, rest=per_input(2, 1)
    ),
    "SoftmaxCrossEntropyLoss": Operator(
        "LogSoftmax and |target|",
        lambda op: [_loss(op), op.shape(0)],
        T0,
        rest=added(per_input(80), per_input(2, 1)),
    ),
    "DFT": Operator("2 n log2 n per line", _dft, T0, rest=_fourier),
    "STFT": Operator("2 n log2 n per frame of length n; window", _stft, T0, rest=_short_fourier),
    "MelWeightMatrix": Operator(
        "39 per band, 5 per result, two logarithms",
        lambda op: [(op.int_(1) // 2 + 1, op.int_(0))],
        _WINDOW_TYPE,
        rest=_mel,
    ),
    "HannWindow": _window("cosine", SIN + 3),
    "HammingWindow": _window("cosine", SIN + 3),
    "BlackmanWindow": _window("two cosines", 2 * SIN + 6),
}
