"""Wraps functions of torch that are more than a step with its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from otel_quant.capture.instruments.shared.arguments import Arguments
from otel_quant.capture.instruments.shared.attributes import attributes_of
from otel_quant.capture.instruments.shared.entry_points import as_operation, entry_point
from otel_quant.capture.instruments.shared.library import Hook, Library
from otel_quant.capture.instruments.shared.library_steps import step, with_argument_as_step
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue


def quantize_dynamic(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes each call a step; its ``dtype`` counts unless there is a mapping of types."""
    arguments = Arguments(function)

    def describe(*args: Any, **kwargs: Any) -> Mapping[str, AttributeValue]:
        bound = arguments.bound(args, kwargs)
        if isinstance(bound.get("qconfig_spec"), dict):
            return {}
        return attributes_of(bound, False, (("dtype", semconv.WEIGHT_TYPE),))

    return as_operation(step(function, hook, library), library, describe)


def calibrating(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call an operation, and a step of the function that it is passed."""
    return with_argument_as_step(
        entry_point(function, hook, library), hook.parameter, hook.step, library
    )
