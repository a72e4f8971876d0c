"""Wraps optimum-quanto's ``with Calibration():``, whose block is the calibration."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.hooks import HOOKS
from otel_quant.capture.instruments.shared.library import Hook, Library
from otel_quant.capture.instruments.shared.library_steps import open_library_step
from otel_quant.capture.instruments.shared.nesting import is_reported_already
from otel_quant.capture.scope import OPENING_A_STEP, Activation, qualified_name
from otel_quant.capture.uncounted_frames import wraps

# The blocks that the calling context is in, innermost last.
_BLOCKS: Final[ContextVar[tuple[tuple[Any, Activation], ...]]] = ContextVar(
    "otel_quant_quanto_blocks", default=()
)


def begin_calibration(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Opens the step."""
    name = qualified_name(function)

    @wraps(function)
    def wrapper(self: Any) -> Any:
        activation = Activation(None)
        with FAULTS.kept_in(OPENING_A_STEP):
            if HOOKS.active and not is_reported_already(hook.step, library):
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


def end_calibration(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Closes the step."""

    @wraps(function)
    def wrapper(self: Any, kind: Any, error: Any, traceback: Any) -> Any:
        blocks = _BLOCKS.get()
        if not blocks or blocks[-1][0] is not self:
            return function(self, kind, error, traceback)
        _BLOCKS.set(blocks[:-1])
        _, activation = blocks[-1]
        try:
            return function(self, kind, error, traceback)
        finally:
            activation.suspend()
            activation.finish(error)

    return wrapper
