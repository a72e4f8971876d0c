"""Wraps Neural Compressor's functions, whose decorators hide their names and parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_quant.fault_boundary import FAULTS
from otel_quant.instruments.arguments import attributes_of
from otel_quant.instruments.calls import as_library_step
from otel_quant.instruments.library import Hook, Library, Reads
from otel_quant.instruments.operations import operating
from otel_quant.records import AttributeValue
from otel_quant.runtime import RUNTIME
from otel_quant.steps import ProfileStep
from otel_quant.telemetry import semconv

_PARAMETERS: Final = ("model", "quant_config", "run_fn")
"""The first of `quantize`; `prepare` and `convert` share the first two."""

_CONFIG: Final[Reads] = (
    ("config.__class__.__name__", semconv.CONFIG_NAME),
    ("config.w_dtype", semconv.WEIGHT_TYPE),
    ("config.dtype", semconv.WEIGHT_TYPE),
    ("config.act_dtype", semconv.ACTIVATION_TYPE),
    ("config.act_algo", semconv.CALIBRATION_METHOD),
    ("config.bits", semconv.BITS),
)


def configured(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, which its configuration describes."""
    as_one_step = as_library_step(_declared(function, hook), hook.step, library)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        known: dict[str, AttributeValue] = {}
        with FAULTS.kept_in(f"arguments of {hook.target}"):
            known = _of_configuration(dict(zip(_PARAMETERS, args, strict=False)) | kwargs)
        with operating(library.distribution, known):
            return as_one_step(*args, **kwargs)

    return wrapper


def calibrating(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, and one of the function that it is handed to calibrate with."""
    as_configured = configured(function, hook, library)
    position = _PARAMETERS.index(hook.parameter)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with FAULTS.kept_in(f"arguments of {hook.target}"):
            if callable(kwargs.get(hook.parameter)):
                run = _calibration(kwargs[hook.parameter], library)
                kwargs = {**kwargs, hook.parameter: run}
            elif len(args) > position and callable(args[position]):
                run = _calibration(args[position], library)
                args = (*args[:position], run, *args[position + 1 :])
        return as_configured(*args, **kwargs)

    return wrapper


def saving(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step that names the folder."""
    as_one_step = as_library_step(_declared(function, hook), hook.step, library)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        known: dict[str, AttributeValue] = {}
        with FAULTS.kept_in(f"arguments of {hook.target}"):
            folder = kwargs.get("checkpoint_dir", args[1] if len(args) > 1 else None)
            known = attributes_of({"output_dir": folder}, RUNTIME.settings.paths)
        with operating(library.distribution, known):
            return as_one_step(*args, **kwargs)

    return wrapper


def _declared(function: Callable[..., Any], hook: Hook) -> Callable[..., Any]:
    """Returns a function under the name that it is imported by, not its decorator's."""

    def declared(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    declared.__module__, declared.__qualname__ = hook.module, hook.target
    return declared


def _calibration(run: Callable[..., Any], library: Library) -> Callable[..., Any]:
    return as_library_step(run, ProfileStep.CALIBRATION, library)


def _of_configuration(arguments: Mapping[str, Any]) -> dict[str, AttributeValue]:
    model = arguments.get("model")
    # A prepared model keeps its configuration, and no other counts.
    kept = getattr(model, "quant_config", None) if getattr(model, "is_prepared", None) else None
    config = kept or arguments.get("quant_config")
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
