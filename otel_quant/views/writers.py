"""The five writers, by the names of ``--format``; here the writer of Markdown. The others are loaded when asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from otel_quant.views.cells import Texts, cell_text, row_of
from otel_quant.views.document import Document, Facts, Lines, Part, Row, Section, Table
from otel_quant.views.text import printable

FORMATS: Final = ("table", "markdown", "json", "csv", "html")
"""What ``--format`` takes."""


def written(document: Document, form: str, width: int | None = None) -> Iterator[str]:
    """Yields a document in a format, piece by piece; ``width`` is the terminal's."""
    match form:
        case "table":
            from otel_quant.views.terminal import terminal_lines

            return terminal_lines(document, width)
        case "markdown":
            return _markdown_parts(document.parts, 2)
        case "csv":
            from otel_quant.views.data_formats import csv_lines

            return csv_lines(document)
        case "json":
            from otel_quant.views.data_formats import json_lines

            return json_lines(document)
        case "html":
            from otel_quant.views.html import page_text

            return iter((page_text(document),))
    raise ValueError(f"{form!r} is no format; expected one of {', '.join(FORMATS)}")


# --- Markdown, for pull requests ----------------------------------------------------------

# Characters that end a cell, begin markup or HTML, or mention a person.
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>|~#@!&$])")


def _escaped(text: str) -> str:
    """Returns a text that Markdown shows unchanged, on one line."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def _markdown_parts(parts: Iterable[Part], level: int) -> Iterator[str]:
    for number, part in enumerate(parts):
        if number:
            yield "\n"
        yield from _markdown(part, level)


def _markdown(part: Part, level: int) -> Iterator[str]:
    match part:
        case Table():
            if part.title:
                yield f"{_escaped(part.title)}\n\n"
            if part.caption:
                yield f"{'#' * level} {_escaped(part.caption)}\n\n"
            yield from _markdown_table(part)
            if part.note:
                yield "\n" + _markdown_lines(part.note.split("\n"), is_list=False)
        case Facts():
            if part.title:
                yield f"**{_escaped(part.title)}**\n\n"
            elif part.caption:
                yield f"{'#' * level} {_escaped(part.caption)}\n\n"
            yield "|  |  |\n| --- | --- |\n"
            yield from (
                f"| {_escaped(name.strip())} | {_escaped(cell_text(value))} |\n"
                for name, value in part.rows
            )
        case Lines():
            yield _markdown_lines([line.strip() for line in part.lines], is_list=part.is_list)
        case Section():
            yield f"{'#' * level} {_escaped(part.title)}\n\n"
            yield from _markdown_parts(part.parts, level + 1)


def _markdown_lines(lines: Sequence[str], *, is_list: bool) -> str:
    if is_list:
        return "".join(f"- {_escaped(line)}\n" for line in lines)
    # A backslash at the end of a line is a line break.
    return "\\\n".join(map(_escaped, lines)) + "\n"


def _markdown_table(table: Table) -> Iterator[str]:
    texts = Texts(table)
    has_remarks = any(isinstance(row, Row) and row.remark for row in table.rows)
    headings = [*texts.headings_with_units, *([""] if has_remarks else [])]
    yield f"| {' | '.join(map(_escaped, headings))} |\n"
    rule = ["---" if each.is_text else "---:" for each in texts.columns]
    yield f"| {' | '.join([*rule, *(['---'] if has_remarks else [])])} |\n"
    for row in map(row_of, table.rows):
        shown = list(map(_escaped, texts.whole(row.cells)))
        shown[0] = "\u00a0" * 2 * row.depth + shown[0]
        shown += [_escaped(row.remark)] if has_remarks else []
        yield f"| {' | '.join(shown)} |\n"
