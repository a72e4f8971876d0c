"""Operators that compute or convert element by element, alone or broadcast."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation
from otel_quant.cost.rules.formula import (
    ADD,
    ATAN,
    CMP,
    DIV,
    ERF,
    EXP,
    FREE,
    GELU_ERF,
    GELU_TANH,
    LOG,
    MUL,
    SIN,
    SQRT,
    TANH,
    CostRule,
    Formula,
    elementwise,
    not_costed,
    per_input,
    per_output,
    per_output0,
    volume0,
    zero,
)
from otel_quant.cost.rules.operator import MOVES, Operator, Precision
from otel_quant.cost.shapes import folding, pointwise
from otel_quant.cost.shapes.folding import Fold, fold_each
from otel_quant.cost.shapes.rule import (
    BOOL,
    FLOAT,
    INT64,
    SAME,
    T0,
    T1,
    ShapeRule,
    always,
    broadcast_all,
    named,
    same_shape,
)

SIGMOID: Final = EXP
"""onnx_tool's figure, kept."""


def _nary(extra: int = 0) -> Formula:
    """N - 1 combinations per result of n operands."""
    return lambda op: (max(1, sum(v is not None for v in op.inputs) - 1) + extra) * op.out_size()


def _power(op: Operation) -> int:
    """x^2 is one multiplication, not an exponential; so with every small constant exponent."""
    exponent = op.inputs[1].data if len(op.inputs) > 1 and op.inputs[1] is not None else None
    macs = EXP
    if exponent is not None and len(exponent) == 1 and exponent[0] is not None:
        macs = power_macs(float(exponent[0]))
    return macs * op.out_size()


def power_macs(exponent: float) -> int:
    """Returns the cost of one power with a constant exponent."""
    size = abs(exponent)
    inverse = DIV if exponent < 0 else 0
    if size == 0.5:
        return SQRT + inverse
    if size.is_integer() and size <= 64:
        bits = int(size)
        return max(0, bits.bit_length() - 1 + bits.bit_count() - 1) * MUL + inverse
    return EXP


def _gelu(op: Operation) -> int:
    exact = op.attr_str("approximate", "none") == "none"
    return (GELU_ERF if exact else GELU_TANH) * op.out_size()


def _scatter(op: Operation) -> int:
    return op.size(2) if op.attr_str("reduction", "none") != "none" else 0


_BROADCAST: Final = ShapeRule(pointwise.old_axis_broadcast, (T0,))
_COMPARE: Final = ShapeRule(pointwise.old_axis_broadcast, (BOOL,))
_NAMED_OR_SAME: Final = ShapeRule(same_shape, (pointwise.named_or_same,))
_NAMED_SHAPE: Final = ShapeRule(lambda op: [op.attr_ints("shape")], (named("dtype", FLOAT),))
_GENERATOR: Final = not_costed("depends on the generator of random numbers")
_GENERATOR_FREE: Final = not_costed(
    "depends on the generator of random numbers (onnx_tool: 0)", as_onnx_tool=zero
)
_TEXT: Final = not_costed("depends on the length of texts")


def _elementwise(
    shape: ShapeRule, macs: int, fold: Fold | None = None, tool: int | None = None
) -> Operator:
    """A number of MACs per result, and onnx_tool's number where it differs."""
    words = f"{macs} per result" + ("" if tool is None else f" (onnx_tool: {tool})")
    return Operator(shape, elementwise(words, macs, tool), fold)


def _same(macs: int, tool: int | None = None) -> Operator:
    return _elementwise(SAME, macs, tool=tool)


def _unary(macs: int, function: Callable[..., folding.Scalar]) -> Operator:
    return _elementwise(SAME, macs, fold_each(function, 1))


def _binary(macs: int, function: Callable[..., folding.Scalar]) -> Operator:
    return _elementwise(_BROADCAST, macs, fold_each(function, 2))


def _comparison(function: Callable[..., folding.Scalar]) -> Operator:
    return _elementwise(_COMPARE, CMP, fold_each(function, 2))


