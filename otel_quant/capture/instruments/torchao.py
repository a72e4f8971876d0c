"""torchao: ``quantize_`` in place, and the quantization of exported programs (PT2E)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from otel_quant.capture.instruments.shared.hooks import HOOKS, STEP, Hook, Library, Wrapper
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.schema import semconv
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.torchao:"
_STEP_OR_LAYER: Final = Wrapper(
    _CALLS + "step_or_layer", "step **{step}**; within one of `transformers` a layer of it"
)

_PT2E: Final = "torchao.quantization.pt2e.quantize_pt2e"

_CONFIG: Final = (
    ("config.__class__.__name__", semconv.CONFIG_NAME),
    ("config.weight_dtype", semconv.WEIGHT_TYPE),
    ("config.activation_dtype", semconv.ACTIVATION_TYPE),
    ("config.group_size", semconv.BLOCK_SIZE),
)
_QUANTIZER: Final = (("quantizer.__class__.__name__", semconv.CONFIG_NAME),)

LIBRARY: Final = Library(
    name="torchao",
    distribution="torchao",
    versions_seen="0.18",
    is_common=True,  # transformers imports it where it is installed
    built_on=frozenset({"torch"}),
    hooks=(
        Hook("torchao.quantization.quant_api", "quantize_", _STEP_OR_LAYER, ProfileStep.MODEL_QUANTIZATION, sources=_CONFIG),
        Hook(_PT2E, "prepare_pt2e", STEP, ProfileStep.MODEL_PREPARATION, sources=_QUANTIZER),
        Hook(_PT2E, "prepare_qat_pt2e", STEP, ProfileStep.MODEL_PREPARATION, sources=_QUANTIZER),
        Hook(_PT2E, "convert_pt2e", STEP, ProfileStep.MODEL_QUANTIZATION),
    ),
)  # fmt: skip


def step_or_layer(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, or counts it as a layer of a step of a library built on this."""
    from otel_quant.capture.instruments.shared.samples import count_layer
    from otel_quant.capture.instruments.shared.steps import distributions_built_on, step

    as_one_step = step(function, hook, library)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if HOOKS.active:
            count_layer(distributions_built_on(library))
        return as_one_step(*args, **kwargs)

    return wrapper
