"""Operators that work element by element, alone or broadcast."""

from __future__ import annotations

from typing import Final

from otel_quant.cost.operation import Operation
from otel_quant.cost.shapes.rule import (
    BOOL,
    FLOAT,
    SAME,
    T0,
    T1,
    ShapeRule,
    agree,
    always,
    axis_of,
    broadcast_all,
    like,
    named,
    same_shape,
)

_UNARY: Final = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Bernoulli BitwiseNot Ceil Celu Clip Cos Cosh CumProd "
    "CumSum Elu Erf Exp Floor Gelu GroupNormalization HardSigmoid HardSwish Hardmax Identity "
    "InstanceNormalization LRN LeakyRelu Log LogSoftmax LpNormalization "
    "MeanVarianceNormalization Mish Neg Not Reciprocal Relu ReverseSequence RMSNormalization "
    "RotaryEmbedding Round Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign Silu Sin "
    "Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh TensorScatter "
    "ThresholdedRelu Trilu SimplifiedLayerNormalization"
)

_BROADCAST: Final = (
    "Add BitShift BitwiseAnd BitwiseOr BitwiseXor Div Max Mean Min Mod Mul Pow Sub Sum"
)

_COMPARE: Final = "And Equal Greater GreaterOrEqual Less LessOrEqual Or Xor"


def _old_axis_broadcast(op: Operation) -> tuple[tuple[int | None, ...], ...]:
    """Before version 7 the second operand was aligned by an attribute and never grew the first."""
    if 0 < op.opset < 7 and op.attr("broadcast", 0):
        return (op.shape(0),)
    return tuple(broadcast_all(op))


def _prelu(op: Operation) -> list[tuple[int | None, ...]]:
    """Before version 7 a slope per channel was not aligned as a broadcast is."""
    if 0 < op.opset < 7:
        return [op.shape(0)]
    return list(broadcast_all(op))


def _normalization(op: Operation) -> list[tuple[int | None, ...]]:
    """LayerNormalization: mean and inverse deviation keep the axes before ``axis``."""
    shape = op.shape(0)
    axis = axis_of(op.attr("axis", -1), len(shape))
    row = (*shape[:axis], *(1,) * (len(shape) - axis))
    return [shape, row, row]


def _stash(op: Operation) -> int:
    return op.attr("stash_type", 1)


def _batch_normalization(op: Operation) -> list[tuple[int | None, ...]]:
    data, channels = op.shape(0), op.shape(1)
    if len(data) > 1:
        agree(data[1], channels[0])
    return [data, channels, channels, channels, channels]


def _eye_like(op: Operation) -> int:
    return op.attr("dtype", 0) or op.dtype(0)


def _cast_to(op: Operation) -> int:
    return op.attr("to", 0)


def _dequantized(op: Operation) -> int:
    """DequantizeLinear's result: the scale's type unless an attribute says otherwise."""
    return op.attr("output_dtype", 0) or op.dtype(1)


def _quantized(op: Operation) -> int:
    """QuantizeLinear's result: the zero point's type, an attribute's, or uint8."""
    if op.has(2):
        return op.dtype(2)
    return op.attr("output_dtype", 0) or 2


def _dropout(op: Operation) -> list[tuple[int | None, ...]]:
    return [op.shape(0), op.shape(0)]


def _dropout_mask(op: Operation) -> int:
    """The mask became bool in version 10; before, it had the data's type."""
    return 9 if op.opset >= 10 or op.opset == 0 else op.dtype(0)


_broadcast = ShapeRule(_old_axis_broadcast, (T0,))

TABLE: Final[dict[str, ShapeRule]] = {
    **dict.fromkeys(_UNARY.split(), SAME),
    **dict.fromkeys(_BROADCAST.split(), _broadcast),
    **dict.fromkeys(_COMPARE.split(), ShapeRule(_old_axis_broadcast, (BOOL,))),
    **dict.fromkeys(("IsInf", "IsNaN"), ShapeRule(same_shape(), (BOOL,))),
    "PRelu": ShapeRule(_prelu, (T0,)),
    "Where": ShapeRule(broadcast_all, (T1,)),
    "Cast": ShapeRule(same_shape(), (_cast_to,)),
    "BitCast": ShapeRule(same_shape(), (_cast_to,)),
    "CastLike": ShapeRule(same_shape(), (T1,)),
    "EyeLike": ShapeRule(same_shape(), (_eye_like,)),
    "RandomNormalLike": ShapeRule(same_shape(), (_eye_like,)),
    "RandomUniformLike": ShapeRule(same_shape(), (_eye_like,)),
    "Bernoulli": ShapeRule(same_shape(), (_eye_like,)),
    "Dropout": ShapeRule(_dropout, (T0, _dropout_mask)),
    "BatchNormalization": ShapeRule(_batch_normalization, (T0, like(3))),
    "LayerNormalization": ShapeRule(_normalization, (T0, _stash)),
    "SimplifiedLayerNormalization": ShapeRule(_normalization, (T0, _stash)),
    "QuantizeLinear": ShapeRule(same_shape(), (_quantized,)),
    "DequantizeLinear": ShapeRule(same_shape(), (_dequantized,)),
    "DynamicQuantizeLinear": ShapeRule(
        lambda op: [op.shape(0), (), ()], (always(2), FLOAT, always(2))
    ),
    "StringConcat": ShapeRule(broadcast_all, (always(8),)),
    "RegexFullMatch": ShapeRule(same_shape(), (BOOL,)),
    "RandomNormal": ShapeRule(lambda op: [op.attr_ints("shape")], (named("dtype", FLOAT),)),
    "RandomUniform": ShapeRule(lambda op: [op.attr_ints("shape")], (named("dtype", FLOAT),)),
}
