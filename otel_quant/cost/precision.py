"""In what arithmetic a contraction executes, seen through the Q/DQ nodes around it."""

from __future__ import annotations

from typing import Final

from otel_quant.cost import elements
from otel_quant.cost.op import Op
from otel_quant.cost.values import Value

_QUANTIZERS: Final = ("QuantizeLinear", "com.microsoft:QuantizeLinear", "DynamicQuantizeLinear")

QUANTIZE: Final = (
    *_QUANTIZERS,
    "com.amd.quark:ExtendedQuantizeLinear",
)
DEQUANTIZE: Final = (
    "DequantizeLinear",
    "com.microsoft:DequantizeLinear",
    "com.amd.quark:ExtendedDequantizeLinear",
)


def precision_of(op: Op) -> str | None:
    """Returns what a contraction executes in."""
    value = op.inputs[0] if op.inputs else None
    return elements.name_of(value.dtype) if isinstance(value, Value) else None
