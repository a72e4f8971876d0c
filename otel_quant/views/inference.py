"""What was measured of models, by ``inference`` in detail or by ``bench`` side by side, as a document."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf, log, log1p
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

from otel_quant.base.files import open_regular
from otel_quant.format.event_file import BENCH, INFERENCE
from otel_quant.inference import results
from otel_quant.inference.latency_statistics import OF_PROCESSES
from otel_quant.schema.units import counted, share_text, speed_text
from otel_quant.views import document as doc
from otel_quant.views.layers_beside import (
    COSTS,
    HURTS,
    Beside,
    accuracy_of,
    as_one,
    by_node,
    text_of,
)
from otel_quant.views.text import cell_text, number_text, phrase, shortened
from otel_quant.views.writers import written

_LONGEST: Final = 48
_LONGEST_PROBLEM: Final = 160
_LONGEST_HEADING: Final = 24
_MICRO: Final = 1e-6
_MOST: Final = 20  # Rows of a table and findings of a model, unless fewer nodes are asked for
_ABSENT: Final = "-"
_TITLES: Final = {INFERENCE: "Inference", BENCH: "Variants side by side"}


def document(result: results.InferenceResult, top: int | None = None) -> doc.Document:
    """Returns a result as a document, with so many nodes of each model; None: for a page."""
    busy, (title, *others) = list(_busy(result)), _sentences(result)
    over = _TITLES[BENCH] if result.baseline else f"Inference with {result.runtime}"
    verdict = doc.Lines.of((*busy, *(() if top is None else (title,)), *others))
    parts = (*verdict, *measured_parts(result, _MOST if top is None else top, is_page=top is None))
    sheet, brief = partial(_sheet, result), partial(_brief, result)
    return doc.Document(parts, title, over, sheet=sheet, brief=brief)


def _brief(result: results.InferenceResult) -> doc.Brief:
    """Returns the answer that a program can act on: of two models their ratio, and what was found in the second."""
    first = result.first
    others = [each for each in result.models if each is not first]
    verdict, *more = _sentences(result)
    found = [line for each in others or [first] for line in _findings(each) if each.findings]
    fixed: list[Sequence[str]] = [
        ("fix", each.path, "-o", f"{each.path.removesuffix('.onnx')}.fixed.onnx", "--float", first.path)
        for each in others
        if any(it.rewrites for it in each.findings)
    ]  # fmt: skip
    busy = list(_busy(result))
    if (
        (busy or any(map(_is_lost_in_noise, others)))
        and result.command
        and first.facts.get("threads of onnxruntime", "1") != "1"
    ):
        fixed.append((*shlex.split(result.command)[1:], "--threads", "1"))
    return doc.Brief(verdict, [*found, *busy, *more], not busy, next=fixed)


def _is_lost_in_noise(model: results.ModelResult) -> bool:
    """Whether a ratio that no two processes of one model have is not known to be more than noise."""
    latency = model.latency
    ratio = None if latency is None or latency.is_apart else latency.ratio
    return ratio is not None and abs(log(ratio)) > log1p(OF_PROCESSES)


def result_text(
    result: results.InferenceResult, form: str, top: int, width: int | None = None
) -> Iterator[str]:
    """Yields a result in a format; JSON is what a recording has."""
    if form == "json":
        return iter((result.to_json(),))
    return written(document(result, None if form == "html" else top), form, width)


def recorded_sections(recording: Path) -> Iterator[doc.Section]:
    """Yields what was measured beside a recording, as parts of its report."""
    for name, title in _TITLES.items():
        try:
            with open_regular(recording / name) as file:
                result = results.read_result(file.read().decode())
            lines = doc.Lines([*_busy(result), *_sentences(result)])
            yield doc.Section(title, (lines, *measured_parts(result, _MOST)))
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, ValueError, ArithmeticError, RecursionError):
            why = f"{name} is damaged, or of another version of otel-quant"
            yield doc.Section(title, (doc.Lines((why,)),))


def measured_parts(
    result: results.InferenceResult, rows: int, *, is_page: bool = True
) -> Iterator[doc.Part]:
    """Yields the parts: models side by side, layers side by side, findings, and then the details."""
    name = "bench-models" if result.baseline else "inference-models"
    yield doc.Table.of(
        _MODELS, result.models, row=_with_problem, known_only=True, id=name, caption="Models"
    )
    yield from doc.Lines.of(_unknown_errors(result))
    node = "module" if result.runtime == "torch" else "node of the file"
    measured = [model for model in result.models if not model.problem]
    ran = [(number, model, model.ran) for number, model in enumerate(measured) if model.ran]
    for number, model, _ in ran:
        beside = Beside(result.first, model)
        if model is not result.first and not beside.before.keys().isdisjoint(beside.after):
            yield _beside(beside, (result.first, model), node, rows, number)
    yield from (
        doc.Section(f"{model.path}: findings", (doc.Lines(_findings(model), is_list=True),))
        for model in measured
        if model.ran or model.findings
    )
    if ran:
        yield _table(_MEMORY, measured, "memory", "Memory")
    errors = [(model.path, error) for model in measured for error in accuracy_of(model).outputs]
    if len(errors) > len({path for path, _ in errors}) or any(it.behind for _, it in errors):
        yield _table(_ERRORS, errors, "error", "Error of each output")
    for number, model, of in ran:
        found = tuple(_what_ran(model, of, node, number, rows))
        yield doc.Section(f"{model.path}: what ran", found)
    settings = [(name, text) for name, text in _settings(result) if text]
    yield doc.Facts(settings, "How it was measured" if is_page else "measured")
    yield from doc.Lines.of([f"to repeat: {result.command}"] if result.baseline else ())


def _unknown_errors(result: results.InferenceResult) -> Iterator[str]:
    for model in result.models:
        found = accuracy_of(model)
        if found.problem:
            of = " of all outputs" * bool(found.outputs)
            yield f"{model.path}: its error is not known{of}: {found.problem}"


def _table(
    columns: Sequence[doc.Column[Any]], items: Sequence[Any], name: str, caption: str
) -> doc.Table:
    return doc.Table.of(columns, items, known_only=True, id=f"inference-{name}", caption=caption)


# --- the answer ---------------------------------------------------------------------------


def _sentences(result: results.InferenceResult) -> Iterator[str]:
    """Yields a sentence for each model but the one that the others are compared with."""
    first = result.first
    others = [each for each in result.models if each is not first] or [first]
    return (_sentence(each, first) for each in others)


def _busy(result: results.InferenceResult) -> Iterator[str]:
    """Yields that the machine was busy, where the fastest runs have other ratios than the medians, and what to do."""
    doubtful = [it.latency for it in result.models if it.latency and it.latency.is_in_doubt]
    if doubtful:
        on = f" on {counted(result.cores, 'core')})"
        load = "" if result.load is None else f" (load {result.load:.1f}{on}"
        then = "ratios are of CPU time"
        if not all(each.is_by_cpu for each in doubtful):
            then = (
                "ratios are in doubt; fix: an idle machine, or --threads 1, where CPU time decides"
            )
        yield f"the machine was busy{load}, medians have other ratios than the fastest runs: {then}"


def _sentence(model: results.ModelResult, first: results.ModelResult) -> str:
    own, other = model.latency, first.latency
    if model.problem or own is None:
        return f"{model.path} was not measured"
    takes = number_text(own.median, "ms")
    text = f"{model.path} takes {takes}"
    if model is not first and own.ratio is not None and other is not None:
        beside = number_text(other.median, "ms")
        why = own.why or f"rounds differ by {share_text(max(own.noise, other.noise))}"
        text += f" and {first.path} {beside}, which cannot be told apart: {why}"
        if own.is_apart:
            speed, of = speed_text(own.ratio), ""
            if own.is_by_cpu and own.cpu and other.cpu:
                takes, beside = (number_text(cpu, "ms") for cpu in (own.cpu, other.cpu))
                of = " by CPU time"
            text = f"{model.path} is {speed} than {first.path}{of}: {takes}, not {beside}"
            if own.is_at_least:
                text = f"{model.path} is at least {speed} than {first.path}: medians are {takes} and {beside}"
    error = _error(model)
    sqnr = cell_text(doc.UnitCell(error.sqnr, "dB", digits=1))
    sqnr = "equal outputs" if error.max_abs == 0 else phrase("SQNR {}", sqnr)
    before = cell_text(doc.UnitCell(error.sqnr_in_front, "dB", digits=1))
    in_front = f" ({before} in front of its {error.behind})" if before else ""
    return f"{text}{phrase('; {}', sqnr)}{in_front}{_costliest(model, first)}"


def _costliest(model: results.ModelResult, first: results.ModelResult) -> str:
    """Returns the reason that costs most, or how many findings there are where that is little."""
    groups = _groups(model)
    is_poor = (accuracy_of(model).decisive_sqnr or 0.0) < results.POOR
    lost = {it.node or it.name: it.lost for it in accuracy_of(model).layers if it.lost is not None}
    harmful = [it for it in groups if lost.get(it[0].node, inf) >= results.LOST]
    if is_poor and harmful and harmful[0][0].is_about_accuracy:
        return f"; {shortened(text_of(harmful[0][0]), _LONGEST_PROBLEM)}"
    worst = max(accuracy_of(model).layers, key=lambda it: it.lost or 0.0, default=None)
    if worst and is_poor and worst.hurts(0.0, is_named=False):
        return f"; the outputs lose {worst.lost:.1f} dB by `{worst.node or worst.name}` alone"
    if any(each.kind == "slower" for each in model.findings) and (text := _lost(model, first)):
        return text
    groups = [group for group in groups if group[0].kind != "slower" and group[0].micros]
    share = sum(each.share for each in groups[0]) if groups else 0.0
    if share < _MUCH:
        return phrase("; {}", len(model.findings), lambda number: counted(number, "finding"))
    more = phrase(", and {:,} more", len(groups[0]) - 1, int)
    return f"; {share_text(share)} of its time: {shortened(text_of(groups[0][0]), _LONGEST_PROBLEM)}{more}"


def _lost(model: results.ModelResult, first: results.ModelResult) -> str:
    """Returns by what a slower model loses most; empty where that is little, or not known."""
    beside = Beside(first, model)
    pairs = [beside.pair(name, [name]) for name in beside.names]
    alike = results.grouped((each for each in pairs if each.lost), lambda it: it.cause or it.reason)
    worst = max(alike.values(), key=lambda those: sum(each.lost for each in those), default=[])
    micros = sum(each.lost for each in worst)
    if not worst or micros < _MUCH * sum(each.lost for each in pairs):
        return ""
    longer = f"{number_text(_MICRO * micros, 'ms')} longer"
    operator, _, why = worst[0].cause.partition(": ")
    if len(worst) == 1 or not (why and operator.isidentifier()):
        more = phrase(" and {:,} more", len(worst) - 1, int)
        layers, why = f"`{worst[0].name}`{more} {'take' if more else 'takes'}", worst[0].reason
        return f"; {layers} {longer}: {shortened(why, _LONGEST_PROBLEM)}"
    types = {each.after.runs_in for each in worst if each.after}
    in_float = "run in float and " * all("float" in each for each in types)
    return f"; {len(worst):,} {operator} {in_float}take {longer}, each because {shortened(why, _LONGEST_PROBLEM)}"


_MUCH: Final = 0.1
"""Share of the time from which on a reason stands in the headline."""


# --- how it was measured ------------------------------------------------------------------


def _settings(result: results.InferenceResult) -> Iterator[tuple[str, str]]:
    facts = results.merged_facts({
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
    })  # fmt: skip
    yield "baseline", result.baseline
    yield from {result.runtime: result.version, **result.settings, **facts}.items()
    load = "" if result.load is None else f", load {result.load:.2f} before"
    yield "machine", f"{counted(result.cores, 'core')}{load}"
    between = (("rounds", result.noise), ("processes", result.process_spread))
    noise = [f"{share_text(part)} between {of}" for of, part in between if part is not None]
    yield "noise", phrase("{} at most", noise, ", ".join)


# --- models side by side ------------------------------------------------------------------


def _of(part: str, name: str) -> Callable[[results.ModelResult], Any]:
    return lambda model: getattr(getattr(model, part), name, None)


def _ratio(model: results.ModelResult) -> doc.Cell:
    found = model.latency
    if found is None or found.ratio is None:
        return None
    if found.is_apart:
        of = " by CPU time" * found.is_by_cpu
        return "at least " * found.is_at_least + speed_text(found.ratio) + of
    return "in doubt" if found.is_in_doubt else "within noise"


def _with_problem(model: results.ModelResult, cells: Sequence[doc.Cell]) -> doc.Row:
    if not model.problem:
        return doc.Row(cells)
    return doc.Row(cells[:1], remark=shortened(model.problem, _LONGEST_PROBLEM))


_UNKNOWN_ERROR: Final = results.OutputError("", None, None, None)


def _error(model: results.ModelResult) -> results.OutputError:
    return accuracy_of(model).worst or _UNKNOWN_ERROR


def _sqnr(error: results.OutputError) -> doc.Cell:
    return doc.UnitCell(None, after="equal") if error.max_abs == 0 else error.sqnr


def _peak(model: results.ModelResult) -> doc.Cell:
    memory = model.memory or results.MemoryUse(None, None)
    return memory.peak if memory.gpu is None else doc.UnitCell(memory.gpu, after=" of GPU")


def _numbers(
    heading: str, unit: str, value: Callable[[Any], Any], shown_in: str | None = None, **more: Any
) -> doc.Column[Any]:
    return doc.Column(heading, unit, value, shown_in=shown_in, absent=_ABSENT, **more)


_MODELS: Final[Sequence[doc.Column[results.ModelResult]]] = (
    doc.Column("model", value=attrgetter("path")),
    _numbers("median", "s", _of("latency", "median"), "ms", key="median_seconds", is_bar=True),
    doc.Column("vs. baseline", value=_ratio, absent=_ABSENT),
    _numbers("p10", "s", _of("latency", "p10"), "ms", key="p10_seconds", spare=5),
    _numbers("p90", "s", _of("latency", "p90"), "ms", key="p90_seconds", spare=6),
    _numbers("noise", "1", _of("latency", "noise"), spare=3),
    _numbers("peak memory", "By", _peak, key="peak_bytes"),
    _numbers("on disk", "By", _of("memory", "weights_on_disk"), key="disk_bytes", spare=2),
    _numbers("to quantize", "s", attrgetter("quantize"), "s", key="quantize_seconds", spare=4),
    _numbers("to compile", "s", attrgetter("compile"), "s", key="compile_seconds", spare=7),
    _numbers("SQNR", "dB", lambda model: _sqnr(_error(model)), "dB", digits=1, key="sqnr_db"),
    _numbers("largest difference", "", lambda model: _error(model).max_abs, key="largest_difference", spare=8),
    _numbers("GPU energy of a run", "J", _of("latency", "gpu_energy"), key="gpu_energy_joules", spare=9),
    _numbers("CPU energy of a run", "J", _of("latency", "cpu_energy"), key="cpu_energy_joules", spare=10),
    _numbers("CPU time", "s", _of("latency", "cpu"), "ms", key="cpu_seconds", spare=4),
)  # fmt: skip

_MEMORY: Final[Sequence[doc.Column[results.ModelResult]]] = (
    doc.Column("model", value=attrgetter("path")),
    _numbers("grown by a run", "By", _of("memory", "run_growth"), spare=6),
    _numbers("allocated at once", "By", _of("memory", "alive")),
    _numbers("allocated in all", "By", _of("memory", "allocated"), spare=3),
    _numbers("peak until the first run", "By", _of("memory", "load_peak"), spare=1),
    _numbers("grown by the session", "By", _of("memory", "grown"), spare=2),
    _numbers("arena in use", "By", _of("memory", "arena_used"), spare=4),
    _numbers("weights in memory", "By", _of("memory", "weights_in_memory")),
)

_ERRORS: Final[Sequence[doc.Column[tuple[str, results.OutputError]]]] = (
    doc.Column("output", value=lambda of: f"{of[0]}: {of[1].name}", longest=_LONGEST),
    _numbers("SQNR", "dB", lambda of: _sqnr(of[1]), "dB", digits=1),
    _numbers(
        "in front of its Softmax or Sigmoid", "dB", lambda of: of[1].sqnr_in_front, "dB", digits=1
    ),
    _numbers("cosine", "", lambda of: of[1].cosine, digits=6),
    _numbers("largest difference", "", lambda of: of[1].max_abs),
)

_TENSORS: Final[Sequence[doc.Column[Any]]] = (
    doc.Column("layer, worst first", value=lambda each: each.node or each.name, longest=_LONGEST),
    _numbers("of its own", "dB", attrgetter("own"), "dB", digits=1),
    _numbers("of its weights", "dB", attrgetter("weights"), "dB", digits=1),
    _numbers("carried", "dB", attrgetter("carried"), "dB", digits=1),
    _numbers("of all", "dB", attrgetter("all"), "dB", digits=1),
    _numbers("outputs lose", "dB", attrgetter("lost"), "dB", digits=1),
    _numbers("at the lowest code", "1", attrgetter("low"), spare=3),
    _numbers("at the highest", "1", attrgetter("high"), spare=2),
    _numbers("codes used", "1", attrgetter("used"), spare=1),
)


# --- layers side by side, and what ran ----------------------------------------------------


def _folded(names: Sequence[str], rows: int) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields so many names, each with itself; and one more, with all that are left."""
    rows += len(names) == rows + 1
    for name in names[:rows]:
        yield name, (name,)
    if rest := names[rows:]:
        yield f"{len(rest):,} others", rest


