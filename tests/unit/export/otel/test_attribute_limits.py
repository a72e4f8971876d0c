"""However much a program adds to a span or a record, it is known which step and run it is."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanLimits

from otel_quant.capture.recorder import attributes as attributes_module
from otel_quant.export.otel import custom as custom_module
from otel_quant.export.otel.logs import LogsSink
from otel_quant.export.otel.spans import SpansSink
from otel_quant.schema.records import CostedModel
from tests.fixtures.sent import SentRun
from tests.unit.export.otel.literal_run import (
    BEGAN,
    LATER,
    PEAKS,
    RUN,
    RUN_SPAN,
    START,
    STEP,
    STEP_SPAN,
)
from tests.unit.export.otel.signals import Signals

CUSTOM = {f"metric {number}": number for number in range(200)}
OF_STEP = {f"mine.{number}": number for number in range(200)}
PRECISIONS = ("float32", "float16", "bfloat16", "int8", "int8 weight-only", "int4", "int2")
FIGURES = (
    "size", "params", "macs", "macs_contraction", "backward_macs", "weight_bytes", "memory",
    "peak_activation_bytes", "nodes", "qdq_nodes", "integer_mac_share", "max_memory_node",
    *(f"precision.{precision}" for precision in PRECISIONS),
)  # fmt: skip
RUN_IDENTITY = {**RUN_SPAN, "quant.library.name": "amd-quark"}
FIGURES_OF_STEP = {"quant.memory.peak": 4000, "quant.gpu.memory.peak": 700}


def send(sink: SpansSink | LogsSink, models: bool = False) -> None:
    """Sends a sink a run with one step, to which the program adds what it can."""
    run = SentRun(RUN, START, sink)
    run.began()
    run.opened(STEP, START, OF_STEP)
    run.closed(STEP, LATER, PEAKS, samples=5, custom=CUSTOM)
    if models:
        run.costed(
            *(
                CostedModel(role, "m.onnx", BEGAN, BEGAN, dict.fromkeys(FIGURES, 1))
                for role in ("float", "quantized")
            )
        )
    run.ended(LATER, PEAKS, custom=CUSTOM)


def spans_of(limits: SpanLimits | None = None) -> dict[str, Any]:
    """Returns the spans of such a run, by name."""
    signals = Signals(limits)
    send(signals.spans_sink(), models=True)
    return signals.spans()


def test_no_attribute_of_ours_is_dropped_for_those_of_the_program(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attributes_module._warn_of_attributes.cache_clear()
    custom_module._warn_of_many.cache_clear()
    with caplog.at_level(logging.WARNING):
        spans = spans_of()
    step, root = spans["My calibration"], spans["quantization"]
    assert {span.name: span.dropped_attributes for span in spans.values()} == dict.fromkeys(
        spans, 0
    )
    shown = dict(step.attributes)
    assert {**shown, **STEP_SPAN, **FIGURES_OF_STEP} == shown
    assert [key for key in shown if key.startswith("mine.")] == list(OF_STEP)[:64]
    assert sum(key.startswith("quant.custom.") for key in shown) == 32
    shown = dict(root.attributes)
    assert {**shown, **RUN_IDENTITY, **FIGURES_OF_STEP} == shown
    assert {f"quant.model.{role}.{f}" for role in ("float", "quantized") for f in FIGURES} <= set(
        shown
    )
    assert [record.getMessage() for record in caplog.records] == [
        "only the first 64 attributes of a step are kept; set fewer to choose them",
        "only the first 32 custom metrics are on spans and log records; add fewer to choose them",
    ]


def test_a_span_with_room_for_10_attributes_keeps_those_that_identify_it() -> None:
    spans = spans_of(SpanLimits(max_span_attributes=10))
    shown = dict(spans["My calibration"].attributes)
    assert {**shown, **STEP_SPAN} == shown
    shown = dict(spans["quantization"].attributes)
    assert {**shown, **RUN_IDENTITY} == shown


def test_a_checkpoint_record_loses_nothing_to_custom_metrics() -> None:
    signals = Signals()
    send(signals.logs_sink())
    records = signals.log_exporter.get_finished_logs()
    assert {record.dropped_attributes for record in records} == {0}
    last = signals.records()[-1][-1]
    assert last["quant.run.id"] == RUN.id
    assert (last["quant.checkpoint.name"], last["quant.checkpoint.memory"]) == ("End", 1200)
    assert sum(key.startswith("quant.custom.") for key in last) == 32
