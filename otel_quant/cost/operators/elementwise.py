"""Operators that compute element by element, reduce axes or normalize along them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import product, starmap
from math import prod
from typing import Any, Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Data, Shape, TypedNode, UnknownError, Value, axis_of
from otel_quant.cost.operators import rule
from otel_quant.cost.operators.rule import ADD, CMP, DIV, EXP, LOG, MUL, SIN, SQRT, T0, TANH, Rule


def _fold_each(function: Callable[..., rule.Scalar], operands: int | None = None) -> rule.Fold:
    """Element by element, operands broadcast; an unknown operand makes an unknown result."""

    def element(*row: rule.Scalar) -> rule.Scalar:
        try:
            return None if None in row else function(*row)
        except (ZeroDivisionError, OverflowError, ValueError):
            return None

    def fold(op: TypedNode, outputs: list[Value]) -> list[Data]:
        if operands not in (None, len(op.given)) or any(value.data is None for value in op.given):
            raise UnknownError("an operand is left out, or none of its elements is known")
        return [_each_row(element, op.given, outputs)]

    return fold


def _each_row(
    function: Callable[..., rule.Scalar], values: Sequence[Value], outputs: list[Value]
) -> Data:
    """The function of the elements that operands, broadcast, have at the same place."""
    columns = [rule.stretched(value, rule.fixed(outputs[0])) for value in values]
    return tuple(starmap(function, zip(*columns, strict=True)))


def _divided(a: int | float, b: int | float) -> int | float:
    """Integers divide as in C: towards zero."""
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return a / b


def _raised(a: int | float, b: int | float) -> int | float | None:
    """A power, unless it is too large or complex."""
    if abs(b) > 64 or abs(a) > 1 << 32:
        return None
    result = a**b
    return None if isinstance(result, complex) else result


def _fold_rows(function: Callable[..., rule.Scalar], operands: int) -> rule.Fold:
    """Element by element; the function is given unknown elements too."""
    return lambda op, outputs: [_each_row(function, list(map(op.input, range(operands))), outputs)]


def _chosen(test: rule.Scalar, a: rule.Scalar, b: rule.Scalar) -> rule.Scalar:
    """Where both sides are equal, the element is known even if the choice is not."""
    if test is None:
        return a if a == b else None
    return a if test else b


def _fold_cast(op: TypedNode, outputs: list[Value]) -> list[Data]:
    """Cast: the operand's elements; none as text."""
    return [] if outputs[0].dtype == dtypes.STRING else [op.data(0)]


def _fold_scatter_nd(op: TypedNode, outputs: list[Value]) -> list[Data]:
    """Replaces single elements of a vector, as exporters do to build a shape."""
    if op.attr_str("reduction", "none") != "none" or len(op.dims(0)) != 1:
        return []
    result = list(op.data(0))
    for index, update in zip(op.ints(1), op.data(2), strict=True):
        result[index] = update
    return [tuple(result)]


def _nary(extra: int = 0) -> rule.Formula:
    """N - 1 combinations per result of n operands."""
    return lambda op: (max(1, len(op.given) - 1) + extra) * op.out_size()


_POSITIVE: Final[dict[rule.Scalar, int]] = {
    0.5: SQRT, **{n: (n.bit_length() + n.bit_count() - 2) * MUL for n in range(1, 65)}
}  # fmt: skip
_POWERS: Final[dict[rule.Scalar, int]] = {
    0: 0,
    **_POSITIVE,
    **{-n: macs + DIV for n, macs in _POSITIVE.items() if n},
}
"""MACs of a power by its exponent; of others it is an exponential."""


def _power(op: TypedNode) -> int:
    """x^2 is one multiplication, not an exponential; so with every small constant exponent."""
    data = op.known_data(1)
    exponent = data[0] if len(data) == 1 else None
    return _POWERS.get(exponent, EXP) * op.out_size()


_CAST: Final[rule.Types] = (lambda op: op.attr("to", 0),)
_NAMED_OR_SAME: Final = rule.named("dtype", T0)


