"""Costs of the operators that compute element by element, normalize, pool or reduce."""

from __future__ import annotations

from math import prod
from typing import Final

from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.rules.formula import (
    ADD,
    ATAN,
    CMP,
    DIV,
    ERF,
    EXP,
    LOG,
    MUL,
    SIN,
    SQRT,
    TANH,
    CostRule,
    Formula,
    added,
    elementwise,
    per_input,
    per_input0,
    per_output,
    per_output0,
    volume0,
    zero,
)

ROW: Final = ADD + SQRT + DIV
"""Per normalized row: epsilon, square root, reciprocal."""

SIGMOID: Final = EXP
"""onnx_tool's figure, kept."""

GELU_ERF: Final = ERF + 4
GELU_TANH: Final = TANH + 8


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


def _rows(op: Operation, default: int) -> int:
    shape = op.dims(0)
    axis = op.attr("axis", default)
    return prod(shape[: axis + len(shape) if axis < 0 else axis])


def layer_normalization(op: Operation) -> int:
    """Mean, variance, scaling and shift: 7 per element, a square root per row."""
    return 7 * op.size(0) + ROW * _rows(op, -1)


def _layer_normalization_tool(op: Operation) -> int:
    shape = op.dims(0)
    axis = op.attr("axis", -1)
    return 7 * volume0(shape) + ROW * (volume0(shape) // shape[axis])


def rms_normalization(op: Operation) -> int:
    """Squares, scaling by row and by weight: 3 per element, a square root per row."""
    return 3 * op.size(0) + ROW * _rows(op, -1)


def _per_group(groups: Formula) -> Formula:
    return lambda op: 7 * op.size(0) + ROW * groups(op)


def _channels(op: Operation) -> int:
    return prod(op.dims(0)[:2])


def _group_count(op: Operation) -> int:
    return op.dims(0)[0] * op.attr("num_groups", 1)


def _batch_normalization(op: Operation) -> int:
    """Shift, scale, shift per element; the square root and the reciprocal once per channel."""
    return 3 * op.out_size() + (SQRT + DIV) * op.size(1)


def _window(op: Operation) -> int:
    kernel = op.attr_ints("kernel_shape")
    if kernel is None:
        raise UnknownError
    return prod(kernel)


def _pool(op: Operation) -> int:
    return op.out_size() * _window(op)


def _pool_tool(op: Operation) -> int:
    kernel = op.attr_ints("kernel_shape") or (3, 3)
    return volume0(op.out()) * kernel[0] * (kernel[1] if len(kernel) == 2 else 1)


_RESIZE: Final = {"nearest": 0, "linear": 4, "bilinear": 4, "cubic": 8}


def _resize(op: Operation) -> int:
    return _RESIZE[op.attr_str("mode", "nearest")] * op.out_size()


def _grid_sample(op: Operation) -> int:
    """Taps per result: 2 or 4 along each sampled axis, none for nearest."""
    mode = op.attr_str("mode", "linear")
    taps = {"nearest": 0, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}[mode]
    return taps ** (len(op.dims(0)) - 2) * op.out_size() if taps else 0


def _roi_align(op: Operation) -> int:
    """Four taps per sample; how many samples is only known where an attribute says so."""
    ratio = op.attr("sampling_ratio", 0)
    if ratio <= 0:
        raise UnknownError
    return (4 * MUL + ADD) * ratio**2 * op.out_size()


def _scatter(op: Operation) -> int:
    return op.size(2) if op.attr_str("reduction", "none") != "none" else 0


def _fourier(op: Operation) -> int:
    """Fast Fourier transform: n/2 * log2 n butterflies of four MACs."""
    shape = op.dims(0)
    length = shape[op.attr("axis", 1) if op.opset < 20 else -2]
    lines = prod(shape[:-1]) // max(1, length)
    return 2 * length * max(1, length - 1).bit_length() * lines


def _lp_normalization(op: Operation) -> int:
    shape = op.dims(0)
    return (MUL + DIV) * prod(shape) + SQRT * (prod(shape) // max(1, shape[op.attr("axis", -1)]))


def _reduce(per_element: int, per_result: int = 0) -> Formula:
    return added(per_input(per_element), per_output(per_result))


def _reduction(source: str, per_element: int, per_result: int = 0, tool: int = 0) -> CostRule:
    return CostRule(
        source, rest=_reduce(per_element, per_result), as_onnx_tool=per_input0(tool or per_element)
    )


_FREE: Final = (
    "AffineGrid BitCast Cast CastLike CenterCropPad Col2Im Compress Concat Constant "
    "ConcatFromSequence ConstantOfShape DepthToSpace Dropout Expand EyeLike Flatten Gather "
    "GatherElements GatherND If Identity IsInf IsNaN Loop MaxUnpool NonZero OneHot "
    "Optional OptionalGetElement OptionalHasElement Pad Range Reshape ReverseSequence Scan "
    "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
    "SequenceMap Shape Size Slice SpaceToDepth Split SplitToSequence Squeeze TensorScatter Tile "
    "Transpose Trilu Unsqueeze Where"
)

_ELEMENTWISE: Final[dict[str, tuple[int, int | None]]] = {
    # operator: MACs per result, and onnx_tool's where it differs
    **dict.fromkeys(("Add", "Sub", "Mul", "Neg", "Abs", "Relu", "Mod", "Sign"), (1, None)),
    **dict.fromkeys(
        ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not"),
        (CMP, None),
    ),
    **dict.fromkeys(("Ceil", "Floor", "Round", "CumSum", "CumProd", "Hardmax"), (1, None)),
    **dict.fromkeys(("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"), (1, None)),
    **dict.fromkeys(("Div", "Reciprocal"), (DIV, None)),
    **dict.fromkeys(("LeakyRelu", "PRelu", "Clip"), (2, None)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), (MUL + ADD, None)),
    "ThresholdedRelu": (CMP, None),
    "Shrink": (CMP * 2 + ADD, None),
    "HardSigmoid": (MUL + ADD + 2 * CMP, None),
    "HardSwish": (2 * MUL + ADD + 2 * CMP, None),
    "Softsign": (CMP + ADD + DIV, None),
    "Elu": (CMP + EXP + ADD + MUL, None),
    "Celu": (CMP + EXP + DIV + ADD + MUL, None),
    "Selu": (CMP + EXP + ADD + 2 * MUL, None),
    "Exp": (EXP, None),
    "Sigmoid": (SIGMOID, None),
    "Silu": (EXP + MUL, None),
    "Swish": (EXP + 2 * MUL, None),
    "Softmax": (EXP + DIV, None),
    "LogSoftmax": (EXP + DIV + ADD + LOG, None),
    "Softplus": (EXP + ADD + LOG, None),
    "Mish": (EXP + ADD + LOG + TANH + MUL, None),
    "Log": (LOG, None),
    "Sqrt": (SQRT, None),
    "Sin": (SIN, None),
    "Cos": (SIN, None),
    "Tan": (2 * SIN + DIV, None),
    "Asin": (ATAN + SQRT + DIV + 2, None),
    "Acos": (ATAN + SQRT + DIV + 3, None),
    "Sinh": (EXP + DIV + ADD + MUL, None),
    "Cosh": (EXP + DIV + ADD + MUL, None),
    "Asinh": (LOG + SQRT + 3, None),
    "Acosh": (LOG + SQRT + 3, None),
    "Atanh": (LOG + 2 * ADD + DIV + MUL, None),
    "Tanh": (TANH, 2 * TANH),
    "Atan": (ATAN, 2 * ATAN),
    "Erf": (ERF, 0),
}

TABLE: Final[dict[str, CostRule]] = {
    **{name: CostRule("moves or makes elements", rest=zero) for name in _FREE.split()},
    **{
        name: elementwise(
            f"{macs} per result" + ("" if tool is None else f" (onnx_tool: {tool})"), macs, tool
        )
        for name, (macs, tool) in _ELEMENTWISE.items()
    },
    "Max": CostRule("n-1 per result (onnx_tool: 1)", rest=_nary(), as_onnx_tool=per_output0(CMP)),
    "Min": CostRule("n-1 per result (onnx_tool: 1)", rest=_nary(), as_onnx_tool=per_output0(CMP)),
    "Sum": CostRule(
        "n-1 per result",
        rest=_nary(),
        as_onnx_tool=lambda op: (len(op.inputs) - 1) * volume0(op.out()),
    ),
    "Mean": CostRule("n-1 and a division per result", rest=_nary(DIV)),
    "Pow": CostRule(
        "by a constant exponent, else 32 (onnx_tool: 32)",
        rest=_power,
        as_onnx_tool=per_output0(EXP),
    ),
    "Gelu": CostRule(
        "erf 50, or tanh 46, per result (onnx_tool: 34)",
        rest=_gelu,
        as_onnx_tool=per_output0(EXP + 2 * MUL),
    ),
    "DynamicQuantizeLinear": CostRule("minimum, maximum, scale, shift", rest=per_output(4)),
    "BatchNormalization": CostRule(
        "3 per element, 28 per channel (onnx_tool: 31 per element)",
        rest=_batch_normalization,
        as_onnx_tool=per_output0(2 * ADD + SQRT + DIV + MUL),
    ),
    "InstanceNormalization": CostRule(
        "7 per element, 29 per channel (onnx_tool: 7 per element)",
        rest=_per_group(_channels),
        as_onnx_tool=per_output0(7),
    ),
    "GroupNormalization": CostRule("7 per element, 29 per group", rest=_per_group(_group_count)),
    "LayerNormalization": CostRule(
        "7 per element, 29 per row (onnx_tool: rows of one axis)",
        rest=layer_normalization,
        as_onnx_tool=_layer_normalization_tool,
    ),
    "RMSNormalization": CostRule("3 per element, 29 per row", rest=rms_normalization),
    "SimplifiedLayerNormalization": CostRule("3 per element, 29 per row", rest=rms_normalization),
    "MeanVarianceNormalization": CostRule(
        "5 per element, 29 per channel",
        rest=lambda op: 5 * op.size(0) + ROW * op.dims(0)[1],
    ),
    "LpNormalization": CostRule(
        "5 per element, a square root per row (onnx_tool: 33 per element)",
        rest=_lp_normalization,
        as_onnx_tool=per_output0(EXP + ADD),
    ),
    "LRN": CostRule(
        "37 + size per element",
        rest=lambda op: (DIV + EXP + ADD + op.attr("size", 1)) * op.out_size(),
    ),
    "RotaryEmbedding": CostRule("a rotation: 3 per element", rest=per_input(3)),
    "MaxPool": CostRule(
        "window size per result (onnx_tool: two axes at most)", rest=_pool, as_onnx_tool=_pool_tool
    ),
    "AveragePool": CostRule(
        "window size per result (onnx_tool: two axes at most)", rest=_pool, as_onnx_tool=_pool_tool
    ),
    "LpPool": CostRule(
        "window size and a square root per result", rest=added(_pool, per_output(SQRT))
    ),
    "GlobalAveragePool": CostRule(
        "|x| + 4|y|",
        rest=_reduce(ADD, DIV),
        as_onnx_tool=lambda op: volume0(op.dims(0)) + DIV * volume0(op.out()),
    ),
    "GlobalMaxPool": CostRule("|x|", rest=per_input(CMP)),
    "GlobalLpPool": CostRule("|x| and a square root per result", rest=_reduce(MUL, SQRT)),
    "MaxRoiPool": CostRule("data-dependent, not costed"),
    "RoiAlign": CostRule(
        "5 per sample of a result (onnx_tool: 0)", rest=_roi_align, as_onnx_tool=zero
    ),
    "GridSample": CostRule(
        "2 or 4 taps per axis and result (onnx_tool: 0)", rest=_grid_sample, as_onnx_tool=zero
    ),
    "Resize": CostRule("nearest 0, linear 4, cubic 8 per result", rest=_resize),
    "Upsample": CostRule("nearest 0, linear 4, cubic 8 per result", rest=_resize),
    "ReduceMean": _reduction("|x| + 4|y| (onnx_tool: |x|)", ADD, DIV),
    "ReduceSum": _reduction("|x|", ADD),
    "ReduceProd": _reduction("|x|", MUL),
    "ReduceMax": _reduction("|x|", CMP),
    "ReduceMin": _reduction("|x|", CMP),
    "ReduceL1": _reduction("2|x|", CMP + ADD),
    "ReduceL2": _reduction("|x| + 24|y| (onnx_tool: 25|x|)", MUL, SQRT, tool=ADD + SQRT),
    "ReduceSumSquare": _reduction("|x|", MUL),
    "ReduceLogSum": _reduction("|x| + 43|y|", ADD, LOG),
    "ReduceLogSumExp": _reduction("33|x| + 43|y|", EXP + ADD, LOG),
    "ArgMax": CostRule("|x| comparisons (onnx_tool: 0)", rest=per_input(CMP), as_onnx_tool=zero),
    "ArgMin": CostRule("|x| comparisons (onnx_tool: 0)", rest=per_input(CMP), as_onnx_tool=zero),
    "TopK": CostRule(
        "|x| comparisons at least (onnx_tool: 0)", rest=per_input(CMP), as_onnx_tool=zero
    ),
    "NonMaxSuppression": CostRule("data-dependent, not costed (onnx_tool: 0)", as_onnx_tool=zero),
    "Scatter": CostRule("moves elements", rest=zero),
    "ScatterElements": CostRule(
        "|updates| if it reduces (onnx_tool: 0)", rest=_scatter, as_onnx_tool=zero
    ),
    "ScatterND": CostRule(
        "|updates| if it reduces (onnx_tool: 0)", rest=_scatter, as_onnx_tool=zero
    ),
    "RandomUniformLike": CostRule(
        "depends on the generator, not costed (onnx_tool: 0)", as_onnx_tool=zero
    ),
    "RandomNormalLike": CostRule(
        "depends on the generator, not costed (onnx_tool: 0)", as_onnx_tool=zero
    ),
    "NegativeLogLikelihoodLoss": CostRule("|target|", rest=lambda op: 2 * op.size(1)),
    "SoftmaxCrossEntropyLoss": CostRule(
        "LogSoftmax and |target|", rest=lambda op: 80 * op.size(0) + 2 * op.size(1)
    ),
    "DFT": CostRule("2 n log2 n per line", rest=_fourier),
    "HannWindow": elementwise("cosine", SIN + 3),
    "HammingWindow": elementwise("cosine", SIN + 3),
    "BlackmanWindow": elementwise("two cosines", 2 * SIN + 6),
}
