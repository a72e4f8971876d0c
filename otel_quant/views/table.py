"""Tables in a terminal."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, TextIO

# Characters that move the cursor, change colours or reverse the text.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Returns a text whose control characters are replaced by visible escapes."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def shortened(text: str, longest: int) -> str:
    """Returns a text, or its beginning and an ellipsis if it has more than so many characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def listed(value: object) -> str:
    """Returns a value as a text; the items of a list with commas between them."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


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


def terminal_width(file: TextIO | None) -> int | None:
    """Returns the columns of a terminal; None if it is none, or closed."""
    if file is None:
        return None
    try:
        return os.get_terminal_size(file.fileno()).columns or None
    except (OSError, ValueError):
        return None


def _width(text: str) -> int:
    """Returns a text's width in a terminal: 2 for each wide letter, 0 for each accent."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )  # fmt: skip
