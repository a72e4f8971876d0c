"""Variants side by side as a page of their own, or as a section of a recording's report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from otel_quant.export.recording.layout import BENCH
from otel_quant.inference.bench.results import BenchResult, read_bench
from otel_quant.version import VERSION
from otel_quant.views.bench_report import bench_settings, variant_notes, variant_table
from otel_quant.views.report.inference_page import page_table
from otel_quant.views.report.page import page
from otel_quant.views.report.tables import FactList, PageTable, Row


@dataclass(frozen=True, slots=True)
class BenchPart:
    """What is shown of a result."""

    # The variants side by side; None if the file of the result cannot be read
    table: PageTable | None
    notes: tuple[str, ...]  # What numbers cannot say
    settings: FactList  # How they were measured


def render(result: BenchResult) -> str:
    """Returns a result as one HTML page that needs no network."""
    return page("bench.html.j2", version=VERSION, bench=_part_of(result))


def bench_of(recording: Path) -> BenchPart | None:
    """Returns what was measured beside a recording; None if nothing was."""
    try:
        return _part_of(read_bench((recording / BENCH).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError):
        damaged = f"{BENCH} is damaged, or of another version of otel-quant"
        return BenchPart(None, (damaged,), FactList(""))


def _part_of(result: BenchResult) -> BenchPart:
    return BenchPart(
        _table(result),
        variant_notes(result),
        FactList(
            "How they were measured",
            (*bench_settings(result).items(), ("to repeat", result.command)),
        ),
    )


def _table(result: BenchResult) -> PageTable:
    """Returns the variants side by side, with a problem across the columns of its row."""
    plain = variant_table(result)
    plain = replace(plain, rows=tuple((*row[:-1], "") for row in plain.rows))
    table = page_table("variants", "Time, memory, size and error", plain, of="bench")
    pairs = zip(result.variants, table.rows, strict=False)
    rows = (Row(row.cells[:1], said=each.problem) if each.problem else row for each, row in pairs)
    return replace(table, rows=tuple(rows))
