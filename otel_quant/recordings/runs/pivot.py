"""Runs as a table of two of their names: models by calibration methods, with the memory of each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from otel_quant.recordings.runs.fields import (
    ACTIVATION_SIZE,
    MODEL,
    MODEL_SIZE,
    STATUS,
    ConditionError,
    Row,
    Value,
    text_of,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """What the runs of one cell come to."""

    median: float  # Median of their figures
    runs: int  # How many they are


@dataclass(frozen=True, slots=True)
class PivotRow:
    """A row."""

    name: str  # What its runs have in common, as a text; empty for those that have no such value
    # Figures of the model, as many as ``Pivot.beside``; None for what is not known
    beside: tuple[Value | None, ...]
    cells: tuple[Cell | None, ...]  # As many as there are columns; None where there is no run


@dataclass(frozen=True, slots=True)
class Pivot:
    """A table of runs."""

    of_rows: str  # The name whose values are the rows
    of_columns: str  # The name whose values are the columns
    value: str  # The name of the figure in the cells
    beside: tuple[str, ...]  # Names of the figures beside the rows
    columns: tuple[str, ...]  # The values that are the columns, as texts
    rows: tuple[PivotRow, ...]  # The rows
    left_out: int  # Runs that are not in it, because they have not ended well or lack the figure


def pivot(
    runs: Sequence[Row], of_rows: str, of_columns: str, value: str, *, any_status: bool = False
) -> Pivot:
    """Makes a table of runs."""
    beside = (MODEL_SIZE, ACTIVATION_SIZE) if of_rows == MODEL else ()
    found: dict[tuple[str, tuple[Value | None, ...]], dict[str, list[float]]] = {}
    counted = 0
    for run in runs:
        figure = run.get(value)
        if figure is None or not (any_status or run[STATUS] == "ended"):
            continue
        if isinstance(figure, bool | str | tuple):
            raise ConditionError(
                f"--value {value}: {text_of(figure, '')!r} is no figure; expected a name such as "
                "memory.peak or duration"
            )
        counted += 1
        row = text_of(run.get(of_rows), ""), tuple(run.get(name) for name in beside)
        column = text_of(run.get(of_columns), "")
        found.setdefault(row, {}).setdefault(column, []).append(figure)
    columns = tuple(sorted({column for cells in found.values() for column in cells}))
    return Pivot(
        of_rows=of_rows,
        of_columns=of_columns,
        value=value,
        beside=beside,
        columns=columns,
        rows=tuple(
            PivotRow(name, known, tuple(_cell(cells.get(column)) for column in columns))
            for (name, known), cells in sorted(found.items(), key=lambda item: str(item[0]))
        ),
        left_out=len(runs) - counted,
    )


def _cell(figures: list[float] | None) -> Cell | None:
    return Cell(statistics.median(figures), len(figures)) if figures else None
