"""Operators that reduce axes, those of signal processing, and losses."""

from __future__ import annotations

from math import prod
from typing import Final

from otel_quant.cost.operation import Operation
from otel_quant.cost.rules.formula import (
    ADD,
    CMP,
    DIV,
    EXP,
    LOG,
    MUL,
    SIN,
    SQRT,
    CostRule,
    added,
    elementwise,
    per_input,
    per_input0,
    per_output,
    zero,
)
from otel_quant.cost.rules.operator import Operator
from otel_quant.cost.shapes import layout, reduction
from otel_quant.cost.shapes.folding import Fold, fold_reduce
from otel_quant.cost.shapes.rule import FLOAT, INT64, T0, ShapeRule, named


def _fourier(op: Operation) -> int:
    """Fast Fourier transform: n/2 * log2 n butterflies of four MACs."""
    shape = op.dims(0)
    length = shape[op.attr("axis", 1) if op.opset < 20 else -2]
    lines = prod(shape[:-1]) // max(1, length)
    return 2 * length * max(1, length - 1).bit_length() * lines


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


def _reduction(
    source: str, per_element: int, per_result: int = 0, *, tool: int = 0, fold: Fold | None = None
) -> Operator:
    return Operator(
        ShapeRule(reduction.reduce, (T0,)),
        CostRule(
            source,
            rest=added(per_input(per_element), per_output(per_result)),
            as_onnx_tool=per_input0(tool or per_element),
        ),
        fold,
    )


def _window(source: str, macs: int) -> Operator:
    return Operator(
        ShapeRule(lambda op: [(op.int_(0),)], (named("output_datatype", FLOAT),)),
        elementwise(source, macs),
    )


_ARG: Final = Operator(
    ShapeRule(reduction.arg, (INT64,)),
    CostRule("|x| comparisons (onnx_tool: 0)", rest=per_input(CMP), as_onnx_tool=zero),
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
    "TopK": Operator(
        ShapeRule(layout.top_k, (T0, INT64)),
        CostRule("|x| comparisons at least (onnx_tool: 0)", rest=per_input(CMP), as_onnx_tool=zero),
    ),
    "NegativeLogLikelihoodLoss": Operator(
        ShapeRule(lambda op: [_loss(op)], (T0,)),
        CostRule("|target|", rest=lambda op: 2 * op.size(1)),
    ),
    "SoftmaxCrossEntropyLoss": Operator(
        ShapeRule(lambda op: [_loss(op), op.shape(0)], (T0,)),
        CostRule("LogSoftmax and |target|", rest=lambda op: 80 * op.size(0) + 2 * op.size(1)),
    ),
    "DFT": Operator(
        ShapeRule(reduction.dft, (T0,)), CostRule("2 n log2 n per line", rest=_fourier)
    ),
    "STFT": Operator(
        ShapeRule(reduction.stft, (T0,)),
        CostRule("2 n log2 n per frame of length n; window", rest=_short_fourier),
    ),
    "MelWeightMatrix": Operator(
        ShapeRule(reduction.mel, (named("output_datatype", FLOAT),)),
        CostRule("39 per band, 5 per result, two logarithms", rest=_mel),
    ),
    "HannWindow": _window("cosine", SIN + 3),
    "HammingWindow": _window("cosine", SIN + 3),
    "BlackmanWindow": _window("two cosines", 2 * SIN + 6),
}
