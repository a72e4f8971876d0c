"""Tables in a terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

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


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    units: Sequence[str] = (),
) -> str:
    """Lays out a table.

    Args:
        header: Names of the columns.
        rows: Cells, as many in each row as in the header.
        left: Number of first columns that are aligned to the left, as is the last column; the
            others are aligned to the right.
        units: Units of the columns, for a line below the names; empty for no such line.

    Returns:
        Lines with line breaks; two blanks separate the cells.
    """
    head = (header, units) if units else (header,)
    cells = [tuple(map(printable, row)) for row in chain(head, rows)]
    widths = [
        max(map(len if all(map(str.isascii, column)) else _width, column))
        for column in zip(*cells, strict=True)
    ]
    last = len(widths) - 1
    to_left = [index < left or index == last for index in range(len(widths))]
    sides = ["<" if is_left else ">" for is_left in to_left]
    # Nearly every row, in one call: a call for each cell takes five times as long.
    plain = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    lines = [
        (
            plain.format(*row)
            if all(map(str.isascii, row))
            else "  ".join(map(_pad, row, widths, to_left))
        ).rstrip()
        for row in cells
    ]
    lines.insert(len(head), "  ".join("-" * width for width in widths))
    return "".join(f"{line}\n" for line in lines)


def _pad(text: str, width: int, to_left: bool) -> str:
    blanks = " " * (width - _width(text))
    return text + blanks if to_left else blanks + text


def _width(text: str) -> int:
    """Returns a text's width in a terminal: 2 for each wide letter, 0 for each accent."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )  # fmt: skip
