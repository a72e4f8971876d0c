"""Intel's Neural Compressor 3: prepare, calibrate, convert; or all of it in one call.

Between ``prepare`` and ``convert`` the program itself runs the model; ``quantize`` is
handed the function that does.
"""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.steps import ProfileStep

_STEP: Final = "otel_quant.instruments.calls:step"
_LAYER: Final = "otel_quant.instruments.calls:layer"
_CALLS: Final = "otel_quant.instruments.neural_compressor_calls:"

_TORCH: Final = "neural_compressor.torch."
_QUANTIZE: Final = _TORCH + "quantization.quantize"
_WEIGHT_ONLY: Final = _TORCH + "algorithms.weight_only."

NEURAL_COMPRESSOR: Final = Library(
    name="neural-compressor",
    distribution="neural-compressor",
    covers=frozenset({"torch", "torchao", "transformers", "auto-round"}),
    nests=True,
    hooks=(
        Hook(_QUANTIZE, "prepare", _CALLS + "configured", ProfileStep.MODEL_PREPARATION),
        Hook(_QUANTIZE, "convert", _CALLS + "configured", ProfileStep.MODEL_QUANTIZATION),
        Hook(_QUANTIZE, "quantize", _CALLS + "calibrating", ProfileStep.MODEL_QUANTIZATION, parameter="run_fn"),
        Hook(_TORCH + "quantization.autotune", "autotune", "otel_quant.instruments.calls:operation"),
        Hook("neural_compressor.common.base_tuning", "EvaluationFuncWrapper.evaluate", _STEP, ProfileStep.MODEL_EVALUATION),
        Hook(_TORCH + "quantization.save_load_entry", "save", _CALLS + "saving", ProfileStep.POST_PROCESS),
        # What the models' own `save` is:
        Hook(_WEIGHT_ONLY + "save_load", "save", _STEP, ProfileStep.POST_PROCESS),
        Hook(_TORCH + "algorithms.pt2e_quant.save_load", "save", _STEP, ProfileStep.POST_PROCESS),
        Hook(_WEIGHT_ONLY + "modules", "INCWeightOnlyLinear.pack", _LAYER),
        Hook(_WEIGHT_ONLY + "hqq.core", "HQQLinear.from_float", _LAYER),
    ),
)  # fmt: skip
