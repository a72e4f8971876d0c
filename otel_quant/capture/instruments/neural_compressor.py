"""Intel's Neural Compressor 3: prepare, calibrate, convert; or all of it in one call.

Between ``prepare`` and ``convert`` the program itself runs the model; ``quantize`` is passed the function that
does. Its decorators hide names and parameters of functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_quant.capture.instruments.shared.arguments import Arguments
from otel_quant.capture.instruments.shared.hooks import (
    ENTRY_POINT,
    LAYER,
    STEP,
    AttributeSources,
    Hook,
    Library,
    Wrapper,
)
from otel_quant.capture.instruments.shared.steps import (
    Describe,
    as_library_step,
    as_operation,
    attributes_of,
    with_argument_as_step,
)
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.uncounted_frames import uncounted, wraps
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.neural_compressor:"
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


_CONFIG: Final[AttributeSources] = (
    ("config.__class__.__name__", semconv.CONFIG_NAME),
    ("config.w_dtype", semconv.WEIGHT_TYPE),
    ("config.dtype", semconv.WEIGHT_TYPE),
    ("config.act_dtype", semconv.ACTIVATION_TYPE),
    ("config.act_algo", semconv.CALIBRATION_METHOD),
    ("config.bits", semconv.BITS),
)


def configured(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, which its configuration describes."""
    return _described_step(function, hook, library, _of_configuration)


def calibrating(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, and one of the function that it is passed to calibrate with."""
    return with_argument_as_step(
        configured(function, hook, library),
        hook.parameter,
        ProfileStep.CALIBRATION,
        library,
        Arguments(_quantize),
    )


def saving(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step that has the path of the folder."""
    return _described_step(function, hook, library, _of_folder)


def _described_step(
    function: Callable[..., Any], hook: Hook, library: Library, describe: Describe
) -> Callable[..., Any]:
    """Makes each call a step under the name that its function is imported by."""

    @uncounted
    def declared(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    declared.__module__, declared.__qualname__ = hook.module, hook.target
    as_one_step = as_library_step(declared, hook.step, library)
    return wraps(function)(as_operation(as_one_step, library, describe))


def _quantize(
    model: object = None,
    quant_config: object = None,
    run_fn: object = None,
    *_: object,
    **__: object,
) -> None:
    """Has the first parameters of ``quantize``, in their order."""


def _of_folder(
    model: object = None, checkpoint_dir: object = None, *_: object, **__: object
) -> Mapping[str, AttributeValue]:
    return attributes_of({"output_dir": checkpoint_dir}, RUNTIME.settings.paths)


def _of_configuration(
    model: object = None, quant_config: object = None, *_: object, **__: object
) -> Mapping[str, AttributeValue]:
    # A prepared model keeps its configuration, and no other counts.
    kept = getattr(model, "quant_config", None) if getattr(model, "is_prepared", None) else None
    config = kept or quant_config
    found = attributes_of({"config": config}, False, _CONFIG)
    group = getattr(config, "group_size", getattr(config, "blocksize", None))
    granularity = getattr(config, "w_granularity", "per_channel" if group == -1 else None)
    if isinstance(group, int) and group > 0:
        found[semconv.BLOCK_SIZE] = group
    if granularity is not None:
        found[semconv.PER_CHANNEL] = granularity == "per_channel"
    if getattr(config, "name", None) == "pt2e_dynamic_quant":
        found.pop(semconv.CALIBRATION_METHOD, None)  # it has the parameter and calibrates nothing
    return found
