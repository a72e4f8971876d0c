"""All operators by name: ``Conv``, or ``com.microsoft:Attention`` outside ONNX's own domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from otel_quant.cost.rules import (
    contractions,
    layout,
    normalizations,
    pointwise,
    recurrent_attention,
    reductions,
    sequences,
    windows,
)
from otel_quant.cost.rules.formula import CostRule
from otel_quant.cost.rules.operator import Operator

_known: Final[dict[str, Operator]] = {
    **pointwise.TABLE,
    **normalizations.TABLE,
    **windows.TABLE,
    **contractions.TABLE,
    **layout.TABLE,
    **reductions.TABLE,
    **sequences.TABLE,
    **recurrent_attention.TABLE,
}
"""Those of the domains that have been loaded; ONNX's own from the start."""


def _classical() -> Mapping[str, Operator]:
    from otel_quant.cost.rules import classical

    return classical.TABLE


def _training() -> Mapping[str, Operator]:
    from otel_quant.cost.rules import training

    return training.TABLE


def _microsoft() -> Mapping[str, Operator]:
    from otel_quant.cost.rules import microsoft, microsoft_language

    return {**microsoft.TABLE, **microsoft_language.TABLE, **recurrent_attention.MICROSOFT}


def _quark() -> Mapping[str, Operator]:
    from otel_quant.cost.rules import quark

    return quark.TABLE


_DOMAINS: Final[dict[str, Callable[[], Mapping[str, Operator]]]] = {
    "ai.onnx.ml": _classical,
    "ai.onnx.preview.training": _training,
    "com.microsoft": _microsoft,
    "com.amd.quark": _quark,
    "com.vai.quantize": _quark,
}
"""Loaded when a model uses one: the command starts sooner and in less memory without them."""

CUSTOM: Final[ContextVar[Mapping[str, Operator]]] = ContextVar(
    "operators of the user's own", default=MappingProxyType({})
)
"""Operators that are known to one analysis only."""

_NO_OPERATOR: Final = Operator(
    None, CostRule("no rule is known for this operator; --rules-from gives it one")
)


def known_operator(kind: str) -> Operator | None:
    """Returns the record of an operator that otel-quant knows itself; None if it does not."""
    found = _known.get(kind)
    if found is None and ":" in kind:
        _load(kind.rpartition(":")[0])
        found = _known.get(kind)
    return found


def operator_of(kind: str) -> Operator:
    """Returns the record of an operator; an empty one if it is not known."""
    return known_operator(kind) or CUSTOM.get().get(kind, _NO_OPERATOR)


def all_operators() -> Mapping[str, Operator]:
    """Returns the records of all operators, by name."""
    for domain in tuple(_DOMAINS):
        _load(domain)
    return _known


def _load(domain: str) -> None:
    table = _DOMAINS.get(domain)
    if table is not None:
        _known.update({f"{domain}:{name}": operator for name, operator in table().items()})
        _DOMAINS.pop(domain, None)  # only now: another thread may be waiting for the same
