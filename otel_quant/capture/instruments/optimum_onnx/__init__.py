"""Hugging Face's optimum-onnx, which calls onnxruntime's calibrators and quantizers itself.

The steps are onnxruntime's; the arguments that describe them are optimum-onnx's.
"""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.shared.library import ENTRY_POINT, Hook, Library, Wrapper
from otel_quant.schema import semconv

_CALLS: Final = "otel_quant.capture.instruments.optimum_onnx.calls:"
_FIT: Final = Wrapper(_CALLS + "fit", ENTRY_POINT.effect)
_QUANTIZE: Final = Wrapper(
    _CALLS + "quantize",
    "an entry point: its arguments go with onnxruntime's steps within, and both models are costed",
)

_MODULE: Final = "optimum.onnxruntime.quantization"

LIBRARY: Final = Library(
    name="optimum-onnx",
    distribution="optimum-onnx",
    versions_seen="0.1",
    hooks=(
        Hook(
            _MODULE,
            "ORTQuantizer.fit",
            _FIT,
            sources=(
                ("calibration_config.method", semconv.CALIBRATION_METHOD),
                ("self.onnx_model_path", semconv.INPUT_PATH),
            ),
        ),
        Hook(
            _MODULE,
            "ORTQuantizer.quantize",
            _QUANTIZE,
            sources=(
                ("quantization_config.format", semconv.FORMAT),
                ("quantization_config.weights_dtype", semconv.WEIGHT_TYPE),
                ("quantization_config.activations_dtype", semconv.ACTIVATION_TYPE),
                ("quantization_config.per_channel", semconv.PER_CHANNEL),
                ("self.onnx_model_path", semconv.INPUT_PATH),
            ),
        ),
    ),
)
