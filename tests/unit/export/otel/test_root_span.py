"""A run has one span and one name for people, whichever threads need it first; every step is below it and keeps the program's context."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id

from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.capture.recorder.run_info import new_run_info
from otel_quant.export.otel import service_name
from otel_quant.export.otel.service_name import described, model_name
from otel_quant.export.otel.spans import SpansSink
from otel_quant.schema import semconv
from otel_quant.schema.readings import RunInfo
from tests.fixtures.programs import run_script
from tests.unit.capture.recorder.received import recorder_of
from tests.unit.export.otel.signals import Signals

THREADS = 8
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CARRIER = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


class Spans(SpanProcessor):
    """Keeps the spans that start and end; calls `at_root`, which takes its time, when a run's span starts."""

    def __init__(self) -> None:
        self.started: list[Span] = []
        self.ended: list[ReadableSpan] = []
        self.at_root: Callable[[], object] = lambda: time.sleep(0.05)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.started.append(span)
        if span.name == "quantization":
            self.at_root()

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)

    def roots(self) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name == "quantization"]

    def parents(self) -> list[tuple[str, str | None]]:
        """Returns each ended step with the name of its parent, None for one that never ended."""
        names = {span.get_span_context().span_id: span.name for span in self.ended}
        return sorted(
            (span.name, names.get(span.parent.span_id) if span.parent else None)
            for span in self.ended
            if span.name != "quantization"
        )


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def set_provider(monkeypatch: pytest.MonkeyPatch, spans: Spans) -> Iterator[Callable[[], None]]:
    """There is no provider until this is called, as in a program that configures it late."""
    provider = TracerProvider()
    provider.add_span_processor(spans)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.delenv("OTEL_PYTHON_TRACER_PROVIDER", raising=False)
    yield lambda: monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    provider.shutdown()


def open_at_once(recorder: Recorder, label: str) -> None:
    """Opens a step in each of several threads at the same moment, and closes them."""
    barrier = threading.Barrier(THREADS)

    def work() -> None:
        barrier.wait()
        recorder.close(recorder.open(label))

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_that_open_steps_when_a_provider_turns_up_start_one_root(
    spans: Spans, set_provider: Callable[[], None]
) -> None:
    recorder = recorder_of([SpansSink()])
    recorder.close(recorder.open("early"))
    set_provider()
    open_at_once(recorder, "step")
    recorder.end()
    assert sum(span.name == "quantization" for span in spans.started) == 1
    assert len(spans.roots()) == 1
    assert spans.parents() == [("step", "quantization")] * THREADS


def test_threads_that_open_steps_after_a_report_of_a_worker_start_one_root(
    spans: Spans, set_provider: Callable[[], None]
) -> None:
    set_provider()
    recorder = recorder_of([SpansSink()])
    for task in ("first", "second", "third"):
        open_at_once(recorder, task)
        recorder.report()
    recorder.end()
    assert sum(span.name == "quantization" for span in spans.started) == 3
    assert len(spans.roots()) == 3
    assert spans.parents() == sorted(
        [(task, "quantization") for task in ("first", "second", "third")] * THREADS
    )
    traces = {(span.name, span.get_span_context().trace_id) for span in spans.ended}
    assert len(traces) == 6, "the steps of one task are in one trace"


def test_a_late_provider_gets_the_root_span_even_if_the_run_continues_a_trace(
    spans: Spans, set_provider: Callable[[], None]
) -> None:
    recorder = recorder_of([SpansSink()], info=new_run_info({}, CARRIER))
    recorder.close(recorder.open("early"))
    set_provider()
    recorder.close(recorder.open("step"))
    recorder.end()
    assert spans.parents() == [("step", "quantization")]
    (root,) = spans.roots()
    assert root.parent is not None
    above = format_trace_id(root.parent.trace_id), format_span_id(root.parent.span_id)
    assert above == (TRACE, PARENT)


