"""What ``otel-quant fix`` has rewritten, measured and left alone, as a document."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from otel_quant.inference.fix.fix_results import FixResult, Proven, Rewrite
from otel_quant.inference.results import Latency, ModelResult
from otel_quant.schema.units import counted, speed_text
from otel_quant.views import document as doc
from otel_quant.views.inference import measured_parts
from otel_quant.views.text import cell_text, phrase

_PROVIDERS: Final = {"cpu": "onnxruntime's CPU provider"}
_ROWS: Final = 20


def document(result: FixResult, *, is_page: bool = False) -> doc.Document:
    """Returns a result as a document; a page has the layers before and after too."""
    title = answer(result)
    parts = [
        *doc.Lines.of([] if is_page else [title]),
        *_parts(result),
        *([] if result.measured is None or not is_page else measured_parts(result.measured, _ROWS)),
    ]
    return doc.Document(
        parts, title, "Fixed model", is_bad=not result.output and result.why != "", data=lambda: json.loads(result.to_json()),
        sheet=lambda: doc.Table.of(_REWRITES, result.rewrites),
    )  # fmt: skip


def answer(result: FixResult) -> str:
    """Returns the answer in one sentence."""
    integers = f"{result.integers_after:,} of {counted(result.contractions, 'contraction')} in integers, not {result.integers_before:,}"
    if result.output is None:
        planned = result.of_state("planned")
        return f"{result.model}: {integers if planned else result.why}"
    _, fixed, *_ = result.proven
    text = f"{result.output} is {phrase('{} than ', _speed(result))}{result.model}: {integers}"
    before, after = (each.sqnr_float for each in result.proven[:2])
    if before is not None and after is not None:
        return f"{text}; SQNR to the float model {after:.1f} dB, not {before:.1f}"
    same = (
        "the same outputs"
        if fixed.max_abs == 0
        else f"SQNR to its outputs {cell_text(_decibels(fixed.sqnr_input))}"
    )
    return f"{text}; {same}"


def _decibels(value: float | None) -> doc.UnitCell:
    return doc.UnitCell(value, "dB", digits=1)


def _latency(result: FixResult, name: str) -> Latency | None:
    models: Sequence[ModelResult] = () if result.measured is None else result.measured.models
    return next((each.latency for each in models if each.path == name), None)


def _speed(result: FixResult) -> str | None:
    found = _latency(result, result.output or "")
    return None if found is None or found.ratio is None else speed_text(found.ratio)


def _parts(result: FixResult) -> Iterator[doc.Part]:
    if result.rewrites:
        yield doc.Table.of(
            _REWRITES, result.rewrites, known_only=True, id="fix-rewrites", title="rewritten", caption="Rewrites"
        )  # fmt: skip
    if result.proven:
        columns = [*_timed(result), *_PROVEN]
        yield doc.Table.of(
            columns, result.proven, known_only=True, id="fix-proof", title="before and after, in turns", caption="Before and after"
        )  # fmt: skip
    yield from doc.Lines.of(_notes(result), is_list=True)


def _notes(result: FixResult) -> Iterator[str]:
    for each in result.rewrites:
        if each.why and each.state != "planned":
            yield f"{each.kind} is {each.state}: {each.why}"
        elif each.differs:
            yield f"{each.kind} makes it another function: {each.differs}"
    for text in result.obstacles:
        yield f"still in float: {text}"
    for proven in result.proven:
        if proven.checker:
            yield f"onnx.checker does not accept {proven.path}: {proven.checker}"
    if result.output is not None:
        yield (
            f"{result.output} is for {_PROVIDERS[result.provider]}; {result.model} stays as it is, for others "
            "(AMD's NPU wants int8 biases and scales that are powers of two)"
        )
    elif result.of_state("planned"):
        yield f"forecast only: {result.why}"


def _timed(result: FixResult) -> Iterator[doc.Column[Proven]]:
    def of(name: str) -> Callable[[Proven], Any]:
        return lambda each: getattr(_latency(result, each.path), name, None)

    yield doc.Column("file", value=attrgetter("path"))
    yield doc.Column("median", "s", of("median"), shown_in="ms", key="median_seconds")
    yield doc.Column("CPU time", "s", of("cpu"), shown_in="ms", key="cpu_seconds")


def _in_integers(proven: Proven) -> str | None:
    return None if proven.contractions is None else f"{proven.integers} of {proven.contractions}"


_PROVEN: Final[Sequence[doc.Column[Proven]]] = (
    doc.Column("ran in integers", value=_in_integers),
    doc.Column("SQNR to float", "dB", attrgetter("sqnr_float"), shown_in="dB", digits=1),
    doc.Column("SQNR to the input", "dB", attrgetter("sqnr_input"), shown_in="dB", digits=1, spare=1),
    doc.Column("largest difference", "", attrgetter("max_abs"), spare=2),
    doc.Column("size", "By", attrgetter("bytes"), spare=3),
)  # fmt: skip

_REWRITES: Final[Sequence[doc.Column[Rewrite]]] = (
    doc.Column("kind", value=attrgetter("kind")),
    doc.Column("", value=attrgetter("state"), key="state"),
    doc.Column("nodes", "", lambda each: len(each.nodes)),
    doc.Column("in integers without", "", attrgetter("integers_without"), key="integers_without"),
    doc.Column("time vs. without", "x", attrgetter("ratio"), digits=2, key="ratio"),
    doc.Column("SQNR", "dB", attrgetter("sqnr_gain"), shown_in="dB", digits=2, is_signed=True, key="sqnr_gain"),
    doc.Column("writes", value=attrgetter("title"), spare=1),
)  # fmt: skip
