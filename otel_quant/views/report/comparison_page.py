"""A comparison as an HTML page."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from otel_quant.recordings.comparison.gate import Verdict
from otel_quant.recordings.comparison.runs import ComparedRun, common_time
from otel_quant.recordings.comparison.side_by_side import Comparison, FigureRow, Side, StepRow
from otel_quant.recordings.steps import name_text
from otel_quant.schema.figures import QUANTITIES, Quantity
from otel_quant.schema.units import GB, MB, counted, cut
from otel_quant.version import VERSION
from otel_quant.views.comparison_document import is_telling, largest, notes
from otel_quant.views.comparison_words import (
    NOISE_MEANS,
    check_text,
    fact_text,
    is_noisy,
    noise_text,
    outcome_text,
)
from otel_quant.views.report.charts import band_data, chart_data
from otel_quant.views.report.comparison_charts import comparison_bands, comparison_charts
from otel_quant.views.report.outline import outline_of
from otel_quant.views.report.page import page
from otel_quant.views.report.tables import Column, FactList, PageTable, Row

_MOST_CHECKS: Final = 40
_LONGEST_NAME: Final = 120


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit of the page: its name, what one of it is, and digits after the point."""

    name: str
    scale: float
    digits: int


_UNITS: Final[Mapping[str, _Unit]] = {
    "s": _Unit("s", 1, 3),
    "{sample}/s": _Unit("/s", 1, 2),
    "1": _Unit("%", 0.01, 2),
}
_PLAIN: Final = _Unit("", 1, 0)
_SIZES: Final = ((10 * GB, _Unit("GB", GB, 2)), (MB, _Unit("MB", MB, 1)), (0, _Unit("kB", 1e3, 1)))
"""Units of bytes, each with the largest value of a table from which on it is used."""


def _unit(rows: Sequence[FigureRow]) -> _Unit:
    """Returns the unit in which all values of some rows of a figure are shown."""
    unit = rows[0].figure.unit
    if unit != "By":
        return _UNITS.get(unit, _PLAIN)
    highest = max(sample.highest for row in rows for sample in row.samples if sample is not None)
    return next(each for least, each in _SIZES if highest >= least)


def render(comparison: Comparison, verdict: Verdict | None) -> str:
    """Returns the page of a comparison: it needs no network."""
    base, new = comparison.sides[0], comparison.sides[-1]
    runs = _median_run(base), _median_run(new)
    time = common_time(*runs)
    charts = comparison_charts((base.name, new.name), runs, time) if time.until else []
    bands = comparison_bands(runs[0], 0, time)
    numbers = {side.name: at for at, side in enumerate(comparison.sides)}
    checks = [
        check_text(check, numbers[check.side.name])
        for check in (verdict.checks if verdict is not None else ())
        if check.outcome != "within"
    ]
    checks = list(dict.fromkeys(checks))
    names = [side.name for side in comparison.sides]
    heading = f"{', '.join(names[:-1])} and {names[-1]} side by side"
    return page(
        "compare.html.j2",
        version=VERSION,
        heading=outcome_text(verdict).capitalize() if verdict is not None else heading,
        is_bad=verdict is not None and verdict.outcome != "within",
        checks=checks[:_MOST_CHECKS],
        more_checks=max(0, len(checks) - _MOST_CHECKS),
        sides=FactList("", tuple(_sides(comparison))),
        charts=[(chart, outline_of(chart, bands, time.until)) for chart in charts],
        curves_of=[(side.name, run.name) for side, run in zip((base, new), runs, strict=True)],
        differs=_differs(comparison) if comparison.differences else None,
        total=_total(comparison),
        tables=list(_tables(comparison)),
        data={
            "until": time.until,
            "bands": band_data(bands),
            "charts": [chart_data(chart) for chart in charts],
        },
    )


def _median_run(side: Side) -> ComparedRun:
    """Returns the run in the middle by its duration."""
    middle = statistics.median_low(run.recording.duration for run in side.runs)
    return next(run for run in side.runs if run.recording.duration == middle)


