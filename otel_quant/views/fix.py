"""What ``otel-quant fix`` has rewritten, measured and left alone, as a document."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final

from otel_quant.inference.fix.fix_results import FixResult, Proven, Rewrite, sidecar
from otel_quant.inference.results import Latency
from otel_quant.schema.units import counted, joined, speed_text
from otel_quant.views import document as doc
from otel_quant.views.inference import measured_parts
from otel_quant.views.text import phrase

_ROWS: Final = 20
_CLEARLY: Final = 0.9
"""Time of the float model by that of the fixed one: two processes of one model differ by less."""


def document(result: FixResult, *, is_page: bool = False) -> doc.Document:
    """Returns a result as a document; a page has the layers before and after too."""
    title, parts = answer(result), list(_parts(result))
    if is_page and result.measured is not None:
        parts += measured_parts(result.measured, _ROWS)
    return doc.Document(
        parts, title, "Fixed model", is_answer=True, data=lambda: json.loads(result.to_json()),
        sheet=lambda: doc.Table.of(_REWRITES, result.rewrites), brief=lambda: _brief(result),
    )  # fmt: skip


def _brief(result: FixResult) -> doc.Brief:
    """Returns the answer that a program can act on."""
    before = result.float_model or result.model
    then = [("inference", before, result.output)] if result.output else []
    return doc.Brief(f"{answer(result)}.", list(_notes(result)), next=then)


def answer(result: FixResult) -> str:
    """Returns the answer in one sentence."""
    all_ = counted(result.contractions, "contraction")
    count, old = result.integers_after, result.integers_before
    if result.output is None and not result.of_state("planned"):
        integers = f"{count:,} of {all_} in integers; " if result.contractions else ""
        return f"{result.model}: {integers}{result.why}"
    integers = f"{count:,} of {all_} in integers, {'as before' if count == old else f'not {old:,}'}"
    if result.output is None:
        return f"{result.model}: {integers}"
    before, fixed, *_ = result.proven
    ratio = _of_latency(result, "ratio")(fixed) or 1.0
    text = f"{result.output} is {speed_text(ratio)} than {result.model}: {integers}"
    if before.sqnr_float is not None and fixed.sqnr_float is not None:
        now, then = (f"{each.sqnr_float:.1f}" for each in (fixed, before))
        errors = f"{now} dB, {'as before' if now == then else f'not {then}'}"
        return f"{text}; SQNR to the float model {errors}"
    if fixed.sqnr_input is None:
        return f"{text}; the same outputs"
    return f"{text}; SQNR to its outputs {fixed.sqnr_input:.1f} dB"


def _of_latency(result: FixResult, name: str) -> Callable[[Proven], Any]:
    """Returns what gives a figure of a file's latency; None where it is not known."""
    models = () if result.measured is None else result.measured.models
    found: dict[str, Latency | None] = {each.path: each.latency for each in models}
    return lambda proven: getattr(found.get(proven.path), name, None)


def _parts(result: FixResult) -> Iterator[doc.Part]:
    if result.rewrites:
        yield doc.Table.of(
            _REWRITES, result.rewrites, known_only=True, id="fix-rewrites", title="rewrites"
        )
    if result.proven:
        columns = (
            doc.Column("file", value=attrgetter("path")),
            doc.Column("median", "s", _of_latency(result, "median"), shown_in="ms", key="median_seconds"),
            doc.Column("CPU time", "s", _of_latency(result, "cpu"), shown_in="ms", key="cpu_seconds"),
            *_PROVEN,
        )  # fmt: skip
        facts = {} if result.measured is None else result.measured.first.facts
        threads = phrase(" (threads of onnxruntime: {})", facts.get("threads of onnxruntime"))
        title = f"before and after, in turns{threads}"
        yield doc.Table.of(columns, result.proven, known_only=True, id="fix-proof", title=title)
    yield from doc.Lines.of(_notes(result), is_list=True)


def _notes(result: FixResult) -> Iterator[str]:
    ratios = [_of_latency(result, "ratio")(each) or 1.0 for each in result.proven]
    if len(ratios) > 2 and ratios[2] < _CLEARLY * ratios[1]:
        yield f"{result.float_model} is {speed_text(ratios[2] / ratios[1])} still"
    for each in result.rewrites:
        if each.why:
            yield f"{each.kind} is {each.state}: {each.why}"
        elif each.differs:
            yield f"{each.kind} makes it another function: {each.differs}"
    yield from (f"still in float: {text}" for text in result.obstacles)
    for proven in result.proven:
        if proven.checker:
            yield f"onnx.checker does not accept {proven.path}: {proven.checker}"
    disabled, entries = result.disabled_optimizers, result.session_config.items()
    made = [f"disabled_optimizers={list(disabled)}"] * bool(disabled)
    made += [f"add_session_config_entry{entry} of its options" for entry in entries]
    if result.output is not None and made:
        yield (
            f"its session is to be made with {joined(made)}, which no file can say: "
            f"{sidecar(result.output)} has it, and `otel-quant inference --session` takes it from there"
        )
    if result.output is not None:
        yield (
            f"{result.output} is for onnxruntime on a CPU; {result.model} stays as it is, for others (AMD's NPU "
            "wants int8 biases and scales that are powers of two)"
        )
    elif result.of_state("planned"):
        yield f"forecast only: {result.why}"


_PROVEN: Final[tuple[doc.Column[Proven], ...]] = (
    doc.Column("ran in integers", value=lambda it: f"{it.integers} of {it.contractions}"),
    doc.Column("SQNR to float", "dB", attrgetter("sqnr_float"), shown_in="dB", digits=1),
    doc.Column("SQNR to the input file", "dB", attrgetter("sqnr_input"), shown_in="dB", digits=1, spare=1),
    doc.Column("largest difference", "", attrgetter("max_abs"), spare=2),
    doc.Column("size", "By", attrgetter("bytes"), spare=3),
)  # fmt: skip

_REWRITES: Final[tuple[doc.Column[Rewrite], ...]] = (
    doc.Column("kind", value=attrgetter("kind")),
    doc.Column("", value=attrgetter("state"), key="state"),
    doc.Column("nodes", "", lambda each: len(each.nodes)),
    doc.Column("in integers without", "", attrgetter("integers_without"), key="integers_without"),
    doc.Column("time vs. without", "x", attrgetter("ratio"), digits=2, key="ratio"),
    doc.Column("SQNR", "dB", attrgetter("sqnr_gain"), shown_in="dB", digits=2, is_signed=True, key="sqnr_gain"),
    doc.Column("writes", value=attrgetter("title"), spare=1),
)  # fmt: skip