def test_a_step_that_is_opened_while_the_root_starts_shares_its_root(
    spans: Spans, set_provider: Callable[[], None]
) -> None:
    """As a signal handler does it, in the middle of the start."""

    def open_inner() -> None:
        spans.at_root = lambda: None
        recorder.close(recorder.open("inner"))

    set_provider()
    spans.at_root = open_inner
    recorder = recorder_of([SpansSink()])
    recorder.close(recorder.open("step"))
    recorder.end()
    assert len(spans.roots()) == 1
    assert spans.parents() == [("inner", "quantization"), ("step", "quantization")]


SCRIPT = """
import otel_quant
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())
token = context.attach(baggage.set_baggage("team", "mine"))
context.attach(context.set_value("key", "kept"))
with otel_quant.step("outer"), otel_quant.step("inner"):
    print(sorted(baggage.get_all().items()), context.get_value("key"))
print(sorted(baggage.get_all().items()), trace.get_current_span().get_span_context().is_valid)
"""


def test_steps_keep_the_baggage_of_the_context(tmp_path: Path) -> None:
    said = run_script(tmp_path, SCRIPT, TRACEPARENT=CARRIER["traceparent"])
    assert said == ("[('team', 'mine')] kept\n[('team', 'mine')] False\n", "")


BEGAN = 1_700_000_000_123_456_789
BARE = RunInfo(id="0", pid=1)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(service_name, "service_name", lambda: "nightly")
    return "nightly"


def test_a_name_is_made_of_service_model_and_start(service: str) -> None:
    attributes = {
        semconv.INPUT_PATH: "models/resnet50.onnx", semconv.CALIBRATION_METHOD: "Percentile",
        semconv.CONFIG_NAME: "XINT8", semconv.BITS: 8,
    }  # fmt: skip
    assert described(BARE, attributes, BEGAN) == replace(
        BARE, name="nightly resnet50 2023-11-14T22:13:20.123Z", model="resnet50",
        method="Percentile", config="XINT8",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "model", "name"),
    [
        ("", {}, "nightly 2023-11-14T22:13:20.123Z"),
        ("mine", {}, "mine"),
        ('50% of `R&D` #3:\n\ta+b = "$c" \\d.*', {}, "50% of 'R&D' #3: a+b = \"$c\" \\d.*"),
        ("", {semconv.INPUT_PATH: "a\n`b`.onnx"}, "nightly a 'b' 2023-11-14T22:13:20.123Z"),
    ],
)
def test_a_given_name_stays_and_loses_only_line_breaks_and_backticks(
    given: str, model: dict[str, str], name: str, service: str
) -> None:
    assert described(replace(BARE, name=given), model, BEGAN).name == name


def test_ranks_of_the_same_launcher_share_a_name(service: str) -> None:
    ranks = [new_run_info({"RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
    began = psutil.Process(os.getppid()).create_time()
    assert [rank.launched_ns for rank in ranks] == [int(began * 1e9)] * 2
    names = {described(rank, {}, BEGAN + 10**9 * n).name for n, rank in enumerate(ranks)}
    assert len(names) == 1


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("models/resnet50.onnx", "resnet50"),
        ("C:\\models\\resnet50.onnx", "resnet50"),
        ("facebook/opt-125m", "opt-125m"),
        ("/data/opt-125m/", "opt-125m"),
        ("model.v1.pt", "model.v1.pt"),
        ("/", None),
    ],
)
def test_a_model_is_named_by_the_last_part_of_its_path(path: str, name: str | None) -> None:
    assert model_name(path) == name


def test_runs_between_two_collections_are_all_in_the_next_one_and_the_last_stays() -> None:
    signals = Signals()
    sink = signals.metrics_sink()

    def collected() -> dict[str, list[object]]:
        return {
            name: [labels[semconv.RUN_NAME] for labels, _ in points]
            for (name, _), points in signals.points().items()
            if name in (semconv.RUN_START, semconv.RUN_END)
        }

    def begin(name: str) -> Recorder:
        recorder = recorder_of([sink], info=replace(new_run_info({}), name=name))
        recorder.start()
        return recorder

    for name in ("first", "second"):
        begin(name).end()
    begin("third")
    assert collected() == {
        semconv.RUN_START: ["first", "second", "third"],
        semconv.RUN_END: ["first", "second"],
    }
    assert collected() == {semconv.RUN_START: ["third"]}
