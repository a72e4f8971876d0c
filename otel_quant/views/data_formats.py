"""The writers for programs and spreadsheets: CSV and JSON, in bytes and seconds."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from types import GeneratorType
from typing import Any, Final

from otel_quant.schema.units import moment_text
from otel_quant.views.cells import cells_of, plain
from otel_quant.views.document import Cell, Document, Facts, Part, Section, Table
from otel_quant.views.text import listed, printable

# The start of a cell (after a comma, or a semicolon in some countries) and a character that makes
# a spreadsheet read it as a formula; Japanese settings also accept the wide forms.
_FORMULA: Final = re.compile("(^|[,;|])(?=[\\s\"']*[=+\\-@\uff1d\uff0b\uff0d\uff20])")


def csv_lines(document: Document) -> Iterator[str]:
    """Yields a document's table as CSV, a row at a time.

    Texts may come from untrusted files: control characters are escaped, and an apostrophe is put
    before a text that a spreadsheet would run as a formula.
    """
    table = document.sheet() if document.sheet else _first_table(document.parts)
    if table is None:
        return
    moments = [at for at, column in enumerate(table.columns) if column.unit == "time"]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for cells in chain(([column.name for column in table.columns],), map(cells_of, table.rows)):
        row = list(map(_csv_cell, cells))
        for at in moments:
            row[at] = moment_json(value) if isinstance(value := cells[at], int | float) else row[at]
        writer.writerow(row)
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()


def _first_table(parts: Iterable[Part]) -> Table | None:
    """Returns the first table of parts, within sections too."""
    for part in parts:
        found = _first_table(part.parts) if isinstance(part, Section) else part
        if isinstance(found, Table):
            return found
    return None


def moment_json(seconds: float) -> str:
    """Returns a moment in UTC as programs read it: ``2026-11-22T06:59:00Z``."""
    return f"{moment_text(seconds).replace(' ', 'T')}Z"


@lru_cache(1 << 12, typed=True)  # shapes and names of types recur
def _csv_cell(cell: Cell) -> str | int:
    value = plain(cell)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, int):
        return value
    return _FORMULA.sub(r"\1'", printable(listed(value)))


_DEEPEST: Final = 4
"""How deep objects and lists have a line for each item: a line for a number would be thousands."""


def json_lines(document: Document) -> Iterator[str]:
    """Yields a document's data as JSON; an item of a list or an object of the fourth level on a line."""
    data = document.data() if document.data is not None else dict(_named(document.parts))
    yield from _laid_out(data, 0)
    yield "\n"


def _named(parts: Iterable[Part]) -> Iterator[tuple[str, Any]]:
    for part in parts:
        match part:
            case Table():
                names = [column.name for column in part.columns]
                yield (
                    part.id or "rows",
                    [
                        {
                            name: plain(cell)
                            for name, cell in zip(names, cells_of(row), strict=False)
                            if cell is not None
                        }
                        for row in part.rows
                    ],
                )
            case Facts():
                yield part.title or "facts", {name: plain(value) for name, value in part.rows}
            case Section():
                yield part.title, dict(_named(part.parts))


def _laid_out(value: Any, depth: int) -> Iterator[str]:
    if depth == _DEEPEST or not value or not _is_deep(value):
        yield _dumped(value)
        return
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    separator = opening
    for key, item in items:
        yield separator + "\n" + "  " * (depth + 1)
        if key is not None:
            yield f"{json.dumps(str(key))}: "
        is_row = key is None and isinstance(item, dict) and not any(map(_is_deep, item.values()))
        yield from (_dumped(item),) if is_row else _laid_out(item, depth + 1)
        separator = ","
    yield f"\n{'  ' * depth}{closing}" if separator == "," else "[]"


def _is_deep(value: object) -> bool:
    return isinstance(value, dict | list | tuple | map | GeneratorType)


def _dumped(value: object) -> str:
    try:
        return json.dumps(value, default=str, allow_nan=False)
    except ValueError:
        from otel_quant.export.recording.event_file import finite

        return json.dumps(finite(value), default=str)
