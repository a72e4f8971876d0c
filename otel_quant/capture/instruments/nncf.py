"""OpenVINO's NNCF: post-training quantization and weight compression, ONNX and PyTorch."""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.shared.hooks import SAMPLES, STEP, Hook, Library
from otel_quant.schema import semconv
from otel_quant.schema.step_names import ProfileStep

_MODULE: Final = "nncf.quantization.quantize_model"

_QUANTIZE: Final = (
    ("mode", semconv.CONFIG_NAME),
    ("preset", semconv.CONFIG_NAME),
)
_COMPRESS: Final = (("mode", semconv.CONFIG_NAME), ("group_size", semconv.BLOCK_SIZE))

LIBRARY: Final = Library(
    name="nncf",
    distribution="nncf",
    versions_seen="3.4",
    built_on=frozenset({"torch"}),
    nests=True,
    hooks=(
        Hook(_MODULE, "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, sources=_QUANTIZE),
        Hook(_MODULE, "quantize_with_accuracy_control", STEP, ProfileStep.MODEL_QUANTIZATION, sources=_QUANTIZE),
        Hook(_MODULE, "compress_weights", STEP, ProfileStep.MODEL_QUANTIZATION, sources=_COMPRESS),
        Hook("nncf.quantization.algorithms.pipeline", "collect_statistics", STEP, ProfileStep.CALIBRATION),
        Hook("nncf.data.dataset", "DataProvider.__iter__", SAMPLES),
    ),
)  # fmt: skip
