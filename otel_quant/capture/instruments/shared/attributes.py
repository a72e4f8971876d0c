"""Which arguments of a hooked function become attributes, and of which names.

A table from the names of parameters, as the libraries spell them, to attributes.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from typing import Any, Final

from otel_quant.capture.instruments.shared.library import AttributeSources
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue

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


def attributes_of(
    arguments: Mapping[str, Any], with_paths: bool, sources: AttributeSources = ()
) -> dict[str, AttributeValue]:
    """Returns the attributes that arguments make."""
    found: dict[str, AttributeValue] = {}
    for parameter, attribute in ATTRIBUTE_OF.items():
        _add(found, attribute, arguments.get(parameter), with_paths)
    options = arguments.get("extra_options")
    if isinstance(options, Mapping):
        for (group, option), attribute in _ATTRIBUTE_OF_OPTION.items():
            inner = options.get(group)
            if isinstance(inner, Mapping):
                _add(found, attribute, inner.get(option), with_paths)
    for path, attribute in reversed(sources):
        _add(found, attribute, _value_at(arguments, path), with_paths)
    return found


def _value_at(arguments: Mapping[str, Any], path: str) -> Any:
    parameter, *names = path.split(".")
    value = arguments.get(parameter)
    for name in names:
        if isinstance(value, Mapping):
            value = value.get(name)
        elif value is not None:
            value = getattr(value, name, None)
    return value


def _add(found: dict[str, AttributeValue], attribute: str, value: Any, with_paths: bool) -> None:
    if attribute in _PATHS:
        if with_paths and isinstance(value, str | os.PathLike):
            found[attribute] = os.fspath(value)
    elif isinstance(value, enum.Enum):
        found[attribute] = value.name
    elif isinstance(value, bool | int | float | str):
        found[attribute] = value
    elif type(value).__name__ == "dtype":  # of torch or numpy
        found[attribute] = str(value).removeprefix("torch.")
