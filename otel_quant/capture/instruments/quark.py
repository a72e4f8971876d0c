"""AMD Quark: ONNX (static, dynamic, MatMulNBits) and PyTorch.

Quark marks most steps itself, for its own profiler, which is hooked (``quark_profiler.py``). The table adds
the steps that Quark's profiler declares and never reports, and the entry points around them. What
configurations have is looked up by name: none of Quark is imported here, and a version that spells something
differently has fewer attributes.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.arguments import Arguments
from otel_quant.capture.instruments.shared.hooks import (
    ENTRY_POINT,
    LAYER,
    MODEL_QUANTIZATION,
    SAMPLE,
    STEP,
    Hook,
    Library,
    Wrapper,
)
from otel_quant.capture.instruments.shared.samples import note_shapes
from otel_quant.capture.instruments.shared.steps import step
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue
from otel_quant.schema.step_names import ProfileStep

_CONFIGURATION: Final = "otel_quant.capture.instruments.quark:"
_PROFILER: Final = "otel_quant.capture.instruments.quark_profiler:"
_NAMED: Final = Wrapper(_CONFIGURATION + "named", "names the configuration that it makes")
_PROFILE_SCOPE: Final = Wrapper(
    _PROFILER + "profile_scope", "each function that it decorates is a step"
)
_SCOPE: Final = Wrapper(_PROFILER + "scope", "a step, as named")
_ENTER: Final = Wrapper(_PROFILER + "enter_scope", "begins that step")
_EXIT: Final = Wrapper(_PROFILER + "exit_scope", "ends that step")
_INITIALIZE: Final = Wrapper(
    _PROFILER + "initialize", "begins the run; its metrics are in our local file too"
)
_CHECKPOINT: Final = Wrapper(_PROFILER + "checkpoint", "a checkpoint")
_CALIBRATION: Final = Wrapper(
    _PROFILER + "calibration",
    "each pass over the data is step **Calibration (Forward)**, each item one calibration sample",
)
_CACHED: Final = Wrapper(
    "otel_quant.capture.instruments.quark:cached_samples",
    "step **{step}**; the shapes of the first sample are those of the models' inputs",
)
_WATCH: Final = Wrapper(_PROFILER + "watch_cache_dir", "a cache directory to watch")

_OWN: Final = "quark.common.profiler.profiler"
_EXPORT: Final = "quark.torch.export.api"
_ONNX: Final = "quark.onnx.quantization"

LIBRARY: Final = Library(
    name="quark",
    distribution="amd-quark",
    versions_seen="0.13",
    built_on=frozenset({"onnxruntime", "torch", "torchao", "transformers"}),
    configuration=_CONFIGURATION + "attributes_of",
    nests=True,
    hooks=(
        # Steps that Quark marks itself.
        Hook(_OWN, "profile_scope", _PROFILE_SCOPE),
        Hook(_OWN, "GlobalProfiler.scope", _SCOPE),
        Hook(_OWN, "GlobalProfiler.__enter__", _ENTER),
        Hook(_OWN, "GlobalProfiler.__exit__", _EXIT),
        Hook(_OWN, "GlobalProfiler.__init__", _INITIALIZE),
        Hook(_OWN, "GlobalProfiler._checkpoint", _CHECKPOINT),
        Hook(_OWN, "GlobalProfiler.start_cache_dir_monitoring", _WATCH),
        # Steps that it declares and does not report.
        Hook("quark.onnx.algorithm.finetuning.fast_finetune", "fast_finetune", STEP, ProfileStep.FAST_FINETUNE, filled_in=True),
        Hook("quark.torch.quantization.api", "ModelQuantizer._calibrate_all_params", STEP, ProfileStep.CALIBRATION_WEIGHTS, filled_in=True),
        Hook(_EXPORT, "export_onnx", STEP, ProfileStep.EXPORT_ONNX, filled_in=True),
        Hook(_EXPORT, "export_safetensors", STEP, ProfileStep.EXPORT_HF_SAFETENSORS, filled_in=True),
        Hook(_EXPORT, "export_gguf", STEP, ProfileStep.EXPORT_GGUF, filled_in=True),
        Hook("quark.onnx.utils.model_utils", "check_onnx_model", STEP, ProfileStep.FLOAT_MODEL_VALIDATION, filled_in=True),
        Hook("quark.onnx.utils.model_utils", "run_onnx_model", STEP, ProfileStep.FLOAT_MODEL_VALIDATION, filled_in=True),
        # Reads all that the program's reader has, for minutes maybe, before the first step that Quark marks.
        Hook("quark.onnx.calibration.data_readers", "CachedDataReader.__init__", _CACHED, ProfileStep.DATASET_LOADING, filled_in=True),
        # Entry points, and the progress of calibration.
        Hook(f"{_ONNX}.api", "ModelQuantizer.quantize_model", ENTRY_POINT),
        Hook(f"{_ONNX}.quantize", "quantize_static", MODEL_QUANTIZATION),
        Hook(f"{_ONNX}.quantize", "quantize_dynamic", MODEL_QUANTIZATION),
        Hook("quark.torch.quantization.api", "ModelQuantizer.quantize_model", ENTRY_POINT),
        Hook("quark.torch.quantization.api", "ModelQuantizer.direct_quantize_checkpoint", ENTRY_POINT),
        Hook("quark.onnx.calibration.data_readers", "CachedDataReader.get_next", SAMPLE),
        Hook("quark.torch.quantization.api", "ModelQuantizer._do_calibration", _CALIBRATION),
        Hook("quark.onnx.algorithm.finetuning.torch_utils", "optimize_module", LAYER),
        # Names of configurations, which the configurations themselves do not have.
        Hook("quark.onnx.quantization.config.custom_config", "get_default_config", _NAMED, parameter="config_name"),
        Hook("quark.torch.quantization.config.template", "LLMTemplate.get_config", _NAMED, parameter="scheme"),
    ),
)  # fmt: skip


def cached_samples(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes each call a step, and keeps the shapes of the first sample.

    For bfloat16 and block formats Quark does not calibrate: nothing reads the samples afterwards.
    """
    read = step(function, hook, library)

    @wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        read(self, *args, **kwargs)
        with FAULTS.kept_in("shapes of calibration samples"):
            samples = getattr(self, "_data_cache", None)
            if samples:
                note_shapes(samples[0])

    return wrapper


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


