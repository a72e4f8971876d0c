"""Whole spans, made from literal readings by the real SDK."""

from __future__ import annotations

from dataclasses import replace

from opentelemetry.trace import SpanKind, StatusCode

from tests.fixtures.sent import SentRun
from tests.unit.export.otel.literal_run import (
    BEGAN,
    COSTED,
    CUSTOM,
    RUN,
    RUN_IDS,
    RUN_SPAN,
    SECOND,
    STEP_SPAN,
    UNMEASURED_LATER,
    UNMEASURED_START,
    send_run,
    send_unmeasured_run,
)
from tests.unit.export.otel.signals import Signals, plain

USAGE = {
    "quant.memory.start": 1000,
    "quant.memory.end": 1200,
    "quant.memory.delta": 200,
    "quant.memory.peak": 4000,
    "quant.memory.peak_source": "kernel",
    "quant.memory.peak_ratio": 0.5,
    "quant.disk.read": 3,
    "quant.disk.write": 1000,
    "quant.disk.read_chars": 4,
    "quant.disk.write_chars": 1005,
    "quant.cpu.user": 2.25,
    "quant.cpu.system": 0.25,
    "quant.page_faults.major": 5,
    "quant.cpu.wait": 1.25,
    "quant.cache.disk.peak": 6000,
    "quant.gpu.memory.start": 550,
    "quant.gpu.memory.end": 520,
    "quant.gpu.memory.delta": -30,
    "quant.gpu.memory.peak": 700,
}

STEP_ATTRIBUTES = {
    **STEP_SPAN,
    "quant.calibration.method": "Percentile",
    "quant.calibration.sample_total": 8,
    "quant.calibration.sample_count": 5,
    "quant.calibration.item_count": 40,
    "quant.calibration.sample_rate": 2.5,
}
COST = {
    "quant.model.float.size": 4000,
    "quant.model.float.params": 1000,
    "quant.model.float.macs_contraction": 77,
    "quant.model.float.uncosted_ops": ("Odd:1",),
}
RUN_ATTRIBUTES = {**RUN_SPAN, "quant.run.steps": 1}

DEVICES = {
    "quant.gpu.count": 2,
    "quant.gpu.memory.limit": 20_000,
}


def test_a_step_is_a_span_with_all_its_figures() -> None:
    signals = Signals()
    send_run(signals.spans_sink())
    span, root = signals.spans()["My calibration"], signals.spans()["quantization"]
    assert plain(span.attributes) == {**STEP_ATTRIBUTES, **USAGE, **CUSTOM}
    assert (span.start_time, span.end_time) == (BEGAN, BEGAN + 2 * SECOND)
    assert (span.kind, span.status.status_code) == (SpanKind.INTERNAL, StatusCode.UNSET)
    assert span.parent is not None
    assert span.parent.span_id == root.get_span_context().span_id
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "otel_quant"
    assert span.events == ()


def test_a_run_is_a_root_span_with_limits_totals_and_attributes_of_its_steps() -> None:
    signals = Signals()
    send_run(signals.spans_sink())
    root = signals.spans()["quantization"]
    assert plain(root.attributes) == {
        **RUN_ATTRIBUTES,
        **DEVICES,
        **USAGE,
        **CUSTOM,
        **COST,
        "quant.run.failed_steps": 0,
        "quant.memory.process_peak": 3900,
        "quant.library.name": "amd-quark",
        "quant.calibration.method": "Percentile",
        "quant.input.path": "m.onnx",
    }
    assert root.parent is None
    assert (root.start_time, root.end_time) == (BEGAN, BEGAN + 2 * SECOND)


def test_a_span_lacks_figures_that_could_not_be_measured() -> None:
    signals = Signals()
    send_unmeasured_run(signals.spans_sink())
    assert plain(signals.spans()["Bare"].attributes) == {
        **RUN_IDS,
        "quant.step.name": "Bare",
        "quant.step.kind": "Bare",
        "quant.step.index": 4,
        "quant.calibration.method": "Percentile",
        "quant.calibration.sample_total": 8,
        "quant.calibration.sample_count": 5,
        "quant.calibration.item_count": 40,
        "quant.calibration.sample_rate": 2.5,
        **CUSTOM,
    }
    assert plain(signals.spans()["quantization"].attributes) == {
        **RUN_ATTRIBUTES,
        **CUSTOM,
        **COST,
        "quant.run.failed_steps": 0,
        "quant.calibration.method": "Percentile",
        "quant.input.path": "m.onnx",
    }


def test_the_span_of_a_failed_step_has_the_exception() -> None:
    signals = Signals()
    send_run(signals.spans_sink(), error=MemoryError("too big"))
    span, root = signals.spans()["My calibration"], signals.spans()["quantization"]
    assert plain(span.attributes) == {
        **STEP_ATTRIBUTES,
        **USAGE,
        **CUSTOM,
        "error.type": "MemoryError",
    }
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "too big")
    (event,) = span.events
    exception = plain(event.attributes)
    assert (event.name, event.timestamp) == ("exception", BEGAN + 2 * SECOND)
    assert (exception["exception.type"], exception["exception.message"]) == (
        "MemoryError",
        "too big",
    )
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "too big")
    assert plain(root.attributes)["error.type"] == "MemoryError"


def test_each_costed_model_is_a_span() -> None:
    signals = Signals()
    send_run(signals.spans_sink())
    good, bad = (span for span in signals.all_spans() if span.name == "model cost")
    run = RUN_IDS
    identity = {"quant.model.role": "float", "quant.model.path": "m.onnx"}
    assert plain(good.attributes) == {**run, **identity, **COST}
    assert (good.start_time, good.end_time) == (BEGAN + SECOND, BEGAN + 2 * SECOND)
    assert plain(bad.attributes) == {**run, "quant.model.role": "quantized"}
    assert [(event.name, plain(event.attributes)) for event in bad.events] == [
        ("quant.model.cost_failed", {"message": "m.onnx is cut short"})
    ]


def test_the_root_span_has_only_the_totals_of_the_last_quantization() -> None:
    signals = Signals()
    run = SentRun(RUN, UNMEASURED_START, signals.spans_sink())
    run.began()
    for figures in ({"params": 1, "precision.int8": 1.0}, {"params": 2, "precision.float16": 1.0}):
        run.costed(replace(COSTED, figures=figures))
    run.ended(UNMEASURED_LATER)

    attributes = plain(signals.spans()["quantization"].attributes)
    assert {key: value for key, value in attributes.items() if key.startswith("quant.model.")} == {
        "quant.model.float.params": 2,
        "quant.model.float.precision.float16": 1.0,
    }
