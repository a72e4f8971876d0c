"""Intel's AutoRound and Neural Compressor: which step a call is, and what describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_quant.capture.instruments.shared.calls import wraps
from otel_quant.capture.instruments.shared.hooks import AttributeSources, Function, Hook, Library
from otel_quant.capture.instruments.shared.samples import Counted
from otel_quant.capture.instruments.shared.steps import attributes_of, step
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue, ProfileStep


def preparation(call: Mapping[str, Any]) -> str | None:
    """Step **Model Preparation**, the first time for each compressor."""
    is_done = getattr(call["self"], "_post_init_done", False)
    return None if is_done else ProfileStep.MODEL_PREPARATION


def kind_of_export(call: Mapping[str, Any]) -> str:
    """Step **Export HF Safetensors** or **Export GGUF**."""
    formats = getattr(call["self"], "formats", None) or call.get("format") or ()
    names = [formats] if isinstance(formats, str) else [each.output_format for each in formats]
    is_gguf = any("gguf" in str(name) for name in names)
    return ProfileStep.EXPORT_GGUF if is_gguf else ProfileStep.EXPORT_HF_SAFETENSORS


def calibrating(function: Function, hook: Hook, library: Library) -> Function:
    """Step **{step}**; counts what its data set yields, if that is not a name."""
    as_one_step = step(function, hook, library)

    @wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = getattr(self, "dataset", None)
        if given is None or isinstance(given, str):
            return as_one_step(self, *args, **kwargs)
        self.dataset = Counted(given)
        try:
            return as_one_step(self, *args, **kwargs)
        finally:
            self.dataset = given

    return wrapper


def reading(function: Function, hook: Hook, library: Library) -> Function:
    """Step **{step}**; what the loader it returns yields is counted."""
    as_one_step = step(function, hook, library)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return Counted(as_one_step(*args, **kwargs))

    return wrapper


def of_compressor(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a compressor."""
    compressor = call["self"]
    sources = (("of.scheme", semconv.CONFIG_NAME), ("of.bits", semconv.BITS))
    found = attributes_of({"of": compressor}, sources)
    found[semconv.WEIGHT_TYPE] = f"{compressor.data_type}{compressor.bits}"
    if compressor.act_bits < 16:
        found[semconv.ACTIVATION_TYPE] = f"{compressor.act_data_type}{compressor.act_bits}"
    group = compressor.group_size
    if isinstance(group, int) and group > 0:
        found[semconv.BLOCK_SIZE] = group
    elif group in (-1, 0):  # else a shape
        found[semconv.PER_CHANNEL] = group == -1
    found[semconv.ALGORITHMS] = (type(compressor.quantize_config).__name__.removesuffix("Config"),)
    return found


_CONFIG: Final[AttributeSources] = (
    ("config.__class__.__name__", semconv.CONFIG_NAME),
    ("config.w_dtype", semconv.WEIGHT_TYPE),
    ("config.dtype", semconv.WEIGHT_TYPE),
    ("config.act_dtype", semconv.ACTIVATION_TYPE),
    ("config.act_algo", semconv.CALIBRATION_METHOD),
    ("config.bits", semconv.BITS),
)


def of_configuration(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a configuration."""
    # A prepared model keeps its configuration, and no other counts.
    model = call.get("model")
    kept = getattr(model, "quant_config", None) if getattr(model, "is_prepared", None) else None
    config = kept or call.get("quant_config")
    found = attributes_of({"config": config}, _CONFIG)
    group = getattr(config, "group_size", getattr(config, "blocksize", None))
    granularity = getattr(config, "w_granularity", "per_channel" if group == -1 else None)
    if isinstance(group, int) and group > 0:
        found[semconv.BLOCK_SIZE] = group
    if granularity is not None:
        found[semconv.PER_CHANNEL] = granularity == "per_channel"
    if getattr(config, "name", None) == "pt2e_dynamic_quant":
        found.pop(semconv.CALIBRATION_METHOD, None)  # it has the parameter and calibrates nothing
    return found
