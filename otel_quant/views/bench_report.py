"""What was measured of variants, as a table, Markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from otel_quant.inference.bench.results import BenchResult, CallTime, VariantResult
from otel_quant.schema.units import counted, digits_text, share_text, size
from otel_quant.views.former_document import Facts, Lines, Part, Table, as_markdown, as_text
from otel_quant.views.inference_report import milliseconds
from otel_quant.views.spreadsheet import csv_lines

_ABSENT: Final = "-"
_SPARE: Final = ("largest difference", "IQR", "to compile", "to quantize", "ratio", "on disk")
"""Columns that a narrow terminal does without."""


def bench_report(result: BenchResult, form: str, width: int | None = None) -> Iterator[str]:
    """Renders a result, piece by piece."""
    if form == "json":
        yield result.to_json()
    elif form == "csv":
        yield from csv_lines(
            tuple(_CSV), ([get(each) for get in _CSV.values()] for each in result.variants)
        )
    else:
        parts = _parts(result)
        yield as_markdown(parts) if form == "markdown" else as_text(parts, width)


def _parts(result: BenchResult) -> Iterator[Part]:
    yield Facts(tuple(bench_settings(result).items()), "measured")
    yield variant_table(result)
    if notes := variant_notes(result):
        yield Lines(notes)
    yield Lines((f"to repeat: {result.command}",))


def bench_settings(result: BenchResult) -> Mapping[str, str]:
    """Returns how it was measured, as names and values."""
    between = (("rounds", result.noise), ("processes", result.process_spread))
    noise = (f"{share_text(part)} between {of}" for of, part in between if part is not None)
    found = {
        "baseline": result.baseline,
        **result.settings,
        "machine": f"{counted(result.cores, 'core')}, load {result.load:.2f} before",
        "noise": f"{text} at most" if (text := ", ".join(noise)) else "",
    }
    return {name: text for name, text in found.items() if text}


def variant_table(result: BenchResult) -> Table:
    """Returns the variants side by side; one that failed has its problem in the last column."""
    rows = (
        (each.name, *(get(each) or _ABSENT for get in _CELLS.values()), each.problem)
        for each in result.variants
    )
    names = ("variant", *(name for name, _ in _CELLS), "")
    of_none = (
        name for (name, _), get in _CELLS.items() if not any(get(each) for each in result.variants)
    )
    spare = tuple(dict.fromkeys((*of_none, *_SPARE)))
    return Table(names, ("", *(unit for _, unit in _CELLS), ""), tuple(rows), spare=spare)


def variant_notes(result: BenchResult) -> tuple[str, ...]:
    """Returns what numbers cannot say."""
    notes = []
    for each in result.variants:
        if each.call is not None and each.call.is_apart is False:
            notes.append(
                f"{each.name}: its time cannot be told apart from that of {result.baseline}: its "
                f"rounds differ by {share_text(each.call.noise)}"
            )
        if each.error_problem:
            what = (
                "its error is not known" if each.error is None else "its error is not that of all"
            )
            notes.append(f"{each.name}: {what}: {each.error_problem}")
    return tuple(notes)


def _call(get: Callable[[CallTime], str]) -> Callable[[VariantResult], str]:
    return lambda variant: "" if variant.call is None else get(variant.call)


def _speedup(call: CallTime) -> str:
    if call.speedup is None:
        return ""
    return f"x {call.speedup:.2f}" if call.is_apart else "within noise"


def _peak(variant: VariantResult) -> str:
    memory = variant.memory
    if memory is None:
        return ""
    if memory.gpu is not None:
        return f"{size(memory.gpu)} of GPU"
    return "" if memory.process is None else size(memory.process)


def _memory_ratio(variant: VariantResult) -> str:
    ratio = None if variant.memory is None else variant.memory.ratio
    return "" if ratio is None else f"x {ratio:.2f}"


def _sqnr(variant: VariantResult) -> str:
    if variant.error is None:
        return ""
    if variant.error.max_abs == 0:
        return "equal"
    return "" if variant.error.sqnr is None else f"{variant.error.sqnr:.1f}"


def _largest(variant: VariantResult) -> str:
    known = None if variant.error is None else variant.error.max_abs
    return "" if known is None else f"{known:.3g}"


def _seconds(value: float | None) -> str:
    return "" if value is None else digits_text(value)


_CELLS: Final[Mapping[tuple[str, str], Callable[[VariantResult], str]]] = {
    ("median", "ms"): _call(lambda call: milliseconds(call.median)),
    ("IQR", "ms"): _call(lambda call: milliseconds(call.iqr)),
    ("speed-up", ""): _call(_speedup),
    ("peak memory", ""): _peak,
    ("ratio", ""): _memory_ratio,
    ("on disk", ""): lambda variant: "" if variant.disk is None else size(variant.disk),
    ("to quantize", "s"): lambda variant: _seconds(variant.quantize),
    ("to compile", "s"): lambda variant: _seconds(variant.compile),
    ("SQNR", "dB"): _sqnr,
    ("largest difference", ""): _largest,
}
"""Columns with their units; an empty cell is not known."""

_CSV: Final[Mapping[str, Callable[[VariantResult], str | int | float | None]]] = {
    "variant": lambda each: each.name,
    "kind": lambda each: each.kind,
    "median_seconds": lambda each: None if each.call is None else each.call.median,
    "iqr_seconds": lambda each: None if each.call is None else each.call.iqr,
    "noise": lambda each: None if each.call is None else each.call.noise,
    "processes": lambda each: None if each.call is None else len(each.call.processes),
    "speedup": lambda each: each.call.speedup if each.call and each.call.is_apart else None,
    "process_peak_bytes": lambda each: None if each.memory is None else each.memory.process,
    "gpu_peak_bytes": lambda each: None if each.memory is None else each.memory.gpu,
    "memory_ratio": lambda each: None if each.memory is None else each.memory.ratio,
    "disk_bytes": lambda each: each.disk,
    "quantize_seconds": lambda each: each.quantize,
    "compile_seconds": lambda each: each.compile,
    "sqnr_db": lambda each: None if each.error is None else each.error.sqnr,
    "largest_difference": lambda each: None if each.error is None else each.error.max_abs,
    "problem": lambda each: each.problem or each.error_problem,
}
