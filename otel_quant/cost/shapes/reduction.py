"""Operators that reduce axes, and those of signal processing."""

from __future__ import annotations

from collections.abc import Sequence

from otel_quant.cost.operation import Operation
from otel_quant.cost.shapes.layout import axes_operand
from otel_quant.cost.shapes.rule import axis_of, with_dim
from otel_quant.cost.values import Shape


def reduce(op: Operation) -> Sequence[Shape]:
    """Reduction over ``axes``; over all of them where none are named."""
    shape = op.shape(0)
    axes = axes_operand(op, 1)
    keep = op.attr("keepdims", 1)
    if not axes and op.attr("noop_with_empty_axes", 0):
        return [shape]
    gone = {axis_of(axis, len(shape)) for axis in axes} if axes else set(range(len(shape)))
    if keep:
        return [tuple(1 if i in gone else dim for i, dim in enumerate(shape))]
    return [tuple(dim for i, dim in enumerate(shape) if i not in gone)]


def arg(op: Operation) -> Sequence[Shape]:
    """ArgMax and ArgMin: one axis reduced."""
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", 0), len(shape))
    if op.attr("keepdims", 1):
        return [with_dim(shape, axis, 1)]
    return [(*shape[:axis], *shape[axis + 1 :])]


def dft(op: Operation) -> Sequence[Shape]:
    """DFT: a last axis of real and imaginary part; half of the bins if one-sided."""
    shape = op.shape(0)
    axis = op.attr("axis", 1)
    if op.opset >= 20:
        axis = op.int_(2) if op.has(2) else -2
    axis = axis_of(axis, len(shape))
    length = op.int_(1) if op.has(1) else shape[axis]
    if length is not None and op.attr("onesided", 0):
        inverse = op.attr("inverse", 0)
        if inverse:
            length = length if op.has(1) else 2 * (length - 1)
            return [(*with_dim(shape, axis, length)[:-1], 1)]
        length = length // 2 + 1
    return [(*with_dim(shape, axis, length)[:-1], 2)]


def stft(op: Operation) -> Sequence[Shape]:
    """STFT: frames, bins, real and imaginary part."""
    signal = op.shape(0)
    step = op.int_(1)
    frame = op.int_(3) if op.has(3) else op.shape(2)[0]
    length = signal[1]
    if length is None or frame is None:
        return [(signal[0], None, None, 2)]
    bins = frame // 2 + 1 if op.attr("onesided", 1) else frame
    return [(signal[0], (length - frame) // step + 1, bins, 2)]


def mel(op: Operation) -> Sequence[Shape]:
    """MelWeightMatrix: bins of the spectrum by bands."""
    return [(op.int_(1) // 2 + 1, op.int_(0))]
