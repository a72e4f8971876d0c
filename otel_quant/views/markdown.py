"""Tables in Markdown, as pull requests show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from otel_quant.views.table import printable

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
