"""Rules of the user's own, for operators that have none here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

from otel_quant.cost import dtypes
from otel_quant.cost.errors import CostError, printable
from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.operators import CUSTOM, known_operator
from otel_quant.cost.rules.formula import CostRule, Formula
from otel_quant.cost.rules.operator import Operator
from otel_quant.cost.shapes.rule import T0, ShapeRule, ShapesOf, always, same_shape


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
def custom_operators(rules: Mapping[str, CustomRule]) -> Iterator[None]:
    """Has the operators of some rules known while the block runs, in this thread only."""
    token = CUSTOM.set({kind: _operator(kind, rule) for kind, rule in rules.items()})
    try:
        yield
    finally:
        CUSTOM.reset(token)


def _operator(kind: str, rule: CustomRule) -> Operator:
    title = f"the rule of {printable(str(kind))!r}"
    if not isinstance(rule, CustomRule) or not callable(rule.macs):
        raise CostError("rules", f"{title} is no rule", expected="an otel_quant.cost.CustomRule")
    if known_operator(kind) is not None:
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
    formula = _guarded(rule.macs)
    cost = CostRule("a rule of the user's own")
    return Operator(
        ShapeRule(shapes, (T0 if rule.dtype is None else always(dtype),)),
        cost._replace(contraction=formula) if rule.contraction else cost._replace(rest=formula),
    )


def _guarded(function: Callable[[Operation], _Result]) -> Callable[[Operation], _Result]:
    def call(op: Operation) -> _Result:
        try:
            return function(op)
        except _FAILURES as error:
            raise UnknownError(
                f"its rule, of the user's own, failed with {type(error).__name__}: {error}"
            ) from error

    return call
