"""Whole metric points, made from literal readings by the real SDK."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

from otel_quant.export.otel.metrics import MetricsSink
from otel_quant.schema.figures import RESOURCES
from otel_quant.schema.records import Reading
from tests.fixtures.sent import SentRun
from tests.unit.capture.recorder.received import recorder_of
from tests.unit.export.otel.literal_run import (
    LATER,
    NAME,
    RUN,
    START,
    STEP,
    plain,
    send_run,
    send_unmeasured_run,
)

BEGAN_POINT = {
    **NAME,
    "quant.run.rank": 1,
    "process.pid": 4711,
    "quant.input.name": "small",
    "quant.calibration.method": "Percentile",
    "quant.config.name": "XINT8",
}


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
    sink = MetricsSink(RESOURCES, lambda: LATER, lambda step: None, peak_now=lambda: 3000)
    run = SentRun(RUN, START, sink)
    run.began()
    run.opened(STEP)
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

    run = SentRun(RUN, START, sink)
    run.began()
    run.opened(STEP)
    run.expects(STEP, 4)
    assert shown() == [(STEP_LABELS, 0.0)]
    sink.samples_counted(STEP, 3)
    assert shown() == [(STEP_LABELS, 0.75)]
    second = replace(STEP, index=STEP.index + 1)
    run.opened(second)
    assert shown() == []
    run.expects(second, 2)
    sink.samples_counted(STEP, 1)  # a thread that still runs the first one
    sink.samples_counted(second, 2)
    assert shown() == [(STEP_LABELS, 1.0)]
    sink.samples_counted(second, 1)  # more samples than the reader's length
    assert shown() == []


def test_there_is_no_progress_without_the_readers_length(
    reader: InMemoryMetricReader,
) -> None:
    sink = MetricsSink(RESOURCES, lambda: None, lambda step: None)
    run = SentRun(RUN, START, sink)
    run.began()
    run.opened(STEP)
    sink.samples_counted(STEP, 3)
    run.expects(replace(STEP, label="Empty"), 0)
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
    send_unmeasured_run(MetricsSink(RESOURCES, lambda: None, lambda step: None))
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


def test_one_collection_takes_one_reading(reader: InMemoryMetricReader) -> None:
    taken: list[Reading] = []

    def read_now() -> Reading:
        taken.append(LATER)
        return LATER

    run = SentRun(RUN, START, MetricsSink(RESOURCES, read_now, lambda step: None))
    run.began()
    for collections in (1, 2, 3):
        assert ("quant.run.memory.usage", "By") in points_of(reader)
        assert len(taken) == collections
