"""What libraries for PyTorch have of their own: which step a call is, what describes it, what is a sample."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.configuration import described
from otel_quant.capture.instruments.hooks import (
    HOOKS,
    Arguments,
    AttributeSources,
    Function,
    Hook,
    Library,
    wraps,
)
from otel_quant.capture.instruments.samples import (
    COUNTING_SAMPLES,
    Counted,
    count_layer,
    count_sample,
)
from otel_quant.capture.instruments.steps import (
    Operation,
    as_library_step,
    attributes_of,
    distributions_built_on,
    innermost,
    is_reported_already,
    open_library_step,
    operating,
    step,
)
from otel_quant.capture.scope import OPENING_A_STEP, Activation, qualified_name
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue, ProfileStep

# --- PyTorch's own quantization -----------------------------------------------------------


def of_qconfigs(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of the qconfigs of a call: a mapping, or those that the modules of its model have."""
    given = call.get("qconfig_mapping", call.get("qconfig_spec"))
    if not isinstance(given, dict) and "dtype" in call:
        given = {"modules": given, "weight": {"dtype": call["dtype"]}}  # of quantize_dynamic
    elif given is None:
        modules = call["model"].named_modules()
        given = {name: each.qconfig for name, each in modules if hasattr(each, "qconfig")}
    found = described(given)
    found.pop(semconv.CONFIG_NAME, None)
    engine = sys.modules["torch"].backends.quantized.engine
    return {semconv.BACKEND: engine, **found}


# --- Hugging Face's optimum-quanto: calibration in a ``with`` block ------------------------

# The blocks that the calling context is in, innermost last.
_BLOCKS: Final[ContextVar[tuple[tuple[Any, Activation], ...]]] = ContextVar(
    "otel_quant_quanto_blocks", default=()
)


def begin_calibration(function: Function, hook: Hook, library: Library) -> Function:
    """Begins the step **{step}**."""
    name = qualified_name(function)

    @wraps(function)
    def wrapper(self: Any) -> Any:
        activation = Activation(None)
        with FAULTS.kept_in(OPENING_A_STEP):
            if HOOKS.active and not is_reported_already(hook.step, library):
                activation = Activation(open_library_step(hook.step, library, function=name))
        try:
            result = function(self)
        except BaseException as error:
            activation.finish(error)
            raise
        activation.resume()
        _BLOCKS.set((*_BLOCKS.get(), (self, activation)))
        return result

    return wrapper


def end_calibration(function: Function, hook: Hook, library: Library) -> Function:
    """Ends it."""

    @wraps(function)
    def wrapper(self: Any, kind: Any, error: Any, traceback: Any) -> Any:
        blocks = _BLOCKS.get()
        if not blocks or blocks[-1][0] is not self:
            return function(self, kind, error, traceback)
        _BLOCKS.set(blocks[:-1])
        _, activation = blocks[-1]
        try:
            return function(self, kind, error, traceback)
        finally:
            activation.suspend()
            activation.finish(error)

    return wrapper


# --- Intel's AutoRound and Neural Compressor ----------------------------------------------


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


_COMPRESSED_BY: Final = (
    "scheme", "bits", "group_size", "sym", "data_type", "act_bits", "act_data_type", "iters", "nsamples",
    "seqlen", "batch_size", "layer_config", "quantize_config",
)  # fmt: skip