def _sides(comparison: Comparison) -> Iterator[tuple[str, str]]:
    for side in comparison.sides:
        yield (
            side.name,
            ", ".join(f"{run.name} ({run.why})" if run.why else run.name for run in side.runs),
        )


def _differs(comparison: Comparison) -> PageTable:
    columns = (
        Column("What", is_text=True),
        *(Column(side.name, is_text=True) for side in comparison.sides),
    )
    rows = tuple(
        Row((fact.name, *(fact_text(fact, at) for at in range(len(comparison.sides)))))
        for fact in comparison.differences
    )
    return PageTable("differs", "What differs between the runs", columns, rows)


def _total(comparison: Comparison) -> PageTable:
    rows = []
    for name, row in comparison.rows[0].figures.items():
        if is_telling(comparison.rows[0], name):
            unit = _unit([row])
            cells = (unit.name, *_cells(comparison, row, unit), noise_text(row))
            rows.append(Row((row.figure.brief, *cells)))
    columns = (
        Column("Quantity", is_text=True), Column("Unit", is_text=True),
        *_columns(comparison, ""), Column("Noise", is_text=True),
    )  # fmt: skip
    is_any = any(is_noisy(each) for row in comparison.rows for each in row.figures.values())
    note = f"{NOISE_MEANS}." if is_any else ""
    return PageTable("total", "Total", columns, tuple(rows), note, is_sortable=False)


def _tables(comparison: Comparison) -> Iterator[PageTable]:
    """Yields a table of steps for each figure."""
    steps = comparison.rows[1:]
    for figure in QUANTITIES:
        having = [row for row in steps if figure.name in row.figures]
        if any(is_telling(row, figure.name) for row in having):
            yield _table(comparison, figure, having)


def _table(comparison: Comparison, figure: Quantity, steps: Sequence[StepRow]) -> PageTable:
    shown = largest(figure, steps)
    left_out = len(steps) - len(shown)
    unit = _unit([row.figures[figure.name] for row in shown])
    columns = (
        Column("Step", is_text=True),
        *_columns(comparison, unit.name),
        Column("Note", is_text=True),
    )
    rows = []
    for row in shown:
        of = row.figures[figure.name]
        note = ", ".join(filter(None, (noise_text(of), *notes(comparison, row))))
        name = cut(name_text(row.path), _LONGEST_NAME)
        rows.append(Row((name, *_cells(comparison, of, unit), note), len(row.path) - 1))
    brief = figure.brief
    return PageTable(
        f"steps-{figure.name.replace('.', '-')}",
        f"{brief[0].upper()}{brief[1:]}",
        columns,
        tuple(rows),
        f"{counted(left_out, 'step')} left out: those that differ least." if left_out else "",
    )


def _columns(comparison: Comparison, unit: str) -> Iterator[Column]:
    for number, side in enumerate(comparison.sides):
        yield Column(side.name, unit, title="median" if len(side.runs) > 1 else "")
        if len(side.runs) > 1:
            yield Column("±", unit, title="largest distance of a run from the median")
        if number:
            yield Column("difference", unit)
            yield Column("difference", "%")


def _cells(comparison: Comparison, row: FigureRow, unit: _Unit) -> Iterator[str]:
    scale, digits = unit.scale, unit.digits
    for number, (side, sample) in enumerate(zip(comparison.sides, row.samples, strict=True)):
        yield "" if sample is None else f"{sample.median / scale:,.{digits}f}"
        if len(side.runs) > 1:
            yield "" if sample is None else f"{sample.spread / scale:,.{digits}f}"
        if number:
            difference = row.differences[number - 1]
            is_clear = difference is not None and difference.is_clear
            yield f"{difference.change / scale:+,.{digits}f}" if difference and is_clear else ""
            ratio = difference.ratio if difference is not None and is_clear else None
            yield "" if ratio is None else f"{100 * (ratio - 1):+,.1f}"
