"""Hugging Face's optimum: shapes and models of optimum-onnx, the `with` block of optimum-quanto."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.calls import Models, models_of, wraps
from otel_quant.capture.instruments.shared.hooks import HOOKS, Function, Hook, Library
from otel_quant.capture.instruments.shared.steps import (
    innermost,
    is_reported_already,
    open_library_step,
)
from otel_quant.capture.scope import OPENING_A_STEP, Activation, qualified_name

_SHAPES: Final[WeakKeyDictionary[Any, Mapping[str, tuple[int, ...]]]] = WeakKeyDictionary()
"""Shapes of inputs by the quantizer of optimum-onnx that was calibrated with them."""


def keep_shapes(call: Mapping[str, Any], result: object) -> None:
    """Keeps the shapes of the models' inputs that the calibration has seen."""
    if (operation := innermost()) is not None:
        _SHAPES[call["self"]] = operation.input_shapes


def models_of_quantizer(call: Mapping[str, Any], folder: Any) -> Models:
    """Returns the models of a quantizer, with the shapes of its calibration for their cost."""
    quantizer = call["self"]
    if (operation := innermost()) is not None:
        operation.input_shapes = _SHAPES.get(quantizer, {})
    before, suffix = Path(quantizer.onnx_model_path), call.get("file_suffix")
    name = f"{before.stem}_{suffix}" if suffix else before.stem
    after = Path(folder) / f"{name}.onnx"
    return models_of({"input_model": before, "output_model": after}, None)


# The blocks that the calling context is in, innermost last.
_BLOCKS: Final[ContextVar[tuple[tuple[Any, Activation], ...]]] = ContextVar(
    "otel_quant_quanto_blocks", default=()
)


def begin_calibration(function: Function, hook: Hook, library: Library) -> Function:
    """Begins the step **{step}**."""
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


def end_calibration(function: Function, hook: Hook, library: Library) -> Function:
    """Ends it."""

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