def of_compressor(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a compressor."""
    compressor = call["self"]
    sources = (("of.scheme", semconv.CONFIG_NAME), ("of.bits", semconv.BITS))
    given = {name: getattr(compressor, name, None) for name in _COMPRESSED_BY}
    found = {**described(given), **attributes_of({"of": compressor}, sources)}
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
    found = {**described(config), **attributes_of({"config": config}, _CONFIG)}
    group = getattr(config, "group_size", getattr(config, "blocksize", None))
    granularity = getattr(config, "w_granularity", "per_channel" if group == -1 else None)
    if isinstance(group, int) and group > 0:
        found[semconv.BLOCK_SIZE] = group
    if granularity is not None:
        found[semconv.PER_CHANNEL] = granularity == "per_channel"
    if getattr(config, "name", None) == "pt2e_dynamic_quant":
        found.pop(semconv.CALIBRATION_METHOD, None)  # it has the parameter and calibrates nothing
    return found


# --- NVIDIA's Model Optimizer -------------------------------------------------------------

_PRESETS: Final = "modelopt.torch.quantization.config"


def of_modelopt(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a configuration, which has an entry for each kind of tensors."""
    config = call["config"]
    found = described(dict(config))
    for name, value in vars(sys.modules[_PRESETS]).items():
        if value is config and name.endswith("_CFG"):
            found[semconv.CONFIG_NAME] = name.removesuffix("_CFG")
    for entry in config["quant_cfg"]:
        values = entry.get("cfg") or {}
        width = values.get("num_bits") if isinstance(values, Mapping) else None
        kind = f"float{sum(width) + 1}" if isinstance(width, tuple) else f"int{width}"
        if width is not None and "input_quantizer" in entry["quantizer_name"]:
            found.setdefault(semconv.ACTIVATION_TYPE, kind)
        elif width is not None and "weight_quantizer" in entry["quantizer_name"]:
            found.setdefault(semconv.WEIGHT_TYPE, kind)
            sizes = values.get("block_sizes") or {}
            if isinstance(sizes.get(-1), int):
                found[semconv.BLOCK_SIZE] = sizes[-1]
            elif not sizes:
                found[semconv.PER_CHANNEL] = values.get("axis") is not None
    return found


# --- bitsandbytes: weights that are quantized as their model is moved ----------------------


def moved(function: Function, hook: Hook, library: Library) -> Function:
    """Step **{step}**, if it quantizes weights."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not HOOKS.active or _is_moving(library):
            return function(*args, **kwargs)
        with operating(library.distribution, {}):
            return function(*args, **kwargs)

    return wrapper


def _is_moving(library: Library) -> Operation | None:
    operation = innermost()
    return operation if operation is not None and operation.owner == library.distribution else None


def weight(function: Function, hook: Hook, library: Library) -> Function:
    """Counts one layer of the step that moves its model, which begins with the first; alone it is step **{step}**."""
    alone = step(function, hook, library)

    @wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        operation = _is_moving(library)
        with FAULTS.kept_in(OPENING_A_STEP):
            if operation is not None and not is_reported_already(hook.step, library):
                opened = open_library_step(hook.step, library, attributes=_of_weight(self))
                operation.begin_shared_step(Activation(opened))
            count_layer({library.distribution, *distributions_built_on(library)})
        return (function if operation is not None else alone)(self, *args, **kwargs)

    return wrapper


def _of_weight(parameter: Any) -> dict[str, AttributeValue]:
    sources = (("of.quant_type", semconv.WEIGHT_TYPE), ("of.blocksize", semconv.BLOCK_SIZE))
    names = ("quant_type", "blocksize", "compress_statistics", "quant_storage")
    given = {name: getattr(parameter, name, None) for name in names}
    found = {semconv.WEIGHT_TYPE: "int8", **described(given)}  # what has no type is of LLM.int8()
    return found | attributes_of({"of": parameter}, sources)


# --- LLM Compressor: recipes, and batches that every part of the model takes anew ----------

_Attributes = dict[str, AttributeValue]

_SESSION: Final = "llmcompressor.core.session_functions"

_SCHEME: Final[AttributeSources] = (
    ("weights.num_bits", semconv.BITS),
    ("weights.group_size", semconv.BLOCK_SIZE),
)

# Parts that the model was divided into for the pipeline that the calling context is in.
_PARTS: Final[ContextVar[int]] = ContextVar("otel_quant_llmcompressor_parts", default=0)


@dataclass(frozen=True, slots=True)
class _Passes:
    """The batches of a pipeline, each of which every part of the model takes anew."""

    batches: Sized
    parts: int

    def __len__(self) -> int:
        return len(self.batches) * self.parts


def note_parts(call: Mapping[str, Any], parts: Sized) -> None:
    """Notes how many parts of the model take the samples."""
    _PARTS.set(len(parts))


def batches(function: Function, hook: Hook, library: Library) -> Function:
    """Counts each batch to calibrate with, for each part of the model; the second pass through a part is not one."""
    arguments = Arguments(function)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Iterator[Any]:
        calibrates = False
        with FAULTS.kept_in(COUNTING_SAMPLES):
            bound = arguments.bound(args, kwargs)
            passes = _Passes(bound.get("activations", ()), _PARTS.get())
            calibrates = "Calibrating" in bound.get("desc", "")
        for batch in function(*args, **kwargs):
            if calibrates:
                # What a part takes is what the part before it made: its tensors tell no items.
                count_sample(passes if passes.parts else None, None)
            yield batch

    return wrapper


def saving(function: Function, hook: Hook, library: Library) -> Function:
    """The `save_pretrained` that it gives to a model is step **{step}**."""
    folder = (("save_directory", semconv.OUTPUT_PATH),)

    @wraps(function)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        before = vars(model).get("save_pretrained")
        result = function(model, *args, **kwargs)
        with FAULTS.kept_in(f"hook {hook.target}"):
            given = vars(model).get("save_pretrained")
            if given is not None and given is not before:
                # Its signature is the same as the class's method has, behind `self`.
                arguments = Arguments(given, ("save_directory",))
                model.save_pretrained = as_library_step(
                    given, hook.step, library, arguments=arguments, sources=folder
                )
        return result

    return wrapper


def of_recipe(call: Mapping[str, Any]) -> _Attributes:
    """Returns the attributes that the recipe of a call makes, if it is not a text."""
    recipe = call.get("recipe", getattr(call.get("self"), "recipe", None))
    modifiers = getattr(recipe, "modifiers", recipe)  # of a Recipe
    return _of_modifiers(modifiers if isinstance(modifiers, list | tuple) else [modifiers])


def described_by_session(call: Mapping[str, Any]) -> _Attributes:
    """Returns the attributes that the modifiers make that need the pipeline."""
    return _of_modifiers(sys.modules[_SESSION].active_session().lifecycle.recipe.modifiers)


def _of_modifiers(modifiers: Iterable[Any]) -> _Attributes:
    """Returns the attributes that modifiers make; what differs from one to another is left out."""
    modifiers = [each for each in modifiers if hasattr(each, "on_initialize")]
    found: dict[str, AttributeValue] = {}
    names = []
    conflicting = set()
    for modifier in modifiers:
        names.append(type(modifier).__name__)
        for key, value in _of_modifier(modifier):
            if found.setdefault(key, value) != value:
                conflicting.add(key)
    if names:
        found[semconv.ALGORITHMS] = tuple(names)
        found[semconv.CONFIG_HASH] = described(modifiers)[semconv.CONFIG_HASH]
    return {key: value for key, value in found.items() if key not in conflicting}


def _of_modifier(modifier: Any) -> Iterator[tuple[str, AttributeValue]]:
    scheme = getattr(modifier, "scheme", None)
    if isinstance(scheme, str):
        yield semconv.CONFIG_NAME, scheme
    groups = getattr(getattr(modifier, "resolved_config", None), "config_groups", None) or {}
    for group in groups.values():
        weights, activations = group.weights, group.input_activations
        if weights is not None:
            yield from attributes_of({"weights": weights}, _SCHEME).items()
            yield semconv.WEIGHT_TYPE, _type_of(weights)
            yield semconv.SYMMETRIC, weights.symmetric
            if weights.strategy in ("channel", "tensor"):
                yield semconv.PER_CHANNEL, weights.strategy == "channel"
        if activations is not None:
            yield semconv.ACTIVATION_TYPE, _type_of(activations)
            if not activations.dynamic and isinstance(activations.observer, str):
                yield semconv.CALIBRATION_METHOD, activations.observer


def _type_of(tensors: Any) -> str:
    return f"{getattr(tensors.type, 'value', tensors.type)}{tensors.num_bits}"
