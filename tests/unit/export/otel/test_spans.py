"""Whole spans and metric points, made from literal readings by the real SDK."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from opentelemetry.trace import SpanKind, StatusCode

from otel_quant.schema import semconv
from otel_quant.schema.readings import Reading
from tests.fixtures.figures import named
from tests.fixtures.sent import SentRun
from tests.unit.capture.recorder.received import recorder_of
from tests.unit.export.otel.literal_run import (
    BEGAN,
    COSTED,
    CUSTOM,
    LATER,
    NAME,
    PEAKS,
    RUN,
    RUN_IDS,
    RUN_SPAN,
    SECOND,
    START,
    STEP,
    STEP_SPAN,
    UNMEASURED_LATER,
    UNMEASURED_START,
    begun,
    send_run,
    send_unmeasured_run,
)
from tests.unit.export.otel.signals import Signals, plain

USAGE = {
    semconv.MEMORY_START: 1000, semconv.MEMORY_END: 1200, semconv.MEMORY_DELTA: 200,
    semconv.MEMORY_PEAK: 4000, semconv.MEMORY_PEAK_SOURCE: "kernel", semconv.MEMORY_PEAK_RATIO: 0.5,
    semconv.DISK_READ: 3, semconv.DISK_WRITE: 1000, named("quant.disk.read_chars"): 4,
    named("quant.disk.write_chars"): 1005, semconv.CPU_USER: 2.25, semconv.CPU_SYSTEM: 0.25,
    semconv.MAJOR_FAULTS: 5, semconv.CPU_WAIT: 1.25, semconv.CACHE_GROWTH: 6000,
    named("quant.gpu.memory.start"): 550, named("quant.gpu.memory.end"): 520, named("quant.gpu.memory.delta"): -30,
    semconv.GPU_MEMORY_PEAK: 700,
}  # fmt: skip

STEP_ATTRIBUTES = {
    **STEP_SPAN, semconv.CALIBRATION_METHOD: "Percentile", semconv.CALIBRATION_SAMPLE_TOTAL: 8,
    semconv.CALIBRATION_SAMPLE_COUNT: 5, semconv.CALIBRATION_ITEM_COUNT: 40,
    semconv.CALIBRATION_SAMPLE_RATE: 2.5,
}  # fmt: skip
COST = {
    "quant.model.float.size": 4000, "quant.model.float.params": 1000,
    "quant.model.float.macs_contraction": 77, "quant.model.float.uncosted_ops": ("Odd:1",), "quant.model.float.audit.problem_count": 2,
}  # fmt: skip
RUN_ATTRIBUTES = {**RUN_SPAN, semconv.RUN_STEPS: 1}

DEVICES = {semconv.GPU_COUNT: 2, semconv.GPU_MEMORY_LIMIT: 20_000}


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
        **RUN_ATTRIBUTES, **DEVICES, **USAGE, **CUSTOM, **COST, semconv.RUN_FAILED_STEPS: 0,
        semconv.RUN_ANSWER: "Memory peaked at 4.00 kB: 50.0 % of the limit of 8.00 kB.",
        semconv.MEMORY_PROCESS_PEAK: 3900, semconv.LIBRARY_NAME: "amd-quark",
        semconv.CALIBRATION_METHOD: "Percentile", semconv.INPUT_PATH: "m.onnx",
    }  # fmt: skip
    assert root.parent is None
    assert (root.start_time, root.end_time) == (BEGAN, BEGAN + 2 * SECOND)


def test_a_span_lacks_figures_that_could_not_be_measured() -> None:
    signals = Signals()
    send_unmeasured_run(signals.spans_sink())
    assert plain(signals.spans()["Bare"].attributes) == {
        **RUN_IDS, semconv.STEP_NAME: "Bare", semconv.STEP_KIND: "Bare", semconv.STEP_INDEX: 4,
        semconv.CALIBRATION_METHOD: "Percentile", semconv.CALIBRATION_SAMPLE_TOTAL: 8,
        semconv.CALIBRATION_SAMPLE_COUNT: 5, semconv.CALIBRATION_ITEM_COUNT: 40,
        semconv.CALIBRATION_SAMPLE_RATE: 2.5, **CUSTOM,
    }  # fmt: skip
    assert plain(signals.spans()["quantization"].attributes) == {
        **RUN_ATTRIBUTES, **CUSTOM, **COST, semconv.RUN_FAILED_STEPS: 0,
        semconv.CALIBRATION_METHOD: "Percentile", semconv.INPUT_PATH: "m.onnx",
    }  # fmt: skip


def test_the_span_of_a_failed_step_has_the_exception() -> None:
    signals = Signals()
    send_run(signals.spans_sink(), error=MemoryError("too big"))
    span, root = signals.spans()["My calibration"], signals.spans()["quantization"]
    assert plain(span.attributes) == {
        **STEP_ATTRIBUTES, **USAGE, **CUSTOM, "error.type": "MemoryError",
    }  # fmt: skip
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
    identity = {semconv.MODEL_ROLE: "float", semconv.MODEL_PATH: "m.onnx"}
    assert plain(good.attributes) == {**run, **identity, **COST}
    assert (good.start_time, good.end_time) == (BEGAN + SECOND, BEGAN + 2 * SECOND)
    assert plain(bad.attributes) == {**run, semconv.MODEL_ROLE: "quantized"}
    assert [(event.name, plain(event.attributes)) for event in bad.events] == [
        (semconv.COST_FAILED_EVENT, {"message": "m.onnx is cut short"})
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


BEGAN_POINT = {
    **NAME, semconv.RUN_RANK: 1, "process.pid": 4711, semconv.INPUT_NAME: "small",
    semconv.CALIBRATION_METHOD: "Percentile", semconv.CONFIG_NAME: "XINT8",
}  # fmt: skip


STEP_LABELS = {semconv.STEP_KIND: "Calibration", semconv.LIBRARY_NAME: "amd-quark"}
OF_STEPS = {
    (semconv.STEP_DURATION, "s"): [(STEP_LABELS, 2.0)],
    (semconv.STEP_MEMORY_PEAK, "By"): [(STEP_LABELS, 4000)],
    (named("quant.step.cache.disk.peak"), "By"): [(STEP_LABELS, 6000)],
    (semconv.STEP_MEMORY_GROWTH, "By"): [(STEP_LABELS, 200)],
    (semconv.STEP_DISK_IO, "By"): [
        ({**STEP_LABELS, "disk.io.direction": "read"}, 3), ({**STEP_LABELS, "disk.io.direction": "write"}, 1000),
    ],
    (semconv.STEP_CPU_TIME, "s"): [({**STEP_LABELS, "cpu.mode": "user"}, 2.25), ({**STEP_LABELS, "cpu.mode": "system"}, 0.25)],
    (semconv.STEP_GPU_MEMORY_PEAK, "By"): [({**STEP_LABELS, "hw.id": "GPU-0"}, 630), ({**STEP_LABELS, "hw.id": "GPU-1"}, 70)],
    (semconv.CALIBRATION_SAMPLES, "{sample}"): [(STEP_LABELS, 5)],
    (semconv.CALIBRATION_PROGRESS, "1"): [(STEP_LABELS, 0.625)],
    (semconv.MODEL_SIZE, "By"): [({semconv.MODEL_ROLE: "float"}, 4000)],
    (semconv.MODEL_PARAMS, "{element}"): [({semconv.MODEL_ROLE: "float"}, 1000)],
    (semconv.MODEL_MACS_CONTRACTION, "{mac}"): [({semconv.MODEL_ROLE: "float"}, 77)],
    (semconv.MODEL_AUDIT_PROBLEMS, "{problem}"): [({semconv.MODEL_ROLE: "float"}, 2)],
    ("quant.custom.accuracy", ""): [({semconv.STEP_KIND: "Calibration"}, 97.5), ({}, 97.5)],
}  # fmt: skip


def test_live_metrics_end_with_the_run_and_the_others_stay() -> None:
    signals = Signals()
    now: list[Reading | None] = [LATER]
    send_run(signals.metrics_sink(lambda: now[0]))
    now[0] = None
    assert signals.points() == {
        **OF_STEPS,
        (semconv.STEP_ACTIVE, "{step}"): [(STEP_LABELS, 0)],
        (semconv.RUN_START, "s"): [(BEGAN_POINT, 1_700_000_000.0)],
        (semconv.RUN_LAST_SEEN, "s"): [(NAME, 1_700_000_002.0)],
        (semconv.RUN_MEMORY_PEAK, "By"): [(NAME, 4000)],
        (semconv.RUN_END, "s"): [(NAME, 1_700_000_002.0)],
    }


def test_counters_and_gauges_cover_all_steps_and_start_with_the_first_step() -> None:
    # The SDK gets it at a collection.
    signals = Signals()
    run = SentRun(RUN, START, signals.metrics_sink())
    run.began()
    written = []
    for steps in (1, 3, 2):
        for _ in range(steps):
            run.opened(STEP)
            run.closed(STEP, LATER, PEAKS)
            ended_ns = time.time_ns()
        if not written:
            first_ended_ns = ended_ns
        points = signals.points()
        written.append([value for _, value in points[semconv.STEP_DISK_IO, "By"]])
        assert points[semconv.STEP_MEMORY_GROWTH, "By"] == [(STEP_LABELS, 200)]
    assert written == [[3, 1000], [12, 4000], [18, 6000]]
    assert all(began <= first_ended_ns for began in signals.began_ns(semconv.STEP_DISK_IO))


def test_a_forked_child_does_not_send_what_its_parent_has_not_sent_yet() -> None:
    signals = Signals()
    sink = signals.metrics_sink()
    run = SentRun(RUN, START, sink)
    run.began()
    for _ in range(3):
        run.opened(STEP)
        run.closed(STEP, LATER, PEAKS)
    sink.forget()  # as a child does
    assert [value for _, value in signals.points()[semconv.STEP_DISK_IO, "By"]] == [3, 1000]


def test_live_metrics_show_the_present_figures_of_a_run() -> None:
    signals = Signals()
    begun(signals.metrics_sink(lambda: LATER, lambda: 3000))
    before, points = time.time(), signals.points()
    ((_, seen),) = points.pop((semconv.RUN_LAST_SEEN, "s"))
    assert before <= seen <= time.time()
    assert points == {
        (semconv.RUN_START, "s"): [(BEGAN_POINT, 1_700_000_000.0)],
        (semconv.RUN_MEMORY_PEAK, "By"): [(NAME, 3000)],
        (semconv.STEP_ACTIVE, "{step}"): [(STEP_LABELS, 1)],
        (semconv.RUN_MEMORY_USAGE, "By"): [({}, 1200)],
        (semconv.RUN_MEMORY_LIMIT, "By"): [({}, 8000)],
        ("hw.gpu.memory.usage", "By"): [({"hw.id": "GPU-0"}, 450), ({"hw.id": "GPU-1"}, 70)],
        ("hw.gpu.memory.limit", "By"): [({"hw.id": "GPU-0"}, 10_000), ({"hw.id": "GPU-1"}, 10_000)],
        (named("quant.run.gpu.process_memory.usage"), "By"): [({"hw.id": "GPU-0"}, 150)],
        (named("quant.run.gpu.torch_allocated.usage"), "By"): [({"hw.id": "GPU-0"}, 9)],
        (named("quant.run.gpu.torch_reserved.usage"), "By"): [({"hw.id": "GPU-0"}, 9)],
        (semconv.RUN_DISK_IO, "By"): [
            ({"disk.io.direction": "read"}, 3),
            ({"disk.io.direction": "write"}, 1000),
        ],
    }


def test_the_progress_of_a_calibration_is_shown_until_the_next_one_starts() -> None:
    signals = Signals()
    sink = signals.metrics_sink()

    def shown() -> list[tuple[dict[str, Any], float]]:
        return signals.points().get((semconv.CALIBRATION_PROGRESS, "1"), [])

    run = begun(sink)
    run.expects(STEP, 4)
    assert shown() == [(STEP_LABELS, 0.0)]
    sink.counted(STEP, "sample", 3)
    assert shown() == [(STEP_LABELS, 0.75)]
    second = replace(STEP, index=STEP.index + 1)
    run.opened(second)
    assert shown() == []
    run.expects(second, 2)
    sink.counted(STEP, "sample", 1)  # a thread that still runs the first one
    sink.counted(second, "sample", 2)
    assert shown() == [(STEP_LABELS, 1.0)]
    sink.counted(second, "sample", 1)  # more samples than the reader's length
    assert shown() == []


def test_progress_needs_the_length_of_the_data_reader() -> None:
    signals = Signals()
    sink = signals.metrics_sink()
    run = begun(sink)
    sink.counted(STEP, "sample", 3)
    run.expects(replace(STEP, label="Empty"), 0)
    assert set(signals.points()) == {
        (semconv.RUN_START, "s"), (semconv.RUN_LAST_SEEN, "s"), (semconv.STEP_ACTIVE, "{step}"),
        (semconv.CALIBRATION_SAMPLES, "{sample}"),
    }  # fmt: skip


def test_steps_named_by_the_program_share_the_metric_points_of_their_kind() -> None:
    signals = Signals()
    recorder = recorder_of([signals.metrics_sink()])
    for number in range(50):
        recorder.close(recorder.open(f"stage {number}"))
        recorder.close(recorder.open("Calibration", label=f"batch {number}"))
        recorder.close(recorder.open("Calibration"))
    recorder.end()
    points = signals.points()
    assert [labels for labels, _ in points[semconv.STEP_DURATION, "s"]] == [
        {semconv.STEP_KIND: "User-Defined"},
        {semconv.STEP_KIND: "Calibration"},
        {semconv.STEP_KIND: "Calibration", semconv.STEP_NAME: "Calibration"},
    ]
    assert [value for _, value in points[semconv.STEP_ACTIVE, "{step}"]] == [0, 0, 0]


def test_metrics_of_a_failed_step_have_the_type_of_the_error() -> None:
    signals = Signals()
    send_run(signals.metrics_sink(), error=MemoryError("too big"))
    labels = {**STEP_LABELS, "error.type": "MemoryError"}
    assert signals.points()[semconv.STEP_DURATION, "s"] == [(labels, 2.0)]
    assert signals.points()[semconv.STEP_MEMORY_PEAK, "By"] == [(labels, 4000)]


def test_a_figure_that_could_not_be_measured_has_no_metric_point() -> None:
    signals = Signals()
    send_unmeasured_run(signals.metrics_sink())
    found = {name for name, _ in signals.points()} - {semconv.STEP_ACTIVE}
    assert found == {
        semconv.RUN_START, semconv.RUN_LAST_SEEN, semconv.RUN_END, semconv.STEP_DURATION,
        semconv.CALIBRATION_SAMPLES, semconv.CALIBRATION_PROGRESS, semconv.MODEL_SIZE,
        semconv.MODEL_PARAMS, semconv.MODEL_MACS_CONTRACTION, semconv.MODEL_AUDIT_PROBLEMS, "quant.custom.accuracy",
    }  # fmt: skip


def test_one_collection_takes_one_reading() -> None:
    signals = Signals()
    taken: list[Reading] = []

    def read_now() -> Reading:
        taken.append(LATER)
        return LATER

    run = SentRun(RUN, START, signals.metrics_sink(read_now))
    run.began()
    for collections in (1, 2, 3):
        assert (semconv.RUN_MEMORY_USAGE, "By") in signals.points()
        assert len(taken) == collections
