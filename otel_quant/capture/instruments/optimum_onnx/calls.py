"""Wraps optimum-onnx's quantizer: it has the float model, ``quantize`` returns the other.

What its calibration ``fit`` sees of the model's inputs is kept until ``quantize``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.arguments import Arguments
from otel_quant.capture.instruments.shared.entry_points import as_operation, by_arguments
from otel_quant.capture.instruments.shared.library import Hook, Library
from otel_quant.capture.instruments.shared.onnx_models import Models, models_of
from otel_quant.capture.instruments.shared.operations import innermost
from otel_quant.capture.uncounted_frames import wraps

_KEEPING: Final = "shapes of calibration samples"


_SHAPES: Final[WeakKeyDictionary[Any, Mapping[str, tuple[int, ...]]]] = WeakKeyDictionary()
"""Shapes of inputs by the quantizer that was calibrated with them."""


def fit(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call an operation; keeps the shapes that the calibration sees."""

    @wraps(function)
    def calibrate(quantizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(quantizer, *args, **kwargs)
        with FAULTS.kept_in(_KEEPING):
            if (operation := innermost()) is not None:
                _SHAPES[quantizer] = operation.input_shapes
        return result

    return as_operation(calibrate, library, by_arguments(function, hook, library))


def quantize(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call an operation; it returns the folder in which the new model is."""
    arguments = Arguments(function)

    def models(folder: Any, quantizer: Any, /, *args: Any, **kwargs: Any) -> Models:
        suffix = arguments.bound((quantizer, *args), kwargs).get("file_suffix")
        before = Path(quantizer.onnx_model_path)
        name = f"{before.stem}_{suffix}" if suffix else before.stem
        after = Path(folder) / f"{name}.onnx"
        return models_of({"input_model": before, "output_model": after}, None)

    @wraps(function)
    def with_shapes(quantizer: Any, *args: Any, **kwargs: Any) -> Any:
        with FAULTS.kept_in(_KEEPING):
            if (operation := innermost()) is not None:
                operation.input_shapes = _SHAPES.get(quantizer, {})
        return function(quantizer, *args, **kwargs)

    return as_operation(with_shapes, library, by_arguments(function, hook, library), models)
