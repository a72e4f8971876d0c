"""Wraps the loading of a model that is quantized meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_quant.capture.instruments.shared.attributes import attributes_of
from otel_quant.capture.instruments.shared.entry_points import as_operation
from otel_quant.capture.instruments.shared.library import AttributeSources, Hook, Library
from otel_quant.capture.instruments.shared.library_steps import step
from otel_quant.capture.runtime import RUNTIME
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue

_SOURCES: Final[AttributeSources] = (
    ("config.__class__.__name__", semconv.CONFIG_NAME),
    ("config.bits", semconv.BITS),
    ("config.group_size", semconv.BLOCK_SIZE),
    ("path", semconv.INPUT_PATH),
)


def quantizing(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, described by its configuration."""
    return as_operation(step(function, hook, library), library, _describe)


def _describe(
    cls: object,
    pretrained_model_name_or_path: object = None,
    *_: object,
    quantization_config: object = None,
    **__: object,
) -> Mapping[str, AttributeValue]:
    arguments = {"config": quantization_config, "path": pretrained_model_name_or_path}
    return attributes_of(arguments, RUNTIME.settings.paths, _SOURCES)