def _as_in_onnx_tool(macs: int, tool: int) -> Rule:
    """A number of MACs per result, and onnx_tool's number."""
    words = f"{macs} per result (onnx_tool: {tool})"
    return rule.elementwise(macs)._replace(words=words, tool=rule.per_output0(tool))


def _unary(macs: int, function: Callable[..., rule.Scalar]) -> Rule:
    return rule.elementwise(macs, fold=_fold_each(function, 1))


def _binary(macs: int, function: Callable[..., rule.Scalar], types: rule.Types = T0) -> Rule:
    return rule.elementwise(macs, rule.broadcast_all, types, _fold_each(function, 2))


def _logic(function: Callable[..., rule.Scalar]) -> Rule:
    return rule.elementwise(CMP, rule.broadcast_all, rule.BOOL, _fold_rows(function, 2))


def _extreme(fold: rule.Fold) -> Rule:
    words = "n-1 per result (onnx_tool: 1)"
    return Rule(words, rule.broadcast_all, T0, rest=_nary(), tool=rule.per_output0(CMP), fold=fold)


def _random(
    shapes: rule.ShapesOf, types: rule.Types, tool: rule.Formula | None = None, words: str = ""
) -> Rule:
    why = f"depends on the generator of random numbers{words}"
    return rule.not_costed(why, shapes, types, tool)._replace(random=True)


_BITWISE: Final = rule.elementwise(1, rule.broadcast_all)
_SCATTER: Final = rule.same("|updates| if it reduces (onnx_tool: 0)",
    lambda op: op.size(2) if op.attr_str("reduction", "none") != "none" else 0, rule.zero)  # fmt: skip
_FREE: Final = rule.free(rule.same_shape)


def _without(shape: Shape, gone: set[int], keep: int) -> Shape:
    """A shape whose reduced axes are left out, or kept with length 1."""
    return tuple(1 if i in gone else dim for i, dim in enumerate(shape) if keep or i not in gone)


def _gone(op: TypedNode) -> set[int]:
    """The axes that a reduction takes away; all of them where none are named."""
    rank = len(op.shape(0))
    axes = rule.axes_operand(op) or (() if op.attr("noop_with_empty_axes", 0) else range(rank))
    return {axis_of(axis, rank) for axis in axes}


def _reduced(op: TypedNode) -> Sequence[Shape]:
    return [_without(op.shape(0), _gone(op), op.attr("keepdims", 1))]


def _fold_reduced(function: Callable[[list[int | float]], int | float]) -> rule.Fold:
    """Elements along axes combined by a function."""

    def fold(op: TypedNode, outputs: list[Value]) -> list[Data]:
        gone, groups = _gone(op), dict[Shape, list[Any]]()
        for item, position in zip(op.data(0), product(*map(range, op.dims(0))), strict=True):
            groups.setdefault(rule.without(position, gone), []).append(item)
        return [tuple(None if None in group else function(group) for group in groups.values())]

    return fold


def _reduction(
    words: str, per_element: int, per_result: int = 0, fold: rule.Fold | None = None, *,
    tool: int = 0,
) -> Rule:  # fmt: skip
    rest = rule.added(rule.per_input(per_element), rule.per_output(per_result))
    tools = rule.per_input0(tool or per_element)
    return Rule(words, _reduced, T0, rest=rest, tool=tools, fold=fold)


def _rows(op: TypedNode) -> int:
    shape = op.dims(0)
    axis = op.attr("axis", -1)
    return prod(shape[: axis + len(shape) if axis < 0 else axis])


def normalized(per_element: int, rows: rule.Formula) -> rule.Formula:
    """Some MACs per element, and a square root with its reciprocal per row."""
    return lambda op: per_element * op.size(0) + rule.ROW * rows(op)


