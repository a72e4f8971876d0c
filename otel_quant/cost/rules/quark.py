"""Operators of AMD Quark, which has them in two domains."""

from __future__ import annotations

from typing import Final

from otel_quant.cost.rules import contractions, normalizations, pointwise
from otel_quant.cost.rules.formula import ADD, CMP, MUL, CostRule, per_output
from otel_quant.cost.rules.operator import Operator, Precision
from otel_quant.cost.shapes.rule import SAME, T1, ShapeRule, like, same_shape


def _rounded(to: str) -> Operator:
    return Operator(
        SAME,
        CostRule("maximum, scale, round, scale", rest=per_output(CMP + 2 * MUL + ADD)),
        precision=Precision(rounds_to=to),
    )


TABLE: Final[dict[str, Operator]] = {
    "ExtendedQuantizeLinear": pointwise.TABLE["QuantizeLinear"]._replace(
        shape=ShapeRule(same_shape, (like(2),))
    ),
    "ExtendedDequantizeLinear": pointwise.TABLE["DequantizeLinear"]._replace(
        shape=ShapeRule(same_shape, (T1,))
    ),
    "BFPQuantizeDequantize": _rounded("block float"),
    "BFPFixNeuron": _rounded("block float"),
    "MXQuantizeDequantize": _rounded("microscaling"),
    "ExtendedInstanceNormalization": normalizations.TABLE["InstanceNormalization"],
    "ExtendedLSTM": contractions.TABLE["LSTM"],
}
