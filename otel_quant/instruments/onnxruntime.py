"""ONNX Runtime's quantization tools: static, dynamic, and block-wise for MatMul."""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.steps import ProfileStep
from otel_quant.telemetry import semconv

_STEP: Final = "otel_quant.instruments.calls:step"
_QUANTIZATION: Final = "otel_quant.instruments.calls:quantization"
_CALLS: Final = "otel_quant.instruments.onnxruntime_calls:"

_ORT: Final = "onnxruntime.quantization"
_CALIBRATE: Final = f"{_ORT}.calibrate"
_DEBUG: Final = f"{_ORT}.qdq_loss_debug"

_QUANTIZER: Final = (("self.per_channel", semconv.PER_CHANNEL),)
_NBITS: Final = (
    ("self.algo_config.bits", semconv.BITS),
    ("self.bits", semconv.BITS),
    ("self.algo_config.block_size", semconv.BLOCK_SIZE),
    ("self.block_size", semconv.BLOCK_SIZE),
    ("self.algo_config.quant_format", semconv.FORMAT),
    ("self.model_path", semconv.INPUT_PATH),
)

ONNXRUNTIME: Final = Library(
    name="onnxruntime",
    distribution="onnxruntime",
    hooks=(
        Hook(f"{_ORT}.shape_inference", "quant_pre_process", _STEP, ProfileStep.PRE_PROCESS),
        Hook(_CALIBRATE, "MinMaxCalibrater.collect_data", _CALLS + "collect", ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "MinMaxCalibrater.compute_data", _CALLS + "compute", ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "HistogramCalibrater.collect_data", _CALLS + "collect", ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "HistogramCalibrater.compute_data", _CALLS + "compute", ProfileStep.CALIBRATION),
        Hook(f"{_ORT}.qdq_quantizer", "QDQQuantizer.quantize_model", _STEP, ProfileStep.QUANTIZATION_STATIC, reads=_QUANTIZER),
        Hook(f"{_ORT}.onnx_quantizer", "ONNXQuantizer.quantize_model", _CALLS + "quantize_model", reads=_QUANTIZER),
        Hook(f"{_ORT}.matmul_nbits_quantizer", "MatMulNBitsQuantizer.process", _CALLS + "process", ProfileStep.QUANTIZATION_MATMUL_NBITS, reads=_NBITS),
        # Its name in onnxruntime 1.20.
        Hook(f"{_ORT}.matmul_4bits_quantizer", "MatMul4BitsQuantizer.process", _CALLS + "process", ProfileStep.QUANTIZATION_MATMUL_NBITS, reads=_NBITS),
        Hook(f"{_ORT}.onnx_model", "ONNXModel.save_model_to_file", _STEP, ProfileStep.POST_PROCESS, reads=(("output_path", semconv.OUTPUT_PATH),)),
        Hook(_DEBUG, "collect_activations", _STEP, ProfileStep.MODEL_EVALUATION),
        Hook(_DEBUG, "compute_activation_error", _STEP, ProfileStep.MODEL_EVALUATION),
        Hook(_DEBUG, "compute_weight_error", _STEP, ProfileStep.MODEL_EVALUATION),
        # Entry points: their arguments describe the steps, and their models are costed.
        Hook(f"{_ORT}.quantize", "quantize_static", _QUANTIZATION),
        Hook(f"{_ORT}.quantize", "quantize_dynamic", _QUANTIZATION),
        Hook(f"{_ORT}.quantize", "quantize", _QUANTIZATION),
    ),
)  # fmt: skip
