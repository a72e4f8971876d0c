"""Wraps LLM Compressor's pipelines and the saving of its models; reads its recipes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from otel_quant.fault_boundary import FAULTS
from otel_quant.instruments.arguments import Arguments, attributes_of
from otel_quant.instruments.calls import as_library_step, count_sample, step
from otel_quant.instruments.counted_loader import CountedLoader
from otel_quant.instruments.library import Hook, Library, Reads
from otel_quant.instruments.operations import operating
from otel_quant.records import AttributeValue
from otel_quant.runtime import RUNTIME
from otel_quant.telemetry import semconv

_SESSION: Final = "llmcompressor.core.session_functions"

_SCHEME: Final[Reads] = (
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
    """Makes each call a step, which the modifiers that it serves describe."""
    as_one_step = step(function, hook, library)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        known: dict[str, AttributeValue] = {}
        with FAULTS.kept_in(f"arguments of {hook.target}"):
            known = _of_modifiers(sys.modules[_SESSION].active_session().lifecycle.recipe.modifiers)
        with operating(library.distribution, known):
            return as_one_step(*args, **kwargs)

    return wrapper


def counting_pipeline(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes each call a step that counts what its loader yields."""
    as_one_step = pipeline(function, hook, library)
    position = Arguments(function).position(hook.parameter)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with FAULTS.kept_in("counting calibration samples"):
            if hook.parameter in kwargs:
                kwargs = {**kwargs, hook.parameter: CountedLoader(kwargs[hook.parameter])}
            elif position is not None and len(args) > position:
                args = (*args[:position], CountedLoader(args[position]), *args[position + 1 :])
        return as_one_step(*args, **kwargs)

    return wrapper


def parts(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Notes into how many parts each call divides a model."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        divided = function(*args, **kwargs)
        with FAULTS.kept_in("counting calibration samples"):
            _PARTS.set(len(divided))
        return divided

    return wrapper


def batches(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Counts the batches that a part of the model is calibrated with.

    The second pass through each part carries its results on to the next, and is not counted.
    """
    arguments = Arguments(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Iterator[Any]:
        calibrates = False
        with FAULTS.kept_in("counting calibration samples"):
            bound = arguments.bound(args, kwargs)
            passes = _Passes(bound.get("activations", ()), _PARTS.get())
            calibrates = "Calibrating" in bound.get("desc", "")
        for batch in function(*args, **kwargs):
            if calibrates:
                with FAULTS.kept_in("counting calibration samples"):
                    count_sample(passes if passes.parts else None)
            yield batch

    return wrapper


def saving(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes a step of the `save_pretrained` that each call gives to a model."""

    @functools.wraps(function)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        before = vars(model).get("save_pretrained")
        result = function(model, *args, **kwargs)
        with FAULTS.kept_in(f"hook {hook.target}"):
            given = vars(model).get("save_pretrained")
            if given is not None and given is not before:
                model.save_pretrained = _as_export(given, hook, library)
        return result

    return wrapper


def _as_export(save: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    as_one_step = as_library_step(save, hook.step, library)

    @functools.wraps(save)
    def save_pretrained(*args: Any, **kwargs: Any) -> Any:
        known: dict[str, AttributeValue] = {}
        with FAULTS.kept_in("arguments of save_pretrained"):
            folder = kwargs.get("save_directory", args[0] if args else None)
            known = attributes_of({"output_dir": folder}, RUNTIME.settings.paths)
        with operating(library.distribution, known):
            return as_one_step(*args, **kwargs)

    return save_pretrained


def configuration(arguments: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns what the recipe among some arguments says, if it is not a text.

    Args:
        arguments: Arguments of `oneshot`, or the `Oneshot` as ``self``.
    """
    recipe = arguments.get("recipe", getattr(arguments.get("self"), "recipe", None))
    modifiers = getattr(recipe, "modifiers", recipe)  # of a Recipe
    return _of_modifiers(modifiers if isinstance(modifiers, list | tuple) else [modifiers])


def _of_modifiers(modifiers: Iterable[Any]) -> dict[str, AttributeValue]:
    """Returns the attributes that modifiers make; what two say differently is left out."""
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
