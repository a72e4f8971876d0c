"""A list or a table of runs, in the formats of a terminal, of pull requests and of programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from otel_quant.recordings.comparison.figures import MEMORY_PEAK
from otel_quant.recordings.runs.fields import (
    LISTED,
    NAMES,
    TEXTS,
    TIME,
    Field,
    Row,
    Value,
    is_least,
    text_of,
    unit_of,
)
from otel_quant.recordings.runs.finding import Unreadable
from otel_quant.recordings.runs.pivot import Cell, Pivot
from otel_quant.schema.units import counted, moment_text
from otel_quant.views.former_document import Table, as_text
from otel_quant.views.former_table import markdown_lines, table
from otel_quant.views.spreadsheet import csv_lines

_NONE: Final = "(none)"
"""What stands for a value that the runs of a row or a column do not have."""

_LARGE: Final = 100_000

_SPARE: Final = ("ACTIVATIONS", "CONFIG", "SIZE", "WRITTEN")
"""Columns that a narrow terminal does without."""


def fields_with(names: Sequence[str]) -> tuple[Field, ...]:
    """Returns the columns of the list, and those of further names before the path."""
    *before, path = LISTED
    more = [name for name in dict.fromkeys(names) if name not in NAMES]
    return (*before, *(Field(name, name, unit_of(name), "") for name in more), path)


def cell_text(row: Row, field: Field) -> str:
    """Returns a cell of the list; of a run whose end nothing has seen, the peak with a ≥."""
    text = text_of(row.get(field.name), field.unit)
    return f"≥ {text}" if text and field.name == MEMORY_PEAK and is_least(row) else text


def list_text(
    rows: Sequence[Row], names: Sequence[str], format_: str, width: int | None = None
) -> str:
    """Lays out runs as a table for a terminal or as Markdown."""
    columns = fields_with(names)
    cells = [[cell_text(row, field) for field in columns] for row in rows]
    header = [field.heading for field in columns]
    if format_ == "markdown":
        return "".join(markdown_lines(header, cells, left=TEXTS))
    rows_shown = tuple(map(tuple, cells))
    whole = Table(tuple(header), ("",) * len(header), rows_shown, TEXTS, _SPARE)
    return as_text([whole], width)


def list_json(rows: Sequence[Row], unreadable: Sequence[Unreadable]) -> str:
    """Returns runs as JSON: bytes, seconds, and moments as ISO 8601."""
    return _json({"runs": [dict(map(_shown, row.items())) for row in rows]}, unreadable)


def list_csv(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Returns runs as CSV: bytes, seconds, and moments as ISO 8601."""
    columns = [field.name for field in fields_with(names)]
    cells = ([_cell(name, row.get(name)) for name in columns] for row in rows)
    return "".join(csv_lines(columns, cells))


def pivot_header(of: Pivot) -> list[str]:
    """Returns the headings of a table."""
    headings = {field.name: field.heading for field in LISTED}
    first = (of.of_rows, *of.beside)
    return [*(headings.get(name, name) for name in first), *(name or _NONE for name in of.columns)]


def pivot_cells(of: Pivot) -> list[list[str]]:
    """Returns the cells of a table, as a person reads them."""
    unit = unit_of(of.value)
    return [
        [
            row.name or _NONE,
            *(text_of(value, unit_of(name)) for name, value in zip(of.beside, row.beside, strict=True)),
            *("" if cell is None else text_of(cell.median, unit) for cell in row.cells),
        ]
        for row in of.rows
    ]  # fmt: skip


def pivot_note(of: Pivot) -> str:
    """Returns what has to be known to read a table, in a sentence or two."""
    most = max((cell.runs for row in of.rows for cell in row.cells if cell), default=0)
    note = f"{of.value} by {of.of_rows} and {of.of_columns}"
    if most > 1:
        note += f": the median where a cell has several runs, up to {most:,}"
    if of.left_out:
        note += (
            f". {counted(of.left_out, 'run')} left out, which did not end well or have no "
            f"{of.value}"
        )
    return f"{note}."


def pivot_text(of: Pivot, format_: str) -> str:
    """Lays out a table for a terminal or as Markdown."""
    header, cells = pivot_header(of), pivot_cells(of)
    if format_ == "markdown":
        text = "".join(markdown_lines(header, cells))
    else:
        text = table(header, cells, last_is_text=False)
    return f"{text}\n{pivot_note(of)}\n"


def pivot_json(of: Pivot, unreadable: Sequence[Unreadable]) -> str:
    """Returns a table as JSON: of each cell the median in bytes or seconds, and its runs."""
    rows = [
        {
            of.of_rows: row.name or None,
            **dict(zip(of.beside, row.beside, strict=True)),
            "cells": {
                column or _NONE: {"median": cell.median, "runs": cell.runs}
                for column, cell in zip(of.columns, row.cells, strict=True)
                if cell is not None
            },
        }
        for row in of.rows
    ]
    named = {"rows": of.of_rows, "columns": of.of_columns, "value": of.value}
    return _json({**named, "unit": unit_of(of.value), "table": rows, "left_out": of.left_out}, unreadable)  # fmt: skip


def pivot_csv(of: Pivot) -> str:
    """Returns a table as CSV: medians in bytes or seconds."""

    def number(cell: Cell | None) -> float | None:
        return None if cell is None else _whole(cell.median)

    header = [of.of_rows, *of.beside, *(name or _NONE for name in of.columns)]
    cells = (
        [row.name or _NONE, *map(_plain, row.beside), *map(number, row.cells)] for row in of.rows
    )
    return "".join(csv_lines(header, cells))


def unreadable_text(unreadable: Sequence[Unreadable]) -> str:
    """Returns what could not be read, a line each; an empty text for nothing."""
    lines = [f"{counted(len(unreadable), 'path')} could not be read:"] if unreadable else []
    return "\n".join([*lines, *(f"  {each.path}: {each.problem}" for each in unreadable)])


def _json(content: Mapping[str, object], unreadable: Sequence[Unreadable]) -> str:
    problems = [each._asdict() for each in unreadable]
    return json.dumps({**content, "unreadable": problems}, indent=1) + "\n"


def _shown(item: tuple[str, Value]) -> tuple[str, object]:
    name, value = item
    if unit_of(name) == TIME and isinstance(value, float):
        return name, moment_text(value).replace(" ", "T") + "Z"
    return name, str(value) if value != value else value  # JSON has no NaN


def _cell(name: str, value: Value | None) -> str | int | float | None:
    if value is None:
        return None
    shown = _shown((name, value))[1]
    return (
        _whole(shown)
        if isinstance(shown, float)
        else _plain(value if shown == value else str(shown))
    )


def _plain(value: Value | None) -> str | int | float | None:
    return text_of(value, "") if isinstance(value, bool | tuple) else value


def _whole(value: float) -> float:
    """Returns a large number as an integer, which CSV shows with all its digits."""
    return round(value) if abs(value) >= _LARGE else value
