"""Wrapped calls: wrappers that ``stacklevel`` skips, arguments by name, the ONNX models among them.

A library that warns with ``stacklevel=2`` means its caller: with a frame of ours in between, Python would apply
its filters to a module of ours, and hide the deprecations that it shows to ``__main__`` alone, as those of
`torch.ao.quantization`. :mod:`warnings` and :mod:`logging` leave out the frames of Python's import system, which
they know by two words in the file name of the code. So the code of a wrapper has these words before the name of
its file, in ``<>``: to coverage and its like, such a name is not that of a file to look for.

Loaded in every instrumented program that starts processes: it imports nothing further.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Literal, TypeVar, cast

from otel_quant.base.fault_boundary import FAULTS

F = TypeVar("F", bound=Callable[..., Any])

_UNCOUNTED: Final = "<stacklevel skips it, as it does importlib._bootstrap> "


def uncounted(function: F) -> F:
    """Has ``stacklevel`` skip the frames of a function."""
    changed = cast(FunctionType, function)
    code = changed.__code__
    if not code.co_filename.startswith(_UNCOUNTED):
        changed.__code__ = code.replace(co_filename=_UNCOUNTED + code.co_filename)
    return function


def wraps(function: Callable[..., Any]) -> Callable[[F], F]:
    """Does what :func:`functools.wraps` does, and has ``stacklevel`` skip the wrapper."""

    def decorate(wrapper: F) -> F:
        functools.update_wrapper(uncounted(wrapper), function)
        return wrapper

    return decorate


_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)

Call = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments of one call."""


class Arguments:
    """Reads the arguments of calls of one function.

    `parameters` are the first of one whose decorators hide them.
    """

    def __init__(self, function: Callable[..., Any], parameters: Sequence[str] = ()) -> None:
        self._signature: inspect.Signature | None
        try:
            self._signature = _first(parameters) if parameters else inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None  # written in C, without a signature
        declared = self._signature.parameters if self._signature else {}
        self._defaults = {name: parameter.default for name, parameter in declared.items()}
        self._positional = [each.name for each in declared.values() if each.kind in _POSITIONAL]

    def __contains__(self, parameter: str) -> bool:
        return parameter in self._defaults

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
        if parameter in self._positional[: len(args)]:
            position = self._positional.index(parameter)
            return (*args[:position], change(args[position]), *args[position + 1 :]), kwargs
        passed = kwargs.get(parameter, self._defaults.get(parameter, inspect.Parameter.empty))
        changed = passed if passed is inspect.Parameter.empty else change(passed)
        return args, (kwargs if changed is passed else {**kwargs, parameter: changed})

    def replacing(
        self, function: Callable[..., Any], parameter: str, change: Callable[[Any], Any]
    ) -> Callable[..., Any]:
        """Returns the function, called with one argument changed."""
        if parameter not in self:
            return function
        origin = f"argument {parameter} of {getattr(function, '__qualname__', function)}"

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            call: Call = (args, kwargs)
            with FAULTS.kept_in(origin):
                call = self.replaced(args, kwargs, parameter, change)
            return function(*call[0], **call[1])

        return wrapper


def _first(parameters: Sequence[str]) -> inspect.Signature:
    kind = inspect.Parameter
    first = [kind(name, kind.POSITIONAL_OR_KEYWORD, default=None) for name in parameters]
    more = (kind("args", kind.VAR_POSITIONAL), kind("kwargs", kind.VAR_KEYWORD))
    return inspect.Signature([*first, *more])


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
