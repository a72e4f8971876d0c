"""LLM Compressor: what its recipe describes, and batches that every part of the model takes anew."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.calls import Arguments, wraps
from otel_quant.capture.instruments.shared.hooks import AttributeSources, Function, Hook, Library
from otel_quant.capture.instruments.shared.samples import COUNTING_SAMPLES, count_sample
from otel_quant.capture.instruments.shared.steps import as_library_step, attributes_of
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue

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
    """Each batch to calibrate with is one calibration sample, for each part of the model.

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
                # Its signature is that of the method of the class, which has `self` before it.
                arguments = Arguments(given, ("save_directory",))
                model.save_pretrained = as_library_step(
                    given, hook.step, library, arguments=arguments, sources=folder
                )
        return result

    return wrapper


def described(call: Mapping[str, Any]) -> _Attributes:
    """Returns the attributes that the recipe of a call makes, if it is not a text."""
    recipe = call.get("recipe", getattr(call.get("self"), "recipe", None))
    modifiers = getattr(recipe, "modifiers", recipe)  # of a Recipe
    return _of_modifiers(modifiers if isinstance(modifiers, list | tuple) else [modifiers])


def described_by_session(call: Mapping[str, Any]) -> _Attributes:
    """Returns the attributes that the modifiers make that need the pipeline."""
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
            yield from attributes_of({"weights": weights}, _SCHEME).items()
            yield semconv.WEIGHT_TYPE, _type_of(weights)
            if weights.strategy in ("channel", "tensor"):
                yield semconv.PER_CHANNEL, weights.strategy == "channel"
        if activations is not None:
            yield semconv.ACTIVATION_TYPE, _type_of(activations)
            if not activations.dynamic and isinstance(activations.observer, str):
                yield semconv.CALIBRATION_METHOD, activations.observer


def _type_of(tensors: Any) -> str:
    return f"{getattr(tensors.type, 'value', tensors.type)}{tensors.num_bits}"
