"""The arguments of calls: found by the names of parameters, replaced, and the ONNX models among them.

Loaded in every instrumented program that starts processes: it imports nothing further.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.uncounted_frames import wraps

_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)

Call = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments of one call."""


class Arguments:
    """Reads the arguments of calls of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None  # written in C, without a signature
        self._parameters = dict(self._signature.parameters) if self._signature else {}

    def __contains__(self, parameter: str) -> bool:
        return parameter in self._parameters

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a call by name, defaults included."""
        if self._signature is None:
            return {}
        try:
            call = self._signature.bind(*args, **kwargs)
        except TypeError:
            return {}
        call.apply_defaults()
        return dict(call.arguments)

    def replaced(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        parameter: str,
        change: Callable[[Any], Any],
    ) -> Call:
        """Returns the arguments of a call with one of them changed."""
        position = self._position(parameter)
        if position is not None and position < len(args):
            return (*args[:position], change(args[position]), *args[position + 1 :]), kwargs
        declared = self._parameters.get(parameter)
        default = declared.default if declared is not None else inspect.Parameter.empty
        passed = kwargs.get(parameter, default)
        changed = passed if passed is inspect.Parameter.empty else change(passed)
        return args, (kwargs if changed is passed else {**kwargs, parameter: changed})

    def _position(self, parameter: str) -> int | None:
        for position, declared in enumerate(self._parameters.values()):
            if declared.kind not in _POSITIONAL:
                return None
            if declared.name == parameter:
                return position
        return None


def with_argument(
    function: Callable[..., Any],
    parameter: str,
    change: Callable[[Any], Any],
    arguments: Arguments | None = None,
) -> Callable[..., Any]:
    """Has a function called with one argument changed."""
    reader = arguments or Arguments(function)
    if parameter not in reader:
        return function
    origin = f"argument {parameter} of {getattr(function, '__qualname__', function)}"

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call: Call = (args, kwargs)
        with FAULTS.kept_in(origin):
            call = reader.replaced(args, kwargs, parameter, change)
        return function(*call[0], **call[1])

    return wrapper


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