def _beside(
    beside: Beside, models: Sequence[results.ModelResult], node: str, rows: int, number: int
) -> doc.Table:
    """Returns a model beside the first one as a table."""
    first, model = models
    pairs = [beside.pair(*each) for each in _folded(beside.names, rows)]
    layer = _LAYERS.get(node, node)
    times = (each.ran.kernel_micros for each in models if each.ran)
    whole = " and ".join(number_text(_MICRO * each, "ms") for each in times)
    columns: tuple[doc.Column[Any], ...] = (
        doc.Column(layer, value=attrgetter("name"), longest=_LONGEST),
        _time(first.path, attrgetter("before"), is_bar=True),
        _time(model.path, attrgetter("after"), is_bar=True),
        doc.Column("change", value=attrgetter("change"), absent=_ABSENT),
        doc.Column("type", value=attrgetter("type"), absent=_ABSENT, spare=1),
        _numbers("weights", "By", lambda pair: pair.after and pair.after.weights, spare=3),
        _numbers("activations", "By", lambda pair: pair.after and pair.after.activations, spare=4),
        _numbers("error", "dB", attrgetter("error"), "dB", digits=1, spare=2),
        doc.Column("verdict", value=attrgetter("verdict"), spare=5),
        doc.Column("because", value=lambda pair: (pair.verdict in (COSTS, HURTS) and pair.reason) or None, longest=_LONGEST_PROBLEM, spare=6),
    )  # fmt: skip
    return doc.Table.of(
        columns, pairs, known_only=True, id=f"inference-layers-{number}", caption=f"Time by {layer}",
        row=lambda pair, cells: doc.Row(cells, is_rest=pair.name not in {**beside.before, **beside.after}),
        note=f"All rows together are the kernels of a run: {whole}.",
    )  # fmt: skip


