"""What was measured of models at work, as a table, Markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from otel_quant.inference.results import (
    BackendKernel,
    Finding,
    InferenceResult,
    Latency,
    MemoryUse,
    ModelResult,
    OutputError,
    Ran,
    RanKernel,
)
from otel_quant.schema.units import counted, digits_text, share_text, size
from otel_quant.views.former_document import Facts, Lines, Part, Table, as_markdown, as_text
from otel_quant.views.spreadsheet import csv_lines
from otel_quant.views.text import shortened

_LONGEST: Final = 48
_MOST_FINDINGS: Final = 20
_MOST_OPERATORS: Final = 20
_MOST_NAMES: Final = 3
_LONGEST_PROBLEM: Final = 160
_MICRO: Final = 1e-6

_Value = TypeVar("_Value")


def report(result: InferenceResult, form: str, top: int, width: int | None = None) -> Iterator[str]:
    """Renders a result, piece by piece."""
    if form == "json":
        yield result.to_json()
    elif form == "csv" and result.baseline:
        yield from csv_lines(
            tuple(_CSV_OF_VARIANTS),
            ([get(each) for get in _CSV_OF_VARIANTS.values()] for each in result.models),
        )
    elif form == "csv":
        yield from _csv(result.bounded())
    else:
        shown = _variant_parts(result) if result.baseline else parts(result, top)
        yield as_markdown(shown) if form == "markdown" else as_text(shown, width)


def parts(result: InferenceResult, top: int) -> Iterator[Part]:
    """Yields what people are shown of a result."""
    measured = [model for model in result.models if not model.problem]
    unit = unit_of(result)
    yield Facts(tuple(settings(result).items()), "measured")
    yield latency_table(result.models)
    if measured:
        yield memory_table(measured)
    if others := [model for model in measured if model.accuracy is not None]:
        if (errors := error_table(others)).rows:
            yield errors
        if problems := accuracy_problems(others):
            yield Lines(problems)
    for model in measured:
        assert model.ran is not None
        yield Lines((f"{model.path}: what ran", between_text(model.ran)))
        yield operator_table(model.ran, unit)
        nodes, left = node_table(model.ran.kernels, top, unit)
        yield nodes
        if left:
            yield Lines(
                (f"({counted(left, unit.more)}; --top shows more, json and csv each kernel)",)
            )
        if model.conversions:
            yield conversion_table(model)
        if model.backend:
            yield backend_table(model.backend[:top])
        yield Lines((f"{model.path}: what went wrong", *findings_text(model)))
        if model.accuracy is not None and model.accuracy.layers:
            yield layer_table(model, top)


@dataclass(frozen=True, slots=True)
class Unit:
    """Words for what a runtime runs."""

    node: str  # Heading of what kernels belong to
    more: str  # One of those
    kernels: str  # Heading of their number


def unit_of(result: InferenceResult) -> Unit:
    """Returns the words for the runtime of a result."""
    return _UNITS.get(result.runtime, _OF_FILES)


_OF_FILES: Final = Unit("node of the file", "more node", "kernels")
_UNITS: Final = {"torch": Unit("module", "more module", "calls")}


def settings(result: InferenceResult) -> Mapping[str, str]:
    """Returns how it was measured, as names and values."""
    noise = result.noise
    found = {
        result.runtime: result.version,
        **result.settings,
        "machine": f"{counted(result.cores, 'core')}, load {result.load:.2f} before",
        "noise": "" if noise is None else f"{share_text(noise)} between rounds",
    }
    measured = [model for model in result.models if not model.problem]
    facts = dict.fromkeys(name for model in measured for name in model.facts)
    for name, shown in {**_PER_MODEL, **{name: _fact(name) for name in facts}}.items():
        texts = {model.path: shown(model) for model in measured}
        if name in facts:  # of what a model does not use nothing is known
            texts = {path: text for path, text in texts.items() if text}
        if len(set(texts.values())) == 1:
            found[name] = next(iter(texts.values()))
        else:
            found |= {f"{name} of {path}": text for path, text in texts.items()}
    return {name: value for name, value in found.items() if value}


def _fact(name: str) -> Callable[[ModelResult], str]:
    return lambda model: model.facts.get(name, "")


_PER_MODEL: Final[Mapping[str, Callable[[ModelResult], str]]] = {
    "inputs": lambda model: ", ".join(f"{name} {shown}" for name, shown in model.inputs.items()),
    "assumed": lambda model: ", ".join(model.assumed),
    "nodes by provider": lambda model: ", ".join(
        f"{name} {count:,}" for name, count in (model.assigned or {}).items()
    ),
}


def latency_table(models: Sequence[ModelResult]) -> Table:
    """Returns the times of models side by side, and why one was not measured."""
    rows = []
    for model in models:
        found = model.latency
        if found is None:
            why = shortened(f"not measured: {model.problem}", _LONGEST_PROBLEM)
            rows.append((model.path, *("-" for _ in range(7)), why))
            continue
        rows.append(
            (
                model.path,
                milliseconds(found.median),
                milliseconds(found.p10),
                milliseconds(found.p90),
                f"{found.runs:,}",
                milliseconds(found.first),
                share_text(found.noise),
                "-" if found.profiled is None else f"x {found.profiled:.2f}",
                _ratio_text(found.ratio, found.is_apart),
            )
        )
    header = (
        "model",
        "median",
        "p10",
        "p90",
        "runs",
        "first run",
        "noise",
        "profiled",
        "against the first",
    )
    return Table(
        header, ("", "ms", "ms", "ms", "", "ms", "", "", ""), tuple(rows), spare=_SPARE_TIMES
    )


def _ratio_text(ratio: float | None, is_apart: bool | None) -> str:
    if ratio is None:
        return ""
    return f"x {ratio:.3f}" if is_apart else f"within noise (x {ratio:.3f})"


def memory_table(models: Sequence[ModelResult]) -> Table:
    """Returns the memory of models side by side."""
    rows = []
    known = [model.memory for model in models if model.memory is not None]
    sizes = [(name, get) for name, get in _SIZES if any(get(each) is not None for each in known)]
    for model in models:
        assert model.memory is not None
        rows.append((model.path, *(_size_text(get(model.memory)) for _, get in sizes), ""))
    header = ("model", *(name for name, _ in sizes), "")  # the last column is one of text
    return Table(header, ("",) * len(header), tuple(rows), spare=_SPARE_SIZES)


_SPARE_TIMES: Final = ("profiled", "first run", "runs", "p10", "p90")
_SPARE_SIZES: Final = (
    "peak until the first run",
    "grown by the session",
    "allocated in all",
    "arena in use",
    "arena",
    "grown by a run",
)
_SPARE_OF_KERNELS: Final = ("operands and results", "allocated", "rate", "provider")
"""Columns that a narrow terminal does without; so those above."""

_SIZES: Final[Sequence[tuple[str, Callable[[MemoryUse], int | None]]]] = (
    ("peak while running", lambda memory: memory.peak),
    ("grown by a run", lambda memory: memory.run_growth),
    ("allocated at once", lambda memory: memory.alive),
    ("allocated in all", lambda memory: memory.allocated),
    ("peak until the first run", lambda memory: memory.load_peak),
    ("grown by the session", lambda memory: memory.grown),
    ("arena", lambda memory: memory.arena_held),
    ("arena in use", lambda memory: memory.arena_used),
    ("weights on disk", lambda memory: memory.weights_on_disk),
    ("weights in memory", lambda memory: memory.weights_in_memory),
)


def error_table(models: Sequence[ModelResult]) -> Table:
    """Returns how far outputs are off from the first model's."""
    rows = [
        (
            shortened(f"{model.path}: {each.name}", _LONGEST),
            _or_dash(each.sqnr, lambda value: f"{value:.1f}"),
            _or_dash(each.cosine, lambda value: f"{value:.6f}"),
            _or_dash(each.max_abs, lambda value: f"{value:.4g}"),
            "equal" if each.max_abs == 0 else "",
        )
        for model in models
        if model.accuracy is not None
        for each in model.accuracy.outputs
    ]
    header = ("output, against the first model's", "SQNR", "cosine", "largest difference", "")
    return Table(header, ("", "dB", "", "", ""), tuple(rows))


