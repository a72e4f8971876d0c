"""All operators by name: ``Conv``, or ``com.microsoft:Attention`` outside ONNX's own domain.

A new operator is one rule in the table of its family, and a case in the family's test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from otel_quant.cost.operators import contraction, control, elementwise, layout, rule, windows
from otel_quant.cost.operators.rule import ADD, CMP, MUL, Rule

_known: Final[dict[str, Rule]] = (
    elementwise.TABLE | windows.TABLE | contraction.TABLE | layout.TABLE | control.TABLE
)
"""Rules of the domains that have been loaded; ONNX's own from the start."""


def _microsoft() -> Mapping[str, Rule]:
    from otel_quant.cost.operators.microsoft import TABLE

    return TABLE


def _quark() -> Mapping[str, Rule]:
    def rounded(to: str) -> Rule:
        same = rule.same("maximum, scale, round, scale", rule.per_output(CMP + 2 * MUL + ADD))
        return same._replace(precision=rule.Precision(rounds_to=to))

    return {
        "ExtendedQuantizeLinear": _known["QuantizeLinear"]._replace(types=rule.like(2)),
        "ExtendedDequantizeLinear": _known["DequantizeLinear"]._replace(types=rule.T1),
        "BFPQuantizeDequantize": rounded("block float"),
        "BFPFixNeuron": rounded("block float"),
        "MXQuantizeDequantize": rounded("microscaling"),
        "ExtendedInstanceNormalization": _known["InstanceNormalization"],
        "ExtendedLSTM": _known["LSTM"],
    }


_DOMAINS: Final[dict[str, Callable[[], Mapping[str, Rule]]]] = {
    "com.microsoft": _microsoft,
    "com.amd.quark": _quark,
    "com.vai.quantize": _quark,
}
"""Loaded when a model uses one: the command starts sooner and in less memory without them."""

_NO_OPERATOR: Final = Rule("no rule is known for this operator", None)


def operator_of(kind: str) -> Rule:
    """Returns the rule of an operator; an empty one if it is not known."""
    if kind not in _known and ":" in kind:
        _load(kind.rpartition(":")[0])
    return _known.get(kind, _NO_OPERATOR)


def all_operators() -> Mapping[str, Rule]:
    """Returns the rules of all operators, by name."""
    for domain in tuple(_DOMAINS):
        _load(domain)
    return _known


def _load(domain: str) -> None:
    table = _DOMAINS.get(domain)
    if table is not None:
        _known.update({f"{domain}:{name}": operator for name, operator in table().items()})
        _DOMAINS.pop(domain, None)  # only now: another thread may be waiting for the same
