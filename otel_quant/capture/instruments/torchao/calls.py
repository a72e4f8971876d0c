"""Wraps ``quantize_``, which transformers calls once for each linear layer that it loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_quant.capture.instruments.shared.hooks import HOOKS
from otel_quant.capture.instruments.shared.layers import count_layer
from otel_quant.capture.instruments.shared.library import Hook, Library
from otel_quant.capture.instruments.shared.library_steps import step
from otel_quant.capture.instruments.shared.nesting import distributions_built_on
from otel_quant.capture.uncounted_frames import wraps


def step_or_layer(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, or counts it as a layer of a step of a library built on this."""
    as_one_step = step(function, hook, library)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if HOOKS.active:
            count_layer(distributions_built_on(library))
        return as_one_step(*args, **kwargs)

    return wrapper
