"""Declared lengths that are text: names, texts that name nothing, and expressions of names."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from otel_quant.cost.structure import Dim, Graph

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
    from otel_quant.cost.expressions import NotAnExpressionError, evaluated  # most need none

    found: set[str] = set()

    def note(name: str) -> None:
        found.add(name)

    try:
        evaluated(text, note)
    except NotAnExpressionError:
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
        from otel_quant.cost.expressions import NotAnExpressionError, evaluated

        try:
            return evaluated(text, self._known.get)
        except NotAnExpressionError:
            return None
