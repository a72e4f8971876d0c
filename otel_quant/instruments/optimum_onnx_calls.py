"""Wraps optimum-onnx's quantization, whose two models its object and its result tell."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from otel_quant.fault_boundary import FAULTS
from otel_quant.instruments.arguments import Arguments
from otel_quant.instruments.calls import makes_models, operating_on
from otel_quant.instruments.library import Hook, Library
from otel_quant.instruments.models_of_operations import report_models


def quantize(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Marks each call as an operation; it returns the folder in which the new model is."""
    arguments = Arguments(function)

    @functools.wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        costs = makes_models(library)
        with operating_on(arguments, (self, *args), kwargs, hook, library, costs_models=costs):
            folder = function(self, *args, **kwargs)
            if costs:
                with FAULTS.kept_in("model cost"):
                    suffix = arguments.bound((self, *args), kwargs).get("file_suffix")
                    before = Path(self.onnx_model_path)
                    name = f"{before.stem}_{suffix}" if suffix else before.stem
                    after = Path(folder) / f"{name}.onnx"
                    report_models({"input_model": before, "output_model": after}, None)
            return folder

    return wrapper
