"""In what arithmetic a contraction executes, seen through the Q/DQ nodes around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.operators import operator_of
from otel_quant.cost.values import Value

_MAX_STEPS: Final = 16
"""Operators that are looked through behind one operand."""

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


def precision_of(op: Operation, makers: Mapping[Value, Operation]) -> str:
    """Returns what a contraction executes in.

    Two quantized operands execute in the wider of their types; a quantized weight against a
    float activation is dequantized first, which is ``weight-only``. An operand counts as
    quantized if it is one, or a DequantizeLinear makes it.
    """
    rule = operator_of(op.kind).precision
    if rule.executes_in is not None:
        try:
            return rule.executes_in(op)
        except UnknownError:  # an attribute of the wrong type
            return "unknown"
    values = [op.inputs[i] for i in rule.operands if i < len(op.inputs)]
    stored = [_stored(value, makers) for value in values if value is not None]
    quantized = [name for name in stored if name is not None]
    if quantized and len(quantized) == len(stored):
        return max(quantized, key=lambda name: _WIDTH.index(name) if name in _WIDTH else -1)
    if len(stored) == 2 and stored[1] is not None:
        return f"{stored[1]} weight-only"
    first = values[0] if values else None
    return dtypes.name_of(first.dtype) if first is not None else "unknown"


def _stored(value: Value, makers: Mapping[Value, Operation]) -> str | None:
    """The quantized type behind an operand, or None if it is a float one."""
    for _ in range(_MAX_STEPS):
        if value.dtype in _FAMILY:
            return _FAMILY[value.dtype]
        maker = makers.get(value)
        if maker is None or not maker.inputs:
            return None
        source = maker.inputs[0]
        if source is None:
            return None
        rule = operator_of(maker.kind).precision
        if rule.rounds_to:
            return rule.rounds_to
        if rule.dequantizes:
            if source.dtype in _FAMILY:
                return _FAMILY[source.dtype]
            name = dtypes.name_of(source.dtype)
            return None if source.dtype in (dtypes.UNKNOWN, dtypes.INT32) else name
        if not rule.moves:
            return None
        value = source
    return None