_LAYERS: Final = {"node of the file": "layer"}
"""What has a row each of models whose conversions belong to layers."""


def _time(
    heading: str, kernel: Callable[[Any], results.RanKernel | None], **more: Any
) -> doc.Column[Any]:
    """A column of a kernel's time, of which a long heading shows the end."""

    def value(item: Any) -> float | None:
        timed = kernel(item)
        return None if timed is None else _MICRO * timed.micros

    name = heading.rpartition("/")[2] or heading
    text = name if len(name) <= _LONGEST_HEADING else f"…{name[1 - _LONGEST_HEADING :]}"
    return _numbers(text, "s", value, "us", digits=1, **more)


def _what_ran(
    model: results.ModelResult, ran: results.Ran, node: str, number: int, rows: int
) -> Iterator[doc.Part]:
    share = share_text(ran.between_micros / ran.run_micros) if ran.run_micros else _ABSENT
    micros = ran.run_micros, ran.kernel_micros, ran.between_micros
    run, kernels, between = (number_text(_MICRO * each, "ms") for each in micros)
    typical = "least" if node in _LAYERS else "mean"
    yield doc.Lines((
        f"a run with the profiler on: {run}, of which kernels {kernels} and between them "
        f"{between} ({share}); {typical} of {counted(ran.runs, 'run')}",
    ))  # fmt: skip
    if not ran.kernels:  # of a model whose outputs are constants
        return
    operators = _table(_OPERATORS, ran.operators, f"operators-{number}", "Kernels by operator")
    yield operators.first(_MOST, "more operator")
    nodes = by_node(ran)
    shown = [as_one(name, nodes, those) for name, those in _folded(list(nodes), rows)]
    of_nodes = (doc.Column[Any](node, value=attrgetter("name"), longest=_LONGEST), *_NODES)
    yield _table(of_nodes, shown, f"nodes-{number}", f"By {node}")
    if model.conversions:
        yield _table(_CONVERSIONS, model.conversions, f"conversions-{number}", "Changes of type")
    layers = accuracy_of(model).layers
    times = Counter(it.node for it in layers if it.node)
    layers = tuple(
        replace(it, node=f"{it.node} ({it.name})") if times[it.node] > 1 else it for it in layers
    )
    of_loops = "; of a Loop, of its first pass" if any("/body/" in it.node for it in layers) else ""
    for columns, items, kind, caption, more in (
        (_BACKEND, model.backend, "backend", "Kernels below the operators", "kernel"),
        (_TENSORS, layers, "tensors", f"Error of each layer{of_loops}", "row"),
    ):
        if items:
            table = _table(columns, items, f"{kind}-{number}", caption)
            yield table.first(rows, f"more {more}")


