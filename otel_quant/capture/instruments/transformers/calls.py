"""Wraps the loading of models, which is a step only where it quantizes.

Every program that uses transformers loads models: nothing is imported here before one is
to be quantized.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_quant.capture.instruments.shared.library import Hook, Library
from otel_quant.capture.uncounted_frames import wraps


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
            from otel_quant.capture.instruments.transformers.quantizing import quantizing

            as_step = quantizing(function, hook, library)
        return as_step(cls, *args, **kwargs)

    return wrapper
