"""Hugging Face's optimum-quanto: quantize in place, calibrate in a block, freeze."""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.steps import ProfileStep
from otel_quant.telemetry import semconv

_STEP: Final = "otel_quant.instruments.calls:step"
_BLOCK: Final = "otel_quant.instruments.quanto_calls:"
_CALIBRATE: Final = "optimum.quanto.calibrate"

_TYPES: Final = (
    ("weights.name", semconv.WEIGHT_TYPE),
    ("weights", semconv.WEIGHT_TYPE),
    ("activations.name", semconv.ACTIVATION_TYPE),
    ("activations", semconv.ACTIVATION_TYPE),
)

QUANTO: Final = Library(
    name="optimum-quanto",
    distribution="optimum-quanto",
    covers=frozenset({"torch"}),
    hooks=(
        Hook("optimum.quanto.quantize", "quantize", _STEP, ProfileStep.MODEL_QUANTIZATION, reads=_TYPES),
        Hook("optimum.quanto.quantize", "freeze", _STEP, ProfileStep.FREEZE_MODEL),
        Hook(_CALIBRATE, "Calibration.__enter__", _BLOCK + "enter", ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "Calibration.__exit__", _BLOCK + "leave", ProfileStep.CALIBRATION),
    ),
)  # fmt: skip