class _Names:
    """Names of configurations, for as long as these live."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}  # by identity: most are not hashable

    def remember(self, configuration: object, name: str) -> None:
        key = id(configuration)
        self._names[key] = name
        weakref.finalize(configuration, self._names.pop, key, None).atexit = False

    def of(self, configuration: object) -> str | None:
        known = self._names.get(id(configuration))
        return known if known is not None else _preset_of(configuration)


_NAMES: Final = _Names()


def named(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps what makes a configuration from a name, to remember the name."""
    arguments = Arguments(original)

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        configuration = original(*args, **kwargs)
        with FAULTS.kept_in("name of a configuration"):
            name = arguments.bound(args, kwargs).get(hook.parameter)
            if isinstance(name, str):
                _NAMES.remember(configuration, name)
        return configuration

    return wrapper


def attributes_of(arguments: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes that an operation's configuration makes."""
    found: dict[str, AttributeValue | None] = {}
    configuration = arguments.get("quant_config") or getattr(arguments.get("self"), "config", None)
    if configuration is not None:
        # The older kind of configuration for ONNX wraps what has the name.
        inner = getattr(configuration, "global_quant_config", None)
        found[semconv.CONFIG_NAME] = _NAMES.of(configuration) or _NAMES.of(inner)
        found |= _torch_types(inner)
    algorithms = tuple(_algorithms(arguments, configuration))
    if algorithms or "include_cle" in arguments:
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


def _preset_of(configuration: object) -> str | None:
    """Returns the name of a preset that is used as Quark declares it, not by its name."""
    for name, value in vars(sys.modules.get(_PRESETS, object)).items():
        if value is configuration and name.endswith(_PRESET_SUFFIX):
            return name.removesuffix(_PRESET_SUFFIX)
    return None
