"""Operators that work element by element, alone or broadcast."""

from __future__ import annotations

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation
from otel_quant.cost.shapes.rule import (
    agree,
    axis_of,
    broadcast_all,
)


def old_axis_broadcast(op: Operation) -> tuple[tuple[int | None, ...], ...]:
    """Before version 7 the second operand was aligned by an attribute and never grew the first."""
    if 0 < op.opset < 7 and op.attr("broadcast", 0):
        return (op.shape(0),)
    return tuple(broadcast_all(op))


def prelu(op: Operation) -> list[tuple[int | None, ...]]:
    """Before version 7 a slope per channel was not aligned as a broadcast is."""
    if 0 < op.opset < 7:
        return [op.shape(0)]
    return list(broadcast_all(op))


def layer_normalization(op: Operation) -> list[tuple[int | None, ...]]:
    """LayerNormalization: mean and inverse deviation keep the axes before ``axis``."""
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", -1), len(shape))
    row = (*shape[:axis], *(1,) * (len(shape) - axis))
    return [shape, row, row]


def stash_type(op: Operation) -> int:
    """LayerNormalization: the type in which mean and deviation are kept."""
    return op.attr("stash_type", 1)


def batch_normalization(op: Operation) -> list[tuple[int | None, ...]]:
    """BatchNormalization: the data's shape, then one value per channel."""
    data, channels = op.shape(0), op.shape(1)
    if len(data) > 1:
        agree("channels of input and scale", data[1], channels[0])
    return [data, channels, channels, channels, channels]


def named_or_same(op: Operation) -> int:
    """The type that ``dtype`` names, else the operand's."""
    return op.attr("dtype", 0) or op.dtype(0)


def cast_to(op: Operation) -> int:
    """Cast: the type that ``to`` names."""
    return op.attr("to", 0)


def dequantized_type(op: Operation) -> int:
    """DequantizeLinear's result: the scale's type unless an attribute says otherwise."""
    return op.attr("output_dtype", 0) or op.dtype(1)


def quantized_type(op: Operation) -> int:
    """QuantizeLinear's result: the zero point's type, an attribute's, or uint8."""
    if op.has(2):
        return op.dtype(2)
    return op.attr("output_dtype", 0) or dtypes.UINT8


def dropout(op: Operation) -> list[tuple[int | None, ...]]:
    """Dropout: data and mask."""
    return [op.shape(0), op.shape(0)]


def dropout_mask_type(op: Operation) -> int:
    """The mask became bool in version 10; before, it had the data's type."""
    return dtypes.BOOL if op.opset >= 10 or op.opset == 0 else op.dtype(0)


def kept_words(op: Operation) -> list[tuple[int | None, ...]]:
    """StringNormalizer: how many words are left after some are taken out is data."""
    shape = op.shape(0, 1)
    return [(*shape[:-1], None) if op.attributes.get("stopwords") else shape]
