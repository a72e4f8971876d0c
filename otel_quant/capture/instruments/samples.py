"""Calibration samples and layers, which steps go through one after the other: they are counted here.

A sample is one call of a reader that returned data, or one item of a loader: a batch, as a rule. A layer is what
the library goes through one after the other: where it shows a progress bar, what that goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sized
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import wrapt

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments import hooks, steps
from otel_quant.capture.instruments.observers import observe
from otel_quant.capture.probes.memory import Taken, taken_now
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import begun
from otel_quant.schema.readings import ProfileStep

if TYPE_CHECKING:
    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy  # generic since wrapt 2 only

COUNTING: Final = "counting samples and layers"  # Origin of failures, for :meth:`Faults.kept_in`
_taken_now: Final = FAULTS.kept_in(COUNTING).around(taken_now)

_ARRAYS: Final = frozenset({("numpy", "ndarray"), ("torch", "Tensor")})
"""Module and name of the classes of arrays, neither of which is to be imported for them."""

# --- samples and layers -------------------------------------------------------------------


def step_counting(owners: Collection[str] | None) -> OpenStep | None:
    """Returns the innermost open step of some distributions; for None the innermost calibration."""
    if not RUNTIME.is_running:
        return None
    for step in steps.enclosing_steps():
        is_calibration = step.info.kind == ProfileStep.CALIBRATION
        if is_calibration if owners is None else step.info.library in owners:
            return step
    return None


def count_sample(
    source: object, batch: object, owners: Collection[str] | None = None, began: Taken | None = None
) -> None:
    """Counts one sample, of a reader that was called then, for the innermost open step of some distributions, or calibration."""
    with FAULTS.kept_in(COUNTING):
        if (step := step_counting(owners)) is not None:
            if "sample" not in step.counts and (total := _length_of(source)) is not None:
                step.recorder.expect(step, "sample", total)
            begin_sample(step, items_in(batch), source, began)


def begin_sample(step: OpenStep, items: int | None, *source: Any, model: Any = None) -> None:
    """Counts one sample of a step; what it brings to the layers of a model is noted with its number."""
    if not step.counts.samples:
        observe(step, model)
    step.recorder.count_sample(step, items, *source)
    if step.observed is not None:
        step.observed.sample = step.counts["sample"].done


def count_layer(owners: Collection[str], unit: str = "layer") -> None:
    """Counts one layer, or pass, for the innermost open step of some distributions, if there is one."""
    with FAULTS.kept_in(COUNTING):
        if (step := step_counting(owners)) is not None:
            step.recorder.count(step, unit)


def expect_layers(total: int | None, owners: Collection[str], unit: str = "layer") -> None:
    """Notes that the innermost open step of some distributions goes through so many layers from now on."""
    with FAULTS.kept_in(COUNTING):
        if total and (step := step_counting(owners)) is not None:
            step.recorder.expect(step, unit, total)


def sample(call: Mapping[str, Any], result: object) -> None:
    """Each call that returns something is one calibration sample."""
    if result is not None:
        count_sample(call["self"], result)
        note_shapes(result)


def layer(call: Mapping[str, Any], owner: hooks.Library) -> None:
    """Counts each call as one layer of the step around it."""
    count_layer(steps.owners_of(owner))


def _length_of(source: object) -> int | None:
    """Returns how many items there are; of a progress bar of NNCF's, whose own total may be of weights, what it is made of."""
    for sized in (getattr(source, "sequence", None), source):
        if isinstance(sized, Sized):
            # Some readers have a length for some data only, or declare one they lack.
            with suppress(TypeError, NotImplementedError):
                return len(sized)
    total = getattr(source, "total", None)
    return total if isinstance(total, int) else None


