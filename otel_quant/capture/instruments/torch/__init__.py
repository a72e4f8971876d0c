"""PyTorch's own quantization: eager and FX graph mode.

Between preparation and conversion the program itself runs the model to calibrate it; only
``quantize`` is passed the function that does.
"""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.shared.library import ENTRY_POINT, STEP, Hook, Library, Wrapper
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.torch.calls:"
_DYNAMIC: Final = Wrapper(_CALLS + "quantize_dynamic", "step **{step}**")
_CALIBRATING: Final = Wrapper(
    _CALLS + "calibrating", "an entry point; the `{parameter}` it is passed is step **{step}**"
)

_EAGER: Final = "torch.ao.quantization.quantize"
_FX: Final = "torch.ao.quantization.quantize_fx"

LIBRARY: Final = Library(
    name="torch",
    distribution="torch",
    versions_seen="2.13",
    is_common=True,
    hooks=(
        Hook(_EAGER, "prepare", STEP, ProfileStep.MODEL_PREPARATION),
        Hook(_EAGER, "prepare_qat", STEP, ProfileStep.MODEL_PREPARATION),
        Hook(_EAGER, "convert", STEP, ProfileStep.MODEL_QUANTIZATION),
        Hook(_EAGER, "quantize_dynamic", _DYNAMIC, ProfileStep.QUANTIZATION_DYNAMIC),
        Hook(_EAGER, "quantize", _CALIBRATING, ProfileStep.CALIBRATION, parameter="run_fn"),
        Hook(_EAGER, "quantize_qat", ENTRY_POINT),
        Hook(_FX, "prepare_fx", STEP, ProfileStep.MODEL_PREPARATION),
        Hook(_FX, "prepare_qat_fx", STEP, ProfileStep.MODEL_PREPARATION),
        Hook(_FX, "convert_fx", STEP, ProfileStep.MODEL_QUANTIZATION),
        Hook(_FX, "convert_to_reference_fx", STEP, ProfileStep.MODEL_QUANTIZATION),
    ),
)  # fmt: skip
