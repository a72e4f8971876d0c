"""Models measured within a program: the span belongs to the trace that the program is in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from otel_quant.export.otel.automatic_providers import Providers
from otel_quant.inference.results import (
    Accuracy,
    Finding,
    InferenceResult,
    Latency,
    MemoryUse,
    ModelResult,
    OutputError,
    Ran,
    RanKernel,
)
from otel_quant.inference.telemetry import RunContext, report
from otel_quant.schema import semconv
from tests.unit.export.otel.signals import Signals

RUN = {semconv.RUN_NAME: "my run"}


def _kernel(op_type: str, node: str | None, provider: str = "CPU", **more: Any) -> RanKernel:
    kernel = RanKernel(
        f"{op_type}_7", op_type, node, 1, provider, 2.0, 0.25, 1.0, ("uint8 1x4",), ()
    )
    return replace(kernel, **more)


def _model(name: str, median: float, ratio: float | None = None, **more: Any) -> ModelResult:
    latency = Latency(median, median / 2, median * 2, 9, 1.0, 0.01, ratio, is_apart=True)
    return ModelResult(
        name, latency=latency, memory=MemoryUse(7000, 1, weights_on_disk=600), **more
    )


KERNELS = (
    _kernel("QLinearConv", "c", macs=9),
    _kernel("QuantizeLinear", "q", micros=2.5),
    _kernel("Transpose", None, "CUDA"),
    _kernel("Transpose", "t", "CUDA"),  # of the file: the model's own work
)
FINDING = Finding("unfused", "fc", "quantize `fc` ...", "", 1.0, 0.5, ("c",), "a.cc")
ERRORS = tuple(
    OutputError(n, sqnr, 1.0, 0.0) for n, sqnr in (("a", 35.0), ("b", 30.0), ("c", None))
)
RAN = Ran(20, 10.0, KERNELS)
INT8 = _model(
    "int8", 0.1, 0.25, ran=RAN, findings=(FINDING,), accuracy=Accuracy(ERRORS), providers=("CUDA",),
    is_quantized=True,
)  # fmt: skip
FP32 = _model("fp32", 0.4, ran=replace(RAN, kernels=()), is_quantized=False)
MEASURED = InferenceResult((FP32, INT8), "2.9.0", {}, 0.5, 2, "torch")


class Program(Signals):
    """A program with providers of its own."""

    @property
    def providers(self) -> Providers:
        return Providers(self.tracers, self.meters, self.loggers)

    def values(self) -> list[tuple[str, float, dict[str, Any]]]:
        """Returns metric, value and attributes of each point."""
        points = self.points().items()
        return [(name, value, labels) for (name, _), found in points for labels, value in found]


def test_ten_slowest_operators_and_kernels_and_twenty_findings_are_sent() -> None:
    program = Program()
    others = tuple(_kernel(f"Op{i}", None, micros=1.0) for i in range(12))
    many = replace(RAN, kernels=(*KERNELS, *others))
    model = replace(INT8, ran=many, findings=(FINDING,) * 25)
    report(replace(MEASURED, models=(model,)), 10, 20, RunContext(run="my run"), program.providers)
    records = [item.log_record for item in program.log_exporter.get_finished_logs()]
    assert [record.event_name for record in records] == [
        *(semconv.OPERATOR_EVENT,) * 20, *(semconv.FINDING_EVENT,) * 20,
    ]  # fmt: skip
    assert [record.body for record in records[:3]] == ["Transpose", "QuantizeLinear", "QLinearConv"]
    assert [record.body for record in records[10:14]] == ["c", "q", "Transpose_7", "t"]
    values = {name: value for name, value, _ in program.values()}
    assert values[semconv.INFERENCE_FINDINGS] == 25
    assert values[semconv.INFERENCE_SPEEDUP] == 4.0


def test_the_main_provider_the_role_and_conversions_follow_from_the_kernels() -> None:
    assert INT8.main_provider == "CPU"  # 4.5 us; 4 us on the other
    assert (INT8.role, FP32.role) == ("quantized", "float")
    conversions = [each.node for each in KERNELS if each.is_conversion]
    assert conversions == ["q", None]


def test_variants_are_sent_baseline_first_and_without_insignificant_speedups() -> None:
    program = Program()
    hidden = Latency(0.25, noise=0.03, ratio=0.99, is_apart=False)
    memory = MemoryUse(500, 700, gpu=9000)
    variants = (
        ModelResult("m/int8.onnx", latency=hidden, memory=memory, is_quantized=True, kind="onnx"),
        ModelResult("failed", "making it failed", kind="torch"),
        _model("fp32", 0.5, is_quantized=False, providers=("cpu",)),
    )
    result = replace(MEASURED, models=variants, baseline="fp32", command="otel-quant bench")
    report(result, 10, 20, RunContext(run="my run"), program.providers)
    *models, benchmark = program.all_spans()
    assert benchmark.name == "benchmark"
    first, int8, failed = (dict(model.attributes or {}) for model in models)
    names = ("name", "role", "path")
    assert [[each.get(f"quant.model.{name}") for name in names] for each in (first, int8, failed)] == [
        ["fp32", "float", None], ["int8", "quantized", "m/int8.onnx"], ["failed", None, None],
    ]  # fmt: skip
    assert first[semconv.INFERENCE_PROVIDER] == "cpu"
    assert {key: value for key, value in int8.items() if key.startswith("quant.inference.")} == {
        semconv.INFERENCE_MEDIAN: 0.25,
        semconv.INFERENCE_MEMORY_PEAK: 9000,
    }
    assert failed[semconv.INFERENCE_PROBLEM] == "making it failed"


@pytest.mark.parametrize(("named", "name"), [("", "my run"), ("nightly", "nightly")])
def test_a_measurement_within_a_step_belongs_to_its_run_unless_another_is_named(
    named: str, name: str
) -> None:
    program = Program()
    with program.tracers.get_tracer("x").start_as_current_span("Evaluate", attributes=RUN):
        report(MEASURED, 10, 20, RunContext(run=named), program.providers)
    assert {labels[semconv.RUN_NAME] for _, _, labels in program.values()} == {name}


def test_a_program_that_measures_again_has_new_values_and_no_new_series() -> None:
    program = Program()
    report(MEASURED, 10, 20, None, program.providers)
    before = program.values()
    assert FP32.latency is not None
    faster = replace(FP32, latency=replace(FP32.latency, median=0.2))
    report(replace(MEASURED, models=(faster, INT8)), 30, 40, None, program.providers)
    after = program.values()
    assert len(after) == len(before)
    assert {labels[semconv.RUN_NAME][-1:] for _, _, labels in after} == {"Z"}
    medians = [value for name, value, _ in after if name.endswith(".median")]
    assert sorted(medians) == [0.1, 0.2]
    assert 3e-8 in [value for _, value, _ in after]


def test_models_with_the_same_name_are_distinguished() -> None:
    program = Program()
    models = tuple(ModelResult(path, "failed") for path in ("a/model.onnx", "b/model.onnx", ""))
    report(InferenceResult(models, "", {}, 0.5, 2), 10, 20, None, program.providers)
    spans = program.all_spans()[:3]
    names = [(span.attributes or {})[semconv.MODEL_NAME] for span in spans]
    assert names == ["model", "model (2)", "model 3"]


def test_a_missing_provider_sends_nothing_and_raises_nothing() -> None:
    report(MEASURED, 10, 20)