_TIMED: Final[Sequence[doc.Column[Any]]] = (
    _numbers("time", "s", lambda each: _MICRO * each.micros, "us", digits=1),
    _numbers("share", "1", attrgetter("share")),
    _numbers("rate", "{MAC}/s", attrgetter("macs_per_second"), "GMAC/s", spare=3),
)

_OPERATORS: Final[Sequence[doc.Column[Any]]] = (
    doc.Column("operator", value=attrgetter("op_type")),
    _numbers("calls", "", lambda each: round(each.calls)),
    *_TIMED,
    _numbers("allocated", "By", attrgetter("allocated"), spare=2),
    doc.Column("provider", value=attrgetter("provider"), spare=4),
)

_NODES: Final[Sequence[doc.Column[Any]]] = (
    doc.Column("kernel", value=attrgetter("op_type")),
    *_TIMED,
    doc.Column("operands and results", value=lambda each: each.types or None, longest=2 * _LONGEST, spare=1),
)  # fmt: skip

_CONVERSIONS: Final[Sequence[doc.Column[results.Conversion]]] = (
    doc.Column("change of type", value=lambda each: f"{each.kind} {each.types}".rstrip()),
    _numbers("calls", "", attrgetter("calls")),
    *_TIMED[:2],
)

_BACKEND: Final[Sequence[doc.Column[Any]]] = (
    doc.Column("kernel below the operators", value=lambda each: f"{each.library} {each.primitive} {each.implementation}".rstrip()),
    _numbers("calls", "", attrgetter("calls")),
    doc.Column("module", value=lambda each: f"{each.node or '(model)'}{f' and {each.nodes - 1:,} more' if each.nodes > 1 else ''}"),
    doc.Column("types", value=lambda each: each.types or None, longest=_LONGEST, spare=1),
)  # fmt: skip