TABLE: Final[dict[str, Operator]] = {
    "Add": _binary(ADD, operator.add),
    "Sub": _binary(ADD, operator.sub),
    "Mul": _binary(MUL, operator.mul),
    "Div": _binary(DIV, folding.divide),
    "Mod": _elementwise(_BROADCAST, 1, folding.fold_mod),
    "Neg": _unary(1, operator.neg),
    "Abs": _unary(1, abs),
    "Relu": _unary(CMP, lambda a: max(a, 0)),
    "Sign": _unary(1, lambda a: (a > 0) - (a < 0)),
    "Ceil": _unary(1, lambda a: float(math.ceil(a))),
    "Floor": _unary(1, lambda a: float(math.floor(a))),
    "Round": _unary(1, folding.round_half_even),
    "Reciprocal": _unary(DIV, lambda a: 1 / a),
    "Sqrt": _unary(SQRT, math.sqrt),
    "Not": _unary(CMP, lambda a: int(not a)),
    "Equal": _comparison(lambda a, b: int(a == b)),
    "Greater": _comparison(lambda a, b: int(a > b)),
    "GreaterOrEqual": _comparison(lambda a, b: int(a >= b)),
    "Less": _comparison(lambda a, b: int(a < b)),
    "LessOrEqual": _comparison(lambda a, b: int(a <= b)),
    "Xor": _comparison(lambda a, b: int(bool(a) != bool(b))),
    "And": _elementwise(_COMPARE, CMP, folding.fold_and),
    "Or": _elementwise(_COMPARE, CMP, folding.fold_or),
    **dict.fromkeys(
        ("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"), _elementwise(_BROADCAST, 1)
    ),
    "BitwiseNot": _same(1),
    "CumSum": _elementwise(SAME, 1, folding.fold_cumulative),
    "CumProd": _same(1),
    "Hardmax": _same(1),
    "LeakyRelu": _same(2),
    "Clip": _same(2),
    "PRelu": _elementwise(ShapeRule(pointwise.prelu, (T0,)), 2),
    "ThresholdedRelu": _same(CMP),
    "Shrink": _same(CMP * 2 + ADD),
    "HardSigmoid": _same(MUL + ADD + 2 * CMP),
    "HardSwish": _same(2 * MUL + ADD + 2 * CMP),
    "Softsign": _same(CMP + ADD + DIV),
    "Elu": _same(CMP + EXP + ADD + MUL),
    "Celu": _same(CMP + EXP + DIV + ADD + MUL),
    "Selu": _same(CMP + EXP + ADD + 2 * MUL),
    "Exp": _same(EXP),
    "Sigmoid": _same(SIGMOID),
    "Silu": _same(EXP + MUL),
    "Swish": _same(EXP + 2 * MUL),
    "Softmax": _same(EXP + DIV),
    "LogSoftmax": _same(EXP + DIV + ADD + LOG),
    "Softplus": _same(EXP + ADD + LOG),
    "Mish": _same(EXP + ADD + LOG + TANH + MUL),
    "Log": _same(LOG),
    "Sin": _same(SIN),
    "Cos": _same(SIN),
    "Tan": _same(2 * SIN + DIV),
    "Asin": _same(ATAN + SQRT + DIV + 2),
    "Acos": _same(ATAN + SQRT + DIV + 3),
    "Sinh": _same(EXP + DIV + ADD + MUL),
    "Cosh": _same(EXP + DIV + ADD + MUL),
    "Asinh": _same(LOG + SQRT + 3),
    "Acosh": _same(LOG + SQRT + 3),
    "Atanh": _same(LOG + 2 * ADD + DIV + MUL),
    "Tanh": _same(TANH, tool=2 * TANH),
    "Atan": _same(ATAN, tool=2 * ATAN),
    "Erf": _same(ERF, tool=0),
    "Max": Operator(
        _BROADCAST,
        CostRule("n-1 per result (onnx_tool: 1)", rest=_nary(), as_onnx_tool=per_output0(CMP)),
        fold_each(lambda *terms: max(terms)),
    ),
    "Min": Operator(
        _BROADCAST,
        CostRule("n-1 per result (onnx_tool: 1)", rest=_nary(), as_onnx_tool=per_output0(CMP)),
        fold_each(lambda *terms: min(terms)),
    ),
    "Sum": Operator(
        _BROADCAST,
        CostRule(
            "n-1 per result",
            rest=_nary(),
            as_onnx_tool=lambda op: (len(op.inputs) - 1) * volume0(op.out()),
        ),
        fold_each(lambda *terms: sum(terms)),
    ),
    "Mean": Operator(_BROADCAST, CostRule("n-1 and a division per result", rest=_nary(DIV))),
    "Pow": Operator(
        _BROADCAST,
        CostRule(
            "by a constant exponent, else 32 (onnx_tool: 32)",
            rest=_power,
            as_onnx_tool=per_output0(EXP),
        ),
        fold_each(folding.power, 2),
    ),
    "Gelu": Operator(
        SAME,
        CostRule(
            "erf 50, or tanh 46, per result (onnx_tool: 34)",
            rest=_gelu,
            as_onnx_tool=per_output0(EXP + 2 * MUL),
        ),
    ),
    "RotaryEmbedding": Operator(SAME, CostRule("a rotation: 3 per element", rest=per_input(3))),
    "QuantizeLinear": _elementwise(
        ShapeRule(same_shape, (pointwise.quantized_type,)), MUL + ADD
    )._replace(
        precision=Precision(quantizes=True),
    ),
    "DequantizeLinear": _elementwise(
        ShapeRule(same_shape, (pointwise.dequantized_type,)), MUL + ADD
    )._replace(
        precision=Precision(dequantizes=True, zero_point=(0, 2)),
    ),
    "DynamicQuantizeLinear": Operator(
        ShapeRule(
            lambda op: [op.shape(0), (), ()],
            (always(dtypes.UINT8), FLOAT, always(dtypes.UINT8)),
        ),
        CostRule("minimum, maximum, scale, shift", rest=per_output(4)),
        precision=Precision(quantizes=True),
    ),
    **dict.fromkeys(("IsInf", "IsNaN"), Operator(ShapeRule(same_shape, (BOOL,)), FREE)),
    "Where": Operator(ShapeRule(broadcast_all, (T1,)), FREE, folding.fold_where),
    "Cast": Operator(
        ShapeRule(same_shape, (pointwise.cast_to,)), FREE, folding.fold_cast, precision=MOVES
    ),
    "CastLike": Operator(ShapeRule(same_shape, (T1,)), FREE, folding.fold_cast),
    "BitCast": Operator(ShapeRule(same_shape, (pointwise.cast_to,)), FREE),
    "EyeLike": Operator(_NAMED_OR_SAME, FREE),
    "Identity": Operator(SAME, FREE, folding.fold_copy, precision=MOVES, view=True),
    "Dropout": Operator(
        ShapeRule(pointwise.dropout, (T0, pointwise.dropout_mask_type)),
        FREE,
        view=True,
        random=True,
    ),
    "Constant": Operator(None, FREE),
    **dict.fromkeys(("ReverseSequence", "TensorScatter", "Trilu"), Operator(SAME, FREE)),
    "Scatter": Operator(SAME, CostRule("moves elements", rest=zero)),
    "ScatterElements": Operator(
        SAME,
        CostRule("|updates| if it reduces (onnx_tool: 0)", rest=_scatter, as_onnx_tool=zero),
    ),
    "ScatterND": Operator(
        SAME,
        CostRule("|updates| if it reduces (onnx_tool: 0)", rest=_scatter, as_onnx_tool=zero),
        folding.fold_scatter_nd,
    ),
    "Bernoulli": Operator(_NAMED_OR_SAME, _GENERATOR, random=True),
    "RandomNormal": Operator(_NAMED_SHAPE, _GENERATOR, random=True),
    "RandomUniform": Operator(_NAMED_SHAPE, _GENERATOR, random=True),
    "RandomNormalLike": Operator(_NAMED_OR_SAME, _GENERATOR_FREE, random=True),
    "RandomUniformLike": Operator(_NAMED_OR_SAME, _GENERATOR_FREE, random=True),
    "Multinomial": Operator(
        ShapeRule(
            lambda op: [(op.shape(0)[0], op.attr("sample_size", 1))],
            (named("dtype", always(dtypes.INT32)),),
        ),
        _GENERATOR,
        random=True,
    ),
    "StringConcat": Operator(ShapeRule(broadcast_all, (always(dtypes.STRING),)), _TEXT),
    "RegexFullMatch": Operator(ShapeRule(same_shape, (BOOL,)), _TEXT),
    "StringNormalizer": Operator(ShapeRule(pointwise.kept_words, (always(dtypes.STRING),)), _TEXT),
    "StringSplit": Operator(
        ShapeRule(lambda op: [(*op.shape(0), None), op.shape(0)], (always(dtypes.STRING), INT64)),
        _TEXT,
    ),
}