def note_shapes(sample: object) -> None:
    """Keeps the shapes of the first sample for the cost of the models of the operations around."""
    with FAULTS.kept_in("shapes of calibration samples"):
        waiting = [operation for operation in steps.around() if not operation.input_shapes]
        if not waiting or not isinstance(sample, Mapping):
            return
        found = {name: _shape_of(value) for name, value in sample.items() if isinstance(name, str)}
        shapes = {name: shape for name, shape in found.items() if shape is not None}
        for operation in waiting:
            operation.input_shapes = shapes


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """Shape of an array or of lists within lists, which are as long as the first of them."""
    if (type(value).__module__, type(value).__name__) in _ARRAYS:
        return tuple(value.shape)
    if type(value) in (int, float, bool):
        return ()
    if type(value) is not list:
        return None
    inner = _shape_of(value[0]) if value else ()
    return None if inner is None else (len(value), *inner)


class Counted(_Proxy):
    """A data loader, reader or progress bar that is used as before, and whose items are counted."""

    def __init__(
        self,
        loader: Any,
        open_pass: Callable[[], OpenStep | None] = lambda: None,
        count: Callable[[object, object], None] | None = None,
    ) -> None:
        super().__init__(loader)
        self._self_open_pass, self._self_count = open_pass, count or count_sample

    @hooks.uncounted
    def __iter__(self) -> Iterator[Any]:
        activation = begun(self._self_open_pass)
        try:
            for item in self.__wrapped__:
                self._self_count(self.__wrapped__, item)
                yield item
        except BaseException as error:
            activation.finish(error)
            raise
        activation.finish()

    @hooks.uncounted
    def get_next(self, *args: Any, **kwargs: Any) -> Any:
        """Reads the next item, as onnxruntime does; what ends the data is None, or empty."""
        began = _taken_now()
        inputs = self.__wrapped__.get_next(*args, **kwargs)
        with FAULTS.kept_in(COUNTING):
            if inputs:
                count_sample(self.__wrapped__, inputs, began=began)
                note_shapes(inputs)
        return inputs


def counted(loader: Any, **more: Any) -> Any:
    """Returns a data loader whose items are counted, and None for none."""
    return None if loader is None else Counted(loader, **more)


def counting(
    function: hooks.Function, hook: hooks.Hook, arguments: hooks.Arguments
) -> hooks.Function:
    """Has the items of the loader counted that a function takes or returns."""
    if hook.counts != hooks.RETURNED:
        return arguments.replacing(function, hook.counts, counted)

    @hooks.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return Counted(function(*args, **kwargs))

    return wrapper


def passes(function: hooks.Function, hook: hooks.Hook, owner: hooks.Library) -> hooks.Function:
    """Each pass over its `{counts}` is step **{step}**, each item one calibration sample."""
    open_pass = partial(steps.open_library_step, hook.step, owner, filled_in=hook.filled_in)
    change = partial(counted, open_pass=open_pass)
    called = steps.observed(function, replace(hook, counts=""), owner)
    return hooks.Arguments(function).replacing(called, hook.counts, change)


def bar(function: hooks.Function, hook: hooks.Hook, owner: hooks.Library) -> hooks.Function:
    """A progress bar: each item is one {counts} of the step around it."""

    @hooks.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        shown, owners = function(*args, **kwargs), steps.owners_of(owner)
        if hook.counts == "sample":
            return Counted(shown, count=partial(count_sample, owners=owners))
        expect_layers(_length_of(shown), owners)
        return Counted(shown, count=lambda source, item: count_layer(owners))

    return wrapper


_MOST_PARTS: Final = 64  # A longer list has data in it, not the inputs of a model


def items_in(batch: object) -> int | None:
    """Returns the first dimension of a batch's arrays: alone, in a mapping, or in a list or tuple."""
    parts = batch if isinstance(batch, list | tuple) else (batch,)
    if len(parts) > _MOST_PARTS:
        return None
    shapes = [shape for part in parts for shape in _shapes_in(part)]
    if len(parts) > 1 and len(shapes) > 1 and len({len(shape) for shape in shapes}) == 1:
        return None
    sizes = {shape[0] for shape in shapes}
    size = sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) else None


def _shapes_in(part: object) -> list[tuple[object, ...]]:
    values = part.values() if isinstance(part, Mapping) else (part,)
    shapes = (getattr(value, "shape", None) for value in values)
    return [shape for shape in shapes if isinstance(shape, tuple) and shape]
