"""Which nodes to leave in float, and what that gives, as a document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from otel_quant.inference.advise.advice_results import AdviceResult, AdvisedNode
from otel_quant.inference.results import ModelResult
from otel_quant.schema.units import counted
from otel_quant.views import document as doc
from otel_quant.views.inference import measured_parts
from otel_quant.views.text import number_text, phrase

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
    found = {role: _figures(each) for role, each in result.models.items() if role != "float"}
    if not found:
        return f"{result.model}: nothing is to be left in float: {result.why}"
    number = sum(bool(each.op_type) for each in result.nodes)
    nodes = f"{len(result.left):,} of {counted(number, 'node')}"
    text = f"{result.model} with {nodes} in float: {found['forecast']}, not {found['quantized']}"
    text += phrase("; quantized again: {}", found.get("rerun"))
    return text + phrase("; {}", result.why)


def _figures(model: ModelResult) -> str:
    """Returns the error, time and size of a file."""
    sqnr = model.accuracy and model.accuracy.lowest_sqnr
    time = model.latency and (model.latency.cpu or model.latency.median)
    bytes_ = model.memory and model.memory.weights_on_disk
    parts = ((sqnr, "dB", 1), (time, "ms", None), (bytes_, "By", None))
    return ", ".join(number_text(each, unit, digits) for each, unit, digits in parts if each)


def _parts(result: AdviceResult) -> Iterator[doc.Part]:
    yield from doc.Lines.of(result.option)
    title = "nodes by their part of the outputs' noise"
    table = doc.Table.of(_NODES, result.nodes, known_only=True, id="advise-nodes", title=title)
    yield table.first(_ROWS, "node")
    if result.measured is not None:
        yield from measured_parts(result.measured, _ROWS)


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
