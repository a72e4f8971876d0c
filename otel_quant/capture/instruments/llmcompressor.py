"""vLLM's LLM Compressor: a recipe applied to a language model in one shot.

A pipeline takes the samples through the whole model, or through one part of it after
another, and the recipe's modifiers quantize as they pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.arguments import Arguments
from otel_quant.capture.instruments.shared.hooks import (
    ENTRY_POINT,
    LAYER,
    STEP,
    AttributeSources,
    Hook,
    Library,
    Wrapper,
)
from otel_quant.capture.instruments.shared.samples import (
    COUNTING_SAMPLES,
    count_sample,
    with_counted_loader,
)
from otel_quant.capture.instruments.shared.steps import (
    as_library_step,
    as_operation,
    attributes_of,
    step,
)
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.llmcompressor:"
_PIPELINE: Final = Wrapper(
    _CALLS + "pipeline", "step **{step}**, described by the recipe's modifiers"
)
_COUNTING_PIPELINE: Final = Wrapper(
    _CALLS + "counting_pipeline",
    "step **{step}**, described by the recipe's modifiers; counts what its `{parameter}` yields",
)
_DIVIDING: Final = Wrapper(_CALLS + "parts", "notes how many parts of the model take the samples")
_BATCHES: Final = Wrapper(
    _CALLS + "batches",
    "each item that it yields to calibrate with is one calibration sample: every part of the model takes each anew",
)
_SAVING: Final = Wrapper(
    _CALLS + "saving", "the `save_pretrained` that it gives to a model is step **{step}**"
)

_ONESHOT: Final = "llmcompressor.entrypoints.oneshot"
_PIPELINES: Final = "llmcompressor.pipelines."

_LOADED: Final = (("model_args.model", semconv.INPUT_PATH),)
_FILES: Final = (
    ("model_stub", semconv.INPUT_PATH),
    ("save_directory", semconv.OUTPUT_PATH),
    ("scheme", semconv.CONFIG_NAME),
)

LIBRARY: Final = Library(
    name="llmcompressor",
    distribution="llmcompressor",
    versions_seen="0.14",
    built_on=frozenset({"torch", "transformers", "auto-round"}),
    configuration=_CALLS + "configuration",
    hooks=(
        Hook(_ONESHOT, "oneshot", ENTRY_POINT, sources=(("model", semconv.INPUT_PATH),)),
        Hook(_ONESHOT, "Oneshot.__call__", ENTRY_POINT, sources=(("self.output_dir", semconv.OUTPUT_PATH),)),
        Hook("llmcompressor.entrypoints.utils", "initialize_model_from_path", STEP, ProfileStep.MODEL_LOADING, sources=_LOADED),
        Hook("llmcompressor.datasets.utils", "get_processed_dataset", STEP, ProfileStep.DATASET_LOADING),
        Hook("llmcompressor.core.session", "CompressionSession.initialize", STEP, ProfileStep.MODEL_PREPARATION),
        Hook(_PIPELINES + "data_free.pipeline", "DataFreePipeline.__call__", _PIPELINE, ProfileStep.CALIBRATION_WEIGHTS),
        Hook(_PIPELINES + "basic.pipeline", "BasicPipeline.__call__", _COUNTING_PIPELINE, ProfileStep.CALIBRATION, parameter="dataloader"),
        Hook(_PIPELINES + "sequential.pipeline", "SequentialPipeline.__call__", _PIPELINE, ProfileStep.CALIBRATION),
        Hook(_PIPELINES + "sequential.helpers", "trace_subgraphs", _DIVIDING),
        Hook(_PIPELINES + "sequential.pipeline", "_get_batches", _BATCHES),
        Hook(_PIPELINES + "sequential.helpers", "Subgraph.submodules", LAYER),
        Hook("llmcompressor.transformers.compression.compressed_tensors_utils", "modify_save_pretrained", _SAVING, ProfileStep.EXPORT_HF_SAFETENSORS),
        Hook("llmcompressor.entrypoints.model_free", "model_free_ptq", STEP, ProfileStep.FILE_TO_FILE_QUANTIZATION, sources=_FILES),
    ),
)  # fmt: skip


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


def pipeline(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, described by the modifiers that need it."""
    return as_operation(step(function, hook, library), library, _of_active_session)


def counting_pipeline(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes each call a step that counts what its loader yields."""
    return with_counted_loader(pipeline(function, hook, library), hook.parameter)


def parts(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Notes into how many parts each call divides a model."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        divided = function(*args, **kwargs)
        with FAULTS.kept_in(COUNTING_SAMPLES):
            _PARTS.set(len(divided))
        return divided

    return wrapper


def batches(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Counts the batches that a part of the model is calibrated with.

    The second pass through each part carries its results on to the next, and is not counted.
    """
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


def saving(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes a step of the `save_pretrained` that each call gives to a model."""

    @wraps(function)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        before = vars(model).get("save_pretrained")
        result = function(model, *args, **kwargs)
        with FAULTS.kept_in(f"hook {hook.target}"):
            given = vars(model).get("save_pretrained")
            if given is not None and given is not before:
                export = as_library_step(given, hook.step, library)
                model.save_pretrained = as_operation(export, library, _of_folder)
        return result

    return wrapper


def _of_folder(save_directory: object = None, *_: object, **__: object) -> _Attributes:
    return attributes_of({"output_dir": save_directory}, RUNTIME.settings.paths)


def configuration(arguments: Mapping[str, Any]) -> _Attributes:
    """Returns the attributes that the recipe among some arguments makes, if it is not a text."""
    recipe = arguments.get("recipe", getattr(arguments.get("self"), "recipe", None))
    modifiers = getattr(recipe, "modifiers", recipe)  # of a Recipe
    return _of_modifiers(modifiers if isinstance(modifiers, list | tuple) else [modifiers])


def _of_active_session(*_: object, **__: object) -> _Attributes:
    return _of_modifiers(sys.modules[_SESSION].active_session().lifecycle.recipe.modifiers)


def _of_modifiers(modifiers: Iterable[Any]) -> _Attributes:
    """Returns the attributes that modifiers make; what differs from one to another is left out."""
    found: dict[str, AttributeValue] = {}
    names = []
    conflicting = set()
    for modifier in modifiers:
        if not hasattr(modifier, "on_initialize"):
            continue
        names.append(type(modifier).__name__)
        for key, value in _of_modifier(modifier):
            if found.setdefault(key, value) != value:
                conflicting.add(key)
    if names:
        found[semconv.ALGORITHMS] = tuple(names)
    return {key: value for key, value in found.items() if key not in conflicting}


def _of_modifier(modifier: Any) -> Iterator[tuple[str, AttributeValue]]:
    scheme = getattr(modifier, "scheme", None)
    if isinstance(scheme, str):
        yield semconv.CONFIG_NAME, scheme
    groups = getattr(getattr(modifier, "resolved_config", None), "config_groups", None) or {}
    for group in groups.values():
        weights, activations = group.weights, group.input_activations
        if weights is not None:
            yield from attributes_of({"weights": weights}, False, _SCHEME).items()
            yield semconv.WEIGHT_TYPE, _type_of(weights)
            if weights.strategy in ("channel", "tensor"):
                yield semconv.PER_CHANNEL, weights.strategy == "channel"
        if activations is not None:
            yield semconv.ACTIVATION_TYPE, _type_of(activations)
            if not activations.dynamic and isinstance(activations.observer, str):
                yield semconv.CALIBRATION_METHOD, activations.observer


def _type_of(tensors: Any) -> str:
    return f"{getattr(tensors.type, 'value', tensors.type)}{tensors.num_bits}"
