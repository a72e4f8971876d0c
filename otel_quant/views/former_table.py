"""Tables of texts, until the last command makes a document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from otel_quant.views.text import printable
from otel_quant.views.text import width_of as _width

_ALIKE: Final = 1 << 14
"""Different rows that are kept in memory; the others are laid out again wherever they recur."""


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    units: Sequence[str] = (),
    last_is_text: bool = True,
) -> str:
    """Returns the lines of :func:`table_lines` as one text."""
    lines = table_lines(header, list(rows), left=left, units=units, last_is_text=last_is_text)
    return "".join(lines)


def table_lines(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    units: Sequence[str] = (),
    last_is_text: bool = True,
) -> Iterator[str]:
    """Lays out a table, a line at a time: it may have many rows, most alike but for the first cell."""
    head = (header, units) if units else (header,)
    first = 0
    others = [0] * (len(header) - 1)
    seen: set[tuple[str, ...]] = set()
    for row in chain(head, rows):
        first = max(first, _width(printable(row[0])))
        alike = tuple(row[1:])
        if alike not in seen:
            others = list(map(max, others, map(_width, map(printable, alike))))
            if len(seen) < _ALIKE:
                seen.add(alike)
    to_left = [index < left for index in range(len(header))]
    to_left[-1] |= last_is_text

    @lru_cache(_ALIKE)
    def laid_out(cells: tuple[str, ...]) -> str:
        return "".join(map("  {}".format, map(_pad, map(printable, cells), others, to_left[1:])))

    def line(row: Sequence[str]) -> str:
        text = _pad(printable(row[0]), first, to_left[0]) + laid_out(tuple(row[1:]))
        return text.rstrip() + "\n"

    yield from map(line, head)
    ruled = (first, *others) if header[-1] else (first, *others[:-1])  # the last may be remarks
    yield "  ".join("-" * width for width in ruled) + "\n"
    yield from map(line, rows)


def _pad(text: str, width: int, to_left: bool) -> str:
    blanks = " " * (width - _width(text))
    return text + blanks if to_left else blanks + text


# Characters that end a cell, begin markup or HTML, or mention a person.
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>|~#@!&$])")


def markdown_text(text: str) -> str:
    """Returns a text that Markdown shows unchanged, on one line."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def markdown_lines(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1
) -> Iterator[str]:
    """Lays out a table of GitHub's Markdown, a line at a time."""
    yield f"| {' | '.join(map(markdown_text, header))} |\n"
    rule = ("---" if index < left else "---:" for index in range(len(header)))
    yield f"| {' | '.join(rule)} |\n"
    for row in rows:
        yield f"| {' | '.join(map(markdown_text, row))} |\n"
