"""Texts that come from elsewhere, made safe to show, and their widths in a terminal."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
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
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def types_text(shares: Mapping[str, float]) -> str:
    """Returns the shares of some types, the largest first: ``int8 98.20 %, float32 1.80 %``."""
    return ", ".join(f"{name} {100 * share:.2f} %" for name, share in shares.items())


def precision_text(
    stored: Mapping[str, float], expected: Mapping[str, float], runtime: str, reasons: Sequence[str]
) -> str:
    """Returns what contractions are stored in, what a runtime is expected to run them in, and why."""
    why = f", because {'; '.join(reasons)}" if reasons else ""
    ran = f"expected to run in {types_text(expected)} by {runtime}"
    return f"stored in {types_text(stored)}, {ran}{why}"


def width_of(text: str) -> int:
    """Returns a text's width in a terminal: 2 for each wide letter, 0 for each accent."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )  # fmt: skip


def terminal_width(file: TextIO | None) -> int | None:
    """Returns the columns of a terminal; None if it is none, or closed."""
    if file is None:
        return None
    try:
        return os.get_terminal_size(file.fileno()).columns or None
    except (OSError, ValueError):
        return None
