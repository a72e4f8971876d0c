"""Computes declared lengths such as ``past_sequence_length + seq`` and ``floor(seq/2 - 1/2) + 1``.

Exporters write them with Python's operators and sympy's functions. Loaded only for a model
that has one. Nothing is guessed: a name that is not known makes the whole unknown.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, TypeAlias

Lookup: TypeAlias = Callable[[str], int | None]
"""Length of a name; None if it is not known."""

_MAX_TEXT: Final = 1024
_MAX_DEPTH: Final = 200
_MAX_NUMBER: Final = 1 << 63
_MAX_POWER: Final = 64

_NAME: Final = r"(?<![\w.])[^\W\d][\w.]*"


class NotAnExpressionError(ValueError):
    """A text is no expression of names, numbers, operators and known functions."""


def evaluated(text: str, lookup: Lookup) -> int | None:
    """Returns the length that an expression gives."""
    if len(text) > _MAX_TEXT:
        raise NotAnExpressionError(f"{len(text)} characters")
    names: list[str] = []

    def placeholder(match: re.Match[str]) -> str:  # a name may have dots, or be a keyword
        names.append(match.group())
        return f"_{len(names) - 1}"

    try:
        tree = ast.parse(re.sub(_NAME, placeholder, text.strip()), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise NotAnExpressionError(text) from None
    value = _value(tree.body, names, lookup, 0)
    if value is None or value.denominator != 1 or value < 0:
        return None
    return int(value)


def _value(node: ast.expr, names: list[str], lookup: Lookup, depth: int) -> Fraction | None:
    """The value of a node of the syntax tree; None if it is not known."""
    if depth > _MAX_DEPTH:
        raise NotAnExpressionError("nested too deep")
    match node:
        case ast.Constant(value=int(number)):
            return _bounded(Fraction(number))
        case ast.Name(id=name):
            found = lookup(names[int(name[1:])])
            return None if found is None else Fraction(found)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _applied(operator.neg, [operand], names, lookup, depth)
        case ast.BinOp(op=kind, left=left, right=right) if type(kind) in _OPERATORS:
            return _applied(_OPERATORS[type(kind)], [left, right], names, lookup, depth)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as operands, keywords=[]):
            function = _FUNCTIONS.get(names[int(name[1:])].lower())
            if function is not None:
                return _applied(function, operands, names, lookup, depth)
    raise NotAnExpressionError(type(node).__name__)


def _applied(
    function: Callable[..., Any],
    operands: list[ast.expr],
    names: list[str],
    lookup: Lookup,
    depth: int,
) -> Fraction | None:
    values = [_value(operand, names, lookup, depth + 1) for operand in operands]
    if None in values:
        return None
    try:
        found = function(*values)
    except ZeroDivisionError:
        return None
    except TypeError:
        raise NotAnExpressionError(f"{len(operands)} operands") from None
    return None if found is None else _bounded(Fraction(found))


def _bounded(value: Fraction) -> Fraction | None:
    too_large = abs(value.numerator) >= _MAX_NUMBER or value.denominator >= _MAX_NUMBER
    return None if too_large else value


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1 or not 0 <= exponent <= _MAX_POWER:
        return None
    return base ** int(exponent)


_OPERATORS: Final[dict[type[ast.operator], Callable[..., Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}

_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "ceiling": math.ceil,
    "min": min,
    "max": max,
    "mod": operator.mod,
    "floordiv": operator.floordiv,
}
"""By name in small letters: sympy writes ``Max`` and ``Mod``, torch ``FloorDiv``."""
