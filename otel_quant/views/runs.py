"""Many runs as a document: the list, or a table of two of their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

from otel_quant.format.event_file import REPORT
from otel_quant.recordings import runs as run_list
from otel_quant.recordings.model import State
from otel_quant.recordings.runs import Row as Run
from otel_quant.recordings.summary import MEMORY_PEAK
from otel_quant.schema.units import counted
from otel_quant.views import document as doc
from otel_quant.views.text import cell_text, phrase
from otel_quant.views.writers import moment_json

_NONE: Final = "(none)"  # What stands for a value that the runs of a row or a column do not have

_SPARE: Final[Mapping[str, int]] = {
    "ACTIVATIONS": 1, "CONFIG": 2, "SIZE": 3, "WRITTEN": 4, "WHEN": 5, "METHOD": 6,
}  # fmt: skip
_MOST_ROWS: Final = 1000
_MOST_PROBLEMS: Final = 100
_MOST_BARS: Final = 10


def document(
    runs: Sequence[Run], names: Sequence[str], pivot: run_list.Pivot | None,
    unreadable: Sequence[run_list.Unreadable], chosen: str, *, is_page: bool,
) -> doc.Document:  # fmt: skip
    """Returns runs as a list, or as a table of two of their names; a page has both.

    ``names`` are asked for beside the list's columns; ``chosen`` is below which folders, and which runs.
    """
    parts: Iterable[doc.Part]
    if pivot is None:
        table, shown = _list(runs, _fields(names)), partial(_runs_data, runs)
        parts = (*_peaks(runs), table) if runs else (doc.Lines((f"no run {chosen}",)),)
    else:
        table, shown = _pivot(pivot), partial(_pivot_data, pivot)
        parts = _page_parts(runs, names, pivot, unreadable) if is_page else (table,)

    def data() -> dict[str, Any]:
        return {**shown(), "unreadable": [each._asdict() for each in unreadable]}

    over = f"Quantization runs {chosen}"
    return doc.Document(
        parts, _answer(runs), over, is_answer=bool(runs), sheet=lambda: table, data=data
    )


def _answer(runs: Sequence[Run]) -> str:
    """Returns how many runs there are, how they ended, and the highest peak."""
    text = counted(len(runs), "run")
    if runs:
        states = Counter(str(run[run_list.STATUS]) for run in runs).most_common()
        each = ", ".join(f"{number:,} {state}" for state, number in states)
        text += f": {each}" if states[1:] else f", {'all ' * (len(runs) > 1)}{states[0][0]}"
    for run in _highest(runs)[:1]:
        least = "at least " * run_list.is_least(run)
        text += f"; the highest peak is {least}{cell_text(run[MEMORY_PEAK], 'By')}, in {run[run_list.PATH]}"
    return text


def _highest(runs: Sequence[Run]) -> list[Run]:
    """Returns the runs of which a peak is known, highest first."""
    known = [run for run in runs if isinstance(run.get(MEMORY_PEAK), int | float)]
    return sorted(known, key=itemgetter(MEMORY_PEAK), reverse=True)


def _peak(run: Run) -> doc.UnitCell:
    """Returns the peak of a run; of one whose end nothing has seen, at least that."""
    found: Any = run[MEMORY_PEAK]
    return doc.UnitCell(found, before="≥ " if run_list.is_least(run) else "")


def _peaks(runs: Sequence[Run]) -> Iterator[doc.Bars]:
    highest = _highest(runs)[:_MOST_BARS]
    if len(highest) > 1:
        yield doc.Bars([(str(run[run_list.PATH]), _peak(run), 0) for run in highest])


def _runs_data(runs: Sequence[Run]) -> dict[str, Any]:
    data = []
    for run in runs:
        numbers = ((name, value) for name, value in run.items() if isinstance(value, float))
        moments = {
            name: moment_json(at) for name, at in numbers if run_list.unit_of(name) == run_list.TIME
        }
        data.append({**run, **moments})
    return {"runs": data}


def unreadable_lines(unreadable: Sequence[run_list.Unreadable]) -> list[str]:
    """Returns what could not be read, a line each below a heading."""
    paths = counted(len({each.path for each in unreadable}), "path")
    head = f"{paths} could not be read, or not in all parts:"
    return [head, *(f"{each.path}: {each.problem}" for each in unreadable)]


def _page_parts(
    runs: Sequence[Run],
    names: Sequence[str],
    pivot: run_list.Pivot,
    unreadable: Sequence[run_list.Unreadable],
) -> Iterator[doc.Part]:
    yield from _peaks(runs)
    if pivot.rows:
        yield _pivot(pivot)._replace(caption=_note(pivot), note="")
    *columns, path = _fields(names)
    # In a phone's window the status is beside the path.
    columns.sort(key=lambda field: field.name != run_list.STATUS)
    table = _list(runs, (path, *columns), is_page=True)._replace(caption="Runs")
    yield doc.Section("Runs", (table.first(_MOST_ROWS, "run"),))
    if unreadable:
        heading, *lines = unreadable_lines(unreadable)
        yield doc.Lines((heading,))
        yield doc.Lines(lines, is_bad=True).first(_MOST_PROBLEMS)


def _fields(names: Sequence[str]) -> tuple[run_list.Field, ...]:
    """Returns the columns of the list, and columns of further names before the path."""
    *before, path = run_list.LISTED
    names = [name for name in dict.fromkeys(names) if name not in run_list.NAMES]
    more = [run_list.Field(name, name, run_list.unit_of(name), "") for name in names]
    return (*before, *more, path)


def _list(
    runs: Sequence[Run], fields: Sequence[run_list.Field], *, is_page: bool = False
) -> doc.Table:
    columns = [_column(field, runs) for field in fields]

    def row(run: Run, cells: Sequence[doc.Cell]) -> doc.Row:
        report = Path(str(run[run_list.PATH]), REPORT)
        link = quote(report.as_posix()) if is_page and report.is_file() else ""
        return doc.Row(cells, state=cast("State", run[run_list.STATUS]), link=link)

    return doc.Table.of(columns, runs, row=row, known_only=is_page, id="runs")


def _column(field: run_list.Field, runs: Sequence[Run]) -> doc.Column[Run]:
    def value(run: Run) -> doc.Cell:
        found = run.get(field.name)
        if field.name == MEMORY_PEAK and isinstance(found, int | float) and run_list.is_least(run):
            return _peak(run)
        if field.name == run_list.STATUS:
            audit = phrase(", {} in an audit", run.get(run_list.AUDIT), _problems)
            return f"{found}{phrase(', {} failed', run.get(run_list.FAILED))}{audit}"
        return found

    is_number = field.unit or any(isinstance(run.get(field.name), int | float) for run in runs)
    unit = field.unit if is_number else None
    spare = _SPARE.get(field.heading, 0)
    return doc.Column(field.heading, unit, value, field.name, spare=spare, title=field.brief)


def _problems(number: Any) -> str:
    return counted(number, "problem")


def _pivot(pivot: run_list.Pivot) -> doc.Table:
    headings = {field.name: field.heading for field in run_list.LISTED}
    headings[run_list.LIBRARY] = "LIBRARY"
    columns = [doc.Column[Any](headings.get(pivot.of_rows, pivot.of_rows), key=pivot.of_rows)]
    for name in pivot.beside:
        unit = run_list.unit_of(name) or None
        columns.append(doc.Column(headings.get(name, name), unit, key=name))
    columns += [doc.Column(name or _NONE, run_list.unit_of(pivot.value)) for name in pivot.columns]
    rows = [(row.name or _NONE, *row.beside, *map(_median, row.cells)) for row in pivot.rows]
    return doc.Table(columns, rows, note=_note(pivot))


def _median(cell: run_list.Cell | None) -> doc.Cell:
    if cell is None:
        return None
    return doc.UnitCell(cell.median, title=f"median of {counted(cell.runs, 'run')}")


def _note(pivot: run_list.Pivot) -> str:
    """Returns what has to be known to read a table, in a sentence or two."""
    most = max((cell.runs for row in pivot.rows for cell in row.cells if cell), default=0)
    note = f"{pivot.value} by {pivot.of_rows} and {pivot.of_columns}"
    if most > 1:
        note += f": the median where a cell has several runs, up to {most:,}"
    if pivot.left_out:
        why = f"which did not end well or have no {pivot.value}"
        note += f". {counted(pivot.left_out, 'run')} left out, {why}"
    return f"{note}."


def _pivot_data(pivot: run_list.Pivot) -> dict[str, Any]:
    """Returns of each cell the median in bytes or seconds, and its runs."""
    rows = []
    for row in pivot.rows:
        known = zip(pivot.columns, row.cells, strict=True)
        cells = {name or _NONE: asdict(cell) for name, cell in known if cell is not None}
        beside = dict(zip(pivot.beside, row.beside, strict=True))
        rows.append({pivot.of_rows: row.name or None, **beside, "cells": cells})
    return {
        "rows": pivot.of_rows, "columns": pivot.of_columns, "value": pivot.value,
        "unit": run_list.unit_of(pivot.value), "table": rows, "left_out": pivot.left_out,
    }  # fmt: skip
