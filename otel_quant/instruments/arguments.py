"""Which arguments of a hooked function are worth knowing, and what they are called.

A table from the names of parameters, as the libraries spell them, to attributes.
"""

from __future__ import annotations

import enum
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_quant.instruments.library import Reads
from otel_quant.records import AttributeValue
from otel_quant.telemetry import semconv

ATTRIBUTE_OF: Final[dict[str, str]] = {
    "calibrate_method": semconv.CALIBRATION_METHOD,
    "calibration_method": semconv.CALIBRATION_METHOD,
    "quant_format": semconv.FORMAT,
    "weight_type": semconv.WEIGHT_TYPE,
    "activation_type": semconv.ACTIVATION_TYPE,
    "per_channel": semconv.PER_CHANNEL,
    "model_input": semconv.INPUT_PATH,
    "input_model": semconv.INPUT_PATH,
    "input_model_path": semconv.INPUT_PATH,
    "pretrained_model_path": semconv.INPUT_PATH,
    "model_output": semconv.OUTPUT_PATH,
    "output_model_path": semconv.OUTPUT_PATH,
    "output_dir": semconv.OUTPUT_PATH,
    "save_path": semconv.OUTPUT_PATH,
    "bits": semconv.BITS,
    "block_size": semconv.BLOCK_SIZE,
}

# The same for what Quark takes in a dictionary named extra_options.
_ATTRIBUTE_OF_OPTION: Final[dict[tuple[str, str], str]] = {
    ("MatMulNBitsParams", "Bits"): semconv.BITS,
    ("MatMulNBitsParams", "GroupSize"): semconv.BLOCK_SIZE,
}

_PATHS: Final = frozenset({semconv.INPUT_PATH, semconv.OUTPUT_PATH})


class Arguments:
    """Reads the arguments of calls of one function.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None  # written in C, without a signature

    def position(self, parameter: str) -> int | None:
        """Returns where a parameter stands among the positional ones; None without it."""
        names = list(self._signature.parameters) if self._signature else []
        return names.index(parameter) if parameter in names else None

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a call by name, defaults included.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.

        Returns:
            The arguments; empty if they do not fit the function, which will say so itself.
        """
        if self._signature is None:
            return {}
        try:
            call = self._signature.bind(*args, **kwargs)
        except TypeError:
            return {}
        call.apply_defaults()
        return dict(call.arguments)


def attributes_of(
    arguments: Mapping[str, Any], paths: bool, reads: Reads = ()
) -> dict[str, AttributeValue]:
    """Returns the attributes that arguments make.

    Args:
        arguments: Arguments by parameter's name.
        paths: Whether file paths may be among them.
        reads: Further places to look at, see :attr:`Hook.reads`; they go first.

    Returns:
        Attributes; none for an argument that is None or of a kind that says nothing (a
        model in memory, a tensor).
    """
    found: dict[str, AttributeValue] = {}
    for parameter, attribute in ATTRIBUTE_OF.items():
        _add(found, attribute, arguments.get(parameter), paths)
    options = arguments.get("extra_options")
    if isinstance(options, Mapping):
        for (group, option), attribute in _ATTRIBUTE_OF_OPTION.items():
            inner = options.get(group)
            if isinstance(inner, Mapping):
                _add(found, attribute, inner.get(option), paths)
    for place, attribute in reversed(reads):
        _add(found, attribute, _at(arguments, place), paths)
    return found


def _at(arguments: Mapping[str, Any], place: str) -> Any:
    parameter, *path = place.split(".")
    value = arguments.get(parameter)
    for name in path:
        if isinstance(value, Mapping):
            value = value.get(name)
        elif value is not None:
            value = getattr(value, name, None)
    return value


def _add(found: dict[str, AttributeValue], attribute: str, value: Any, paths: bool) -> None:
    if attribute in _PATHS:
        if paths and isinstance(value, str | os.PathLike):
            found[attribute] = os.fspath(value)
    elif isinstance(value, enum.Enum):
        found[attribute] = value.name
    elif isinstance(value, bool | int | float | str):
        found[attribute] = value
    elif type(value).__name__ == "dtype":  # of torch or numpy
        found[attribute] = str(value).removeprefix("torch.")
