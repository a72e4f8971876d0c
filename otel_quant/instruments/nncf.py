"""OpenVINO's NNCF: post-training quantization and weight compression, ONNX and PyTorch."""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.steps import ProfileStep
from otel_quant.telemetry import semconv

_STEP: Final = "otel_quant.instruments.calls:step"
_MODULE: Final = "nncf.quantization.quantize_model"

_QUANTIZE: Final = (
    ("mode", semconv.CONFIG_NAME),
    ("preset", semconv.CONFIG_NAME),
)
_COMPRESS: Final = (("mode", semconv.CONFIG_NAME), ("group_size", semconv.BLOCK_SIZE))

NNCF: Final = Library(
    name="nncf",
    distribution="nncf",
    covers=frozenset({"torch"}),
    nests=True,
    hooks=(
        Hook(_MODULE, "quantize", _STEP, ProfileStep.MODEL_QUANTIZATION, reads=_QUANTIZE),
        Hook(_MODULE, "quantize_with_accuracy_control", _STEP, ProfileStep.MODEL_QUANTIZATION, reads=_QUANTIZE),
        Hook(_MODULE, "compress_weights", _STEP, ProfileStep.MODEL_QUANTIZATION, reads=_COMPRESS),
        Hook("nncf.quantization.algorithms.pipeline", "collect_statistics", _STEP, ProfileStep.CALIBRATION),
        Hook("nncf.data.dataset", "DataProvider.__iter__", "otel_quant.instruments.calls:samples"),
    ),
)  # fmt: skip
