"""Wraps the loading of models, which is a step only where it quantizes.

Every program that uses transformers loads models: nothing is imported here before one is
to be quantized.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.telemetry import semconv

_ASKED: Final = "quantization_config"

_READS: Final = (
    ("config.__class__.__name__", semconv.CONFIG_NAME),
    ("config.bits", semconv.BITS),
    ("config.group_size", semconv.BLOCK_SIZE),
    ("path", semconv.INPUT_PATH),
)


def from_pretrained(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes a call a step if it is handed a configuration to quantize with."""
    as_step: Callable[..., Any] | None = None

    @functools.wraps(function)
    def wrapper(cls: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal as_step
        if kwargs.get(_ASKED) is None:
            return function(cls, *args, **kwargs)
        if as_step is None:
            as_step = _as_step(function, hook, library)
        return as_step(cls, *args, **kwargs)

    return wrapper


def _as_step(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    from otel_quant.fault_boundary import FAULTS
    from otel_quant.instruments.arguments import attributes_of
    from otel_quant.instruments.calls import step
    from otel_quant.instruments.operations import operating
    from otel_quant.records import AttributeValue
    from otel_quant.runtime import RUNTIME

    as_one_step = step(function, hook, library)

    def wrapper(cls: Any, *args: Any, **kwargs: Any) -> Any:
        known: dict[str, AttributeValue] = {}
        with FAULTS.kept_in(f"arguments of {hook.target}"):
            places = {"config": kwargs[_ASKED], "path": args[0] if args else None}
            known = attributes_of(places, RUNTIME.settings.paths, _READS)
        with operating(library.distribution, known):
            return as_one_step(cls, *args, **kwargs)

    return wrapper
