"""Spans that are made of a recording, where a real run would make the case hard to get."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from otel_quant.recordings.model import Ending
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.sending.identifiers import Identifiers
from otel_quant.sending.replay import Replay
from tests.fixtures.recorded import BEGAN, RecordedFolder

TRACE = "0123456789abcdef" * 2
NAMED = {semconv.RUN_NAME: "my run"}
ROOTS = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"


def spans_in(folder: RecordedFolder) -> list[ReadableSpan]:
    recording = read(folder.path)
    identifiers = Identifiers(recording)
    return [
        span
        for run in recording.runs
        for span in Replay(run, recording, identifiers).play().kept.spans
    ]


def told(span: ReadableSpan) -> dict[str, Any]:
    assert span.start_time is not None
    assert span.end_time is not None
    return {
        "name": span.name,
        "from": round(span.start_time / 1e9 - BEGAN, 3),
        "to": round(span.end_time / 1e9 - BEGAN, 3),
        "status": (span.status.status_code.name, span.status.description),
        "attributes": dict(span.attributes or {}),
        "events": [(event.name, dict(event.attributes or {})) for event in span.events],
    }


def test_a_process_without_an_end_record_ends_with_its_last_known_values(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "recording")
    process = folder.process()
    process.begin(1, attributes={semconv.RUN_ID: "0123456789abcdef", **NAMED})
    step = process.step("Calibration", 2, checkpoint={semconv.CHECKPOINT_MEMORY: 70})
    process.expect(step, 10, 2)
    process.state(5, [{"index": step, "samples": 4, "expected": 10}], **{semconv.READING_MEMORY: 9})
    process.gone()
    ended = {
        "to": 5.0,
        "status": ("ERROR", "the process stopped without an end record (killed or crashed)"),
        "events": [],
    }
    assert list(map(told, spans_in(folder))) == [
        {
            "name": "Calibration", "from": 2.0, **ended,
            "attributes": {
                semconv.RUN_ID: "0123456789abcdef", **NAMED, semconv.MEMORY_START: 70,
                semconv.CALIBRATION_SAMPLE_COUNT: 4, semconv.CALIBRATION_SAMPLE_TOTAL: 10,
                "error.type": "lost",
            },
        },
        {
            "name": "quantization", "from": 1.0, **ended,
            "attributes": {
                semconv.RUN_ID: "0123456789abcdef", **NAMED, "error.type": "lost",
                semconv.MEMORY_PEAK: 70, semconv.MEMORY_PEAK_SOURCE: "sampled",
            },
        },
    ]  # fmt: skip
    recording = read(folder.path)
    meters = Replay(recording.runs[0], recording, Identifiers(recording)).play().meters
    points = {
        metric.name: [point.value for point in metric.data.data_points]
        for data, _ in meters.all()
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    assert points[semconv.RUN_LAST_SEEN] == [BEGAN + 5]
    assert semconv.RUN_END not in points


def test_memory_of_a_gpu_that_only_the_launcher_has_seen_is_on_the_spans(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "recording", by_launcher=True)
    process = folder.process(parent=os.getpid())
    process.begin(0)
    known = {semconv.GPU_TREE_PEAK: 900, semconv.GPU_TREE_PEAK_SOURCE: "allocator"}
    process.close(process.step("Ended", 0), 0.9, attributes=known)
    step = process.step("Killed", 1)
    process.state(2, [{"index": step}])
    process.gone()
    curve = [(0.5, 800), (1.5, 2600), (2.5, 100)]
    folder.curve([(at, {"gpu.process_memory": used}, {}) for at, used in curve])
    folder.ended(Ending(time=3, signal="SIGKILL"))
    found = {
        span.name: [(span.attributes or {}).get(name) for name in known]
        for span in spans_in(folder)
    }
    assert found == {
        "Ended": [900, "allocator"], "Killed": [2600, "sampled"], "quantization": [2600, "sampled"],
        **({"program": [None, None]} if "program" in found else {}),
    }  # fmt: skip


def test_a_span_keeps_its_peak_and_what_the_launcher_knew_has_an_attribute_of_its_own(
    tmp_path: Path,
) -> None:
    folder = RecordedFolder(tmp_path / "recording", by_launcher=True)
    process = folder.process(parent=os.getpid())
    process.begin(0)
    own = {semconv.MEMORY_PEAK: 40, semconv.MEMORY_PEAK_SOURCE: "at_least"}
    for at, of_step in enumerate((own, own, {})):
        process.close(process.step("Calibration", at), at + 0.9, attributes=of_step)
    process.end(4, attributes={semconv.MEMORY_PEAK: 300, semconv.MEMORY_PEAK_SOURCE: "kernel"})
    folder.curve([(0.5, {"memory": 270}, {}), (1.5, {"memory": 30}, {}), (2.5, {"memory": 20}, {})])
    *steps, _ = spans_in(folder)
    names = (*own, semconv.MEMORY_HIGHEST_KNOWN)
    assert [[(span.attributes or {}).get(name) for name in names] for span in steps] == [
        [40, "at_least", 270], [40, "at_least", None], [20, "sampled", None],
    ]  # fmt: skip
    recording = read(folder.path)
    meters = Replay(recording.runs[0], recording, Identifiers(recording)).play().meters
    (peaks,) = (
        metric.data.data_points
        for data, _ in meters.all()
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == semconv.STEP_MEMORY_PEAK
    )
    assert max(point.sum for point in peaks) == 270 + 40 + 20


def test_each_root_span_of_a_worker_has_its_own_steps(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "recording")
    process = folder.process()
    ids = {"trace_id": TRACE, "parent_span_id": "cccccccccccccccc"}
    attributes = {semconv.RUN_ID: "0123456789abcdef", semconv.MEMORY_END: 5}
    process.begin(1, **ids, span_id=ROOTS[0], attributes=attributes)
    for number, root in enumerate(ROOTS):
        if number:
            process.learn(3, **ids, span_id=root)
        step = process.step(
            "Calibration", 2 + number, trace_id=TRACE, span_id=str(number) * 16, parent_span_id=root
        )  # fmt: skip
        process.close(step, 2.5 + number)
    process.end(5)
    found = [
        (
            span.name,
            f"{span.context.span_id:016x}" if span.context else None,
            f"{span.parent.span_id:016x}" if span.parent else None,
            told(span)["to"],
        )
        for span in spans_in(folder)
    ]
    assert found == [
        ("Calibration", "0" * 16, ROOTS[0], 2.5),
        ("quantization", ROOTS[0], "c" * 16, 2.5),
        ("Calibration", "1" * 16, ROOTS[1], 3.5),
        ("quantization", ROOTS[1], "c" * 16, 5.0),
    ]


def test_the_programs_metrics_and_a_model_that_could_not_be_costed_are_sent(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "recording")
    process = folder.process()
    process.begin(0, run="0123456789abcdef")
    step = process.step("Calibration", 1, custom={"accuracy": 0.5})
    process.close(step, 2, custom={"loss": 3}, error="ValueError", error_message="no")
    times = {"began": round((BEGAN + 2) * 1e9), "ended": round((BEGAN + 2.5) * 1e9)}
    process.models(2.5, {"role": "float", "figures": {}, "error": "no such file", **times})
    process.end(3)
    calibration, cost, root = map(told, spans_in(folder))
    assert calibration["attributes"] == {
        "quant.custom.accuracy": 0.5, "quant.custom.loss": 3, semconv.RUN_ID: "0123456789abcdef",
        "error.type": "ValueError",
    }  # fmt: skip
    assert (calibration["status"], calibration["events"]) == (
        ("ERROR", "no"),
        [("exception", {"exception.type": "ValueError", "exception.message": "no"})],
    )
    assert (cost["name"], cost["from"], cost["to"]) == ("model cost", 2.0, 2.5)
    assert cost["events"] == [(semconv.COST_FAILED_EVENT, {"message": "no such file"})]
    assert root["attributes"] == {"quant.custom.accuracy": 0.5, "quant.custom.loss": 3}
