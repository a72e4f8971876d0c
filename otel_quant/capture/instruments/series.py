"""Functions that a program calls for one layer after another, outside of any step: such calls in a row are one step.

The step opens at the first call. It ends with the last: another step begins, its thread ends, or there is none for a while,
which the recorder looks after.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments import configuration, hooks, steps
from otel_quant.capture.instruments.configuration import Part
from otel_quant.capture.instruments.hooks import Function, Hook, Library
from otel_quant.capture.instruments.samples import count_layer, step_counting
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import OPENING_A_STEP, Activation, is_failure
from otel_quant.schema import semconv


def _add_part(step: OpenStep, parts: list[Part], known: Part) -> None:
    """Adds the configuration of a layer to those of a step, if it has not got it."""
    part = {name: value for name, value in known.items() if name in configuration.OF_MODEL}
    if part not in parts:
        parts.append(part)
        found = configuration.agreed(parts)
        if len(parts) > 1:
            hashes = sorted(str(each.get(semconv.CONFIG_HASH)) for each in parts)
            found[semconv.CONFIG_HASH] = configuration.described(hashes)[semconv.CONFIG_HASH]
        steps.restate(step, found, configuration.SHOWN)


class _Series(Activation):
    """Makes each call a part of an open step."""

    step: OpenStep

    def __init__(self, step: OpenStep, name: str) -> None:
        super().__init__(step)
        self._name, self._parts = name, list[Part]()
        step.ends_with_parent = True

    def takes(self, name: str) -> bool:
        """Whether a call of a function belongs to it: within an operation on so many layers all do."""
        is_open = not self.step.closed and self.step.recorder is RUNTIME.recorder
        return is_open and (self._name == name or getattr(steps.innermost(), "layers", 0) > 0)

    def add(self, known: Part) -> None:
        """Counts a call, which may have another configuration than those before."""
        self.step.between = None
        self.step.recorder.count(self.step, "layer")
        _add_part(self.step, self._parts, known)

    def finish(self, error: BaseException | None = None) -> None:
        """Waits for the next call; a failure ends it."""
        if is_failure(error):
            super().finish(error)
        else:
            self.step.between = self.step.recorder.reading_now()


_OF_THREAD: Final = threading.local()


def end_series() -> None:
    """Ends the step that calls of this thread make up, if it is open."""
    Activation(getattr(getattr(_OF_THREAD, "series", None), "step", None)).finish()


def layers(function: Function, hook: Hook, library: Library) -> Function:
    """One layer of the step around it; outside of one, such calls in a row are together step **{step}**."""
    arguments, name = hooks.Arguments(function, hook.parameters), f"{hook.module}.{hook.target}"
    describe = hooks.load(hook.describe) if hook.describe else lambda call: {}

    def begun(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Activation:
        series: _Series | None = getattr(_OF_THREAD, "series", None)
        if steps.is_reported_already(hook.step, library):
            around = step_counting(steps.owners_of(library))
            if hook.before == hooks.LAYER and (series is None or series.step is not around):
                count_layer(steps.owners_of(library))
            return Activation(None)
        call = arguments.bound(args, kwargs)
        known = configuration.completed(
            steps.attributes_of(call, hook.sources, hook.config) | describe(call)
        )
        if series is None or not series.takes(name):
            shown = configuration.SHOWN
            opened = steps.open_library_step(hook.step, library, known, shown, function=name)
            if opened is None:
                return Activation(None)
            _OF_THREAD.series = series = _Series(opened, name)
            if total := getattr(steps.innermost(), "layers", 0):
                opened.recorder.expect(opened, "layer", total)
        series.add(known)
        return series

    @hooks.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        activation = Activation(None)
        with FAULTS.kept_in(OPENING_A_STEP):
            activation = begun(args, kwargs)
        with activation:
            return function(*args, **kwargs)

    return wrapper


def layers_or_step(function: Function, hook: Hook, library: Library) -> Function:
    """One layer where its model is one, with others in a row; else step **{step}**."""
    whole, one = steps.step(function, hook, library), replace(hook, before=hooks.LAYER)
    as_layer = layers(function, one, library)

    @hooks.wraps(function)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        config = kwargs.get("config", args[0] if args else None)
        # A model consists of modules; a configuration in two steps is of a model too.
        is_model = hasattr(config, "step") or next(iter(model.children()), None) is not None
        return (whole if is_model else as_layer)(model, *args, **kwargs)

    return wrapper
