"""Declared lengths that are text: names, texts that name nothing, and expressions of names.

Exporters write ``past_sequence_length + seq`` and ``floor(seq/2 - 1/2) + 1``, with Python's operators
and sympy's functions. Nothing is guessed: a name that is not known makes the whole unknown.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from otel_quant.cost.structure import Dim, Graph

if TYPE_CHECKING:
    import ast
    from fractions import Fraction

_NO_NAMES: Final = frozenset({"none", "null", "unknown"})
"""What exporters write, in any case, for every length that they do not know."""

_GENERATED: Final = r"unk__\d+\Z"
"""Names that tf2onnx and onnx's shape inference number; merged models have one number twice."""

_HYPHENATED: Final = r"[^\W\d][\w.]*(?:-[\w.]+)+\Z"
"""A name such as ``batch-size``, or a difference; exporters write blanks around a minus."""


def is_anonymous(text: str) -> bool:
    """Whether a text names nothing, so that each occurrence is a length for itself."""
    if text.lower() in _NO_NAMES:
        return True
    if any(letter.isalpha() or letter == "_" for letter in text):
        return False
    return Symbols({}).length(text) is None  # a number is its own length


def is_generated(text: str) -> bool:
    """Whether a name was made up by an exporter that may use it for different lengths."""
    return re.match(_GENERATED, text) is not None


def parts_of(text: str, names: Collection[str]) -> frozenset[str] | None:
    """Returns the names that a length is computed from, or None if the text is a name itself."""
    if text.isidentifier():
        return None
    found: set[str] = set()

    def note(name: str) -> None:
        found.add(name)

    try:
        _evaluated(text, note)
    except _NotAnExpressionError:
        return frozenset() if re.search(r"[+*/()%]", text) else None
    if found == {text} or (re.match(_HYPHENATED, text) and found.isdisjoint(names)):
        return None
    return frozenset(found)


def names_of(graph: Graph) -> frozenset[str]:
    """Returns every name of a length in a graph and its bodies, those in expressions too."""
    found: set[str] = set()
    for each in graph.within():
        for info in (*each.inputs, *each.outputs, *each.value_info):
            found.update(dim for dim in info.type.shape or () if isinstance(dim, str))
    return frozenset(found).union(*(parts_of(text, found) or () for text in found))


class Symbols:
    """The lengths that texts stand for."""

    def __init__(self, known: Mapping[str, int]) -> None:
        self._known = known
        self._computed: dict[str, int | None] = {}

    def length(self, dim: Dim) -> int | None:
        """Returns a declared length; None if it is not known."""
        if isinstance(dim, int):
            return dim if dim >= 0 else None
        if dim is None:
            return None
        found = self._known.get(dim)
        if found is not None or dim.isidentifier():
            return found
        if dim not in self._computed:
            self._computed[dim] = self.computed(dim)
        return self._computed[dim]

    def computed(self, text: str) -> int | None:
        """Returns what an expression gives, whatever is known of it as a whole."""
        try:
            return _evaluated(text, self._known.get)
        except _NotAnExpressionError:
            return None


_MAX_TEXT: Final = 1024
_MAX_NUMBER: Final = 1 << 63
_MAX_POWER: Final = 64

_NAME: Final = r"(?<![\w.])[^\W\d][\w.]*"


class _NotAnExpressionError(ValueError):
    """A text is no expression of names, numbers, operators and known functions."""


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1 or not 0 <= exponent <= _MAX_POWER:
        return None
    return base ** int(exponent)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Pow": _power,
    "floor": math.floor,
    "ceil": math.ceil,
    "ceiling": math.ceil,
    "min": min,
    "max": max,
    "mod": operator.mod,
    "floordiv": operator.floordiv,
}
"""Operators as Python's syntax tree names them, and functions in small letters: sympy writes ``Max``."""


def _evaluated(text: str, lookup: Callable[[str], int | None]) -> int | None:
    """Returns the length that an expression gives; ``lookup`` knows those of names."""
    import ast  # both only for a model that has an expression
    from fractions import Fraction

    names: list[str] = []

    def placeholder(match: re.Match[str]) -> str:  # a name may have dots, or be a keyword
        names.append(match.group())
        return f"_{len(names) - 1}"

    def value_of(node: ast.expr) -> Fraction | None:
        function: Callable[..., Any] = Fraction
        operands: list[ast.expr] = []
        values: list[Any] = []
        match node:
            case ast.Constant(value=int(number)):
                values = [number]
            case ast.Name(id=name):
                values = [lookup(names[int(name[1:])])]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                function, operands = operator.neg, [operand]
            case ast.BinOp(op=kind, left=left, right=right):
                function, operands = _FUNCTIONS[type(kind).__name__], [left, right]
            case ast.Call(func=ast.Name(id=name), args=[_, *_] as operands, keywords=[]):
                function = _FUNCTIONS[names[int(name[1:])].lower()]
            case _:
                raise _NotAnExpressionError(type(node).__name__)
        values += map(value_of, operands)
        result = None if None in values else function(*values)
        if result is None or max(abs(result.numerator), result.denominator) >= _MAX_NUMBER:
            return None
        return Fraction(result)

    try:
        if len(text) > _MAX_TEXT:
            raise ValueError
        tree = ast.parse(re.sub(_NAME, placeholder, text.strip()), mode="eval")
        value = value_of(tree.body)
    except ZeroDivisionError:
        return None
    except (SyntaxError, ValueError, TypeError, LookupError, MemoryError, RecursionError):
        raise _NotAnExpressionError(text) from None
    return int(value) if value is not None and value.denominator == 1 and value >= 0 else None
