"""Estimates as a table, Markdown, CSV or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from otel_quant.estimate.model import EstimatedModel
from otel_quant.estimate.results import Estimate, Figure
from otel_quant.schema.units import counted, size
from otel_quant.views.cost_report import assumptions
from otel_quant.views.former_document import Facts, Lines, Part, Table, as_markdown, as_text
from otel_quant.views.spreadsheet import csv_lines

SCHEMA: Final = 1
"""Version of the JSON: raised when a key changes its meaning or goes away."""


def report(
    model: EstimatedModel, estimates: Sequence[Estimate], limit: int | None, form: str
) -> str:
    """Renders estimates."""
    return _FORMATS[form](model, estimates, limit)


def _parts(
    model: EstimatedModel, estimates: Sequence[Estimate], limit: int | None
) -> Iterator[Part]:
    notes = _notes(model)
    if notes:
        yield Lines(tuple(notes))
    rows = [
        ("weights", size(model.weight_bytes)),
        ("inputs of a sample", size(model.input_bytes)),
        (
            "activations of a sample",
            size(sum(tensor.bytes or 0 for tensor in model.activations)),
        ),
    ]
    rows += [
        (
            f"largest layer by {whose}",
            f"{layer.name}, {size(layer.bytes)}: {layer.computed_from}",
        )
        for whose, layer in model.layers.items()
    ]
    yield Facts(tuple(rows), model.cost.path)
    fits = () if limit is None else (f"fits {size(limit)}",)
    header = ("method", "samples", "peak", "at least", "at most", "disk", *fits, "mostly")
    yield Table(header, ("",) * len(header), tuple(_row(each, limit) for each in estimates))
    for library, own in groupby(estimates, lambda each: each.library):
        yield from _explained(library, tuple(own))


def _explained(library: str, estimates: Sequence[Estimate]) -> Iterator[Facts]:
    """Yields what the figures of a library's methods are computed from, what they share first."""
    figures = [dict.fromkeys(_figures(each)) for each in estimates]
    shared = [figure for figure in figures[0] if all(figure in own for own in figures)]
    own_titles = [f"{library}:{each.method}" for each in estimates]
    if len(estimates) > 1:
        yield _facts(shared, f"{library}: all {len(estimates)} methods")
    else:
        shared = []
    for title, own in zip(own_titles, figures, strict=True):
        rest = [figure for figure in own if figure not in shared]
        if rest:
            yield _facts(rest, title)


def _figures(estimate: Estimate) -> Iterator[tuple[str, Figure]]:
    for kind, figures in (("memory", estimate.memory), ("disk", estimate.disk)):
        for figure in figures:
            yield kind, figure


def _facts(figures: Sequence[tuple[str, Figure]], title: str) -> Facts:
    rows = [
        (f"{kind}: {figure.name}", f"{size(figure.bytes)}: {figure.computed_from}")
        for kind, figure in figures
    ]
    return Facts(tuple(rows), title)


def _row(estimate: Estimate, limit: int | None) -> tuple[str, ...]:
    most = max(estimate.memory, key=lambda figure: figure.bytes)
    return (
        f"{estimate.library}:{estimate.method}",
        f"{estimate.samples:,}",
        size(estimate.peak),
        size(estimate.lowest),
        "?" if estimate.highest is None else size(estimate.highest),
        size(estimate.disk_bytes),
        *(() if limit is None else (estimate.fits(limit),)),
        most.name,
    )


def _notes(model: EstimatedModel) -> list[str]:
    """What the figures rest on beyond the model."""
    notes = list(assumptions(model.cost))
    if model.unsized:
        notes.append(
            f"{counted(model.unsized, 'tensor')} of unknown size: the estimates leave them out, so "
            "that more may be needed; --input and --dim give the lengths of inputs"
        )
    return notes


def _json(model: EstimatedModel, estimates: Sequence[Estimate], limit: int | None) -> str:
    found = {
        "schema": SCHEMA,
        "model": model.cost.path,
        "weight_bytes": model.weight_bytes,
        "input_bytes": model.input_bytes,
        "input_shapes": {tensor.name: list(tensor.shape) for tensor in model.inputs},
        "notes": _notes(model),
        "unsized_tensors": model.unsized,
        "layers": {
            whose: {"name": layer.name, "bytes": layer.bytes, "computed_from": layer.computed_from}
            for whose, layer in model.layers.items()
        },
        "limit_bytes": limit,
        "estimates": [
            {
                "library": each.library,
                "method": each.method,
                "samples": each.samples,
                "probed_samples": each.probed,
                "peak_bytes": each.peak,
                "lowest_bytes": each.lowest,
                "highest_bytes": each.highest,
                "disk_bytes": each.disk_bytes,
                "fits": None if limit is None else each.fits(limit),
                **{
                    kind: [
                        {
                            "name": figure.name,
                            "bytes": figure.bytes,
                            "computed_from": figure.computed_from,
                        }
                        for figure in figures
                    ]
                    for kind, figures in (("memory", each.memory), ("disk", each.disk))
                },
            }
            for each in estimates
        ],
    }
    return json.dumps(found, indent=2) + "\n"


_CSV: Final = ("library", "method", "samples", "kind", "figure", "bytes", "fits", "computed_from")


def _csv(model: EstimatedModel, estimates: Sequence[Estimate], limit: int | None) -> str:
    rows: list[tuple[str | int | None, ...]] = []
    for each in estimates:
        of_all = (each.library, each.method, each.samples)
        fits = None if limit is None else each.fits(limit)
        for name, total in (
            ("peak", each.peak),
            ("lowest", each.lowest),
            ("highest", each.highest),
        ):
            rows.append((*of_all, "total", name, total, fits, None))
        for kind, figure in _figures(each):
            rows.append((*of_all, kind, figure.name, figure.bytes, None, figure.computed_from))
    return "".join(csv_lines(_CSV, rows))


_FORMATS: Final[Mapping[str, Callable[[EstimatedModel, Sequence[Estimate], int | None], str]]] = {
    "table": lambda *given: as_text(_parts(*given)),
    "markdown": lambda *given: as_markdown(_parts(*given)),
    "csv": _csv,
    "json": _json,
}