def _batch(op: TypedNode) -> Sequence[Shape]:
    """The data's shape, then one value per channel."""
    data, channels = op.shape(0), op.shape(1)
    if len(data) > 1:
        rule.agree("channels of input and scale", data[1], channels[0])
    return [data, channels, channels, channels, channels]


def _layer(op: TypedNode) -> Sequence[Shape]:
    """Mean and inverse deviation keep the axes before ``axis``."""
    shape, axis = op.shape(0), op.axis(-1)
    row = (*shape[:axis], *(1,) * (len(shape) - axis))
    return [shape, row, row]


_LAYER_TYPES: Final = (*T0, lambda op: op.attr("stash_type", 1))  # of mean and deviation


_ARG: Final = Rule("|x| comparisons (onnx_tool: 0)",
    lambda op: [_without(op.shape(0), {op.axis(0)}, op.attr("keepdims", 1))],
    rule.INT64, rest=rule.per_input(CMP), tool=rule.zero)  # fmt: skip

_PER_RESULT: Final[Mapping[str, int]] = {
    "ThresholdedRelu": CMP, "Shrink": CMP * 2 + ADD, "HardSigmoid": MUL + ADD + 2 * CMP,
    "HardSwish": 2 * MUL + ADD + 2 * CMP, "Softsign": CMP + ADD + DIV, "Elu": CMP + EXP + ADD + MUL,
    "Celu": CMP + EXP + DIV + ADD + MUL, "Selu": CMP + EXP + ADD + 2 * MUL, "Exp": EXP, "Sigmoid": EXP,
    "Silu": EXP + MUL, "Swish": EXP + 2 * MUL, "Softmax": EXP + DIV, "LogSoftmax": EXP + DIV + ADD + LOG,
    "Softplus": EXP + ADD + LOG, "Mish": EXP + ADD + LOG + TANH + MUL, "Log": LOG, "Sin": SIN, "Cos": SIN,
    "Tan": 2 * SIN + DIV, "Asin": rule.ATAN + SQRT + DIV + 2, "Acos": rule.ATAN + SQRT + DIV + 3,
    "Sinh": EXP + DIV + ADD + MUL, "Cosh": EXP + DIV + ADD + MUL, "Asinh": LOG + SQRT + 3,
    "Acosh": LOG + SQRT + 3, "Atanh": LOG + 2 * ADD + DIV + MUL,
}  # fmt: skip
"""MACs per result of what else is computed element by element; of Sigmoid onnx_tool's figure."""

