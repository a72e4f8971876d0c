"""The writer for spreadsheets and programs: one table as CSV, bytes and seconds."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from otel_quant.schema.units import moment_text
from otel_quant.views.cells import cells_of
from otel_quant.views.document import Cell, Document, Part, Quantity, Section, Table
from otel_quant.views.text import listed, printable

# The start of a cell (after a comma, or a semicolon in some countries) and a character that makes
# a spreadsheet read it as a formula; Japanese settings also accept the wide forms.
_FORMULA: Final = re.compile("(^|[,;|])(?=[\\s\"']*[=+\\-@\uff1d\uff0b\uff0d\uff20])")

_LARGE: Final = 100_000.0


def csv_lines(document: Document) -> Iterator[str]:
    """Yields a document's table as CSV, a row at a time.

    Texts may come from untrusted files: control characters are escaped, and an apostrophe is put
    before a text that a spreadsheet would run as a formula.
    """
    table = document.sheet() if document.sheet else first_table(document.parts)
    if table is None:
        return iter(())
    written: Callable[[Cell], str | float] = _exact if table.is_exact else _neutral
    moments = [at for at, column in enumerate(table.columns) if column.unit == "time"]

    def row_of(cells: Sequence[Cell]) -> list[str | float]:
        if moments:
            cells = [_moment(cell) if at in moments else cell for at, cell in enumerate(cells)]
        return list(map(written, cells))

    names = [_neutral(column.name) for column in table.columns]
    return _lines(chain((names,), map(row_of, map(cells_of, table.rows))))


def _lines(rows: Iterable[Sequence[str | float]]) -> Iterator[str]:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in rows:
        writer.writerow(row)
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()


def first_table(parts: Iterable[Part]) -> Table | None:
    """Returns the first table of parts, within sections too."""
    for part in parts:
        found = first_table(part.parts) if isinstance(part, Section) else part
        if isinstance(found, Table):
            return found
    return None


def moment_json(seconds: float) -> str:
    """Returns a moment in UTC as programs read it: ``2026-11-22T06:59:00Z``."""
    return f"{moment_text(seconds).replace(' ', 'T')}Z"


def _moment(cell: Cell) -> Cell:
    return moment_json(cell) if isinstance(cell, int | float) else cell


@lru_cache(1 << 12, typed=True)  # shapes and numbers of nodes recur
def _neutral(cell: Cell) -> str | int:
    number = cell.value if isinstance(cell, Quantity) else cell
    if isinstance(number, float):
        # Six digits are enough for a share; a size has all of its own.
        return f"{number:.6g}" if abs(number) < _LARGE else f"{number:.12g}"
    value = _verbatim(cell)
    return _FORMULA.sub(r"\1'", value) if isinstance(value, str) else value


def _exact(cell: Cell) -> str | float:
    if type(cell) is int or type(cell) is float:
        return cell
    number = cell.value if isinstance(cell, Quantity) else cell
    return _verbatim(cell) if isinstance(number, float) else _neutral(cell)


def _verbatim(cell: Cell) -> str | int:
    if isinstance(cell, Quantity):
        cell = cell.value
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return cell if isinstance(cell, int) else printable(listed(cell))
