"""Many runs as an HTML page: a table with a heat map, and the list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from otel_quant.recordings.comparison.figures import MEMORY_PEAK
from otel_quant.recordings.runs.fields import STATUS, Field, Row, Value, is_least, text_of, unit_of
from otel_quant.recordings.runs.finding import Unreadable
from otel_quant.recordings.runs.pivot import Cell, Pivot
from otel_quant.schema.units import counted, digits_text
from otel_quant.version import VERSION
from otel_quant.views.report.page import page
from otel_quant.views.report.tables import Column, PageTable
from otel_quant.views.report.tables import Row as PageRow
from otel_quant.views.runs_output import fields_with, pivot_cells, pivot_header, pivot_note

_MOST_ROWS: Final = 1000
_MOST_PROBLEMS: Final = 100
_SHADES: Final = 5
"""Classes of the style sheet, ``heat-0`` without a colour."""

_SCALES: Final = {"By": ((10**9, "GB"), (10**6, "MB"), (1000, "kB")), "1": ((0.01, "%"),)}
"""Units of a whole column, largest first, so that its numbers can be sorted."""


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A cell of the heat map."""

    text: str  # Its figure
    shade: int  # How much it is, from 0, the least in the table, to 4, the most
    title: str  # What it is made of


def render(
    rows: Sequence[Row],
    names: Sequence[str],
    table: Pivot,
    unreadable: Sequence[Unreadable],
    folders: Sequence[str],
    where: Sequence[str],
) -> str:
    """Returns a page of runs."""
    return page(
        "runs.html.j2",
        version=VERSION,
        found=counted(len(rows), "run"),
        folders=", ".join(folders),
        where=where,
        note=pivot_note(table),
        **_heat_map(table),
        runs=_list(rows, names),
        unreadable=unreadable[:_MOST_PROBLEMS],
        more_unreadable=max(0, len(unreadable) - _MOST_PROBLEMS),
        unreadable_count=counted(len(unreadable), "path"),
    )


def _heat_map(table: Pivot) -> dict[str, object]:
    """Returns the headings of the heat map with their units, and its rows."""
    cells = [cell for row in table.rows for cell in row.cells if cell is not None]
    medians = [cell.median for cell in cells]
    least, most = min(medians, default=0.0), max(medians, default=0.0)
    scale, unit = _scale(medians, unit_of(table.value))

    def shaded(cell: Cell | None) -> HeatCell | None:
        if cell is None:
            return None
        share = (cell.median - least) / (most - least) if most > least else 0.0
        shade = min(_SHADES - 1, int(share * _SHADES))
        return HeatCell(scale(cell.median), shade, f"median of {counted(cell.runs, 'run')}")

    beside = [
        _scaled(unit_of(name), [row.beside[position] for row in table.rows])
        for position, name in enumerate(table.beside)
    ]
    units = ("", *(of for of, _ in beside), *(unit for _ in table.columns))
    names = [cells[0] for cells in pivot_cells(table)]
    return {
        "header": list(zip(pivot_header(table), units, strict=True)),
        "heat": [
            ([name, *(texts[number] for _, texts in beside)], list(map(shaded, row.cells)))
            for number, (name, row) in enumerate(zip(names, table.rows, strict=True))
        ],
    }


def _list(rows: Sequence[Row], names: Sequence[str]) -> PageTable:
    shown = rows[:_MOST_ROWS]
    path, *others = reversed(fields_with(names))
    columns = [path, *reversed(others)]
    made = [_column(field, [row.get(field.name) for row in shown]) for field in columns]
    for (_, cells), field in zip(made, columns, strict=True):
        if field.name == MEMORY_PEAK:
            cells[:] = [
                f"≥ {cell}" if cell and is_least(row) else cell
                for cell, row in zip(cells, shown, strict=True)
            ]
    left_out = len(rows) - len(shown)
    return PageTable(
        id="runs",
        caption="Runs",
        columns=tuple(column for column, _ in made),
        rows=tuple(
            PageRow(tuple(cells), state=row[STATUS])
            for row, *cells in zip(shown, *(cells for _, cells in made), strict=True)
        ),
        note=f"{left_out:,} more are left out; --where chooses." if left_out else "",
    )


def _column(field: Field, values: Sequence[Value | None]) -> tuple[Column, list[str]]:
    heading = field.heading.capitalize()
    if field.unit not in ("By", "s", "1"):
        cells = [text_of(value, field.unit) for value in values]
        return Column(heading, is_text=True, title=field.brief), cells
    unit, cells = _scaled(field.unit, values)
    return Column(heading, unit, title=field.brief), cells


def _scaled(unit: str, values: Sequence[Value | None]) -> tuple[str, list[str]]:
    """Returns the unit of a column, and its cells as numbers in that unit."""
    scale, scaled = _scale([each for each in values if isinstance(each, int | float)], unit)
    return scaled, [scale(each) if isinstance(each, int | float) else "" for each in values]


def _divided(factor: float, value: float) -> str:
    return digits_text(value / factor)


def _scale(numbers: Sequence[float], unit: str) -> tuple[Callable[[float], str], str]:
    """Returns what writes the numbers of a column in one unit, and that unit."""
    highest = max(map(abs, numbers), default=0.0)
    for factor, name in _SCALES.get(unit, ()):
        if highest >= factor:
            return partial(_divided, factor), name
    return digits_text, {"By": "B", "1": ""}.get(unit, unit)
