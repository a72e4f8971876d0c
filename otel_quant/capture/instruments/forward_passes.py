"""Calibration that a program runs itself: the forward passes of a model that was prepared are its samples."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments import observers, samples
from otel_quant.capture.instruments.hooks import HOOKS, Library, library
from otel_quant.capture.instruments.steps import distributions_built_on
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import Activation
from otel_quant.schema.readings import AttributeValue, ProfileStep


class _Watched:
    """A model whose forward passes are counted."""

    def __init__(self, model: Any, by: OpenStep) -> None:
        self.attributes, self._by = dict(by.attributes), by.info
        self._step: OpenStep | None = None
        # A program may call `forward` itself, which no hook of the model sees: its first observer's does.
        self._first, self._is_within = _first_observer(model), False
        self._hooks = [_hooked(each) for each in (model, self._first) if each is not None]
        if self._first is not None:
            _WATCHED[id(self._first)] = self
        self._model = weakref.ref(model)
        self._dropped = weakref.finalize(model, _end_watch, id(model))
        self._dropped.atexit = False

    def passed(self, module: object, inputs: object) -> None:
        """Counts a forward pass, for the calibration around it or one that begins with it."""
        was_within, self._is_within = self._is_within, module is not self._first
        if was_within and module is self._first:
            return
        if (around := samples.step_counting(None)) is not None:
            self._begin_sample(around, module, inputs)
            return
        if self._step is None or self._step.closed:
            self._step = RUNTIME.recorder.open(
                ProfileStep.CALIBRATION,
                library=self._by.library,
                library_version=self._by.library_version,
                attributes=self.attributes,
            )
        if self._step is not None:
            self._step.ends_with_parent, self._step.model = True, self._model
            self._begin_sample(self._step, module, inputs)

    def _begin_sample(self, step: OpenStep, module: object, inputs: object) -> None:
        was_observed = step.observed is not None
        samples.begin_sample(step, samples.items_in(inputs), model=self._model())
        if not was_observed and module is self._first and isinstance(inputs, tuple):
            observers.note(module, inputs, False)  # its call, which is under way, is not looked at

    def end(self, *, is_released: bool = False) -> None:
        """Ends the calibration, if it has begun, and leaves the model as it was if that is not needed any more."""
        Activation(self._step).finish()
        if is_released:
            self._dropped.detach()
            _WATCHED.pop(id(self._first), None)
            for hook in self._hooks:
                hook.remove()


_WATCHED: Final[dict[int, _Watched]] = {}
"""The models that were prepared and not converted, by identity."""


class _HooksOfOne(OrderedDict[int, Any]):
    """The hooks of a prepared model; ours is neither copied nor compiled into a script."""

    def values(self) -> Any:
        return [hook for hook in super().values() if hook is not _before_forward]

    def __reduce__(self) -> Any:
        return OrderedDict, ([pair for pair in self.items() if pair[1] is not _before_forward],)


def _first_observer(model: Any) -> Any:
    """Returns what the program of a prepared graph observes first, None for other models."""
    nodes = getattr(getattr(model, "graph", None), "nodes", ())
    names = (str(node.target) for node in nodes if node.op == "call_module")
    name = next((name for name in names if "activation_post_process" in name), None)
    return None if name is None else model.get_submodule(name)


def _hooked(module: Any) -> Any:
    if not module._forward_pre_hooks:
        module._forward_pre_hooks = _HooksOfOne()
    return module.register_forward_pre_hook(_before_forward, with_kwargs=True)


def _before_forward(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    with FAULTS.kept_in(samples.COUNTING):
        watched = _WATCHED.get(id(model))
        if watched is not None and HOOKS.active:
            watched.passed(model, args or dict(kwargs))


def _end_watch(model: int) -> bool:
    """Ends the calibration of a model; returns whether it was prepared."""
    watched = _WATCHED.pop(model, None)
    if watched is not None:
        watched.end(is_released=True)
    return watched is not None


def _model_of(call: Mapping[str, Any]) -> Any:
    return next(iter(call.values()), None)


def watch(call: Mapping[str, Any], result: object) -> None:
    """Forward passes of the model it returns are step **Calibration**, which its conversion ends."""
    model, step = _model_of(call) if result is None else result, RUNTIME.current_step()
    trains = "QAT" in type(call.get("config")).__name__
    if step is not None and step.info.kind == ProfileStep.MODEL_PREPARATION and not trains:
        _watch(model, step)


def _watch(model: Any, step: OpenStep) -> None:
    if id(model) not in _WATCHED and hasattr(model, "register_forward_pre_hook"):
        _WATCHED[id(model)] = _Watched(model, step)


def count_passes(call: Mapping[str, Any], owner: Library) -> Callable[[], object] | None:
    """The forward passes of its model are its samples."""
    model, step = _model_of(call), RUNTIME.current_step()
    if step is None or id(model) in _WATCHED:
        return None  # who has begun to count goes on
    _watch(model, step)
    return partial(_end_watch, id(model))


def end_calibration(call: Mapping[str, Any]) -> Mapping[str, AttributeValue]:
    """The calibration of its model ends before it."""
    if not _end_watch(id(_model_of(call))):  # it is a copy of one of those that were prepared
        for watched in list(_WATCHED.values()):  # another thread may drop a model meanwhile
            watched.end()
    return {}


def end_of_first_part(call: Mapping[str, Any]) -> Mapping[str, AttributeValue]:
    """Ends the calibration of a model that was prepared in place."""
    _end_watch(id(_model_of(call)))
    return {}


def part_of(call: Mapping[str, Any]) -> str:
    """Step **Model Quantization**, or a layer of a step around it; a configuration with two parts first prepares, then converts."""
    samples.count_layer(distributions_built_on(library("torchao")))
    config = call.get("config")
    part = str(getattr(config, "step", "")).rpartition(".")[2].lower()
    prepares = part in ("prepare", "observe")
    return ProfileStep.MODEL_PREPARATION if prepares else ProfileStep.MODEL_QUANTIZATION
