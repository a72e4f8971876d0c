"""Intel's Neural Compressor 3: prepare, calibrate, convert; or all of it in one call.

Between ``prepare`` and ``convert`` the program itself runs the model; ``quantize`` is
passed the function that does.
"""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.shared.library import (
    ENTRY_POINT,
    LAYER,
    STEP,
    Hook,
    Library,
    Wrapper,
)
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.neural_compressor.calls:"
_CONFIGURED: Final = Wrapper(
    _CALLS + "configured", "step **{step}**, described by its configuration"
)
_CALIBRATING: Final = Wrapper(
    _CALLS + "calibrating",
    f"step **{{step}}**; the `{{parameter}}` it is passed is step **{ProfileStep.CALIBRATION}**",
)
_SAVING: Final = Wrapper(_CALLS + "saving", "step **{step}**, which names the folder")

_TORCH: Final = "neural_compressor.torch."
_QUANTIZE: Final = _TORCH + "quantization.quantize"
_WEIGHT_ONLY: Final = _TORCH + "algorithms.weight_only."

LIBRARY: Final = Library(
    name="neural-compressor",
    distribution="neural-compressor",
    other_distributions=("neural-compressor-pt",),
    versions_seen="3.10",
    built_on=frozenset({"torch", "torchao", "transformers", "auto-round"}),
    nests=True,
    hooks=(
        Hook(_QUANTIZE, "prepare", _CONFIGURED, ProfileStep.MODEL_PREPARATION),
        Hook(_QUANTIZE, "convert", _CONFIGURED, ProfileStep.MODEL_QUANTIZATION),
        Hook(_QUANTIZE, "quantize", _CALIBRATING, ProfileStep.MODEL_QUANTIZATION, parameter="run_fn"),
        Hook(_TORCH + "quantization.autotune", "autotune", ENTRY_POINT),
        Hook("neural_compressor.common.base_tuning", "EvaluationFuncWrapper.evaluate", STEP, ProfileStep.MODEL_EVALUATION),
        Hook(_TORCH + "quantization.save_load_entry", "save", _SAVING, ProfileStep.POST_PROCESS),
        # What the models' own `save` is:
        Hook(_WEIGHT_ONLY + "save_load", "save", STEP, ProfileStep.POST_PROCESS),
        Hook(_TORCH + "algorithms.pt2e_quant.save_load", "save", STEP, ProfileStep.POST_PROCESS),
        Hook(_WEIGHT_ONLY + "modules", "INCWeightOnlyLinear.pack", LAYER),
        Hook(_WEIGHT_ONLY + "hqq.core", "HQQLinear.from_float", LAYER),
    ),
)  # fmt: skip