TABLE: Final[dict[str, Rule]] = {
    "Add": _binary(ADD, operator.add),
    "Sub": _binary(ADD, operator.sub),
    "Mul": _binary(MUL, operator.mul),
    "Div": _binary(DIV, _divided),
    # The divisor's sign, or the dividend's with ``fmod``.
    "Mod": rule.elementwise(1, rule.broadcast_all, fold=lambda op, outputs: (
        _fold_each(math.fmod if op.attr("fmod", 0) else operator.mod, 2)(op, outputs))),
    "Neg": _unary(1, operator.neg),
    "Abs": _unary(1, abs),
    "Relu": _unary(CMP, lambda a: max(a, 0)),
    "Sign": _unary(1, lambda a: (a > 0) - (a < 0)),
    "Ceil": _unary(1, lambda a: float(math.ceil(a))),
    "Floor": _unary(1, lambda a: float(math.floor(a))),
    "Round": _unary(1, lambda a: float(round(a))),  # halves to the even one, as in ONNX
    "Reciprocal": _unary(DIV, lambda a: 1 / a),
    "Sqrt": _unary(SQRT, math.sqrt),
    "Not": _unary(CMP, lambda a: int(not a)),
    "Equal": _binary(CMP, lambda a, b: int(a == b), rule.BOOL),
    "Greater": _binary(CMP, lambda a, b: int(a > b), rule.BOOL),
    "GreaterOrEqual": _binary(CMP, lambda a, b: int(a >= b), rule.BOOL),
    "Less": _binary(CMP, lambda a, b: int(a < b), rule.BOOL),
    "LessOrEqual": _binary(CMP, lambda a, b: int(a <= b), rule.BOOL),
    "Xor": _binary(CMP, lambda a, b: int(bool(a) != bool(b)), rule.BOOL),
    "And": _logic(lambda *row: 0 if 0 in row else None if None in row else 1),
    "Or": _logic(lambda *row: 1 if any(row) else None if None in row else 0),
    **dict.fromkeys(("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"), _BITWISE),
    **dict.fromkeys(("BitwiseNot", "CumProd", "CumSum", "Hardmax"), rule.elementwise(1)),
    **dict.fromkeys(("LeakyRelu", "Clip"), rule.elementwise(2)),
    # Before version 7 a slope per channel was not aligned as a broadcast is.
    "PRelu": rule.elementwise(2, lambda op: [op.shape(0)] if 0 < op.opset < 7 else rule.broadcast_all(op)),
    **{name: rule.elementwise(macs) for name, macs in _PER_RESULT.items()},
    "Tanh": _as_in_onnx_tool(TANH, 2 * TANH),
    "Atan": _as_in_onnx_tool(rule.ATAN, 2 * rule.ATAN),
    "Erf": _as_in_onnx_tool(rule.ERF, 0),
    "Max": _extreme(_fold_each(lambda *terms: max(terms))),
    "Min": _extreme(_fold_each(lambda *terms: min(terms))),
    "Sum": Rule("n-1 per result", rule.broadcast_all, T0, rest=_nary(),
        tool=lambda op: (len(op.inputs) - 1) * rule.volume0(op.out()), fold=_fold_each(lambda *terms: sum(terms))),
    "Mean": Rule("n-1 and a division per result", rule.broadcast_all, T0, rest=_nary(DIV)),
    "Pow": Rule("by a constant exponent, else 32 (onnx_tool: 32)", rule.broadcast_all, T0, rest=_power,
        tool=rule.per_output0(EXP), fold=_fold_each(_raised, 2)),
    "Gelu": rule.same("erf 50, or tanh 46, per result (onnx_tool: 34)",
        lambda op: op.out_size() * (rule.GELU_ERF if op.attr_str("approximate", "none") == "none" else rule.GELU_TANH),
        rule.per_output0(EXP + 2 * MUL)),
    "RotaryEmbedding": rule.same("a rotation: 3 per element", rule.per_input(3)),
    "QuantizeLinear": rule.elementwise(
        MUL + ADD, types=(lambda op: op.dtype(2) if op.has(2) else op.attr("output_dtype", 0) or dtypes.UINT8,)
    )._replace(precision=rule.Precision(quantizes=True)),
    "DequantizeLinear": rule.elementwise(MUL + ADD, types=(lambda op: op.attr("output_dtype", 0) or op.dtype(1),))._replace(
        precision=rule.Precision(dequantizes=True, zero_point=(0, 2))),
    "DynamicQuantizeLinear": Rule("minimum, maximum, scale, shift", lambda op: [op.shape(0), (), ()],
        rule.UINT8 + rule.FLOAT + rule.UINT8, rest=rule.per_output(4), precision=rule.Precision(quantizes=True)),
    **dict.fromkeys(("IsInf", "IsNaN"), rule.free(rule.same_shape, rule.BOOL)),
    "Where": rule.free(rule.broadcast_all, rule.T1, _fold_rows(_chosen, 3)),
    "Cast": rule.free(rule.same_shape, _CAST, _fold_cast, rule.MOVES),
    "CastLike": rule.free(rule.same_shape, rule.T1, _fold_cast),
    "BitCast": rule.free(rule.same_shape, _CAST),
    "EyeLike": rule.free(rule.same_shape, _NAMED_OR_SAME),
    "Identity": rule.free(rule.same_shape, fold=rule.copied, precision=rule.MOVES, view=True),
    # The mask became bool in version 10; before, it had the data's type.
    "Dropout": rule.free(lambda op: [op.shape(0)] * 2,
        (*T0, lambda op: op.dtype(0) if 0 < op.opset < 10 else dtypes.BOOL), view=True)._replace(random=True),
    "Constant": _FREE._replace(shapes=None),
    **dict.fromkeys(("ReverseSequence", "Scatter", "TensorScatter", "Trilu"), _FREE),
    "ScatterElements": _SCATTER,
    "ScatterND": _SCATTER._replace(fold=_fold_scatter_nd),
    "Bernoulli": _random(rule.same_shape, _NAMED_OR_SAME),
    **dict.fromkeys(("RandomNormal", "RandomUniform"),
        _random(lambda op: [op.attr_ints("shape")], rule.named("dtype", rule.FLOAT))),
    **dict.fromkeys(("RandomNormalLike", "RandomUniformLike"),
        _random(rule.same_shape, _NAMED_OR_SAME, rule.zero, " (onnx_tool: 0)")),
    "ReduceMean": _reduction("|x| + 4|y| (onnx_tool: |x|)", ADD, DIV),
    "ReduceSum": _reduction("|x|", ADD, fold=_fold_reduced(sum)),
    "ReduceProd": _reduction("|x|", MUL, fold=_fold_reduced(prod)),
    "ReduceMax": _reduction("|x|", CMP, fold=_fold_reduced(max)),
    "ReduceMin": _reduction("|x|", CMP, fold=_fold_reduced(min)),
    "ReduceL1": _reduction("2|x|", CMP + ADD),
    "ReduceL2": _reduction("|x| + 24|y| (onnx_tool: 25|x|)", MUL, SQRT, tool=ADD + SQRT),
    "ReduceSumSquare": _reduction("|x|", MUL),
    "ReduceLogSum": _reduction("|x| + 43|y|", ADD, LOG),
    "ReduceLogSumExp": _reduction("33|x| + 43|y|", EXP + ADD, LOG),
    **dict.fromkeys(("ArgMax", "ArgMin"), _ARG),
    # Shift, scale, shift per element; the square root and the reciprocal once per channel.
    "BatchNormalization": Rule("3 per element, 28 per channel (onnx_tool: 31 per element)", _batch, T0 + rule.like(3),
        rest=lambda op: 3 * op.out_size() + (SQRT + DIV) * op.size(1), tool=rule.per_output0(2 * ADD + SQRT + DIV + MUL)),
    "InstanceNormalization": rule.same("7 per element, 29 per channel (onnx_tool: 7 per element)",
        normalized(7, lambda op: prod(op.dims(0)[:2])), rule.per_output0(7)),
    "GroupNormalization": rule.same("7 per element, 29 per group",
        normalized(7, lambda op: op.dims(0)[0] * op.attr("num_groups", 1))),
    "LayerNormalization": Rule("7 per element, 29 per row (onnx_tool: rows of one axis)", _layer, _LAYER_TYPES,
        rest=normalized(7, _rows),
        tool=lambda op: 7 * (size := rule.volume0(op.dims(0))) + rule.ROW * (size // op.dims(0)[op.attr("axis", -1)])),
    "RMSNormalization": rule.same("3 per element, 29 per row", normalized(3, _rows)),
    "SimplifiedLayerNormalization": Rule("3 per element, 29 per row", _layer, _LAYER_TYPES, rest=normalized(3, _rows)),
    "MeanVarianceNormalization": rule.same("5 per element, 29 per channel", normalized(5, lambda op: op.dims(0)[1])),
    "LpNormalization": rule.same("5 per element, a square root per row (onnx_tool: 33 per element)",
        lambda op: (MUL + DIV) * op.size(0) + SQRT * (op.size(0) // max(1, op.dims(0)[op.axis(-1)])),
        rule.per_output0(EXP + ADD)),
    "LRN": rule.same("37 + size per element", lambda op: (DIV + EXP + ADD + op.attr("size", 1)) * op.out_size()),
}  # fmt: skip
