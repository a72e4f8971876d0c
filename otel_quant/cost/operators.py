"""All operators by name: ``Conv``, or ``com.microsoft:Attention`` outside ONNX's own domain."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from otel_quant.cost.rules import (
    classical,
    contractions,
    layout,
    microsoft,
    microsoft_language,
    normalizations,
    pointwise,
    quark,
    recurrent_attention,
    reductions,
    sequences,
    training,
    windows,
)
from otel_quant.cost.rules.formula import CostRule
from otel_quant.cost.rules.operator import Operator

_DOMAINS: Final = {
    "ai.onnx.ml": (classical.TABLE,),
    "ai.onnx.preview.training": (training.TABLE,),
    "com.microsoft": (
        microsoft.TABLE,
        microsoft_language.TABLE,
        recurrent_attention.MICROSOFT,
    ),
    "com.amd.quark": (quark.TABLE,),
    "com.vai.quantize": (quark.TABLE,),
}

OPERATORS: Final[dict[str, Operator]] = {
    **pointwise.TABLE,
    **normalizations.TABLE,
    **windows.TABLE,
    **contractions.TABLE,
    **layout.TABLE,
    **reductions.TABLE,
    **sequences.TABLE,
    **recurrent_attention.TABLE,
    **{
        f"{domain}:{name}": operator
        for domain, tables in _DOMAINS.items()
        for table in tables
        for name, operator in table.items()
    },
}

CUSTOM: Final[ContextVar[Mapping[str, Operator]]] = ContextVar(
    "operators of the user's own", default=MappingProxyType({})
)
"""Operators that are known to one analysis only."""

_NO_OPERATOR: Final = Operator(
    None, CostRule("no rule is known for this operator; --rules-from gives it one")
)


def operator_of(kind: str) -> Operator:
    """Returns the record of an operator; an empty one if it is not known."""
    return OPERATORS.get(kind) or CUSTOM.get().get(kind, _NO_OPERATOR)
