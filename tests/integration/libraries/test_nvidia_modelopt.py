"""NVIDIA's Model Optimizer reports its steps for PyTorch and for ONNX, and works as before."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("modelopt.torch.quantization")
onnxruntime = pytest.importorskip("onnxruntime")  # its distribution is the one for GPUs

step = steps_by("nvidia-modelopt", "modelopt.")
QUANTIZE = ("Model Quantization", "torch.quantization.model_quant.quantize")
CALIBRATE = ("Calibration", "torch.quantization.model_quant.calibrate")
EXPORT = ("Export HF Safetensors", "torch.export.unified_export_hf.export_hf_checkpoint")
INT8 = {
    "quant.activation.bits": 8, "quant.activation.type": "int8", "quant.algorithms": ("max",),
    "quant.bits": 8, "quant.config.name": "INT8_DEFAULT", "quant.granularity": "channel",
    "quant.per_channel": True, "quant.weight.type": "int8",
}  # fmt: skip
FP8 = {
    **INT8, "quant.activation.type": "float8", "quant.config.name": "FP8_DEFAULT",
    "quant.granularity": "tensor", "quant.per_channel": False, "quant.weight.type": "float8",
}  # fmt: skip
AWQ = {
    "quant.algorithms": ("awq_lite",), "quant.bits": 4, "quant.block_size": 128,
    "quant.config.name": "INT4_AWQ", "quant.granularity": "group", "quant.weight.type": "int4",
}  # fmt: skip


def quantized(known: dict[str, Any], passes: int, items: int) -> Any:
    counts = {"quant.calibration.item_count": items, "quant.calibration.sample_count": passes}
    return step(QUANTIZE, known, step(CALIBRATE, {**known, **counts}))


def onnx(method: str, named: str, collect: str) -> Any:
    below = steps_by("onnxruntime", "onnxruntime.quantization.", version=onnxruntime.__version__)
    channels = {"quant.granularity": "channel", "quant.per_channel": True}
    counts = {
        "quant.calibration.item_count": 96,
        "quant.calibration.method": named,
        "quant.calibration.sample_count": 3,
    }
    return step(
        ("Model Quantization", "onnx.quantization.quantize.quantize"),
        {"quant.bits": 8, "quant.calibration.method": method, "quant.weight.type": "int8"},
        step(("Calibration", f"onnx.quantization.ort_patching._collect_data_{collect}"), counts),
        below(("Quantization (Static)", "qdq_quantizer.QDQQuantizer.quantize_model"), channels),
        below(("Post-process", "onnx_model.ONNXModel.save_model_to_file"), {}),
    )


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("nvidia_modelopt_all.py", OTEL_QUANT_PATHS="off")

    [root] = otlp.spans_named("quantization")
    failed = {**INT8, "error.type": "KeyError"}
    steps = {
        "largest": [quantized(INT8, 3, 12)],
        # It searches with the same samples once more.
        "awq": [quantized(AWQ, 6, 24)],
        "fp8": [quantized(FP8, 1, 1), step(EXPORT, {})],
        "onnx_file": [
            onnx("max", "MinMax", "minmax_calibrator"),
            onnx("entropy", "Entropy", "histogram_calibrator"),
        ],
        "failing": [quantized(failed, 1, 4)],
    }
    found = [each for each in steps_below(otlp, root) if each[0] != "model cost"]
    assert found == [(way, {}, within) for way, within in steps.items()]
