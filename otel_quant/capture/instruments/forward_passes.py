"""Calibration that the program runs itself: the forward passes of a model between its preparation and its conversion.

A prepared model gets a hook that is called before its forward pass, and loses it when it is converted. The hook
changes neither results nor exceptions, and no copy of the model has it: not one that is pickled, and no script.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.hooks import (
    HOOKS,
    Arguments,
    Function,
    Hook,
    Library,
    load,
    wraps,
)
from otel_quant.capture.instruments.samples import (
    COUNTING_SAMPLES,
    count_layer,
    count_sample,
    items_in,
)
from otel_quant.capture.instruments.steps import (
    attributes_of,
    distributions_built_on,
    enclosing_steps,
    is_reported_already,
    open_library_step,
    operating,
    step,
)
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.scope import Activation
from otel_quant.schema.records import AttributeValue, ProfileStep


class _Prepared:
    """A model whose forward passes are counted."""

    def __init__(
        self, model: Any, library: Library, attributes: Mapping[str, AttributeValue]
    ) -> None:
        self.library = library
        self.attributes = attributes
        self._step: OpenStep | None = None
        if not model._forward_pre_hooks:
            model._forward_pre_hooks = _HooksOfOne()
        self._hook = model.register_forward_pre_hook(_before_forward, with_kwargs=True)
        self._dropped = weakref.finalize(model, end_calibration, id(model))
        self._dropped.atexit = False

    def passed(self, inputs: object) -> None:
        """Counts a forward pass, for the calibration around it or one that begins with it."""
        if any(each.info.kind == ProfileStep.CALIBRATION for each in enclosing_steps()):
            count_sample(None, inputs)
            return
        if self._step is None or self._step.closed:
            self._step = open_library_step(ProfileStep.CALIBRATION, self.library, self.attributes)
        if self._step is not None:
            self._step.ends_with_parent = True
            self._step.recorder.count_sample(self._step, items_in(inputs))

    def end(self) -> None:
        """Ends the calibration, if it has begun."""
        Activation(self._step).finish()

    def release(self) -> None:
        """Leaves the model as it was."""
        self._dropped.detach()
        self._hook.remove()


_PREPARED: Final[dict[int, _Prepared]] = {}
"""The prepared models that have not been converted, by identity."""


class _HooksOfOne(OrderedDict[int, Any]):
    """The hooks of a prepared model; ours is neither copied nor compiled into a script."""

    def values(self) -> Any:
        return [hook for hook in super().values() if hook is not _before_forward]

    def __reduce__(self) -> Any:
        return OrderedDict, ([pair for pair in self.items() if pair[1] is not _before_forward],)


def _before_forward(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    with FAULTS.kept_in(COUNTING_SAMPLES):
        prepared = _PREPARED.get(id(model))
        if prepared is not None and HOOKS.active:
            prepared.passed(args or dict(kwargs))


def _watch(model: Any, library: Library, attributes: Mapping[str, AttributeValue]) -> None:
    if id(model) not in _PREPARED and hasattr(model, "register_forward_pre_hook"):
        _PREPARED[id(model)] = _Prepared(model, library, attributes)


def end_calibration(model: int, library: Library | None = None) -> Mapping[str, AttributeValue]:
    """Ends the calibration of a model, or of all of a library if that one is a copy; returns what describes it."""
    prepared = _PREPARED.pop(model, None)
    if prepared is not None:
        prepared.end()
        prepared.release()
        return prepared.attributes
    for each in list(_PREPARED.values()):  # another thread may drop a model meanwhile
        if each.library is library:
            each.end()
    return {}


def prepare(function: Function, hook: Hook, library: Library) -> Function:
    """Step **{step}**; forward passes of the model it returns are step **Calibration**, which its conversion ends."""
    as_one_step = step(function, hook, library)
    arguments = Arguments(function, hook.parameters)
    describe: Callable[..., Any] = load(hook.describe) if hook.describe else dict

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call: dict[str, Any] = {}
        attributes: dict[str, AttributeValue] = {}
        with FAULTS.kept_in(f"arguments of {hook.target}"):
            call = arguments.bound(args, kwargs)
            attributes = attributes_of(call, hook.sources, hook.config)
            if hook.describe:
                attributes |= describe(call)
        result = as_one_step(*args, **kwargs)
        with FAULTS.kept_in(COUNTING_SAMPLES):
            if HOOKS.active and not is_reported_already(hook.step, library):
                prepared = next(iter(call.values())) if result is None else result
                _watch(prepared, library, attributes)
        return result

    return wrapper


def convert(function: Function, hook: Hook, library: Library) -> Function:
    """Step **{step}**; the calibration of its model ends before it."""
    as_one_step = step(function, hook, library)
    arguments = Arguments(function, hook.parameters)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        attributes: Mapping[str, AttributeValue] = {}
        with FAULTS.kept_in(COUNTING_SAMPLES):
            if not is_reported_already(hook.step, library):
                model = next(iter(arguments.bound(args, kwargs).values()), None)
                attributes = end_calibration(id(model), library)
        with operating(library.distribution, attributes):
            return as_one_step(*args, **kwargs)

    return wrapper


def in_place(function: Function, hook: Hook, library: Library) -> Function:
    """Step **{step}**, or a layer of a step around it; a configuration with two parts first prepares, then converts."""
    once = step(function, hook, library)
    preparing = prepare(function, replace(hook, step=ProfileStep.MODEL_PREPARATION), library)
    converting = convert(function, hook, library)
    calls = {"prepare": preparing, "observe": preparing, "convert": converting}
    arguments = Arguments(function)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = once
        with FAULTS.kept_in("counting layers"):
            if HOOKS.active:
                count_layer(distributions_built_on(library))
                config = arguments.bound(args, kwargs).get("config")
                part = str(getattr(config, "step", ""))
                if "QAT" not in type(config).__name__:
                    call = calls.get(part.rpartition(".")[2].lower(), once)
        return call(*args, **kwargs)

    return wrapper


def counting(function: Function, library: Library, parameters: Sequence[str] = ()) -> Function:
    """Counts the forward passes of the model that a function is called with, for the calibration around it."""
    arguments = Arguments(function, parameters)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        model = None
        with FAULTS.kept_in(COUNTING_SAMPLES):
            model = next(iter(arguments.bound(args, kwargs).values()), None)
            if HOOKS.active and id(model) not in _PREPARED:
                _watch(model, library, {})
            else:
                model = None  # who has begun to count goes on
        try:
            return function(*args, **kwargs)
        finally:
            with FAULTS.kept_in(COUNTING_SAMPLES):
                end_calibration(id(model))

    return wrapper


def calibrate(function: Function, hook: Hook, library: Library) -> Function:
    """Step **{step}**; the forward passes of its model are its samples."""
    return step(counting(function, library, hook.parameters), hook, library)
