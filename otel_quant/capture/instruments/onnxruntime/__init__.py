"""ONNX Runtime's quantization tools: static, dynamic, and block-wise for MatMul."""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.shared.library import (
    MODEL_QUANTIZATION,
    STEP,
    Hook,
    Library,
    Wrapper,
)
from otel_quant.schema import semconv
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.onnxruntime.calls:"
_COLLECT: Final = Wrapper(
    _CALLS + "collect", "step **{step}**; counts what `get_next` of its reader returns"
)
_COMPUTE: Final = Wrapper(
    _CALLS + "compute", "the end of that step, or a step **{step}** of its own"
)
_QUANTIZE: Final = Wrapper(
    _CALLS + "quantize_model",
    f"step **{ProfileStep.QUANTIZATION_STATIC}** or **{ProfileStep.QUANTIZATION_DYNAMIC}**",
)
_PROCESS: Final = Wrapper(_CALLS + "process", "step **{step}**; the models are costed")
_PREPARED: Final = Wrapper(
    _CALLS + "prepared_inputs", "the shapes of the first sample are those of the models' inputs"
)

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

LIBRARY: Final = Library(
    name="onnxruntime",
    distribution="onnxruntime",
    versions_seen="1.20, 1.31",
    hooks=(
        Hook(f"{_ORT}.shape_inference", "quant_pre_process", STEP, ProfileStep.PRE_PROCESS),
        Hook(_CALIBRATE, "MinMaxCalibrater.collect_data", _COLLECT, ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "MinMaxCalibrater.compute_data", _COMPUTE, ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "HistogramCalibrater.collect_data", _COLLECT, ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "HistogramCalibrater.compute_data", _COMPUTE, ProfileStep.CALIBRATION),
        Hook(f"{_ORT}.qdq_quantizer", "QDQQuantizer.quantize_model", STEP, ProfileStep.QUANTIZATION_STATIC, sources=_QUANTIZER),
        Hook(f"{_ORT}.onnx_quantizer", "ONNXQuantizer.quantize_model", _QUANTIZE, sources=_QUANTIZER),
        Hook(f"{_ORT}.matmul_nbits_quantizer", "MatMulNBitsQuantizer.process", _PROCESS, ProfileStep.QUANTIZATION_MATMUL_NBITS, sources=_NBITS),
        # Its name in onnxruntime 1.20.
        Hook(f"{_ORT}.matmul_4bits_quantizer", "MatMul4BitsQuantizer.process", _PROCESS, ProfileStep.QUANTIZATION_MATMUL_NBITS, sources=_NBITS),
        Hook(f"{_ORT}.neural_compressor.weight_only", "prepare_inputs", _PREPARED),
        Hook(f"{_ORT}.onnx_model", "ONNXModel.save_model_to_file", STEP, ProfileStep.POST_PROCESS, sources=(("output_path", semconv.OUTPUT_PATH),)),
        Hook(_DEBUG, "collect_activations", STEP, ProfileStep.MODEL_EVALUATION),
        Hook(_DEBUG, "compute_activation_error", STEP, ProfileStep.MODEL_EVALUATION),
        Hook(_DEBUG, "compute_weight_error", STEP, ProfileStep.MODEL_EVALUATION),
        # Entry points: their arguments describe the steps, and their models are costed.
        Hook(f"{_ORT}.quantize", "quantize_static", MODEL_QUANTIZATION),
        Hook(f"{_ORT}.quantize", "quantize_dynamic", MODEL_QUANTIZATION),
        Hook(f"{_ORT}.quantize", "quantize", MODEL_QUANTIZATION),
    ),
)  # fmt: skip