def _groups(model: results.ModelResult) -> list[list[results.Finding]]:
    """Returns the findings of each kind with the same reason: those about accuracy, then what took longest."""

    def order(group: list[results.Finding]) -> tuple[bool, float]:
        return not group[0].is_about_accuracy, -sum(each.micros for each in group)

    return sorted(results.grouped(model.findings, attrgetter("kind", "alike")).values(), key=order)


def _findings(model: results.ModelResult) -> Sequence[str]:
    """Returns the findings: those about accuracy, then what took longest."""
    slowest, shown = _groups(model), []
    for group in slowest[:_MOST]:
        share = share_text(sum(each.share for each in group))
        together = f", {share} together" if group[0].micros else ""
        more = f"; and {{:,}} more for the same reason{together}"
        shown.append(f"{group[0].sentence}{phrase(more, len(group) - 1, int)}")
    if left := sum(map(len, slowest[_MOST:])):
        shown.append(f"and {left:,} more, which took less time")
    if any(each.rewrites for each in model.findings):
        shown.append(
            f"what can be rewritten for integers: otel-quant fix {shlex.quote(model.path)} --dry-run"
        )
    return shown or ["nothing"]


# --- for programs -------------------------------------------------------------------------


def _sheet(result: results.InferenceResult) -> doc.Table:
    """Returns what CSV has: a line for each variant, or for each kernel of each model."""
    if result.baseline:
        return doc.Table.of(_VARIANTS, result.models)
    ran = ((model, model.ran) for model in result.models if model.ran is not None)
    return doc.Table.of(_KERNELS, ((model, kernel) for model, of in ran for kernel in of.kernels))


