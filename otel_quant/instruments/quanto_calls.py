"""Wraps optimum-quanto's ``with Calibration():``, whose block is the calibration."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from otel_quant.fault_boundary import FAULTS
from otel_quant.instruments.calls import is_covered, open_library_step
from otel_quant.instruments.hooks import HOOKS
from otel_quant.instruments.library import Hook, Library
from otel_quant.runtime import RUNTIME
from otel_quant.scope import Activation, qualified_name

# The blocks that the calling context is in, innermost last.
_BLOCKS: Final[ContextVar[tuple[tuple[Any, Activation], ...]]] = ContextVar(
    "otel_quant_quanto_blocks", default=()
)


def enter(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Opens the step."""
    name = qualified_name(function)

    @functools.wraps(function)
    def wrapper(self: Any) -> Any:
        activation = Activation(None)
        with FAULTS.kept_in("opening a step"):
            if HOOKS.active and not is_covered(RUNTIME.current_step(), hook.step, library):
                activation = Activation(open_library_step(hook.step, library, function=name))
        try:
            result = function(self)
        except BaseException as error:
            activation.finish(error)
            raise
        activation.resume()
        _BLOCKS.set((*_BLOCKS.get(), (self, activation)))
        return result

    return wrapper


def leave(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Closes the step."""

    @functools.wraps(function)
    def wrapper(self: Any, kind: Any, error: Any, traceback: Any) -> Any:
        blocks = _BLOCKS.get()
        if not blocks or blocks[-1][0] is not self:
            return function(self, kind, error, traceback)
        _BLOCKS.set(blocks[:-1])
        with_step = blocks[-1][1]
        try:
            return function(self, kind, error, traceback)
        finally:
            with_step.suspend()
            with_step.finish(error)

    return wrapper
