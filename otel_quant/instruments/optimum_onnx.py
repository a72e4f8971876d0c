"""Hugging Face's optimum-onnx, which calls onnxruntime's calibrators and quantizers itself.

The steps are onnxruntime's; what they were asked for is known here.
"""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.telemetry import semconv

_MODULE: Final = "optimum.onnxruntime.quantization"

OPTIMUM_ONNX: Final = Library(
    name="optimum-onnx",
    distribution="optimum-onnx",
    hooks=(
        Hook(
            _MODULE,
            "ORTQuantizer.fit",
            "otel_quant.instruments.calls:operation",
            reads=(
                ("calibration_config.method", semconv.CALIBRATION_METHOD),
                ("self.onnx_model_path", semconv.INPUT_PATH),
            ),
        ),
        Hook(
            _MODULE,
            "ORTQuantizer.quantize",
            "otel_quant.instruments.optimum_onnx_calls:quantize",
            reads=(
                ("quantization_config.format", semconv.FORMAT),
                ("quantization_config.weights_dtype", semconv.WEIGHT_TYPE),
                ("quantization_config.activations_dtype", semconv.ACTIVATION_TYPE),
                ("quantization_config.per_channel", semconv.PER_CHANNEL),
                ("self.onnx_model_path", semconv.INPUT_PATH),
            ),
        ),
    ),
)
