"""Hugging Face's optimum-quanto: quantize in place, calibrate in a ``with`` block, freeze."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.hooks import HOOKS, STEP, Hook, Library, Wrapper
from otel_quant.capture.instruments.shared.steps import is_reported_already, open_library_step
from otel_quant.capture.scope import OPENING_A_STEP, Activation, qualified_name
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.schema import semconv
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.optimum_quanto:"
_BEGIN: Final = Wrapper(_CALLS + "begin_calibration", "begins the step **{step}**")
_END: Final = Wrapper(_CALLS + "end_calibration", "ends it")

_CALIBRATE: Final = "optimum.quanto.calibrate"

_TYPES: Final = (
    ("weights.name", semconv.WEIGHT_TYPE),
    ("weights", semconv.WEIGHT_TYPE),
    ("activations.name", semconv.ACTIVATION_TYPE),
    ("activations", semconv.ACTIVATION_TYPE),
)

LIBRARY: Final = Library(
    name="optimum-quanto",
    distribution="optimum-quanto",
    versions_seen="0.2.7",
    built_on=frozenset({"torch"}),
    hooks=(
        Hook("optimum.quanto.quantize", "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, sources=_TYPES),
        Hook("optimum.quanto.quantize", "freeze", STEP, ProfileStep.FREEZE_MODEL),
        Hook(_CALIBRATE, "Calibration.__enter__", _BEGIN, ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "Calibration.__exit__", _END, ProfileStep.CALIBRATION),
    ),
)  # fmt: skip


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
