"""In what arithmetic a contraction executes, seen through the Q/DQ nodes around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation
from otel_quant.cost.shapes.microsoft import QUARK_DOMAINS
from otel_quant.cost.values import Value

QUANTIZE: Final = (
    "QuantizeLinear",
    "DynamicQuantizeLinear",
    "com.microsoft:QuantizeLinear",
    *(f"{domain}:ExtendedQuantizeLinear" for domain in QUARK_DOMAINS),
)
DEQUANTIZE: Final = (
    "DequantizeLinear",
    "com.microsoft:DequantizeLinear",
    *(f"{domain}:ExtendedDequantizeLinear" for domain in QUARK_DOMAINS),
)
FAKE_QUANTIZE: Final = {
    f"{domain}:{name}": precision
    for domain in QUARK_DOMAINS
    for name, precision in (
        ("BFPQuantizeDequantize", "block float"),
        ("BFPFixNeuron", "block float"),
        ("MXQuantizeDequantize", "microscaling"),
    )
}
"""Operators that quantize and dequantize at once, and what they quantize to."""

_SEEN_THROUGH: Final = frozenset(
    {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Expand", "Gather",
     "Slice", "Split", "Concat", "Cast"}
)  # fmt: skip
"""What may stand between a DequantizeLinear and the contraction that it feeds."""

_MAX_STEPS: Final = 16

_WEIGHT_ONLY: Final[dict[str, Callable[[Operation], str]]] = {
    "com.microsoft:MatMulNBits": lambda op: f"int{op.attr('bits', 4)} weight-only",
    "com.microsoft:MatMulBnb4": lambda op: "4-bit float weight-only",
    "com.microsoft:MatMulFpQ4": lambda op: "4-bit float weight-only",
    "com.microsoft:QMoE": lambda op: f"int{op.attr('expert_weight_bits', 4)} weight-only",
    "com.microsoft:DynamicQuantizeLSTM": lambda op: "int8",
    "com.microsoft:DynamicQuantizeMatMul": lambda op: "int8",
    "com.microsoft:MatMulInteger16": lambda op: "int16",
}

_OPERANDS: Final = {
    "QLinearConv": (0, 3),
    "com.microsoft:QLinearConv": (0, 3),
    "QLinearMatMul": (0, 3),
    "com.microsoft:QGemm": (0, 3),
}
"""Where the two operands are, if not first and second."""

_FAMILY: Final = {
    dtypes.UINT8: "int8",
    dtypes.INT8: "int8",
    dtypes.UINT16: "int16",
    dtypes.INT16: "int16",
    dtypes.UINT4: "int4",
    dtypes.INT4: "int4",
    25: "int2",
    26: "int2",
    17: "float8",
    18: "float8",
    19: "float8",
    20: "float8",
    23: "float4",
}
"""Signed or not makes no difference to the arithmetic."""

_WIDTH: Final = ("int2", "int4", "float4", "float8", "int8", "int16")


def precision_of(op: Operation, makers: dict[int, Operation]) -> str:
    """Returns what a contraction executes in.

    Two quantized operands execute in the wider of their types; a quantized weight against a
    float activation is dequantized first, which is ``weight-only``. An operand counts as
    quantized if it is one, or a DequantizeLinear makes it.

    Args:
        op: The contraction.
        makers: The operation that makes each value, by the value's ``id``.
    """
    by_kind = _WEIGHT_ONLY.get(op.kind)
    if by_kind is not None:
        return by_kind(op)
    at = _OPERANDS.get(op.kind, (0, 1))
    values = [op.inputs[i] for i in at if i < len(op.inputs)]
    stored = [_stored(value, makers) for value in values if value is not None]
    quantized = [name for name in stored if name is not None]
    if quantized and len(quantized) == len(stored):
        return max(quantized, key=lambda name: _WIDTH.index(name) if name in _WIDTH else -1)
    if len(stored) == 2 and stored[1] is not None:
        return f"{stored[1]} weight-only"
    first = values[0] if values else None
    return dtypes.name_of(first.dtype) if first is not None else "unknown"


def _stored(value: Value, makers: dict[int, Operation]) -> str | None:
    """The quantized type behind an operand, or None if it is a float one."""
    for _ in range(_MAX_STEPS):
        if value.dtype in _FAMILY:
            return _FAMILY[value.dtype]
        maker = makers.get(id(value))
        if maker is None or not maker.inputs:
            return None
        source = maker.inputs[0]
        if source is None:
            return None
        if maker.kind in FAKE_QUANTIZE:
            return FAKE_QUANTIZE[maker.kind]
        if maker.kind in DEQUANTIZE:
            if source.dtype in _FAMILY:
                return _FAMILY[source.dtype]
            name = dtypes.name_of(source.dtype)
            return None if source.dtype in (dtypes.UNKNOWN, dtypes.INT32) else name
        if maker.kind not in _SEEN_THROUGH:
            return None
        value = source
    return None
