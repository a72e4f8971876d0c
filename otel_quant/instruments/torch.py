"""PyTorch's own quantization: eager and FX graph mode.

Between preparation and conversion the program itself runs the model to calibrate it; only
``quantize`` is handed the function that does.
"""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.steps import ProfileStep

_STEP: Final = "otel_quant.instruments.calls:step"
_OPERATION: Final = "otel_quant.instruments.calls:operation"
_CALLS: Final = "otel_quant.instruments.torch_calls:"

_EAGER: Final = "torch.ao.quantization.quantize"
_FX: Final = "torch.ao.quantization.quantize_fx"

TORCH: Final = Library(
    name="torch",
    distribution="torch",
    is_common=True,
    hooks=(
        Hook(_EAGER, "prepare", _STEP, ProfileStep.MODEL_PREPARATION),
        Hook(_EAGER, "prepare_qat", _STEP, ProfileStep.MODEL_PREPARATION),
        Hook(_EAGER, "convert", _STEP, ProfileStep.MODEL_QUANTIZATION),
        Hook(_EAGER, "quantize_dynamic", _CALLS + "quantize_dynamic", ProfileStep.QUANTIZATION_DYNAMIC),
        Hook(_EAGER, "quantize", _CALLS + "calibrating", ProfileStep.CALIBRATION, parameter="run_fn"),
        Hook(_EAGER, "quantize_qat", _OPERATION),
        Hook(_FX, "prepare_fx", _STEP, ProfileStep.MODEL_PREPARATION),
        Hook(_FX, "prepare_qat_fx", _STEP, ProfileStep.MODEL_PREPARATION),
        Hook(_FX, "convert_fx", _STEP, ProfileStep.MODEL_QUANTIZATION),
        Hook(_FX, "convert_to_reference_fx", _STEP, ProfileStep.MODEL_QUANTIZATION),
    ),
)  # fmt: skip
