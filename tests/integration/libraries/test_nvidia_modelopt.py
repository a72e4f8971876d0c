"""NVIDIA's Model Optimizer reports its steps for PyTorch and for ONNX, and works as before."""

from __future__ import annotations

from typing import Any

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program, check_seen

pytest.importorskip("modelopt.torch.quantization")
onnxruntime = pytest.importorskip("onnxruntime")  # its distribution is the one for GPUs

step = steps_by("nvidia-modelopt", "modelopt.")
QUANTIZE = ("Model Quantization", "torch.quantization.model_quant.quantize")
CALIBRATE = ("Calibration", "torch.quantization.model_quant.calibrate")
EXPORT = ("Export HF Safetensors", "torch.export.unified_export_hf.export_hf_checkpoint")
INT8 = {
    semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "int8", semconv.ALGORITHMS: ("max",),
    semconv.BITS: 8, semconv.CONFIG_NAME: "INT8_DEFAULT", semconv.GRANULARITY: "channel",
    semconv.PER_CHANNEL: True, semconv.WEIGHT_TYPE: "int8",
}  # fmt: skip
FP8 = {
    **INT8, semconv.ACTIVATION_TYPE: "float8", semconv.CONFIG_NAME: "FP8_DEFAULT",
    semconv.GRANULARITY: "tensor", semconv.PER_CHANNEL: False, semconv.WEIGHT_TYPE: "float8",
}  # fmt: skip
AWQ = {
    semconv.ALGORITHMS: ("awq_lite",), semconv.BITS: 4, semconv.BLOCK_SIZE: 128,
    semconv.CONFIG_NAME: "INT4_AWQ", semconv.GRANULARITY: "group", semconv.WEIGHT_TYPE: "int4",
}  # fmt: skip


def quantized(known: dict[str, Any], passes: int, items: int) -> Any:
    counts = {semconv.CALIBRATION_ITEM_COUNT: items, semconv.CALIBRATION_SAMPLE_COUNT: passes}
    return step(QUANTIZE, known, step(CALIBRATE, {**known, **counts}))


def onnx(method: str, named: str, collect: str) -> Any:
    below = steps_by("onnxruntime", "onnxruntime.quantization.", version=onnxruntime.__version__)
    asked = {semconv.BITS: 8, semconv.WEIGHT_TYPE: "int8"}
    # What the nodes and tensors of the written model have
    written = {
        **asked, semconv.GRANULARITY: "channel", semconv.SYMMETRIC: True, semconv.WEIGHT_COUNT: 2,
    }  # fmt: skip
    channels = {**written, semconv.PER_CHANNEL: True, semconv.CALIBRATION_METHOD: method}
    counts = {
        semconv.CALIBRATION_ITEM_COUNT: 96,
        semconv.CALIBRATION_METHOD: named,
        semconv.CALIBRATION_SAMPLE_COUNT: 3,
    }
    return step(
        ("Model Quantization", "onnx.quantization.quantize.quantize"),
        {**written, semconv.CALIBRATION_METHOD: method},
        step(("Calibration", f"onnx.quantization.ort_patching._collect_data_{collect}"), counts),
        below(("Quantization (Static)", "qdq_quantizer.QDQQuantizer.quantize_model"), channels),
        below(("Post-process", "onnx_model.ONNXModel.save_model_to_file"), channels),
    )


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("nvidia_modelopt_all.py", OTEL_QUANT_PATHS="off")

    [root] = otlp.spans_named("quantization")
    program.check_written(root, "Calibration", uncompared={"failing"})
    failed = {**INT8, "error.type": "KeyError"}
    counts = {semconv.CALIBRATION_ITEM_COUNT: 8, semconv.CALIBRATION_SAMPLE_COUNT: 2}
    # Of the formats of a search only the chosen ones are the model's, which is known at its end.
    chosen = {name: value for name, value in AWQ.items() if name != semconv.CONFIG_NAME}
    searched = step(
        ("Model Quantization", "torch.quantization.model_quant.auto_quantize"),
        {**chosen, semconv.ALGORITHMS: ("gradient",)},
        *(step(CALIBRATE, {semconv.ALGORITHMS: (each,), **counts}) for each in ("awq_lite", "max")),
    )
    steps = {
        "largest": [quantized(INT8, 3, 12)],
        # It searches with the same samples once more.
        "awq": [quantized(AWQ, 6, 24)],
        "searched": [searched],
        "fp8": [quantized(FP8, 1, 1), step(EXPORT, FP8)],
        "onnx_file": [
            onnx("max", "MinMax", "minmax_calibrator"),
            onnx("entropy", "Entropy", "histogram_calibrator"),
        ],
        "failing": [quantized(failed, 1, 4)],
    }
    found = [each for each in steps_below(otlp, root) if each[0] != "model cost"]
    assert found == [(way, {}, within) for way, within in steps.items()]


def test_what_calibration_has_not_seen_is_found(program: Program) -> None:
    check_seen(program, "modelopt")