def accuracy_problems(models: Sequence[ModelResult]) -> tuple[str, ...]:
    """Returns why outputs are not compared."""
    return tuple(
        f"{model.path}: {model.accuracy.problem}"
        for model in models
        if model.accuracy is not None and model.accuracy.problem
    )


def layer_table(model: ModelResult, top: int) -> Table:
    """Returns the errors of tensors, the worst first."""
    assert model.accuracy is not None
    rows = [
        (
            shortened(each.name, _LONGEST),
            _or_dash(each.own, lambda value: f"{value:.1f}"),
            _or_dash(each.all, lambda value: f"{value:.1f}"),
            "",
        )
        for each in model.accuracy.layers[:top]
    ]
    header = ("tensor, worst first", "of its own", "of all before it too", "")
    return Table(header, ("", "dB", "dB", ""), tuple(rows))


def between_text(ran: Ran) -> str:
    """Returns how a run's time divides into kernels and what is between them."""
    share = share_text(ran.between_micros / ran.run_micros) if ran.run_micros else "-"
    return (
        f"a run with the profiler on: {milliseconds(ran.run_micros * _MICRO)} ms, of which kernels "
        f"{milliseconds(ran.kernel_micros * _MICRO)} ms and between them "
        f"{milliseconds(ran.between_micros * _MICRO)} ms ({share}); mean of {counted(ran.runs, 'run')}"
    )


