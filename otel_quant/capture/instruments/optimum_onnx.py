"""Hugging Face's optimum-onnx, which calls onnxruntime's calibrators and quantizers itself.

The steps are onnxruntime's; the arguments that describe them are optimum-onnx's. Its quantizer has the float
model, ``quantize`` returns the other; what its calibration ``fit`` sees of the model's inputs is kept until
then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.arguments import Arguments, Models, models_of
from otel_quant.capture.instruments.shared.hooks import ENTRY_POINT, Hook, Library, Wrapper
from otel_quant.capture.instruments.shared.steps import (
    as_operation,
    by_arguments,
    innermost,
)
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.schema import semconv

_CALLS: Final = "otel_quant.capture.instruments.optimum_onnx:"
_FIT: Final = Wrapper(_CALLS + "fit", ENTRY_POINT.effect)
_QUANTIZE: Final = Wrapper(
    _CALLS + "quantize",
    "an entry point: its arguments go with onnxruntime's steps within, and both models are costed",
)

_MODULE: Final = "optimum.onnxruntime.quantization"

LIBRARY: Final = Library(
    name="optimum-onnx",
    distribution="optimum-onnx",
    versions_seen="0.1",
    hooks=(
        Hook(
            _MODULE,
            "ORTQuantizer.fit",
            _FIT,
            sources=(
                ("calibration_config.method", semconv.CALIBRATION_METHOD),
                ("self.onnx_model_path", semconv.INPUT_PATH),
            ),
        ),
        Hook(
            _MODULE,
            "ORTQuantizer.quantize",
            _QUANTIZE,
            sources=(
                ("quantization_config.format", semconv.FORMAT),
                ("quantization_config.weights_dtype", semconv.WEIGHT_TYPE),
                ("quantization_config.activations_dtype", semconv.ACTIVATION_TYPE),
                ("quantization_config.per_channel", semconv.PER_CHANNEL),
                ("self.onnx_model_path", semconv.INPUT_PATH),
            ),
        ),
    ),
)


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
