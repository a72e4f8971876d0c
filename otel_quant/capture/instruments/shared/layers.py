"""Wrappers that count layers for the step around them, and make no step of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.library import Hook, Library
from otel_quant.capture.instruments.shared.nesting import distributions_built_on, enclosing_steps
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.schema import semconv


def layer(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Counts each call as one layer of the step around it."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        count_layer({library.distribution, *distributions_built_on(library)})
        return function(*args, **kwargs)

    return wrapper


def count_layer(owners: Collection[str]) -> None:
    """Counts one layer for the innermost open step of some distributions, if there is one."""
    with FAULTS.kept_in("counting layers"):
        if not RUNTIME.is_running:
            return
        for step in enclosing_steps():
            if step.info.library in owners:
                step.recorder.count_in(step, semconv.LAYER_COUNT)
                return
