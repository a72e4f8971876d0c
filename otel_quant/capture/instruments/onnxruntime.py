"""ONNX Runtime's calibrators, which collect and compute in two calls, and its quantizers; optimum-onnx on top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.hooks import Function, Hook, Library, Models, models_of, wraps
from otel_quant.capture.instruments.samples import counted
from otel_quant.capture.instruments.steps import (
    innermost,
    is_reported_already,
    open_library_step,
)
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.scope import OPENING_A_STEP, Activation, qualified_name
from otel_quant.schema import semconv
from otel_quant.schema.records import ProfileStep

# Whether ``collect_data`` is running: MinMax's own calls ``compute_data`` itself.
_COLLECTING: Final[ContextVar[bool]] = ContextVar("otel_quant_collecting", default=False)


def collect(function: Function, hook: Hook, library: Library) -> Function:
    """Step **{step}**; counts what `get_next` of its reader returns. Within an operation it lasts until ``compute_data``."""
    name = qualified_name(function)

    @wraps(function)
    def wrapper(self: Any, data_reader: Any, *args: Any, **kwargs: Any) -> Any:
        with _calibrating(self, name, library, is_last=False) as begun:
            reader = data_reader if begun is None else counted(data_reader)
            token = _COLLECTING.set(True)
            try:
                return function(self, reader, *args, **kwargs)
            finally:
                _COLLECTING.reset(token)

    return wrapper


def compute(function: Function, hook: Hook, library: Library) -> Function:
    """The end of that step, or a step **{step}** of its own."""
    name = qualified_name(function)

    @wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _COLLECTING.get():
            return function(self, *args, **kwargs)
        with _calibrating(self, name, library, is_last=True):
            return function(self, *args, **kwargs)

    return wrapper


def static_or_dynamic(call: Mapping[str, Any]) -> str:
    """Step **Quantization (Static)** or **Quantization (Dynamic)**."""
    is_static = getattr(call["self"], "static", True)
    return ProfileStep.QUANTIZATION_STATIC if is_static else ProfileStep.QUANTIZATION_DYNAMIC


def models_of_quantizer(call: Mapping[str, Any], result: object) -> Models:
    """Returns a quantizer's result, and the float model where it knows its file: one in memory was changed in place."""
    quantizer = call["self"]
    return models_of({"input_model": quantizer.model_path}, quantizer.model.model)


@contextmanager
def _calibrating(
    calibrator: Any, function: str, library: Library, *, is_last: bool
) -> Iterator[OpenStep | None]:
    """Runs a call of a calibrator within its Calibration step, yielding the step."""
    operation = innermost()
    activation = Activation(None)
    with FAULTS.kept_in(OPENING_A_STEP):
        if operation is not None and operation.shared_step is not None:
            activation = operation.shared_step
        elif not is_reported_already(ProfileStep.CALIBRATION, library):
            activation = Activation(_open(calibrator, function, library))
            if operation is not None:
                operation.begin_shared_step(activation)
    if operation is None or operation.shared_step is not activation:
        with activation:
            yield activation.step
        return
    try:
        yield activation.step
    except BaseException as error:
        operation.end_shared_step(error)
        raise
    if is_last:
        operation.end_shared_step()


def _open(calibrator: Any, function: str, library: Library) -> OpenStep | None:
    method = type(calibrator).__name__.removesuffix("Calibrater")
    return open_library_step(
        ProfileStep.CALIBRATION,
        library,
        function=function,
        attributes={semconv.CALIBRATION_METHOD: method},
    )


# --- optimum-onnx: calibration and quantization are two calls -----------------------------

_SHAPES: Final[WeakKeyDictionary[Any, Mapping[str, tuple[int, ...]]]] = WeakKeyDictionary()
"""Shapes of inputs by the quantizer of optimum-onnx that was calibrated with them."""


def keep_shapes(call: Mapping[str, Any], result: object) -> None:
    """Keeps the shapes of the models' inputs that the calibration has seen."""
    if (operation := innermost()) is not None:
        _SHAPES[call["self"]] = operation.input_shapes


def models_of_optimum(call: Mapping[str, Any], folder: Any) -> Models:
    """Returns the models of a quantizer, with the shapes of its calibration for their cost."""
    quantizer = call["self"]
    if (operation := innermost()) is not None:
        operation.input_shapes = _SHAPES.get(quantizer, {})
    before, suffix = Path(quantizer.onnx_model_path), call.get("file_suffix")
    name = f"{before.stem}_{suffix}" if suffix else before.stem
    after = Path(folder) / f"{name}.onnx"
    return models_of({"input_model": before, "output_model": after}, None)