def operator_table(ran: Ran, unit: Unit) -> Table:
    """Returns the kernels by operator."""
    rows = [
        (
            each.op_type,
            f"{each.kernels:,}",
            _micros(each.micros),
            share_text(each.share),
            rate_text(each.macs_per_second),
            _size_text(each.allocated),
            each.provider,
        )
        for each in ran.operators[:_MOST_OPERATORS]
    ]
    if rest := ran.operators[_MOST_OPERATORS:]:
        rows.append(
            (
                f"{counted(len(rest), 'more operator')}",
                f"{sum(each.kernels for each in rest):,}",
                _micros(sum(each.micros for each in rest)),
                share_text(sum(each.share for each in rest)),
                "-",
                _size_text(_sum_of([each.allocated for each in rest])),
                "",
            )
        )
    header = ("operator", unit.kernels, "time", "share", "rate", "allocated", "provider")
    return _of_what_is_known(header, ("", "", "us", "", "GMAC/s", "", ""), rows)


def _sum_of(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _of_what_is_known(
    header: tuple[str, ...], units: tuple[str, ...], rows: Sequence[tuple[str, ...]], left: int = 1
) -> Table:
    """Returns a table without the columns of which nothing is known."""
    kept = [i for i in range(len(header)) if not rows or any(row[i] != "-" for row in rows)]
    return Table(
        tuple(header[i] for i in kept),
        tuple(units[i] for i in kept),
        tuple(tuple(row[i] for i in kept) for row in rows),
        left,
        _SPARE_OF_KERNELS,
    )


def conversion_table(model: ModelResult) -> Table:
    """Returns what quantizes, dequantizes and converts, the slowest first."""
    rows = [
        (f"{each.kind} {each.types}".rstrip(), f"{each.calls:,}", _micros(each.micros),
         share_text(each.share), "")
        for each in model.conversions
    ]  # fmt: skip
    return Table(
        ("change of type", "calls", "time", "share", ""), ("", "", "us", "", ""), tuple(rows)
    )


def backend_table(kernels: Sequence[BackendKernel]) -> Table:
    """Returns what libraries below the operators have run."""
    rows = [
        (
            " ".join(filter(None, (each.library, each.primitive, each.implementation))),
            f"{each.calls:,}",
            f"{each.node or '(model)'}{f' and {each.nodes - 1:,} more' if each.nodes > 1 else ''}",
            shortened(each.types, _LONGEST) or "-",
        )
        for each in kernels
    ]
    header = ("kernel below the operators", "calls", "module", "types")
    return Table(header, ("",) * len(header), tuple(rows), spare=("types",))


def node_table(kernels: Sequence[RanKernel], top: int, unit: Unit) -> tuple[Table, int]:
    """Returns the nodes of the file whose kernels took longest, and how many others there are.

    A kernel that the runtime has put in stands by itself.
    """
    groups: dict[str, list[RanKernel]] = {}
    for each in kernels:
        groups.setdefault(each.node or f"(put in) {each.name}", []).append(each)
    slowest = sorted(groups.items(), key=lambda group: -sum(each.micros for each in group[1]))
    rows = [(shortened(name, _LONGEST), *_node_cells(group)) for name, group in slowest[:top]]
    header = (unit.node, "kernel", "time", "share", "rate", "operands and results")
    table = _of_what_is_known(header, ("", "", "us", "", "GMAC/s", ""), rows, left=2)
    return table, max(0, len(slowest) - top)


def _node_cells(kernels: Sequence[RanKernel]) -> tuple[str, ...]:
    micros = sum(each.micros for each in kernels)
    macs = max((each.macs or 0 for each in kernels), default=0)
    names = list(dict.fromkeys(each.op_type for each in kernels))
    if len(names) > _MOST_NAMES:
        names[_MOST_NAMES - 1 :] = [f"{len(names) - _MOST_NAMES + 1:,} more"]
    more = f" x {len(kernels)}" if len(kernels) > 1 else ""
    return (
        f"{', '.join(names)}{more}",
        _micros(micros),
        share_text(sum(each.share for each in kernels)),
        rate_text(1e6 * macs / micros if macs and micros else None),
        types_text(kernels[0]),
    )


def types_text(kernel: RanKernel) -> str:
    """Returns the types and shapes of a kernel."""
    return shortened(kernel.types, 2 * _LONGEST)


def findings_text(model: ModelResult) -> Sequence[str]:
    """Returns the sentences of what went wrong."""
    said, more = sentences(model, _MOST_FINDINGS)
    shown = [f"- {sentence}" for sentence, _ in said]
    if more:
        shown.append(f"- and {more:,} more, which took less time")
    return shown or ["- nothing"]


def sentences(model: ModelResult, most: int) -> tuple[Sequence[tuple[str, str]], int]:
    """Returns what went wrong, what took longest first, and how many more findings there are."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for each in model.findings:
        groups.setdefault((each.kind, each.alike), []).append(each)
    slowest = sorted(groups.values(), key=lambda group: -sum(each.micros for each in group))
    shown = [(_sentence(group), group[0].source) for group in slowest[:most]]
    return shown, sum(map(len, slowest[most:])) + model.more_findings


def _sentence(group: Sequence[Finding]) -> str:
    first, *others = group
    if not others:
        return first.sentence
    share = share_text(sum(each.share for each in group))
    return f"{first.sentence}; and {len(others):,} more for the same reason, {share} together"


def _micros(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def milliseconds(seconds: float | None) -> str:
    """Returns seconds as milliseconds with three digits: ``0.0213``, ``12.5``."""
    if seconds is None:
        return "-"
    found = 1000 * seconds
    return f"{found:.3g}" if found < 1 else digits_text(found)


def rate_text(macs_per_second: float | None) -> str:
    """Returns MACs per second in thousands of millions."""
    return "-" if macs_per_second is None else digits_text(macs_per_second / 1e9)


def _size_text(value: int | None) -> str:
    return "-" if value is None else size(value)


def _or_dash(value: _Value | None, shown: Callable[[_Value], str]) -> str:
    return "-" if value is None else shown(value)


_CSV: Final = (
    "model", "kernel", "operator", "provider", "node", "micros", "share", "calls", "macs",
    "macs_per_second", "inputs", "outputs", "findings", "allocated",
)  # fmt: skip


def _csv(result: InferenceResult) -> Iterable[str]:
    return csv_lines(
        _CSV,
        (
            (
                model.path,
                each.name,
                each.op_type,
                each.provider,
                each.node,
                each.micros,
                each.share,
                each.calls,
                each.macs,
                each.macs_per_second,
                "; ".join(each.inputs),
                "; ".join(each.outputs),
                "; ".join(_said_of(each, model.findings)),
                each.allocated,
            )
            for model in result.models
            if model.ran is not None
            for each in model.ran.kernels
        ),
    )


def _said_of(kernel: RanKernel, findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        if kernel.name in finding.kernels:
            yield finding.sentence


_ABSENT: Final = "-"
_SPARE: Final = ("largest difference", "IQR", "to compile", "to quantize", "ratio", "on disk")
"""Columns that a narrow terminal does without."""


def _variant_parts(result: InferenceResult) -> Iterator[Part]:
    yield Facts(tuple(bench_settings(result).items()), "measured")
    yield variant_table(result)
    if notes := variant_notes(result):
        yield Lines(notes)
    yield Lines((f"to repeat: {result.command}",))


def bench_settings(result: InferenceResult) -> Mapping[str, str]:
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


def variant_table(result: InferenceResult) -> Table:
    """Returns the variants side by side; one that failed has its problem in the last column."""
    rows = (
        (each.path, *(get(each) or _ABSENT for get in _CELLS.values()), each.problem)
        for each in result.models
    )
    names = ("variant", *(name for name, _ in _CELLS), "")
    of_none = (
        name for (name, _), get in _CELLS.items() if not any(get(each) for each in result.models)
    )
    spare = tuple(dict.fromkeys((*of_none, *_SPARE)))
    return Table(names, ("", *(unit for _, unit in _CELLS), ""), tuple(rows), spare=spare)


def variant_notes(result: InferenceResult) -> tuple[str, ...]:
    """Returns what numbers cannot say."""
    notes = []
    for each in result.models:
        if each.latency is not None and each.latency.is_apart is False:
            notes.append(
                f"{each.path}: its time cannot be told apart from that of {result.baseline}: its "
                f"rounds differ by {share_text(each.latency.noise)}"
            )
        if each.accuracy is not None and each.accuracy.problem:
            what = (
                "its error is not known" if _error(each) is None else "its error is not that of all"
            )
            notes.append(f"{each.path}: {what}: {each.accuracy.problem}")
    return tuple(notes)


def _latency(get: Callable[[Latency], str]) -> Callable[[ModelResult], str]:
    return lambda variant: "" if variant.latency is None else get(variant.latency)


def _speedup(call: Latency) -> str:
    if call.speedup is None:
        return ""
    return f"x {call.speedup:.2f}" if call.is_apart else "within noise"


def _error(variant: ModelResult) -> OutputError | None:
    return None if variant.accuracy is None else next(iter(variant.accuracy.outputs), None)


def _peak(variant: ModelResult) -> str:
    memory = variant.memory
    if memory is None:
        return ""
    if memory.gpu is not None:
        return f"{size(memory.gpu)} of GPU"
    return "" if memory.peak is None else size(memory.peak)


def _memory_ratio(variant: ModelResult) -> str:
    ratio = None if variant.memory is None else variant.memory.ratio
    return "" if ratio is None else f"x {ratio:.2f}"


def _sqnr(variant: ModelResult) -> str:
    error = _error(variant)
    if error is None:
        return ""
    if error.max_abs == 0:
        return "equal"
    return "" if error.sqnr is None else f"{error.sqnr:.1f}"


def _largest(variant: ModelResult) -> str:
    error = _error(variant)
    return "" if error is None or error.max_abs is None else f"{error.max_abs:.3g}"


def _of_memory(variant: ModelResult, name: str) -> int | float | None:
    found: int | float | None = getattr(variant.memory, name, None)
    return found


def _of_latency(variant: ModelResult, name: str) -> float | None:
    found: float | None = getattr(variant.latency, name, None)
    return found


def _disk(variant: ModelResult) -> str:
    disk = None if variant.memory is None else variant.memory.weights_on_disk
    return "" if disk is None else size(disk)


def _seconds(value: float | None) -> str:
    return "" if value is None else digits_text(value)


_CELLS: Final[Mapping[tuple[str, str], Callable[[ModelResult], str]]] = {
    ("median", "ms"): _latency(lambda call: milliseconds(call.median)),
    ("IQR", "ms"): _latency(lambda call: milliseconds(call.iqr)),
    ("speed-up", ""): _latency(_speedup),
    ("peak memory", ""): _peak,
    ("ratio", ""): _memory_ratio,
    ("on disk", ""): _disk,
    ("to quantize", "s"): lambda variant: _seconds(variant.quantize),
    ("to compile", "s"): lambda variant: _seconds(variant.compile),
    ("SQNR", "dB"): _sqnr,
    ("largest difference", ""): _largest,
}
"""Columns with their units; an empty cell is not known."""

_CSV_OF_VARIANTS: Final[Mapping[str, Callable[[ModelResult], str | int | float | None]]] = {
    "variant": lambda each: each.path,
    "kind": lambda each: each.kind,
    "median_seconds": lambda each: _of_latency(each, "median"),
    "iqr_seconds": lambda each: _of_latency(each, "iqr"),
    "noise": lambda each: _of_latency(each, "noise"),
    "processes": lambda each: len(each.latency.processes) if each.latency else None,
    "speedup": lambda each: (
        each.latency.speedup if each.latency and each.latency.is_apart else None
    ),
    "process_peak_bytes": lambda each: _of_memory(each, "peak"),
    "gpu_peak_bytes": lambda each: _of_memory(each, "gpu"),
    "memory_ratio": lambda each: _of_memory(each, "ratio"),
    "disk_bytes": lambda each: _of_memory(each, "weights_on_disk"),
    "quantize_seconds": lambda each: each.quantize,
    "compile_seconds": lambda each: each.compile,
    "sqnr_db": lambda each: getattr(_error(each), "sqnr", None),
    "largest_difference": lambda each: getattr(_error(each), "max_abs", None),
    "problem": lambda each: each.problem or (each.accuracy.problem if each.accuracy else ""),
}
