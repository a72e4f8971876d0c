"""Hugging Face's optimum-quanto: quantize in place, calibrate in a block, freeze."""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.shared.library import STEP, Hook, Library, Wrapper
from otel_quant.schema import semconv
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.optimum_quanto.calls:"
_BEGIN: Final = Wrapper(_CALLS + "begin_calibration", "begins the step **{step}**")
_END: Final = Wrapper(_CALLS + "end_calibration", "ends it")

_CALIBRATE: Final = "optimum.quanto.calibrate"

_TYPES: Final = (
    ("weights.name", semconv.WEIGHT_TYPE),
    ("weights", semconv.WEIGHT_TYPE),
    ("activations.name", semconv.ACTIVATION_TYPE),
    ("activations", semconv.ACTIVATION_TYPE),
)

LIBRARY: Final = Library(
    name="optimum-quanto",
    distribution="optimum-quanto",
    versions_seen="0.2.7",
    built_on=frozenset({"torch"}),
    hooks=(
        Hook("optimum.quanto.quantize", "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, sources=_TYPES),
        Hook("optimum.quanto.quantize", "freeze", STEP, ProfileStep.FREEZE_MODEL),
        Hook(_CALIBRATE, "Calibration.__enter__", _BEGIN, ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "Calibration.__exit__", _END, ProfileStep.CALIBRATION),
    ),
)  # fmt: skip
