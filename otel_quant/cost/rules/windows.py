"""Operators that slide a window without weights, or sample an image."""

from __future__ import annotations

from math import prod
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.rules.formula import (
    ADD,
    CMP,
    DIV,
    FREE,
    MUL,
    SQRT,
    CostRule,
    added,
    not_costed,
    per_input,
    per_output,
    volume0,
    zero,
)
from otel_quant.cost.rules.operator import Operator
from otel_quant.cost.shapes import layout, windowed
from otel_quant.cost.shapes.rule import INT64, T0, ShapeRule, always
from otel_quant.cost.shapes.windowed import window_lengths


def _window(op: Operation) -> int:
    return prod(window_lengths(op))


def _pool(op: Operation) -> int:
    return op.out_size() * _window(op)


def _pool_tool(op: Operation) -> int:
    kernel = op.attr_ints("kernel_shape") or (3, 3)
    return volume0(op.out()) * kernel[0] * (kernel[1] if len(kernel) == 2 else 1)


_RESIZE: Final = {"nearest": 0, "linear": 4, "bilinear": 4, "cubic": 8}


def _resize(op: Operation) -> int:
    return op.attr_choice("mode", "nearest", _RESIZE) * op.out_size()


_TAPS: Final = {"nearest": 0, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


def _grid_sample(op: Operation) -> int:
    """Taps per result: 2 or 4 along each sampled axis, none for nearest."""
    taps = op.attr_choice("mode", "linear", _TAPS)
    return taps ** (len(op.dims(0)) - 2) * op.out_size() if taps else 0


def _roi_align(op: Operation) -> int:
    """Four taps per sample; how many samples is only known from an attribute."""
    ratio = op.attr("sampling_ratio", 0)
    if ratio <= 0:
        raise UnknownError("the number of samples per window is left to the runtime")
    return (4 * MUL + ADD) * ratio**2 * op.out_size()


_POOL: Final = ShapeRule(windowed.pool, (T0, INT64))
_GLOBAL_POOL: Final = ShapeRule(windowed.global_pool, (T0,))
_RESIZED: Final = Operator(
    ShapeRule(layout.resize, (T0,)),
    CostRule("nearest 0, linear 4, cubic 8 per result", rest=_resize),
)
_POOLED: Final = Operator(
    _POOL,
    CostRule(
        "window size per result (onnx_tool: two axes at most)", rest=_pool, as_onnx_tool=_pool_tool
    ),
)

TABLE: Final[dict[str, Operator]] = {
    "MaxPool": _POOLED,
    "AveragePool": _POOLED,
    "LpPool": Operator(
        _POOL,
        CostRule("window size and a square root per result", rest=added(_pool, per_output(SQRT))),
    ),
    "GlobalAveragePool": Operator(
        _GLOBAL_POOL,
        CostRule(
            "|x| + 4|y|",
            rest=added(per_input(ADD), per_output(DIV)),
            as_onnx_tool=lambda op: volume0(op.dims(0)) + DIV * volume0(op.out()),
        ),
    ),
    "GlobalMaxPool": Operator(_GLOBAL_POOL, CostRule("|x|", rest=per_input(CMP))),
    "GlobalLpPool": Operator(
        _GLOBAL_POOL,
        CostRule("|x| and a square root per result", rest=added(per_input(MUL), per_output(SQRT))),
    ),
    "MaxUnpool": Operator(ShapeRule(windowed.max_unpool, (T0,)), FREE),
    "MaxRoiPool": Operator(
        ShapeRule(windowed.max_roi_pool, (T0,)),
        not_costed("the sizes of the regions are data"),
    ),
    "RoiAlign": Operator(
        ShapeRule(windowed.roi_align, (T0,)),
        CostRule("5 per sample of a result (onnx_tool: 0)", rest=_roi_align, as_onnx_tool=zero),
    ),
    "GridSample": Operator(
        ShapeRule(layout.grid_sample, (T0,)),
        CostRule(
            "2 or 4 taps per axis and result (onnx_tool: 0)", rest=_grid_sample, as_onnx_tool=zero
        ),
    ),
    "ImageDecoder": Operator(
        ShapeRule(windowed.decoded, (always(dtypes.UINT8),)),
        not_costed("the lengths of the image are in its data"),
    ),
    "Resize": _RESIZED,
    "Upsample": _RESIZED,
}
