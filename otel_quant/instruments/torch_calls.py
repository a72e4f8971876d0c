"""Wrappers for functions of torch and torchao that are more than one step, or less."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from otel_quant.fault_boundary import FAULTS
from otel_quant.instruments.arguments import Arguments, attributes_of
from otel_quant.instruments.calls import (
    COVERED_BY,
    as_library_step,
    count_layer,
    operation,
    step,
)
from otel_quant.instruments.hooks import HOOKS
from otel_quant.instruments.library import Hook, Library
from otel_quant.instruments.operations import operating
from otel_quant.records import AttributeValue
from otel_quant.runtime import RUNTIME
from otel_quant.telemetry import semconv


def quantize_dynamic(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes each call a step; its ``dtype`` counts unless a mapping says otherwise."""
    as_one_step = step(function, hook, library)
    arguments = Arguments(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        known: dict[str, AttributeValue] = {}
        with FAULTS.kept_in(f"arguments of {hook.target}"):
            bound = arguments.bound(args, kwargs)
            if not isinstance(bound.get("qconfig_spec"), dict):
                known = attributes_of(bound, False, (("dtype", semconv.WEIGHT_TYPE),))
        with operating(library.distribution, known):
            return as_one_step(*args, **kwargs)

    return wrapper


def calibrating(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Marks each call as an entry point; the function that it is handed is a step."""
    position = Arguments(function).position(hook.parameter)
    as_operation = operation(function, hook, library)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with FAULTS.kept_in(f"arguments of {hook.target}"):
            if hook.parameter in kwargs:
                run = as_library_step(kwargs[hook.parameter], hook.step, library)
                kwargs = {**kwargs, hook.parameter: run}
            elif position is not None and len(args) > position:
                run = as_library_step(args[position], hook.step, library)
                args = (*args[:position], run, *args[position + 1 :])
        return as_operation(*args, **kwargs)

    return wrapper


def step_or_layer(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, or counts it as a layer of a step that is built upon it.

    transformers calls ``quantize_`` once for each linear layer that it loads.
    """
    as_one_step = step(function, hook, library)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with FAULTS.kept_in("counting layers"):
            if HOOKS.active and RUNTIME.is_running:
                count_layer(COVERED_BY.get(library.name, set()))
        return as_one_step(*args, **kwargs)

    return wrapper
