"""The writer for programs: what a command documents, as JSON; bytes and seconds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

from otel_quant.views.cells import cells_of
from otel_quant.views.document import Cell, Document, Facts, Part, Quantity, Section, Table

_DEEPEST: Final = 4
"""How deep objects and lists have a line for each item: a line for a number would be thousands."""


def json_lines(document: Document) -> Iterator[str]:
    """Yields a document's data as JSON; an item of a list or an object of the fourth level on a line."""
    data = document.data() if document.data is not None else dict(_data(document.parts))
    yield from _laid_out(data, 0)
    yield "\n"


def records(table: Table) -> list[dict[str, Any]]:
    """Returns the rows of a table as objects, without what is not known."""
    names = [column.name for column in table.columns]
    return [
        {
            name: plain(cell)
            for name, cell in zip(names, cells_of(row), strict=False)
            if cell is not None
        }
        for row in table.rows
    ]


def plain(cell: Cell) -> Any:
    """Returns a cell without words."""
    return cell.value if isinstance(cell, Quantity) else cell


def _data(parts: Iterable[Part]) -> Iterator[tuple[str, Any]]:
    for part in parts:
        match part:
            case Table():
                yield part.id or "rows", records(part)
            case Facts():
                yield part.title or "facts", {name: plain(value) for name, value in part.rows}
            case Section():
                yield part.title, dict(_data(part.parts))


def _laid_out(value: Any, depth: int) -> Iterator[str]:
    if depth == _DEEPEST or not value or not isinstance(value, dict | list | tuple | map):
        yield _dumped(value)
        return
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    separator = opening
    for key, item in items:
        yield separator + "\n" + "  " * (depth + 1)
        if key is not None:
            yield f"{json.dumps(str(key))}: "
            yield from _laid_out(item, depth + 1)
        elif isinstance(item, dict) and not any(map(_is_deep, item.values())):
            yield _dumped(item)  # a row
        else:
            yield from _laid_out(item, depth + 1)
        separator = ","
    yield f"\n{'  ' * depth}{closing}" if separator == "," else "[]"


def _is_deep(value: object) -> bool:
    return isinstance(value, dict | list | tuple | map)


def _dumped(value: object) -> str:
    try:
        return json.dumps(value, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=str)


def _finite(value: object) -> object:
    """Replaces numbers that JSON does not have (NaN, infinity) by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
