"""Computes declared lengths such as ``past_sequence_length + seq`` and ``floor(seq/2 - 1/2) + 1``.

Exporters write them with Python's operators and sympy's functions. Loaded only for a model
that has one. Nothing is guessed: a name that is not known makes the whole unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from typing import Final, TypeAlias

Number: TypeAlias = int | Fraction

Lookup: TypeAlias = Callable[[str], int | None]
"""Length of a name; None if it is not known."""

MAX_TEXT: Final = 1024
"""Characters of the longest text that is looked at."""

_MAX_DEPTH: Final = 32
_MAX_NUMBER: Final = 1 << 63
_MAX_POWER: Final = 64

_TOKEN: Final = re.compile(r"\s*(?:(\d+)|([^\W\d][\w.]*)|(//|\*\*|[-+*/%(),]))")


class NotAnExpressionError(ValueError):
    """A text is no expression of names, numbers, operators and known functions."""


def names_in(text: str) -> frozenset[str]:
    """Returns the names that an expression computes with."""
    found: set[str] = set()

    def note(name: str) -> None:
        found.add(name)

    evaluated(text, note)
    return frozenset(found)


def evaluated(text: str, lookup: Lookup) -> int | None:
    """Returns the length that an expression gives."""
    if len(text) > MAX_TEXT:
        raise NotAnExpressionError(f"{len(text)} characters")
    value = _Expression(_tokens(text), lookup).whole()
    if value is None or value.denominator != 1 or value < 0:
        return None
    return int(value)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotAnExpressionError(text)
        tokens.append(match.group().strip())
        at = match.end()
    return tokens


class _Expression:
    """Reads tokens from left to right, and computes as it goes; None is a value not known."""

    def __init__(self, tokens: list[str], lookup: Lookup) -> None:
        self._tokens = [*tokens, ""]
        self._at = 0
        self._depth = 0
        self._lookup = lookup

    def whole(self) -> Number | None:
        value = self._sum()
        if self._tokens[self._at]:
            raise NotAnExpressionError(self._tokens[self._at])
        return value

    def _taken(self, *wanted: str) -> str:
        """Takes the next token if it is one of these; else returns an empty text."""
        token = self._tokens[self._at]
        if not token or token not in wanted:
            return ""
        self._at += 1
        return token

    def _sum(self) -> Number | None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise NotAnExpressionError("nested too deep")
        value = self._product()
        while operator := self._taken("+", "-"):
            value = _applied(operator, value, self._product())
        self._depth -= 1
        return value

    def _product(self) -> Number | None:
        value = self._signed()
        while operator := self._taken("*", "/", "//", "%"):
            value = _applied(operator, value, self._signed())
        return value

    def _signed(self) -> Number | None:
        minus = False
        while self._taken("-"):
            minus = not minus
        value = self._atom()
        if self._taken("**"):
            value = _applied("**", value, self._atom())
        return _applied("-", 0, value) if minus else value

    def _atom(self) -> Number | None:
        token = self._tokens[self._at]
        if self._taken("("):
            value = self._sum()
            self._end()
            return value
        self._at += 1
        if token[:1].isdecimal():
            return _bounded(int(token)) if len(token) < 20 else None
        if not (token[:1].isalpha() or token[:1] == "_"):
            raise NotAnExpressionError(token or "the end")
        if self._taken("("):
            return self._call(token)
        return self._lookup(token)

    def _call(self, name: str) -> Number | None:
        function = _FUNCTIONS.get(name.lower())
        if function is None:
            raise NotAnExpressionError(name)
        operands = [self._sum()]
        while self._taken(","):
            operands.append(self._sum())
        self._end()
        known = [value for value in operands if value is not None]
        if len(known) != len(operands):
            return None
        try:
            return _bounded(function(*known))
        except ZeroDivisionError:
            return None
        except TypeError:
            raise NotAnExpressionError(f"{name} of {len(operands)}") from None

    def _end(self) -> None:
        if not self._taken(")"):
            raise NotAnExpressionError(self._tokens[self._at] or "the end")


def _applied(operator: str, a: Number | None, b: Number | None) -> Number | None:
    if a is None or b is None:
        return None
    if operator == "**" and (b.denominator != 1 or not 0 <= b <= _MAX_POWER):
        return None
    try:
        return _bounded(_OPERATORS[operator](a, b))
    except ZeroDivisionError:
        return None


def _bounded(value: Number) -> Number | None:
    too_large = abs(value.numerator) >= _MAX_NUMBER or value.denominator >= _MAX_NUMBER
    return None if too_large else value


_OPERATORS: Final[dict[str, Callable[[Number, Number], Number]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: Fraction(a) / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: Fraction(a) ** int(b),
}

_FUNCTIONS: Final[dict[str, Callable[..., Number]]] = {
    "floor": floor,
    "ceil": ceil,
    "ceiling": ceil,
    "min": min,
    "max": max,
    "mod": lambda a, b: a % b,
    "floordiv": lambda a, b: a // b,
}
"""By name in small letters: sympy writes ``Max`` and ``Mod``, torch ``FloorDiv``."""
