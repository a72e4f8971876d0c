"""What was measured of models, by ``inference`` in detail or by ``bench`` side by side, as a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from otel_quant.base.files import open_regular
from otel_quant.export.recording.layout import BENCH, INFERENCE
from otel_quant.inference.results import (
    BackendKernel,
    Conversion,
    Finding,
    InferenceResult,
    ModelResult,
    OutputError,
    Ran,
    RanKernel,
    TensorError,
    merged_facts,
    read_result,
)
from otel_quant.schema.units import counted, share_text
from otel_quant.views.cells import number_text
from otel_quant.views.document import (
    Cell,
    Column,
    Document,
    Facts,
    Lines,
    Part,
    Quantity,
    Row,
    Section,
    Table,
)
from otel_quant.views.text import shortened
from otel_quant.views.writers import written

_LONGEST: Final = 48
_MOST_FINDINGS: Final = 20
_MOST_OPERATORS: Final = 20
_MOST_NAMES: Final = 3
_LONGEST_PROBLEM: Final = 160
_MICRO: Final = 1e-6

_OF_PAGE: Final = 100
"""Rows of a table, and findings of a model, on a page."""

_ABSENT: Final = "-"
_TITLES: Final = {INFERENCE: "Inference", BENCH: "Variants side by side"}


def document(result: InferenceResult, top: int | None = None) -> Document:
    """Returns a result as a document, with so many nodes of each model; None: for a page."""
    names = ", ".join(model.path for model in result.models)
    over = "Benchmark" if result.baseline else f"Inference with {result.runtime}"
    parts = (section(result),) if top is None else tuple(_parts(result, top))
    return Document(parts, names, over, sheet=lambda: _sheet(result))


def result_text(
    result: InferenceResult, form: str, top: int, width: int | None = None
) -> Iterator[str]:
    """Yields a result in a format; JSON is of at most a megabyte, as a recording has it."""
    if form == "json":
        return iter((result.to_json(),))
    return written(document(result, None if form == "html" else top), form, width)


def section(result: InferenceResult) -> Section:
    """Returns a result as a part of a page: the answer first, how it was measured last."""
    settings, *others = _parts(result, None)
    assert isinstance(settings, Facts)
    title = _TITLES[BENCH if result.baseline else INFERENCE]
    return Section(title, (*others, settings._replace(title="How it was measured")))


def recorded_sections(recording: Path) -> Iterator[Section]:
    """Yields what was measured beside a recording."""
    for name, title in _TITLES.items():
        try:
            with open_regular(recording / name) as file:
                result = read_result(file.read().decode())
            yield section(result)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, ValueError, ArithmeticError, RecursionError):
            why = f"{name} is damaged, or of another version of otel-quant"
            yield Section(title, (Lines((why,)),))


def _parts(result: InferenceResult, top: int | None) -> Iterator[Part]:
    yield Facts([(name, text) for name, text in _settings(result) if text], "measured")
    if result.baseline:
        yield Table.of(
            _VARIANTS, result.models, row=_with_problem, known_only=True, id="bench-variants"
        )
        if notes := _variant_notes(result):
            yield Lines(notes)
        yield Lines((f"to repeat: {result.command}",))
        return
    measured = [model for model in result.models if not model.problem]
    yield Table.of(
        _LATENCY,
        result.models,
        row=_with_problem,
        id="inference-latency",
        caption="Latency, without the profiler",
    )
    if measured:
        yield _table(_MEMORY, measured, "memory", "Memory")
    compared = [(model, model.accuracy) for model in measured if model.accuracy is not None]
    errors = [(model.path, error) for model, accuracy in compared for error in accuracy.outputs]
    if errors:
        yield _table(_ERRORS, errors, "error", "How far off")
    if problems := [f"{model.path}: {each.problem}" for model, each in compared if each.problem]:
        yield Lines(problems)
    rows = _OF_PAGE if top is None else top
    for number, model in enumerate(measured):
        if model.ran is not None:
            node = "module" if result.runtime == "torch" else "node of the file"
            ran = _what_ran(model, model.ran, node, number, rows)
            yield Section(f"{model.path}: what ran", tuple(ran))
        said = _said(model, with_sources=top is None)
        yield Section(f"{model.path}: what went wrong", (Lines(said, is_list=True),))
        if model.accuracy is not None and model.accuracy.layers:
            layers = _table(
                _LAYERS, model.accuracy.layers, f"layers-{number}", "Error of each tensor"
            )
            yield layers.first(rows, "more row")


def _table(columns: Sequence[Column[Any]], items: Sequence[Any], name: str, caption: str) -> Table:
    return Table.of(columns, items, known_only=True, id=f"inference-{name}", caption=caption)


# --- how it was measured ------------------------------------------------------------------


def _settings(result: InferenceResult) -> Iterator[tuple[str, str]]:
    if result.baseline:
        yield "baseline", result.baseline
    else:
        yield result.runtime, result.version
    yield from result.settings.items()
    yield "machine", f"{counted(result.cores, 'core')}, load {result.load:.2f} before"
    between = (("rounds", result.noise), ("processes", result.process_spread))
    noise = [f"{share_text(part)} between {of}" for of, part in between if part is not None]
    yield "noise", f"{', '.join(noise)} at most" if noise else ""
    if not result.baseline:
        yield from merged_facts({
            model.path: {
                "inputs": ", ".join(f"{name} {text}" for name, text in model.inputs.items()),
                "assumed": ", ".join(model.assumed),
                "nodes by provider": ", ".join(
                    f"{name} {count:,}" for name, count in (model.assigned or {}).items()
                ),
                **model.facts,
            }
            for model in result.models
            if not model.problem
        }).items()  # fmt: skip


# --- models side by side ------------------------------------------------------------------


def _latency(name: str) -> Callable[[ModelResult], Any]:
    return lambda model: getattr(model.latency, name, None)


def _memory(name: str) -> Callable[[ModelResult], Any]:
    return lambda model: getattr(model.memory, name, None)


def _ratio(model: ModelResult) -> Cell:
    found = model.latency
    if found is None or found.ratio is None:
        return None
    if found.is_apart:
        return Quantity(found.ratio, "x", digits=3)
    return Quantity(found.ratio, "x", "within noise (", ")", digits=3)


def _with_problem(model: ModelResult, cells: Sequence[Cell]) -> Row:
    if not model.problem:
        return Row(cells)
    return Row(cells[:1], said=shortened(model.problem, _LONGEST_PROBLEM))


def _numbers(
    heading: str, unit: str, value: Callable[[Any], Any], shown_in: str | None = None, **more: Any
) -> Column[Any]:
    return Column(heading, unit, value, shown_in=shown_in, absent=_ABSENT, **more)


_LATENCY: Final[Sequence[Column[ModelResult]]] = (
    Column("model", value=lambda model: model.path),
    _numbers("median", "s", _latency("median"), "ms"),
    _numbers("p10", "s", _latency("p10"), "ms", spare=4),
    _numbers("p90", "s", _latency("p90"), "ms", spare=5),
    _numbers("runs", "", _latency("runs"), spare=3),
    _numbers("first run", "s", _latency("first"), "ms", spare=2),
    _numbers("noise", "1", _latency("noise")),
    _numbers("profiled", "x", _latency("profiled"), spare=1),
    Column("vs. baseline", value=_ratio),
)

_MEMORY: Final[Sequence[Column[ModelResult]]] = (
    Column("model", value=lambda model: model.path),
    *(
        _numbers(heading, "By", _memory(name), spare=spare)
        for heading, name, spare in (
            ("peak while running", "peak", 0),
            ("grown by a run", "run_growth", 6),
            ("allocated at once", "alive", 0),
            ("allocated in all", "allocated", 3),
            ("peak until the first run", "load_peak", 1),
            ("grown by the session", "grown", 2),
            ("arena", "arena_held", 5),
            ("arena in use", "arena_used", 4),
            ("weights on disk", "weights_on_disk", 0),
            ("weights in memory", "weights_in_memory", 0),
        )
    ),
)


def _sqnr(error: OutputError | None) -> Cell:
    if error is None:
        return None
    return Quantity(None, after="equal") if error.max_abs == 0 else error.sqnr


_ERRORS: Final[Sequence[Column[tuple[str, OutputError]]]] = (
    Column(
        "output, vs. baseline",
        value=lambda of: f"{of[0]}: {of[1].name}",
        longest=_LONGEST,
    ),
    _numbers("SQNR", "dB", lambda of: _sqnr(of[1]), "dB", digits=1),
    _numbers("cosine", "", lambda of: of[1].cosine, digits=6),
    _numbers("largest difference", "", lambda of: of[1].max_abs),
)

_LAYERS: Final[Sequence[Column[TensorError]]] = (
    Column("tensor, worst first", value=lambda error: error.name, longest=_LONGEST),
    _numbers("of its own", "dB", lambda error: error.own, "dB", digits=1),
    _numbers("of all before it too", "dB", lambda error: error.all, "dB", digits=1),
)


# --- what ran in a model ------------------------------------------------------------------


def _what_ran(model: ModelResult, ran: Ran, node: str, number: int, rows: int) -> Iterator[Part]:
    share = share_text(ran.between_micros / ran.run_micros) if ran.run_micros else _ABSENT
    run, kernels, between = (
        number_text(_MICRO * each, "ms")
        for each in (ran.run_micros, ran.kernel_micros, ran.between_micros)
    )
    yield Lines((
        f"a run with the profiler on: {run}, of which kernels {kernels} and between them "
        f"{between} ({share}); mean of {counted(ran.runs, 'run')}",
    ))  # fmt: skip
    columns: tuple[Column[Any], ...] = (
        Column("operator", value=attrgetter("op_type")),
        _numbers("calls" if node == "module" else "kernels", "", attrgetter("kernels")),
        *_TIMED,
        _numbers("allocated", "By", attrgetter("allocated"), spare=2),
        Column("provider", value=attrgetter("provider"), spare=4),
    )
    operators = _table(columns, ran.operators, f"operators-{number}", "Kernels by operator")
    yield operators.first(_MOST_OPERATORS, "more operator")
    groups: dict[str, list[RanKernel]] = {}
    for each in ran.kernels:
        name = each.node or f"(inserted) {each.name}"
        if each.is_compiled:
            count = f"{counted(each.nodes, 'node')}, " if each.nodes else ""
            name = f"({count}compiled) {each.op_type}"
        groups.setdefault(name, []).append(each)
    nodes = sorted((_Node(*each) for each in groups.items()), key=lambda each: -each.micros)
    columns = (
        Column(node, value=attrgetter("name"), longest=_LONGEST),
        Column("kernel", value=attrgetter("kernel")),
        *_TIMED,
        Column("operands and results", value=attrgetter("types"), longest=2 * _LONGEST, spare=1),
    )
    yield _table(columns, nodes, f"nodes-{number}", f"By {node}").first(
        rows, f"more {node.split(' ')[0]}"
    )
    if model.conversions:
        yield _table(_CONVERSIONS, model.conversions, f"conversions-{number}", "Changes of type")
    if model.backend:
        name = f"backend-{number}"
        below = _table(_BACKEND, model.backend, name, "Kernels below the operators")
        yield below.first(rows, "more kernel")


class _Node:
    """The kernels of a node of the file, or of a module."""

    def __init__(self, name: str, kernels: Sequence[RanKernel]) -> None:
        self.name, self.types = name, kernels[0].types or None
        self.micros = sum(each.micros for each in kernels)
        self.share = sum(each.share for each in kernels)
        macs = max(each.macs or 0 for each in kernels)
        self.macs_per_second = 1e6 * macs / self.micros if macs and self.micros else None
        names = list(dict.fromkeys(each.op_type for each in kernels))
        if len(names) > _MOST_NAMES:
            names[_MOST_NAMES - 1 :] = [f"{len(names) - _MOST_NAMES + 1:,} more"]
        self.kernel = f"{', '.join(names)}{f' x {len(kernels)}' if len(kernels) > 1 else ''}"


_TIMED: Final[Sequence[Column[Any]]] = (
    _numbers("time", "s", lambda each: _MICRO * each.micros, "us", digits=1),
    _numbers("share", "1", attrgetter("share")),
    _numbers("rate", "{MAC}/s", attrgetter("macs_per_second"), "GMAC/s", spare=3),
)

_CONVERSIONS: Final[Sequence[Column[Conversion]]] = (
    Column("change of type", value=lambda each: f"{each.kind} {each.types}".rstrip()),
    _numbers("calls", "", attrgetter("calls")),
    *_TIMED[:2],
)

_BACKEND: Final[Sequence[Column[BackendKernel]]] = (
    Column(
        "kernel below the operators",
        value=lambda each: f"{each.library} {each.primitive} {each.implementation}".rstrip(),
    ),
    _numbers("calls", "", attrgetter("calls")),
    Column(
        "module",
        value=lambda each: (
            f"{each.node or '(model)'}{f' and {each.nodes - 1:,} more' if each.nodes > 1 else ''}"
        ),
    ),
    Column("types", value=lambda each: each.types or None, longest=_LONGEST, spare=1),
)


def _said(model: ModelResult, *, with_sources: bool) -> Sequence[str]:
    """Returns what went wrong, what took longest first."""
    most = _OF_PAGE if with_sources else _MOST_FINDINGS
    groups: dict[tuple[str, str], list[Finding]] = {}
    for each in model.findings:
        groups.setdefault((each.kind, each.alike), []).append(each)
    slowest = sorted(groups.values(), key=lambda group: -sum(each.micros for each in group))
    shown = []
    for first, *others in slowest[:most]:
        sentence = first.sentence
        if others:
            share = share_text(sum(each.share for each in (first, *others)))
            sentence += f"; and {len(others):,} more for the same reason, {share} together"
        shown.append(f"{sentence} ({first.source})" if with_sources else sentence)
    if more := sum(map(len, slowest[most:])) + model.more_findings:
        shown.append(f"and {more:,} more, which took less time")
    return shown or ["nothing"]


# --- variants -----------------------------------------------------------------------------


def _variant_notes(result: InferenceResult) -> Sequence[str]:
    """Returns what numbers cannot say."""
    notes = []
    for each in result.models:
        if each.latency is not None and each.latency.is_apart is False:
            notes.append(
                f"{each.path}: its time cannot be told apart from that of {result.baseline}: its "
                f"rounds differ by {share_text(each.latency.noise)}"
            )
        if each.accuracy is not None and each.accuracy.problem:
            known = "that of all" if each.accuracy.outputs else "known"
            notes.append(f"{each.path}: its error is not {known}: {each.accuracy.problem}")
    return notes


def _speedup(model: ModelResult) -> Cell:
    if model.latency is None or model.latency.speedup is None:
        return None
    return model.latency.speedup if model.latency.is_apart else Quantity(None, after="within noise")


def _peak(model: ModelResult) -> Cell:
    if model.memory is None or model.memory.gpu is None:
        return None if model.memory is None else model.memory.peak
    return Quantity(model.memory.gpu, after=" of GPU")


def _error(model: ModelResult) -> OutputError | None:
    return None if model.accuracy is None else next(iter(model.accuracy.outputs), None)


def _largest(model: ModelResult) -> float | None:
    return getattr(_error(model), "max_abs", None)


_VARIANTS: Final[Sequence[Column[ModelResult]]] = (
    Column("variant", value=attrgetter("path")),
    _numbers("median", "s", _latency("median"), "ms"),
    _numbers("IQR", "s", _latency("iqr"), "ms", spare=2),
    _numbers("speed-up", "x", _speedup),
    _numbers("peak memory", "By", _peak),
    _numbers("ratio", "x", _memory("ratio"), spare=5),
    _numbers("on disk", "By", _memory("weights_on_disk"), spare=6),
    _numbers("to quantize", "s", attrgetter("quantize"), "s", spare=4),
    _numbers("to compile", "s", attrgetter("compile"), "s", spare=3),
    _numbers("SQNR", "dB", lambda model: _sqnr(_error(model)), "dB", digits=1),
    _numbers("largest difference", "", _largest, spare=1),
)


# --- for programs -------------------------------------------------------------------------


def _sheet(result: InferenceResult) -> Table:
    """Returns what CSV has: a line for each variant, or for each kernel of each model."""
    if result.baseline:
        columns = [Column(name, value=value) for name, value in _VARIANT_SHEET.items()]
        return Table.of(columns, result.models)
    rows = [
        (
            model.path,
            *(getattr(each, field) for field in _KERNEL_SHEET.values() if field),
            "; ".join(each.inputs),
            "; ".join(each.outputs),
            "; ".join(one.sentence for one in model.findings if each.name in one.kernels),
            each.allocated,
        )
        for model in result.bounded().models
        if model.ran is not None
        for each in model.ran.kernels
    ]
    return Table([Column(name) for name in _KERNEL_SHEET], rows)


_KERNEL_SHEET: Final[Mapping[str, str]] = {
    "model": "",
    "kernel": "name",
    "operator": "op_type",
    **{name: name for name in ("provider", "node", "micros", "share", "calls", "macs", "macs_per_second")},
    **dict.fromkeys(("inputs", "outputs", "findings", "allocated"), ""),
}  # fmt: skip
"""Columns -> fields of a kernel; empty for what is made of several."""

_VARIANT_SHEET: Final[Mapping[str, Callable[[ModelResult], Cell]]] = {
    "variant": attrgetter("path"),
    "kind": attrgetter("kind"),
    "median_seconds": _latency("median"),
    "iqr_seconds": _latency("iqr"),
    "noise": _latency("noise"),
    "processes": lambda model: len(model.latency.processes) if model.latency else None,
    "speedup": lambda model: (
        model.latency.speedup if model.latency and model.latency.is_apart else None
    ),
    "process_peak_bytes": _memory("peak"),
    "gpu_peak_bytes": _memory("gpu"),
    "memory_ratio": _memory("ratio"),
    "disk_bytes": _memory("weights_on_disk"),
    "quantize_seconds": attrgetter("quantize"),
    "compile_seconds": attrgetter("compile"),
    "sqnr_db": lambda model: getattr(_error(model), "sqnr", None),
    "largest_difference": _largest,
    "problem": lambda model: model.problem or (model.accuracy.problem if model.accuracy else ""),
}
