"""AMD Quark: what its configurations describe.

What they have is looked up by name: none of Quark is imported here, and a version that spells something
differently has fewer attributes.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_quant.capture.instruments.shared.samples import note_shapes
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue

_PRESETS: Final = "quark.onnx.quantization.config.custom_config"
_PRESET_SUFFIX: Final = "_QCONFIG"

# Switches of quantize_static, and of its extra options, by the name that Quark's own
# configuration classes give the algorithm.
_SWITCHES: Final = {
    "include_cle": "cle",
    "include_sq": "smooth_quant",
    "include_rotation": "quarot",
    "include_auto_mp": "auto_mixprecision",
}
_OPTIONS: Final = {"UseGPTQ": "gptq", "BiasCorrection": "bias_correction"}


_NAMES: Final[dict[int, str]] = {}
"""Names of configurations that are alive, by identity: most are not hashable."""


def note_name(call: Mapping[str, Any], configuration: object) -> None:
    """Names the configuration that it makes."""
    name = call.get("config_name", call.get("scheme"))
    if isinstance(name, str):
        _NAMES[id(configuration)] = name
        weakref.finalize(configuration, _NAMES.pop, id(configuration), None).atexit = False


def note_cached_samples(call: Mapping[str, Any], result: object) -> None:
    """The shapes of the first sample are those of the models' inputs.

    For bfloat16 and block formats Quark does not calibrate: nothing reads the samples afterwards.
    """
    if samples := getattr(call["self"], "_data_cache", None):
        note_shapes(samples[0])


def described(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes that the configuration of a call makes."""
    found: dict[str, AttributeValue | None] = {}
    configuration = call.get("quant_config") or getattr(call.get("self"), "config", None)
    if configuration is not None:
        # The older kind of configuration for ONNX wraps what has the name.
        inner = getattr(configuration, "global_quant_config", None)
        found[semconv.CONFIG_NAME] = _name_of(configuration) or _name_of(inner)
        found |= _torch_types(inner)
    algorithms = tuple(_algorithms(call, configuration))
    if algorithms or "include_cle" in call:
        found[semconv.ALGORITHMS] = algorithms
    return {key: value for key, value in found.items() if value is not None}


def _algorithms(arguments: Mapping[str, Any], configuration: object) -> Iterator[str]:
    """Yields the names of the algorithms that are asked for."""
    for algorithm in getattr(configuration, "algo_config", None) or ():
        name = getattr(algorithm, "name", None)
        if isinstance(name, str):
            yield name
    for switch, name in _SWITCHES.items():
        if arguments.get(switch) is True:
            yield name
    options = arguments.get("extra_options")
    options = options if isinstance(options, Mapping) else {}
    for option, name in _OPTIONS.items():
        if options.get(option) is True:
            yield name
    if arguments.get("include_fast_ft") is True:
        finetune = options.get("FastFinetune")
        yield str(dict(finetune or {}).get("OptimAlgorithm", "adaround")).lower()


def _torch_types(layers: object) -> dict[str, AttributeValue | None]:
    """Returns what the specifications of weights and inputs make, where there is one of each."""
    weight, inputs = (getattr(layers, name, None) for name in ("weight", "input_tensors"))
    found: dict[str, AttributeValue | None] = {
        semconv.WEIGHT_TYPE: _type_of(weight),
        semconv.ACTIVATION_TYPE: _type_of(inputs),
    }
    group = getattr(weight, "group_size", None)
    if isinstance(group, int) and group > 0:
        found[semconv.BLOCK_SIZE] = group
    observer = getattr(inputs, "observer_cls", None)
    if observer is not None and getattr(inputs, "is_dynamic", None) is False:
        found[semconv.CALIBRATION_METHOD] = getattr(observer, "__name__", None)
    return found


def _type_of(specification: object) -> str | None:
    name = getattr(getattr(specification, "dtype", None), "name", None)
    return name if isinstance(name, str) else None


def _name_of(configuration: object) -> str | None:
    if (known := _NAMES.get(id(configuration))) is not None:
        return known
    # A preset that is used as Quark declares it, not by its name.
    for name, value in vars(sys.modules.get(_PRESETS, object)).items():
        if value is configuration and name.endswith(_PRESET_SUFFIX):
            return name.removesuffix(_PRESET_SUFFIX)
    return None
