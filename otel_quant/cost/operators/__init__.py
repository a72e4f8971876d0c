"""All operators by name: ``Conv``, or ``com.microsoft:Attention`` outside ONNX's own domain.

A new operator is one record in the table of its family, and a case in the family's test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.operators import contraction, control, elementwise, layout, windows
from otel_quant.cost.operators.record import (
    ADD,
    CMP,
    MUL,
    T0,
    T1,
    Formula,
    Operator,
    Precision,
    ShapesOf,
    always,
    like,
    per_output,
    same,
    same_shape,
)
from otel_quant.cost.structure import CostError, printable

_known: Final[dict[str, Operator]] = {
    **elementwise.TABLE,
    **windows.TABLE,
    **contraction.TABLE,
    **layout.TABLE,
    **control.TABLE,
}
"""Those of the domains that have been loaded; ONNX's own from the start."""


def _microsoft() -> Mapping[str, Operator]:
    from otel_quant.cost.operators.microsoft import TABLE

    return TABLE


def _quark() -> Mapping[str, Operator]:
    def rounded(to: str) -> Operator:
        rest = per_output(CMP + 2 * MUL + ADD)
        return same("maximum, scale, round, scale", rest)._replace(
            precision=Precision(rounds_to=to)
        )

    return {
        "ExtendedQuantizeLinear": _known["QuantizeLinear"]._replace(types=like(2)),
        "ExtendedDequantizeLinear": _known["DequantizeLinear"]._replace(types=T1),
        "BFPQuantizeDequantize": rounded("block float"),
        "BFPFixNeuron": rounded("block float"),
        "MXQuantizeDequantize": rounded("microscaling"),
        "ExtendedInstanceNormalization": _known["InstanceNormalization"],
        "ExtendedLSTM": _known["LSTM"],
    }


_DOMAINS: Final[dict[str, Callable[[], Mapping[str, Operator]]]] = {
    "com.microsoft": _microsoft,
    "com.amd.quark": _quark,
    "com.vai.quantize": _quark,
}
"""Loaded when a model uses one: the command starts sooner and in less memory without them."""

_CUSTOM: Final[ContextVar[Mapping[str, Operator]]] = ContextVar(
    "operators of the user's own", default=MappingProxyType({})
)
"""Operators that are known to one analysis only."""

_NO_OPERATOR: Final = Operator(
    "no rule is known for this operator; --rules-from gives it one", None
)


def operator_of(kind: str) -> Operator:
    """Returns the record of an operator; an empty one if it is not known."""
    return _known.get(kind) or _own_operator(kind) or _CUSTOM.get().get(kind, _NO_OPERATOR)


def _own_operator(kind: str) -> Operator | None:
    """Returns the record of an operator that otel-quant knows itself; None if it does not."""
    if ":" in kind:
        _load(kind.rpartition(":")[0])
    return _known.get(kind)


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


class CustomRule(NamedTuple):
    """What a custom operator costs and makes.

    Attributes:
        macs: MACs of one execution: a function of the :class:`Operation`, whose ``dims(i)`` is
            operand i's shape, ``out(i)`` that of a result, and ``attr(name, default)`` an
            integer attribute.
        shapes: Shapes of the results, one for each, likewise; None if each has that of the
            first operand.
        dtype: Element type of the results (``float32``, ``int8`` ...); None for that of the
            first operand.
        contraction: The MACs count as those of a contraction.
    """

    macs: Formula
    shapes: ShapesOf | None = None
    dtype: str | None = None
    contraction: bool = False


_FAILURES: Final = (AssertionError, AttributeError, NameError, RuntimeError)
"""What a mistake in a user's rule raises beside the errors that any rule may raise."""

_Result = TypeVar("_Result")


@contextmanager
def custom_operators(rules: Mapping[str, CustomRule] | None) -> Iterator[None]:
    """Has the operators of some rules known while the block runs, in this thread only.

    Without them a model with operators of its own, as plug-ins for accelerators have, has no
    figure at all, because nothing behind such a node has a shape.
    """
    token = _CUSTOM.set({kind: _operator(kind, rule) for kind, rule in (rules or {}).items()})
    try:
        yield
    finally:
        _CUSTOM.reset(token)


def _operator(kind: str, rule: CustomRule) -> Operator:
    title = f"the rule of {printable(str(kind))!r}"
    if not isinstance(rule, CustomRule) or not callable(rule.macs):
        raise CostError("rules", f"{title} is no rule", expected="an otel_quant.cost.CustomRule")
    if _own_operator(kind) is not None:
        raise CostError(
            "rules", f"{title} would replace one of otel-quant", expected="a custom operator"
        )
    dtype = dtypes.UNKNOWN if rule.dtype is None else dtypes.code_of(rule.dtype)
    if rule.dtype is not None and dtype == dtypes.UNKNOWN:
        raise CostError(
            "rules",
            f"{title} gives type {printable(str(rule.dtype))!r}",
            expected="an element type such as float32",
        )
    shapes = same_shape if rule.shapes is None else _guarded(rule.shapes)
    types = T0 if rule.dtype is None else always(dtype)
    formula = _guarded(rule.macs)
    operator = Operator("a rule of the user's own", shapes, types)
    if rule.contraction:
        return operator._replace(contraction=formula)
    return operator._replace(rest=formula)


def _guarded(function: Callable[[Operation], _Result]) -> Callable[[Operation], _Result]:
    def call(op: Operation) -> _Result:
        try:
            return function(op)
        except _FAILURES as error:
            raise UnknownError(
                f"its rule, of the user's own, failed with {type(error).__name__}: {error}"
            ) from error

    return call
