"""What telemetry is told of a model: what it is, who ran it, and what only converts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from otel_quant.inference.bench.measurement import measurement_of_bench
from otel_quant.inference.bench.results import BenchResult, CallTime, PeakMemory, VariantResult
from otel_quant.inference.measurement import (
    MeasuredModel,
    Measurement,
    TimedOperator,
    measurement_of,
    role_of,
)

from otel_quant.inference.results import (
    Accuracy,
    InferenceResult,
    Latency,
    MemoryUse,
    ModelResult,
    OperatorTime,
    OutputError,
    Ran,
    RanKernel,
)


def kernel(op_type: str, *inputs: str, macs: int | None = None, **more: object) -> RanKernel:
    fields = {
        "name": op_type, "op_type": op_type, "node": op_type, "nodes": 1, "provider": "CPU",
        "micros": 2.0, "share": 0.25, "calls": 1.0, "inputs": inputs, "outputs": (),
        "macs": macs, "macs_per_second": None,
    }  # fmt: skip
    return RanKernel(**{**fields, **more})  # type: ignore[arg-type]  # a field at a time in the tests


@pytest.mark.parametrize(
    ("kernels", "role"),
    [
        ([kernel("Conv", "float32 1x3x8x8", macs=9)], "float"),
        ([kernel("Conv", "bfloat16 1x3x8x8", macs=9)], "float"),
        ([kernel("Gather", "float32 9x4", "int64 1")], "float"),
        ([kernel("Cast", "uint8 1x3x8x8", macs=9), kernel("Conv", "float32 1", macs=9)], "float"),
        ([kernel("QLinearConv", "uint8 1x3x8x8", macs=9)], "quantized"),
        ([kernel("MatMulNBits", "float32 8x64", "uint8 64x2x16", macs=9)], "quantized"),
        ([kernel("DequantizeLinear", "int8 64x64"), kernel("MatMul", macs=9)], "quantized"),
        ([kernel("BFPQuantizeDequantize", "float32 64x64")], "quantized"),
        ([kernel("aten::linear", "float32 8x64"), kernel("aten::to", "int8 8x64")], "float"),
        ([kernel("quantized::linear_dynamic", "float32 8x64")], "quantized"),
        ([kernel("aten::_weight_int4pack_mm", "bfloat16 8x64")], "quantized"),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(each.op_type for each in value),
)
def test_a_model_is_quantized_if_what_ran_is(kernels: list[RanKernel], role: str) -> None:
    assert role_of(kernels) == role


def measured(model: ModelResult) -> MeasuredModel:
    result = InferenceResult((model,), "1.24.0", {}, 0.5, 2)
    return measurement_of(result, 1, 2).models[0]


def model(ratio: float, *, is_apart: bool) -> ModelResult:
    kernels = (
        kernel("QLinearConv", "uint8 1x4", macs=9, node="c", macs_per_second=4.5),
        kernel("QuantizeLinear", "float32 1x4"),
        kernel("Transpose", "uint8 1x4", node=None, name="token_5", provider="CUDA"),
        kernel("Transpose", "uint8 1x4", provider="CUDA"),
    )
    operators = (
        OperatorTime("Transpose", "CUDA", 2, 4.0, 0.5, None, None),
        OperatorTime("QLinearConv", "CPU", 1, 2.0, 0.25, 9, 4.5),
        OperatorTime("QuantizeLinear", "CPU", 1, 2.5, 0.25, None, None),
    )
    decibels = {"a": 35.0, "b": 30.0, "c": None}
    errors = tuple(OutputError(name, sqnr, 1.0, 0.0) for name, sqnr in decibels.items())
    return ModelResult(
        "m/int8.onnx",
        providers=("CUDA", "CPU"),
        latency=Latency(0.5, 0.25, 0.75, 9, 1.0, 0.01, ratio, is_apart),
        memory=MemoryUse(7000, 1, 1, 1, 1, 600, 1),
        ran=Ran(20, 10.0, 8.0, 2.0, kernels, 0, 0.0, operators),
        accuracy=Accuracy(errors),
    )


def test_every_figure_is_in_seconds_and_bytes() -> None:
    assert measured(model(0.5, is_apart=True)) == MeasuredModel(
        path="m/int8.onnx",
        role="quantized",
        provider="CPU",  # 4.5 us; 4 us on the other
        median=0.5,
        p10=0.25,
        p90=0.75,
        runs=9,
        speedup=2.0,
        memory_peak=7000,
        weights=600,
        kernel_time=8e-6,
        conversions=0.5,  # the Transpose of the file is the model's own
        findings=(),
        sqnr=30.0,
        slowest=(
            TimedOperator("Transpose", "CUDA", 4e-6, 0.5, kernels=2),
            TimedOperator("QLinearConv", "CPU", 2e-6, 0.25, macs_per_second=4.5),
            TimedOperator("QuantizeLinear", "CPU", 2.5e-6, 0.25),
            TimedOperator("QLinearConv", "CPU", 2e-6, 0.25, "c", 1, "uint8 1x4 -> ", 4.5),
            TimedOperator("QuantizeLinear", "CPU", 2e-6, 0.25, "QuantizeLinear", 1, "float32 1x4 -> "),
            TimedOperator("Transpose", "CUDA", 2e-6, 0.25, "token_5", 1, "uint8 1x4 -> "),
            TimedOperator("Transpose", "CUDA", 2e-6, 0.25, "Transpose", 1, "uint8 1x4 -> "),
        ),
    )  # fmt: skip


def test_the_ten_slowest_operators_and_kernels_are_told() -> None:
    many = model(0.5, is_apart=True)
    assert many.ran is not None
    ran = replace(many.ran, kernels=many.ran.kernels * 4, operators=many.ran.operators * 4)
    told = [each.name is not None for each in measured(replace(many, ran=ran)).slowest]
    assert told == [False] * 10 + [True] * 10


def test_models_of_pytorch_have_names_and_no_files() -> None:
    result = InferenceResult((ModelResult("8 bits/dynamic"),), "2.9.0", {}, 0.5, 2)
    assert measurement_of(result, 1, 2, library="torch") == Measurement(
        "inference", (MeasuredModel("8 bits/dynamic"),), "torch", "2.9.0", 1, 2
    )


def test_a_speedup_that_the_noise_hides_is_absent() -> None:
    assert measured(model(0.99, is_apart=False)).speedup is None


def test_models_that_failed_have_their_problem_and_nothing_else() -> None:
    result = InferenceResult((ModelResult("a.onnx", "crashed with SIGSEGV"),), "", {}, 0.5, 2)
    assert measurement_of(result, 1, 2, {"b.onnx": "cannot be opened"}) == Measurement(
        "inference",
        (
            MeasuredModel(path="a.onnx", problem="crashed with SIGSEGV"),
            MeasuredModel(path="b.onnx", problem="cannot be opened"),
        ),
        "onnxruntime",
        "",
        1,
        2,
    )


def test_variants_are_told_with_the_baseline_first_and_no_speedup_that_the_noise_hides() -> None:
    hidden, memory = CallTime(0.25, 0.1, 9, 9, 0.03, 1.01, False), PeakMemory(500, None, 700, 0.5)
    gpu, fast = PeakMemory(500, 9000, 700), CallTime(0.125, 0.1, 9, 9, 0.01, 2.0, True)
    variants = (
        VariantResult("m/int8.onnx", "onnx", "", True, "CPU", hidden, memory, 70),
        VariantResult(
            "fast", "torch", call=fast, memory=gpu, error=OutputError("y", 30.0, 1.0, 0.1)
        ),
        VariantResult("failed", "torch", "making it failed"),
        VariantResult("fp32", "torch", "", False, "cpu", CallTime(0.5, 0.1, 9, 9, 0.02), memory),
    )
    result = BenchResult(variants, "fp32", {"onnxruntime": "1.24", "torch": "2.9"}, 0.5, 2, "")
    assert measurement_of_bench(result, 1, 2) == Measurement(
        "benchmark",
        (
            MeasuredModel("fp32", role="float", provider="cpu", median=0.5, memory_peak=500),
            MeasuredModel(
                None, "m/int8.onnx", "quantized", "CPU", 0.25, memory_peak=500, weights=70
            ),
            MeasuredModel("fast", median=0.125, speedup=2.0, memory_peak=9000, sqnr=30.0),
            MeasuredModel("failed", problem="making it failed"),
        ),
        "torch",
        "2.9",
        1,
        2,
        0.03,
    )
