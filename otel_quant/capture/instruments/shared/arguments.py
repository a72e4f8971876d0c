"""The arguments of calls: found by the names of parameters, and replaced.

Loaded in every instrumented program that starts processes: it imports nothing further.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

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
