"""The writer for pull requests: GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from otel_quant.views.cells import Texts, as_text, cell_text, row_of
from otel_quant.views.document import (
    Document,
    Facts,
    Lines,
    Part,
    Row,
    Section,
    Table,
)
from otel_quant.views.text import printable

# Characters that end a cell, begin markup or HTML, or mention a person.
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>|~#@!&$])")


def markdown_lines(document: Document) -> Iterator[str]:
    """Yields a document as Markdown, piece by piece."""
    return _parted(document.parts, 2)


def escaped(text: str) -> str:
    """Returns a text that Markdown shows unchanged, on one line."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def _parted(parts: Iterable[Part], level: int) -> Iterator[str]:
    for number, part in enumerate(parts):
        if number:
            yield "\n"
        yield from _part(part, level)


def _part(part: Part, level: int) -> Iterator[str]:
    match as_text(part):
        case Table() as part:
            if part.title:
                yield f"{escaped(part.title)}\n\n"
            if part.caption:
                yield f"{'#' * level} {escaped(part.caption)}\n\n"
            yield from _table(part)
            if part.note:
                yield "\n" + _lines(part.note.split("\n"), is_list=False)
        case Facts() as part:
            if part.title:
                yield f"**{escaped(part.title)}**\n\n"
            elif part.caption:
                yield f"{'#' * level} {escaped(part.caption)}\n\n"
            yield "|  |  |\n| --- | --- |\n"
            yield from (
                f"| {escaped(name.strip())} | {escaped(cell_text(value))} |\n"
                for name, value in part.rows
            )
        case Lines() as part:
            yield _lines([line.strip() for line in part.lines], is_list=part.is_list)
        case Section() as part:
            yield f"{'#' * level} {escaped(part.title)}\n\n"
            yield from _parted(part.parts, level + 1)


def _lines(lines: Sequence[str], *, is_list: bool) -> str:
    if is_list:
        return "".join(f"- {escaped(line)}\n" for line in lines)
    # A backslash at the end of a line is a line break.
    return "\\\n".join(map(escaped, lines)) + "\n"


def _table(table: Table) -> Iterator[str]:
    texts = Texts(table)
    said = any(isinstance(row, Row) and row.said for row in table.rows)
    headings = [*texts.headings_with_units, *([""] if said else [])]
    yield f"| {' | '.join(map(escaped, headings))} |\n"
    rule = ["---" if each.is_text else "---:" for each in texts.columns]
    yield f"| {' | '.join([*rule, *(['---'] if said else [])])} |\n"
    for row in map(row_of, table.rows):
        shown = list(map(escaped, texts.whole(row.cells)))
        shown[0] = "\u00a0" * 2 * row.depth + shown[0]
        shown += [escaped(row.said)] if said else []
        yield f"| {' | '.join(shown)} |\n"
