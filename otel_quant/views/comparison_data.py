"""A comparison for programs: JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from otel_quant.recordings.comparison.gate import Check, Verdict
from otel_quant.recordings.comparison.side_by_side import Comparison, FigureRow, Sample, StepRow
from otel_quant.recordings.steps import path_text
from otel_quant.views.comparison_words import check_text
from otel_quant.views.spreadsheet import csv_lines


def as_json(comparison: Comparison, verdict: Verdict | None) -> str:
    """Returns a comparison as JSON, in the units of the figures: bytes and seconds."""
    data: dict[str, Any] = {
        "sides": [
            {
                "name": side.name,
                "runs": [
                    {"path": run.name, "state": run.recording.state, "problem": run.why or None}
                    for run in side.runs
                ],
            }
            for side in comparison.sides
        ],
        "differs": [
            {
                "name": fact.name,
                "values": [list(values) for values in fact.values],
                "changes": sorted(fact.changes),
            }
            for fact in comparison.differences
        ],
        "rows": [_row(row) for row in comparison.rows],
    }
    if verdict is not None:
        numbers = {side.name: at for at, side in enumerate(comparison.sides)}
        data["gate"] = {
            "outcome": verdict.outcome,
            "exit_code": verdict.exit_code,
            "checks": [_check(check, numbers[check.side.name]) for check in verdict.checks],
        }
    return json.dumps(data, indent=2) + "\n"


def _row(row: StepRow) -> dict[str, Any]:
    return {
        "step": path_text(row.path),
        "runs": list(row.runs),
        "figures": {name: _figure(figure) for name, figure in row.figures.items()},
    }


def _figure(row: FigureRow) -> dict[str, Any]:
    return {
        "unit": row.figure.unit,
        "is_smaller_better": row.figure.is_smaller_better,
        "sides": [_sample(sample) for sample in row.samples],
        "differences": [asdict(each) if each is not None else None for each in row.differences],
    }


def _sample(sample: Sample | None) -> dict[str, Any] | None:
    if sample is None:
        return None
    return {
        "median": sample.median,
        "lowest": sample.lowest,
        "highest": sample.highest,
        "values": list(sample.values),
    }


def _check(check: Check, side: int) -> dict[str, Any]:
    return {
        "limit": check.limit.text if check.limit is not None else None,
        "figure": check.limit.figure.name if check.limit is not None else None,
        "step": path_text(check.path),
        "side": check.side.name,
        "outcome": check.outcome,
        "base": check.base.median if check.base is not None else None,
        "new": check.new.median if check.new is not None else None,
        "text": check_text(check, side),
    }


def as_csv(comparison: Comparison) -> str:
    """Returns a comparison as CSV: a row for each figure of each step."""
    header = ["step", "figure", "unit"]
    for number, side in enumerate(comparison.sides):
        name = side.name.replace(" ", "_")
        header += [f"{name}_{part}" for part in ("runs", "median", "lowest", "highest")]
        if number:
            header += [f"{name}_{part}" for part in ("change", "ratio", "p", "is_clear")]
    return "".join(csv_lines(header, _csv_rows(comparison)))


def _csv_rows(comparison: Comparison) -> Iterator[list[str | int | float | None]]:
    for row in comparison.rows:
        for name, figure in row.figures.items():
            cells: list[str | int | float | None] = [
                path_text(row.path), name, figure.figure.unit,
            ]  # fmt: skip
            for number, sample in enumerate(figure.samples):
                cells += (
                    [0, None, None, None]
                    if sample is None
                    else [len(sample.values), sample.median, sample.lowest, sample.highest]
                )
                if number:
                    difference = figure.differences[number - 1]
                    cells += (
                        [None] * 4
                        if difference is None
                        else [
                            difference.change,
                            difference.ratio,
                            difference.p,
                            "yes" if difference.is_clear else "no",
                        ]
                    )
            yield cells
