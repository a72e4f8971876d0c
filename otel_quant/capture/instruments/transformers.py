"""Hugging Face transformers: models that are quantized while they are loaded.

Every program that uses transformers loads models: what makes steps is imported once one is to be quantized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_quant.capture.instruments.shared.hooks import AttributeSources, Hook, Library, Wrapper
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.transformers:"
_FROM_PRETRAINED: Final = Wrapper(
    _CALLS + "from_pretrained", "step **{step}**, if called with `quantization_config`"
)

LIBRARY: Final = Library(
    name="transformers",
    distribution="transformers",
    versions_seen="5.23",
    built_on=frozenset({"torch", "torchao", "hqq", "optimum-quanto"}),
    hooks=(
        Hook(
            "transformers.modeling_utils",
            "PreTrainedModel.from_pretrained",
            _FROM_PRETRAINED,
            ProfileStep.MODEL_QUANTIZATION,
        ),
    ),
)


def from_pretrained(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes a call a step if it is passed a configuration to quantize with."""
    as_step: Callable[..., Any] | None = None

    @wraps(function)
    def wrapper(cls: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal as_step
        if kwargs.get("quantization_config") is None:
            return function(cls, *args, **kwargs)
        if as_step is None:
            as_step = _quantizing(function, hook, library)
        return as_step(cls, *args, **kwargs)

    return wrapper


_SOURCES: Final[AttributeSources] = (
    ("config.__class__.__name__", semconv.CONFIG_NAME),
    ("config.bits", semconv.BITS),
    ("config.group_size", semconv.BLOCK_SIZE),
    ("path", semconv.INPUT_PATH),
)


def _quantizing(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, described by its configuration."""
    from otel_quant.capture.instruments.shared.steps import as_operation, step

    return as_operation(step(function, hook, library), library, _describe)


def _describe(
    cls: object,
    pretrained_model_name_or_path: object = None,
    *_: object,
    quantization_config: object = None,
    **__: object,
) -> Mapping[str, AttributeValue]:
    from otel_quant.capture.instruments.shared.steps import attributes_of
    from otel_quant.capture.runtime import RUNTIME

    arguments = {"config": quantization_config, "path": pretrained_model_name_or_path}
    return attributes_of(arguments, RUNTIME.settings.paths, _SOURCES)