_Ran: TypeAlias = tuple[results.ModelResult, results.RanKernel]
_KERNEL_FIGURES: Final = ("provider", "node", "micros", "share", "calls", "macs", "macs_per_second")
_KERNELS: Final[Sequence[doc.Column[_Ran]]] = (
    doc.Column("model", value=lambda of: of[0].path),
    doc.Column("kernel", value=lambda of: of[1].name),
    doc.Column("operator", value=lambda of: of[1].op_type),
    *(doc.Column(name, value=partial(lambda name, of: getattr(of[1], name), name)) for name in _KERNEL_FIGURES),
    doc.Column("inputs", value=lambda of: "; ".join(of[1].inputs)),
    doc.Column("outputs", value=lambda of: "; ".join(of[1].outputs)),
    doc.Column("findings", value=lambda of: "; ".join(each.sentence for each in of[0].findings if of[1].name in each.kernels)),
    doc.Column("allocated", value=lambda of: of[1].allocated),
)  # fmt: skip

_VARIANTS: Final[Sequence[doc.Column[results.ModelResult]]] = (
    *(each for each in _MODELS if each.heading != "vs. baseline"),
    doc.Column("kind", value=attrgetter("kind")),
    doc.Column("speedup", value=_of("latency", "clear_speedup")),
    doc.Column("problem", value=lambda model: model.problem or accuracy_of(model).problem),
)
"""The table of models for programs: with a number in place of words."""
