"""Models measured within a program: the span belongs to the trace that the program is in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from otel_quant.export.otel.inference import RunContext, report
from otel_quant.export.otel.providers import Providers
from otel_quant.inference.measurement import Fault, MeasuredModel, Measurement, TimedOperator

MODELS = (
    MeasuredModel("fp32", role="float", median=0.4, memory_peak=900),
    MeasuredModel(
        "int8", role="quantized", provider="fbgemm", median=0.1, speedup=4.0, memory_peak=300,
        findings=(Fault("unfused", "fc", "quantize `fc` ...", 0.5),),
        slowest=(TimedOperator("quantized::linear", "fbgemm", 0.05, 0.5, "fc"),),
    ),
)  # fmt: skip
MEASURED = Measurement("benchmark", MODELS, "torch", "2.9.0", 10, 20)
RUN = {"quant.run.name": "my run"}
LABELS = [
    {**RUN, "quant.model.name": "fp32", "quant.model.role": "float"},
    {**RUN, "quant.model.name": "int8", "quant.model.role": "quantized"},
]
FBGEMM = {"quant.inference.provider": "fbgemm"}


class Program:
    """A program with providers of its own."""

    def __init__(self) -> None:
        self.spans, self.records = InMemorySpanExporter(), InMemoryLogRecordExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self.records))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)

    @property
    def providers(self) -> Providers:
        return Providers(self.tracers, self.meters, self.loggers)

    def points(self) -> list[tuple[str, float, dict[str, Any]]]:
        data = self.reader.get_metrics_data()
        return sorted(
            (
                (metric.name, point.value, dict(point.attributes))
                for resource in (data.resource_metrics if data is not None else ())
                for scope in resource.scope_metrics
                for metric in scope.metrics
                for point in metric.data.data_points
            ),
            key=str,
        )


def test_a_measurement_is_a_span_of_the_current_trace_with_one_below_it_for_each_model() -> None:
    program = Program()
    with program.tracers.get_tracer("program").start_as_current_span("evaluate") as outer:
        report(MEASURED, RunContext(run="my run"), program.providers)
    *models, benchmark, _ = program.spans.get_finished_spans()
    assert benchmark.parent is not None
    assert benchmark.parent.span_id == outer.get_span_context().span_id
    versions = {"quant.library.name": "torch", "quant.library.version": "2.9.0"}
    assert (benchmark.name, benchmark.start_time, benchmark.end_time) == ("benchmark", 10, 20)
    assert dict(benchmark.attributes or {}) == {**RUN, **versions, "quant.inference.models": 2}
    assert [model.parent and model.parent.span_id for model in models] == [
        benchmark.context.span_id
    ] * 2
    assert [(model.name, dict(model.attributes or {})) for model in models] == [
        (
            "model inference",
            {
                **LABELS[0],
                **versions,
                "quant.inference.duration.median": 0.4,
                "quant.inference.memory.peak": 900,
            },
        ),
        (
            "model inference",
            {
                **LABELS[1],
                **versions,
                **FBGEMM,
                "quant.inference.duration.median": 0.1,
                "quant.inference.memory.peak": 300,
                "quant.inference.speedup": 4.0,
                "quant.inference.findings": 1,
            },
        ),
    ]
    assert program.points() == [
        ("quant.inference.duration.median", 0.1, {**LABELS[1], **FBGEMM}),
        ("quant.inference.duration.median", 0.4, LABELS[0]),
        ("quant.inference.findings", 1, {**LABELS[1], **FBGEMM}),
        ("quant.inference.memory.peak", 300, {**LABELS[1], **FBGEMM}),
        ("quant.inference.memory.peak", 900, LABELS[0]),
        ("quant.inference.speedup", 4.0, {**LABELS[1], **FBGEMM}),
        ("quant.inference.start", 1e-8, RUN),
    ]
    records = [item.log_record for item in program.records.get_finished_logs()]
    assert [(each.event_name, each.body, dict(each.attributes or {})) for each in records] == [
        (
            "quant.inference.operator.timed",
            "fc",
            {
                **LABELS[1],
                **FBGEMM,
                "quant.inference.operator.type": "quantized::linear",
                "quant.inference.operator.name": "fc",
                "quant.inference.operator.kernels": 1,
                "quant.inference.operator.duration": 0.05,
                "quant.inference.operator.share": 0.5,
            },
        ),
        (
            "quant.inference.finding.made",
            "quantize `fc` ...",
            {
                **LABELS[1],
                "quant.inference.finding.kind": "unfused",
                "quant.inference.finding.node": "fc",
                "quant.inference.finding.share": 0.5,
            },
        ),
    ]
    assert [each.span_id for each in records] == [models[1].context.span_id] * 2


def test_a_measurement_within_a_step_belongs_to_its_run() -> None:
    program = Program()
    step = program.tracers.get_tracer("x").start_as_current_span("Evaluate", attributes=RUN)
    with step:
        report(MEASURED, None, program.providers)
    assert {labels["quant.run.name"] for _, _, labels in program.points()} == {"my run"}


def test_a_measurement_whose_run_is_named_belongs_to_that_run() -> None:
    program = Program()
    with program.tracers.get_tracer("x").start_as_current_span("Evaluate", attributes=RUN):
        report(MEASURED, RunContext(run="nightly"), program.providers)
    assert {labels["quant.run.name"] for _, _, labels in program.points()} == {"nightly"}


SECRET = {
    "quant.model.path": "secret/a.onnx",
    "quant.inference.problem": "secret/a.onnx cannot be read",
}


@pytest.mark.parametrize(
    ("paths", "name", "told", "text"),
    [
        (True, "a", SECRET, "secret/a.onnx cannot be read"),
        (False, "model 1", {}, "the model could not be measured"),
    ],
)
def test_a_model_that_failed_is_an_error_with_its_path_where_paths_may_be_told(
    paths: bool, name: str, told: dict[str, str], text: str
) -> None:
    program = Program()
    model = MeasuredModel(path="secret/a.onnx", problem="secret/a.onnx cannot be read")
    measured = Measurement("inference", (model,), "onnxruntime", "", 10, 20)
    report(measured, RunContext(run="my run", paths=paths), program.providers)
    span, _ = program.spans.get_finished_spans()
    labels = {**RUN, "quant.model.name": name}
    assert dict(span.attributes or {}) == {
        **labels, "quant.library.name": "onnxruntime", **told,
    }  # fmt: skip
    problem = told.get("quant.inference.problem")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, problem)
    assert (span.start_time, span.end_time) == (10, 20)
    [item] = program.records.get_finished_logs()
    record = item.log_record
    assert (record.event_name, record.body) == ("quant.inference.failed", text)
    assert (record.severity_number, dict(record.attributes or {})) == (SeverityNumber.WARN, labels)


def test_of_many_findings_twenty_are_told_and_all_are_counted() -> None:
    program = Program()
    operator = TimedOperator("Conv", None, 0.5, 0.5, types="float32 8", macs_per_second=2.5)
    model = MeasuredModel(
        "m", findings=tuple(Fault("unfused", f"n{i}", "...", 0.1) for i in range(25)),
        slowest=(operator,),
    )  # fmt: skip
    measured = Measurement("inference", (model,), "onnxruntime", "1", 10, 20)
    report(measured, RunContext(run="my run"), program.providers)
    first, *records = (item.log_record for item in program.records.get_finished_logs())
    labels = {**RUN, "quant.model.name": "m"}
    assert (first.body, dict(first.attributes or {})) == (
        "Conv",
        {
            **labels,
            "quant.inference.operator.type": "Conv",
            "quant.inference.operator.kernels": 1,
            "quant.inference.operator.duration": 0.5,
            "quant.inference.operator.share": 0.5,
            "quant.inference.operator.types": "float32 8",
            "quant.inference.operator.mac_rate": 2.5,
        },
    )
    nodes = [(record.attributes or {})["quant.inference.finding.node"] for record in records]
    assert nodes == [f"n{i}" for i in range(20)]
    assert ("quant.inference.findings", 25, labels) in program.points()


def test_a_program_that_measures_again_has_new_values_and_no_new_series() -> None:
    program = Program()
    report(MEASURED, None, program.providers)
    before = program.points()
    faster = (replace(MODELS[0], median=0.2), MODELS[1])
    report(replace(MEASURED, models=faster, began_ns=30), None, program.providers)
    changed = {"quant.inference.start": 3e-8, "quant.inference.duration.median": 0.2}
    assert sorted(program.points(), key=_place) == sorted(
        (
            (name, changed.get(name, value) if value in (0.4, 1e-8) else value, labels)
            for name, value, labels in before
        ),
        key=_place,
    )
    (run,) = {labels["quant.run.name"] for _, _, labels in before}
    assert run.endswith("Z")


def _place(point: tuple[str, float, dict[str, Any]]) -> str:
    return str((point[0], point[2]))


def test_models_of_one_name_are_told_apart() -> None:
    program = Program()
    paths = ("a/model.onnx", "b/model.onnx", None)
    models = tuple(MeasuredModel(path=path, median=1.0) for path in paths)
    report(Measurement("inference", models, "", "", 10, 20), None, program.providers)
    spans = program.spans.get_finished_spans()[:3]
    names = [(span.attributes or {})["quant.model.name"] for span in spans]
    assert names == ["model", "model (2)", "model 3"]


def test_without_a_provider_nothing_is_sent_and_nothing_raised() -> None:
    report(MEASURED)
