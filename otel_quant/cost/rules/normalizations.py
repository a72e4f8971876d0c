"""Operators that normalize."""

from __future__ import annotations

from math import prod
from typing import Final

from otel_quant.cost.operation import Operation
from otel_quant.cost.rules.formula import (
    ADD,
    DIV,
    EXP,
    MUL,
    ROW,
    SQRT,
    CostRule,
    Formula,
    per_output0,
    volume0,
)
from otel_quant.cost.rules.operator import Operator
from otel_quant.cost.shapes import pointwise
from otel_quant.cost.shapes.rule import SAME, T0, ShapeRule, like


def _rows(op: Operation, default: int) -> int:
    shape = op.dims(0)
    axis = op.attr("axis", default)
    return prod(shape[: axis + len(shape) if axis < 0 else axis])


def _layer_normalization(op: Operation) -> int:
    """Mean, variance, scaling and shift: 7 per element, a square root per row."""
    return 7 * op.size(0) + ROW * _rows(op, -1)


def _layer_normalization_tool(op: Operation) -> int:
    shape = op.dims(0)
    axis = op.attr("axis", -1)
    return 7 * volume0(shape) + ROW * (volume0(shape) // shape[axis])


def _rms_normalization(op: Operation) -> int:
    """Squares, scaling by row and by weight: 3 per element, a square root per row."""
    return 3 * op.size(0) + ROW * _rows(op, -1)


def _per_group(groups: Formula) -> Formula:
    return lambda op: 7 * op.size(0) + ROW * groups(op)


def _channels(op: Operation) -> int:
    return prod(op.dims(0)[:2])


def _group_count(op: Operation) -> int:
    return op.dims(0, 1)[0] * op.attr("num_groups", 1)


def _batch_normalization(op: Operation) -> int:
    """Shift, scale, shift per element; the square root and the reciprocal once per channel."""
    return 3 * op.out_size() + (SQRT + DIV) * op.size(1)


def _lp_normalization(op: Operation) -> int:
    shape = op.dims(0, 1)
    return (MUL + DIV) * prod(shape) + SQRT * (prod(shape) // max(1, shape[op.attr("axis", -1)]))


_ROWS: Final = ShapeRule(pointwise.layer_normalization, (T0, pointwise.stash_type))

TABLE: Final[dict[str, Operator]] = {
    "BatchNormalization": Operator(
        ShapeRule(pointwise.batch_normalization, (T0, like(3))),
        CostRule(
            "3 per element, 28 per channel (onnx_tool: 31 per element)",
            rest=_batch_normalization,
            as_onnx_tool=per_output0(2 * ADD + SQRT + DIV + MUL),
        ),
    ),
    "InstanceNormalization": Operator(
        SAME,
        CostRule(
            "7 per element, 29 per channel (onnx_tool: 7 per element)",
            rest=_per_group(_channels),
            as_onnx_tool=per_output0(7),
        ),
    ),
    "GroupNormalization": Operator(
        SAME, CostRule("7 per element, 29 per group", rest=_per_group(_group_count))
    ),
    "LayerNormalization": Operator(
        _ROWS,
        CostRule(
            "7 per element, 29 per row (onnx_tool: rows of one axis)",
            rest=_layer_normalization,
            as_onnx_tool=_layer_normalization_tool,
        ),
    ),
    "RMSNormalization": Operator(
        SAME, CostRule("3 per element, 29 per row", rest=_rms_normalization)
    ),
    "SimplifiedLayerNormalization": Operator(
        _ROWS, CostRule("3 per element, 29 per row", rest=_rms_normalization)
    ),
    "MeanVarianceNormalization": Operator(
        SAME,
        CostRule(
            "5 per element, 29 per channel",
            rest=lambda op: 5 * op.size(0) + ROW * op.dims(0, 2)[1],
        ),
    ),
    "LpNormalization": Operator(
        SAME,
        CostRule(
            "5 per element, a square root per row (onnx_tool: 33 per element)",
            rest=_lp_normalization,
            as_onnx_tool=per_output0(EXP + ADD),
        ),
    ),
    "LRN": Operator(
        SAME,
        CostRule(
            "37 + size per element",
            rest=lambda op: (DIV + EXP + ADD + op.attr("size", 1)) * op.out_size(),
        ),
    ),
}
