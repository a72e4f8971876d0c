"""Whole spans, metric points and log records made from literal readings by the real SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from otel_quant.probes.registry import RESOURCES
from otel_quant.records import Checkpoint, Peaks, Reading, RunRecord, StepInfo
from otel_quant.telemetry import logs as logs_module
from otel_quant.telemetry.logs import LogsSink
from otel_quant.telemetry.metrics import MetricsSink
from otel_quant.telemetry.spans import SpansSink
from tests.unit.recording.received import recorder_of
from tests.unit.telemetry.literal_run import (
    BARE,
    BEGAN,
    COSTED,
    LATER,
    RUN,
    SECOND,
    START,
    STEP,
    UNMEASURED_LATER,
    UNMEASURED_START,
    send_run,
)

UNMEASURED = {"step": BARE, "start": UNMEASURED_START, "later": UNMEASURED_LATER, "peaks": Peaks()}

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
    "quant.cache.disk.peak": 6000,
    "quant.gpu.memory.start": 550,
    "quant.gpu.memory.end": 520,
    "quant.gpu.memory.delta": -30,
    "quant.gpu.memory.peak": 700,
}
CUSTOM = {"quant.custom.accuracy": 97.5, "quant.custom.note": "fine"}
NAME = {"quant.run.name": "quantize small 2023-11-14T22:13:20.000Z"}
RUN_IDS = {"quant.run.id": "0123456789abcdef", "quant.run.rank": 1, **NAME}
STEP_ATTRIBUTES = {
    **RUN_IDS,
    "quant.step.name": "My calibration",
    "quant.step.kind": "Calibration",
    "quant.step.index": 3,
    "quant.library.name": "amd-quark",
    "quant.library.version": "0.13",
    "code.function.name": "quark.onnx.run_calibration",
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
RUN_ATTRIBUTES = {
    "quant.run.id": "0123456789abcdef",
    "quant.run.name": "quantize small 2023-11-14T22:13:20.000Z",
    "quant.run.rank": 1,
    "quant.run.world_size": 2,
    "process.pid": 4711,
    "quant.memory.limit": 8000,
    "quant.memory.limit_source": "cgroup",
    "quant.run.steps": 1,
}
BEGAN_POINT = {
    **NAME,
    "quant.run.rank": 1,
    "process.pid": 4711,
    "quant.input.name": "small",
    "quant.calibration.method": "Percentile",
    "quant.config.name": "XINT8",
}
DEVICES = {
    "quant.gpu.count": 2,
    "quant.gpu.memory.limit": 20_000,
}


def plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(attributes or {})


# --- spans ----------------------------------------------------------------------------------


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_step_is_a_span_with_all_its_figures(spans: InMemorySpanExporter) -> None:
    send_run(SpansSink(RESOURCES))
    span, root = by_name(spans)["My calibration"], by_name(spans)["quantization"]
    assert plain(span.attributes) == {**STEP_ATTRIBUTES, **USAGE, **CUSTOM}
    assert (span.start_time, span.end_time) == (BEGAN, BEGAN + 2 * SECOND)
    assert (span.kind, span.status.status_code) == (SpanKind.INTERNAL, StatusCode.UNSET)
    assert span.parent is not None
    assert span.parent.span_id == root.get_span_context().span_id
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "otel_quant"
    assert span.events == ()


def test_a_run_is_a_root_span_with_limits_totals_and_attributes_of_its_steps(
    spans: InMemorySpanExporter,
) -> None:
    send_run(SpansSink(RESOURCES))
    root = by_name(spans)["quantization"]
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


def test_a_span_lacks_figures_that_could_not_be_measured(spans: InMemorySpanExporter) -> None:
    send_run(SpansSink(RESOURCES), **UNMEASURED)  # type: ignore[arg-type] # of mixed types
    assert plain(by_name(spans)["Bare"].attributes) == {
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
    assert plain(by_name(spans)["quantization"].attributes) == {
        **RUN_ATTRIBUTES,
        **CUSTOM,
        **COST,
        "quant.run.failed_steps": 0,
        "quant.calibration.method": "Percentile",
        "quant.input.path": "m.onnx",
    }


def test_the_span_of_a_failed_step_has_the_exception(spans: InMemorySpanExporter) -> None:
    send_run(SpansSink(RESOURCES), error=MemoryError("too big"))
    span, root = by_name(spans)["My calibration"], by_name(spans)["quantization"]
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
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "MemoryError")
    assert plain(root.attributes)["error.type"] == "MemoryError"


def test_each_costed_model_is_a_span(spans: InMemorySpanExporter) -> None:
    send_run(SpansSink(RESOURCES))
    good, bad = (span for span in spans.get_finished_spans() if span.name == "model cost")
    run = RUN_IDS
    identity = {"quant.model.role": "float", "quant.model.path": "m.onnx"}
    assert plain(good.attributes) == {**run, **identity, **COST}
    assert (good.start_time, good.end_time) == (BEGAN + SECOND, BEGAN + 2 * SECOND)
    assert plain(bad.attributes) == {**run, "quant.model.role": "quantized"}
    assert [(event.name, plain(event.attributes)) for event in bad.events] == [
        ("quant.model.cost_failed", {"message": "m.onnx is cut short"})
    ]


def test_the_root_span_has_only_the_totals_of_the_last_quantization(
    spans: InMemorySpanExporter,
) -> None:
    sink = SpansSink(RESOURCES)
    sink.run_started(RUN, Checkpoint(0, "Start", "start", UNMEASURED_START, UNMEASURED_START))
    for figures in ({"params": 1, "precision.int8": 1.0}, {"params": 2, "precision.float16": 1.0}):
        sink.models_costed([replace(COSTED, figures=figures)])
    record = RunRecord(RUN, UNMEASURED_START, UNMEASURED_LATER, Peaks(), 0, 0)
    sink.run_ended(record, Checkpoint(1, "End", "end", UNMEASURED_LATER, UNMEASURED_START))

    attributes = plain(by_name(spans)["quantization"].attributes)
    assert {key: value for key, value in attributes.items() if key.startswith("quant.model.")} == {
        "quant.model.float.params": 2,
        "quant.model.float.precision.float16": 1.0,
    }


# --- metrics --------------------------------------------------------------------------------


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    return reader


Points = dict[tuple[str, str], list[tuple[dict[str, Any], float]]]


def points_of(reader: InMemoryMetricReader) -> Points:
    """Returns attributes and value of all points, by metric and unit; sums of histograms."""
    data = reader.get_metrics_data()
    assert data is not None
    found: Points = {}
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found[metric.name, metric.unit or ""] = [
                    (
                        plain(point.attributes),
                        point.sum if isinstance(point, HistogramDataPoint) else point.value,
                    )
                    for point in metric.data.data_points
                ]
    return found


STEP_LABELS = {"quant.step.kind": "Calibration", "quant.library.name": "amd-quark"}
OF_STEPS = {
    ("quant.step.duration", "s"): [(STEP_LABELS, 2.0)],
    ("quant.step.memory.peak", "By"): [(STEP_LABELS, 4000)],
    ("quant.step.cache.disk.peak", "By"): [(STEP_LABELS, 6000)],
    ("quant.step.memory.growth", "By"): [(STEP_LABELS, 200)],
    ("quant.step.disk.io", "By"): [
        ({**STEP_LABELS, "disk.io.direction": "read"}, 3),
        ({**STEP_LABELS, "disk.io.direction": "write"}, 1000),
    ],
    ("quant.step.cpu.time", "s"): [
        ({**STEP_LABELS, "cpu.mode": "user"}, 2.25),
        ({**STEP_LABELS, "cpu.mode": "system"}, 0.25),
    ],
    ("quant.step.gpu.memory.peak", "By"): [
        ({**STEP_LABELS, "hw.id": "GPU-0"}, 630),
        ({**STEP_LABELS, "hw.id": "GPU-1"}, 70),
    ],
    ("quant.calibration.samples", "{sample}"): [(STEP_LABELS, 5)],
    ("quant.calibration.progress", "1"): [(STEP_LABELS, 0.625)],
    ("quant.model.size", "By"): [({"quant.model.role": "float"}, 4000)],
    ("quant.model.params", "{element}"): [({"quant.model.role": "float"}, 1000)],
    ("quant.model.macs_contraction", "{mac}"): [({"quant.model.role": "float"}, 77)],
    ("quant.custom.accuracy", ""): [
        ({"quant.step.kind": "Calibration"}, 97.5),
        ({}, 97.5),
    ],
}


def test_live_metrics_end_with_the_run_and_the_others_stay(
    reader: InMemoryMetricReader,
) -> None:
    now: list[Reading | None] = [LATER]
    send_run(MetricsSink(RESOURCES, lambda: now[0], lambda step: None))
    now[0] = None
    assert points_of(reader) == {
        **OF_STEPS,
        ("quant.step.active", "{step}"): [(STEP_LABELS, 0)],
        ("quant.run.start", "s"): [(BEGAN_POINT, 1_700_000_000.0)],
        ("quant.run.memory.peak", "By"): [(NAME, 4000)],
        ("quant.run.end", "s"): [(NAME, 1_700_000_002.0)],
    }


def test_live_metrics_show_the_present_figures_of_a_run(
    reader: InMemoryMetricReader,
) -> None:
    peaks = Peaks(figures={"memory": 3000})
    sink = MetricsSink(RESOURCES, lambda: LATER, lambda step: None, peaks=lambda: peaks)
    sink.run_started(RUN, Checkpoint(0, "Start", "start", START, START))
    sink.step_started(STEP, Checkpoint(1, "My Start", "start", START, START, STEP), {})
    assert points_of(reader) == {
        ("quant.run.start", "s"): [(BEGAN_POINT, 1_700_000_000.0)],
        ("quant.run.memory.peak", "By"): [(NAME, 3000)],
        ("quant.step.active", "{step}"): [(STEP_LABELS, 1)],
        ("quant.run.memory.usage", "By"): [({}, 1200)],
        ("quant.run.memory.limit", "By"): [({}, 8000)],
        ("quant.run.gpu.memory.usage", "By"): [({"hw.id": "GPU-0"}, 450), ({"hw.id": "GPU-1"}, 70)],
        ("quant.run.gpu.memory.limit", "By"): [
            ({"hw.id": "GPU-0"}, 10_000),
            ({"hw.id": "GPU-1"}, 10_000),
        ],
        ("quant.run.gpu.process_memory.usage", "By"): [({"hw.id": "GPU-0"}, 150)],
        ("quant.run.gpu.torch_allocated.usage", "By"): [({"hw.id": "GPU-0"}, 9)],
        ("quant.run.gpu.torch_reserved.usage", "By"): [({"hw.id": "GPU-0"}, 9)],
        ("quant.run.disk.io", "By"): [
            ({"disk.io.direction": "read"}, 3),
            ({"disk.io.direction": "write"}, 1000),
        ],
    }


def test_the_progress_of_a_calibration_is_shown_until_the_next_one_starts(
    reader: InMemoryMetricReader,
) -> None:
    sink = MetricsSink(RESOURCES, lambda: None, lambda step: None)

    def shown() -> list[tuple[dict[str, Any], float]]:
        return points_of(reader).get(("quant.calibration.progress", "1"), [])

    def started(step: StepInfo) -> None:
        sink.step_started(step, Checkpoint(1, "My Start", "start", START, START, step), {})

    sink.run_started(RUN, Checkpoint(0, "Start", "start", START, START))
    started(STEP)
    sink.samples_expected(STEP, 4)
    assert shown() == [(STEP_LABELS, 0.0)]
    sink.samples_counted(STEP, 3)
    assert shown() == [(STEP_LABELS, 0.75)]
    second = replace(STEP, index=STEP.index + 1)
    started(second)
    assert shown() == []
    sink.samples_expected(second, 2)
    sink.samples_counted(STEP, 1)  # a thread that still runs the first one
    sink.samples_counted(second, 2)
    assert shown() == [(STEP_LABELS, 1.0)]
    sink.samples_counted(second, 1)  # more samples than the reader's length
    assert shown() == []


def test_there_is_no_progress_without_the_readers_length(
    reader: InMemoryMetricReader,
) -> None:
    sink = MetricsSink(RESOURCES, lambda: None, lambda step: None)
    sink.run_started(RUN, Checkpoint(0, "Start", "start", START, START))
    sink.step_started(STEP, Checkpoint(1, "My Start", "start", START, START, STEP), {})
    sink.samples_counted(STEP, 3)
    sink.samples_expected(replace(STEP, label="Empty"), 0)
    assert set(points_of(reader)) == {
        ("quant.run.start", "s"),
        ("quant.step.active", "{step}"),
        ("quant.calibration.samples", "{sample}"),
    }


def test_steps_with_names_of_the_programs_own_share_the_points_of_their_kind(
    reader: InMemoryMetricReader,
) -> None:
    recorder = recorder_of([MetricsSink(RESOURCES, lambda: None, lambda step: None)])
    for number in range(50):
        recorder.close(recorder.open(f"stage {number}"))
        recorder.close(recorder.open("Calibration", label=f"batch {number}"))
        recorder.close(recorder.open("Calibration"))
    recorder.end()
    points = points_of(reader)
    assert [labels for labels, _ in points["quant.step.duration", "s"]] == [
        {"quant.step.kind": "User-Defined"},
        {"quant.step.kind": "Calibration"},
        {"quant.step.kind": "Calibration", "quant.step.name": "Calibration"},
    ]
    assert [value for _, value in points["quant.step.active", "{step}"]] == [0, 0, 0]


def test_metrics_of_a_failed_step_have_the_type_of_the_error(reader: InMemoryMetricReader) -> None:
    send_run(MetricsSink(RESOURCES, lambda: None, lambda step: None), error=MemoryError("too big"))
    labels = {**STEP_LABELS, "error.type": "MemoryError"}
    assert points_of(reader)["quant.step.duration", "s"] == [(labels, 2.0)]
    assert points_of(reader)["quant.step.memory.peak", "By"] == [(labels, 4000)]


def test_a_figure_that_could_not_be_measured_has_no_metric_point(
    reader: InMemoryMetricReader,
) -> None:
    send_run(MetricsSink(RESOURCES, lambda: None, lambda step: None), **UNMEASURED)  # type: ignore[arg-type] # of mixed types
    found = {name for name, _ in points_of(reader)} - {"quant.step.active"}
    assert found == {
        "quant.run.start",
        "quant.run.end",
        "quant.step.duration",
        "quant.calibration.samples",
        "quant.calibration.progress",
        "quant.model.size",
        "quant.model.params",
        "quant.model.macs_contraction",
        "quant.custom.accuracy",
    }


# --- logs -----------------------------------------------------------------------------------


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> InMemoryLogRecordExporter:
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    monkeypatch.setattr(logs_module, "get_logger", provider.get_logger)
    return exporter


def seen(exporter: InMemoryLogRecordExporter) -> list[tuple[Any, ...]]:
    """Returns event, body, severity, time and attributes of each record."""
    return [
        (
            record.event_name,
            record.body,
            record.severity_text,
            record.timestamp,
            plain(record.attributes),
        )
        for record in (exported.log_record for exported in exporter.get_finished_logs())
    ]


def checkpoint(sequence: int, name: str, phase: str, elapsed: float) -> dict[str, Any]:
    return {
        "quant.checkpoint.name": name,
        "quant.checkpoint.phase": phase,
        "quant.checkpoint.sequence": sequence,
        "quant.checkpoint.elapsed": elapsed,
        "quant.run.id": "0123456789abcdef",
        "quant.run.name": "quantize small 2023-11-14T22:13:20.000Z",
        "process.pid": 4711,
        "quant.run.rank": 1,
        "quant.checkpoint.memory_limit": 8000,
    }


AT_START = {
    "quant.checkpoint.memory": 1000,
    "quant.checkpoint.process_memory": 900,
    "quant.checkpoint.gpu_memory": 550,
    "quant.checkpoint.disk_read": 0,
    "quant.checkpoint.disk_write": 0,
}
AT_END = {
    "quant.checkpoint.memory": 1200,
    "quant.checkpoint.process_memory": 1100,
    "quant.checkpoint.gpu_memory": 520,
    "quant.checkpoint.disk_read": 3,
    "quant.checkpoint.disk_write": 1000,
}
OF_DEVICES = [
    {
        "hw.id": "GPU-0",
        "hw.name": "NVIDIA H200",
        "quant.gpu.device.index": 0,
        "quant.gpu.device.memory.start": 500,
        "quant.gpu.device.memory.end": 450,
        "quant.gpu.device.memory.delta": -50,
        "quant.gpu.device.memory.peak": 630,
        "quant.gpu.device.memory.limit": 10_000,
        "quant.gpu.device.process_memory.start": 100,
        "quant.gpu.device.process_memory.end": 150,
        "quant.gpu.device.process_memory.delta": 50,
        "quant.gpu.device.process_memory.peak": 160,
        "quant.gpu.device.torch_allocated.start": 7,
        "quant.gpu.device.torch_allocated.end": 9,
        "quant.gpu.device.torch_allocated.delta": 2,
        "quant.gpu.device.torch_allocated.peak": 11,
        "quant.gpu.device.torch_reserved.start": 7,
        "quant.gpu.device.torch_reserved.end": 9,
        "quant.gpu.device.torch_reserved.delta": 2,
        "quant.gpu.device.torch_reserved.peak": 12,
    },
    {
        "hw.id": "GPU-1",
        "quant.gpu.device.index": 1,
        "quant.gpu.device.memory.start": 50,
        "quant.gpu.device.memory.end": 70,
        "quant.gpu.device.memory.delta": 20,
        "quant.gpu.device.memory.peak": 70,
        "quant.gpu.device.memory.limit": 10_000,
    },
]
OF_STEP = {
    "quant.step.name": "My calibration",
    "quant.step.kind": "Calibration",
    "quant.step.index": 3,
    "quant.library.name": "amd-quark",
}


def of_devices(name: str, common: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (
            "quant.device.used",
            f"{name}: {device['hw.id']}",
            "INFO",
            BEGAN + 2 * SECOND,
            {**RUN_IDS, **common, **device},
        )
        for device in OF_DEVICES
    ]


def test_each_checkpoint_is_a_log_record_and_is_sent_at_once(
    records: InMemoryLogRecordExporter,
) -> None:
    sent: list[None] = []
    send_run(LogsSink(RESOURCES, lambda: sent.append(None), lambda step: None))
    later, event = BEGAN + 2 * SECOND, "quant.checkpoint.taken"
    first, last = "My calibration Start", "My calibration End"
    assert seen(records) == [
        (event, "Start", "INFO", BEGAN, {**checkpoint(0, "Start", "start", 0.0), **AT_START}),
        (
            event,
            first,
            "INFO",
            BEGAN,
            {**checkpoint(1, first, "start", 0.0), **OF_STEP, **AT_START},
        ),
        *of_devices(last, OF_STEP),
        (
            event,
            last,
            "INFO",
            later,
            {**checkpoint(2, last, "end", 2.0), **OF_STEP, **AT_END, **CUSTOM},
        ),
        (
            "quant.model.cost",
            {"heaviest": [{"name": "/conv", "macs": 70}]},
            "INFO",
            later,
            {
                **RUN_IDS,
                "quant.model.role": "float",
                "quant.model.path": "m.onnx",
            },
        ),
        (
            "quant.model.cost_failed",
            {"message": "m.onnx is cut short"},
            "WARN",
            later,
            {**RUN_IDS, "quant.model.role": "quantized"},
        ),
        (event, "Mine", "INFO", later, {**checkpoint(3, "Mine", "point", 2.0), **AT_END}),
        *of_devices("End", {}),
        (event, "End", "INFO", later, {**checkpoint(4, "End", "end", 2.0), **AT_END}),
    ]
    assert len(sent) == 6


def test_the_record_of_a_failed_step_is_an_error(records: InMemoryLogRecordExporter) -> None:
    send_run(LogsSink(RESOURCES, lambda: None, lambda step: None), error=MemoryError("too big"))
    severities = [(body, severity) for _, body, severity, _, _ in seen(records)]
    assert ("My calibration End", "ERROR") in severities
    (attributes,) = (a for _, body, _, _, a in seen(records) if body == "My calibration End")
    assert attributes["error.type"] == "MemoryError"


def test_a_log_record_without_figures_still_has_the_step(
    records: InMemoryLogRecordExporter,
) -> None:
    send_run(LogsSink(RESOURCES, lambda: None, lambda step: None), **UNMEASURED)  # type: ignore[arg-type] # of mixed types
    _, _, _, _, attributes = seen(records)[1]
    assert attributes == {
        **checkpoint(1, "Bare Start", "start", 0.0),
        "quant.step.name": "Bare",
        "quant.step.kind": "Bare",
        "quant.step.index": 4,
    }
