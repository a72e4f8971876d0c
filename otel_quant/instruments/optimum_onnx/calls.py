"""Wraps optimum-onnx's quantization: its object has the float model, its result the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from otel_quant.instruments.shared.arguments import Arguments
from otel_quant.instruments.shared.entry_points import as_operation, by_arguments
from otel_quant.instruments.shared.library import Hook, Library
from otel_quant.instruments.shared.onnx_models import Models, models_of


def quantize(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call an operation; it returns the folder in which the new model is."""
    arguments = Arguments(function)

    def models(folder: Any, quantizer: Any, /, *args: Any, **kwargs: Any) -> Models:
        suffix = arguments.bound((quantizer, *args), kwargs).get("file_suffix")
        before = Path(quantizer.onnx_model_path)
        name = f"{before.stem}_{suffix}" if suffix else before.stem
        after = Path(folder) / f"{name}.onnx"
        return models_of({"input_model": before, "output_model": after}, None)

    return as_operation(function, library, by_arguments(function, hook, library), models)
