"""Which ONNX models an operation has read and written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from otel_quant.base.fault_boundary import FAULTS

Models = list[tuple[Literal["float", "quantized"], Any]]
"""Role and model (a path or an ``onnx.ModelProto``) of each model of an operation."""

_INPUTS: Final = ("model_input", "input_model", "input_model_path")
_OUTPUTS: Final = ("model_output", "output_model_path", "output_model")


def models_of(arguments: Mapping[str, Any], result: object) -> Models:
    """Returns the models that an operation has read and written."""
    before = next((arguments[name] for name in _INPUTS if arguments.get(name) is not None), None)
    after = next((arguments[name] for name in _OUTPUTS if arguments.get(name) is not None), result)
    found: Models = []
    if _is_model(before) and not _is_same(before, after):
        found.append(("float", before))
    if _is_model(after):
        found.append(("quantized", after))
    return found


def _is_model(model: object) -> bool:
    if isinstance(model, str | os.PathLike):
        return Path(os.fspath(model)).suffix == ".onnx" and Path(os.fspath(model)).is_file()
    return hasattr(model, "graph") and hasattr(model, "SerializeToString")


def _is_same(before: object, after: object) -> bool:
    if isinstance(before, str | os.PathLike) and isinstance(after, str | os.PathLike):
        with FAULTS.kept_in("model cost"):
            return Path(os.fspath(before)).samefile(os.fspath(after))
        return False
    return before is after
