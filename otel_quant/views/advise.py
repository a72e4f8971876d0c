"""Which nodes to leave in float, and what that gives, as a document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from otel_quant.inference.advise.advice_results import AdviceResult, AdvisedFile, AdvisedNode
from otel_quant.schema.units import counted, speed_text
from otel_quant.views import document as doc
from otel_quant.views.text import number_text

_ROWS: Final = 20


def document(result: AdviceResult) -> doc.Document:
    """Returns a result as a document."""
    return doc.Document(
        list(_parts(result)),
        _answer(result),
        "Nodes to leave in float",
        is_answer=True,
        data=lambda: json.loads(result.to_json()),
        sheet=lambda: doc.Table.of(_NODES, result.nodes),
    )


def _answer(result: AdviceResult) -> str:
    """Returns the answer in one sentence."""
    if not result.files:
        return f"{result.model}: nothing is to be left in float: {result.why}"
    before, after, *_ = result.files
    than = "" if before.sqnr is None else f" (not {before.sqnr:.1f})"
    text = (
        f"{result.model} with {len(result.left):,} of {counted(len(result.nodes), 'node')} in float"
    )
    text += f": {_figures(after)}{than}"
    again = result.file("rerun")
    text += "" if again is None else f"; quantized again: {_figures(again)}"
    return f"{text}; {result.why}" if result.why else text


def _figures(file: AdvisedFile) -> str:
    speed = speed_text(file.ratio) if file.ratio and file.is_apart else "as fast"
    sqnr = "the same outputs" if file.sqnr is None else f"SQNR {file.sqnr:.1f} dB"
    return f"{speed}, {number_text(file.bytes, 'By')}, {sqnr}"


def _parts(result: AdviceResult) -> Iterator[doc.Part]:
    yield from doc.Lines.of(result.option)
    title = "in turns; the forecast is of the file without the quantization of these nodes"
    if result.files:
        yield doc.Table.of(_FILES, result.files, known_only=True, id="advise-files", title=title)
    title = "nodes by their part of the outputs' noise"
    table = doc.Table.of(_NODES, result.nodes, known_only=True, id="advise-nodes", title=title)
    yield table.first(_ROWS, "node")


_FILES: Final[tuple[doc.Column[AdvisedFile], ...]] = (
    doc.Column("", value=attrgetter("role"), key="role"),
    doc.Column("median", "s", attrgetter("median"), shown_in="ms", key="median_seconds"),
    doc.Column("CPU time", "s", attrgetter("cpu"), shown_in="ms", key="cpu_seconds"),
    doc.Column("time", "x", attrgetter("ratio"), digits=2, key="ratio"),
    doc.Column("SQNR", "dB", attrgetter("sqnr"), shown_in="dB", digits=1, key="sqnr_db"),
    doc.Column("size", "By", attrgetter("bytes")),
)

_NODES: Final[tuple[doc.Column[AdvisedNode], ...]] = (
    doc.Column("node", value=attrgetter("name")),
    doc.Column("", value=lambda it: "float" if it.is_left else None, key="advice"),
    doc.Column("noise", "1", attrgetter("noise")),
    doc.Column("of its weights", "1", attrgetter("weights_noise"), key="weights_noise"),
    doc.Column("time", "s", attrgetter("seconds"), shown_in="us", digits=1, key="seconds"),
    doc.Column(
        "in float", "s", attrgetter("float_seconds"), shown_in="us", digits=1, key="float_seconds"
    ),
    doc.Column("more bytes", "By", attrgetter("growth"), key="growth", spare=1),
)
