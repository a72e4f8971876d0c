"""Models at work as a page of their own, or as a section of a recording's report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from otel_quant.export.recording.layout import BENCH, INFERENCE
from otel_quant.inference.results import InferenceResult, ModelResult, read_result
from otel_quant.schema.units import counted
from otel_quant.version import VERSION
from otel_quant.views.former_document import Table
from otel_quant.views.inference_report import (
    Unit,
    accuracy_problems,
    backend_table,
    bench_settings,
    between_text,
    conversion_table,
    error_table,
    latency_table,
    layer_table,
    memory_table,
    node_table,
    operator_table,
    sentences,
    settings,
    unit_of,
    variant_notes,
    variant_table,
)
from otel_quant.views.report.page import page
from otel_quant.views.report.tables import Column, FactList, PageTable, Row

_MOST = 100
"""Rows of a table."""


@dataclass(frozen=True, slots=True)
class ModelPart:
    """What is shown of one model."""

    path: str  # The model
    problem: str  # Why it was not measured; empty if it was
    between: str = ""  # How a run's time divides
    findings: tuple[tuple[str, str], ...] = ()  # Sentences with their sources
    tables: tuple[PageTable, ...] = ()  # What ran, and the errors of tensors


@dataclass(frozen=True, slots=True)
class InferencePart:
    """What is shown of a result."""

    tables: tuple[PageTable, ...]  # The models side by side
    models: tuple[ModelPart, ...]  # Each by itself
    settings: FactList  # How it was measured
    runtime: str = ""  # What ran the models


_DAMAGED = InferencePart(
    (),
    (ModelPart(INFERENCE, "the file is damaged, or of another version of otel-quant"),),
    FactList(""),
)


def render(result: InferenceResult) -> str:
    """Returns a result as one HTML page that needs no network."""
    if result.baseline:
        return page("bench.html.j2", version=VERSION, bench=_variants_of(result))
    return page("inference.html.j2", version=VERSION, inference=part_of(result))


def inference_of(recording: Path) -> InferencePart | None:
    """Returns what was measured beside a recording; None if nothing was."""
    try:
        text = (recording / INFERENCE).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return _DAMAGED
    try:
        return part_of(read_result(text))
    except (ValueError, RecursionError):
        return _DAMAGED


def part_of(result: InferenceResult) -> InferencePart:
    """Returns what is shown of a result."""
    measured = [model for model in result.models if model.ran is not None]
    return InferencePart(
        (_latency(result.models), *_side_by_side(measured)) if measured else (),
        tuple(_model(number, model, unit_of(result)) for number, model in enumerate(result.models)),
        FactList("How it was measured", tuple(settings(result).items())),
        result.runtime,
    )


def _latency(models: Sequence[ModelResult]) -> PageTable:
    """Returns the times of models, with a problem across the columns of its row."""
    plain = latency_table(models)
    pairs = list(zip(models, plain.rows, strict=True))
    rows = tuple((*row[:-1], "") if model.problem else row for model, row in pairs)
    table = page_table("latency", "Latency, without the profiler", replace(plain, rows=rows))
    said = (
        Row(row.cells[:1], said=each.problem) if each.problem else row
        for each, row in zip(models, table.rows, strict=True)
    )
    return replace(table, rows=tuple(said))


def _side_by_side(models: Sequence[ModelResult]) -> Iterator[PageTable]:
    yield page_table("memory", "Memory", memory_table(models))
    if others := [model for model in models if model.accuracy is not None]:
        table = page_table("error", "How far off", error_table(others))
        why = (f"{each}." for each in accuracy_problems(others))
        yield replace(table, note=" ".join(filter(None, (*why, table.note))))


def _model(number: int, model: ModelResult, unit: Unit) -> ModelPart:
    if model.ran is None:
        return ModelPart(model.path, model.problem)
    tables = [
        page_table(f"operators-{number}", "Kernels by operator", operator_table(model.ran, unit)),
        page_table(
            f"nodes-{number}", f"By {unit.node}", *node_table(model.ran.kernels, _MOST, unit)
        ),
    ]
    if model.conversions:
        table = conversion_table(model)
        tables.append(page_table(f"conversions-{number}", "Changes of type", table))
    if model.backend:
        table = backend_table(model.backend)
        tables.append(page_table(f"backend-{number}", "Kernels below the operators", table))
    if model.accuracy is not None and model.accuracy.layers:
        layers = layer_table(model, len(model.accuracy.layers))
        tables.append(page_table(f"layers-{number}", "Error of each tensor", layers))
    findings, more = sentences(model, _MOST)
    if more:
        findings = [*findings, (f"and {more:,} more, which took less time", "")]
    return ModelPart(model.path, "", between_text(model.ran), tuple(findings), tuple(tables))


def page_table(
    name: str, caption: str, table: Table, left_out: int = 0, of: str = "inference"
) -> PageTable:
    """Returns a table of a page, without its last column if that has nothing."""
    width = len(table.header) - (not any(row[-1] for row in table.rows))
    columns = tuple(
        Column(heading, unit, is_text=i < table.left or i == len(table.header) - 1)
        for i, (heading, unit) in enumerate(zip(table.header, table.units, strict=True))
    )
    left_out += max(0, len(table.rows) - _MOST)
    return PageTable(
        f"{of}-{name}",
        caption,
        columns[:width],
        tuple(Row(row[:width]) for row in table.rows[:_MOST]),
        f"{counted(left_out, 'more row')} left out." if left_out > 0 else "",
    )


@dataclass(frozen=True, slots=True)
class BenchPart:
    """What is shown of a result."""

    # The variants side by side; None if the file of the result cannot be read
    table: PageTable | None
    notes: tuple[str, ...]  # What numbers cannot say
    settings: FactList  # How they were measured


def bench_of(recording: Path) -> BenchPart | None:
    """Returns what was measured beside a recording; None if nothing was."""
    try:
        return _variants_of(read_result((recording / BENCH).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError):
        damaged = f"{BENCH} is damaged, or of another version of otel-quant"
        return BenchPart(None, (damaged,), FactList(""))


def _variants_of(result: InferenceResult) -> BenchPart:
    return BenchPart(
        _variants(result),
        variant_notes(result),
        FactList(
            "How they were measured",
            (*bench_settings(result).items(), ("to repeat", result.command)),
        ),
    )


def _variants(result: InferenceResult) -> PageTable:
    """Returns the variants side by side, with a problem across the columns of its row."""
    plain = variant_table(result)
    plain = replace(plain, rows=tuple((*row[:-1], "") for row in plain.rows))
    table = page_table("variants", "Time, memory, size and error", plain, of="bench")
    pairs = zip(result.models, table.rows, strict=False)
    rows = (Row(row.cells[:1], said=each.problem) if each.problem else row for each, row in pairs)
    return replace(table, rows=tuple(rows))
