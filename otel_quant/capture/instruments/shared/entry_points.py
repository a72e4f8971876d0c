"""Wrappers that make an operation of each call of a library's entry point."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.arguments import Arguments
from otel_quant.capture.instruments.shared.attributes import attributes_of
from otel_quant.capture.instruments.shared.hooks import load
from otel_quant.capture.instruments.shared.library import Hook, Library
from otel_quant.capture.instruments.shared.nesting import distributions_built_on
from otel_quant.capture.instruments.shared.onnx_models import Models, models_of
from otel_quant.capture.instruments.shared.operations import costs_models, is_within, operating
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import qualified_name
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.schema.records import AttributeValue

Describe = Callable[..., Mapping[str, AttributeValue]]
"""Returns the attributes that a call makes; called with the arguments of the call."""


def entry_point(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call an operation, described by its arguments."""
    return as_operation(function, library, by_arguments(function, hook, library))


def model_quantization(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes each call an operation that turns one ONNX model into another: both are costed."""
    arguments = Arguments(function)

    def models(result: object, /, *args: Any, **kwargs: Any) -> Models:
        return models_of(arguments.bound(args, kwargs), result)

    return as_operation(function, library, by_arguments(function, hook, library), models)


def as_operation(
    function: Callable[..., Any],
    library: Library,
    describe: Describe | None = None,
    models: Callable[..., Models] | None = None,
) -> Callable[..., Any]:
    """Makes each call of a function an operation of a library."""
    origin = f"arguments of {qualified_name(function)}"

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        attributes: Mapping[str, AttributeValue] = {}
        if describe is not None:
            with FAULTS.kept_in(origin):
                attributes = describe(*args, **kwargs)
        find = models if models is not None and _costs_its_models(library) else None
        with operating(
            library.distribution, attributes, costs_models=find is not None
        ) as operation:
            result = function(*args, **kwargs)
            if find is not None:
                with FAULTS.kept_in("model cost"):
                    report_models(
                        functools.partial(find, result, *args, **kwargs), operation.input_shapes
                    )
            return result

    return wrapper


def by_arguments(function: Callable[..., Any], hook: Hook, library: Library) -> Describe:
    """Returns what describes the calls of a function by their arguments."""
    arguments = Arguments(function)

    def describe(*args: Any, **kwargs: Any) -> Mapping[str, AttributeValue]:
        bound = arguments.bound(args, kwargs)
        found: dict[str, AttributeValue] = {}
        if library.configuration:
            found = load(library.configuration)(bound)
        return found | attributes_of(bound, RUNTIME.settings.paths, hook.sources)

    return describe


def report_models(find: Callable[[], Models], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Costs the models of an operation that has ended without an error, and reports them."""
    settings = RUNTIME.settings
    if not settings.cost or not RUNTIME.is_running or RUNTIME.recorder.ended:
        return
    # Imported here: a program that costs no model does not pay for it.
    from otel_quant.capture.instruments.shared.model_cost import cost_models

    costs = cost_models(
        find(),
        time_limit=settings.cost_timeout,
        paths=settings.paths,
        hashes=settings.hashes,
        shapes=shapes,
    )
    RUNTIME.recorder.models_costed(list(costs))


def _costs_its_models(library: Library) -> bool:
    """Whether an operation that begins now costs its models, and not one around it."""
    with FAULTS.kept_in("model cost"):
        return not costs_models() and not is_within(distributions_built_on(library))
    return False
