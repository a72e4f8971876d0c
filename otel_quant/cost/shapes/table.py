"""All shape rules by operator: its name in ONNX's own domain, ``domain:name`` in others."""

from __future__ import annotations

from typing import Final

from otel_quant.cost.shapes import (
    attention,
    contraction,
    layout,
    microsoft,
    pointwise,
    reduction,
    sequences,
    windowed,
)
from otel_quant.cost.shapes.rule import ShapeRule

SHAPE_RULES: Final[dict[str, ShapeRule]] = {
    **pointwise.TABLE,
    **windowed.TABLE,
    **contraction.TABLE,
    **attention.TABLE,
    **layout.TABLE,
    **reduction.TABLE,
    **sequences.TABLE,
    **microsoft.TABLE,
}


def shape_rule(kind: str) -> ShapeRule | None:
    """Returns the rule of an operator, or None if there is none."""
    return SHAPE_RULES.get(kind)
