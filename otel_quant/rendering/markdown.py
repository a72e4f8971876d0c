"""Tables in Markdown, as pull requests show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from otel_quant.rendering.table import printable

# Characters that end a cell, begin markup or HTML, or mention a person.
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>|~#@!&$])")


def markdown_text(text: str) -> str:
    """Returns a text that Markdown shows unchanged, on one line."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Lays out a table of GitHub's Markdown.

    Args:
        header: Names of the columns.
        rows: Cells, as many in each row as in the header.
        left: Number of first columns that are aligned to the left; the others are aligned to the
            right.
    """
    rule = ["---" if index < left else "---:" for index in range(len(header))]
    lines = [
        [markdown_text(cell) for cell in header],
        rule,
        *([markdown_text(cell) for cell in row] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
