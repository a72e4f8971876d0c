"""PyTorch's own quantization: eager and FX graph mode.

Between preparation and conversion the program itself runs the model to calibrate it; only
``quantize`` is passed the function that does. Most programs that import torch quantize nothing: what makes steps
is imported at the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_quant.capture.instruments.shared.arguments import Arguments
from otel_quant.capture.instruments.shared.hooks import ENTRY_POINT, STEP, Hook, Library, Wrapper
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.torch:"
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


def quantize_dynamic(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes each call a step; its ``dtype`` counts unless there is a mapping of types."""
    from otel_quant.capture.instruments.shared.steps import as_operation, attributes_of, step

    arguments = Arguments(function)

    def describe(*args: Any, **kwargs: Any) -> Mapping[str, AttributeValue]:
        bound = arguments.bound(args, kwargs)
        if isinstance(bound.get("qconfig_spec"), dict):
            return {}
        return attributes_of(bound, False, (("dtype", semconv.WEIGHT_TYPE),))

    return as_operation(step(function, hook, library), library, describe)


def calibrating(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call an operation, and a step of the function that it is passed."""
    from otel_quant.capture.instruments.shared.steps import entry_point, with_argument_as_step

    return with_argument_as_step(
        entry_point(function, hook, library), hook.parameter, hook.step, library
    )
