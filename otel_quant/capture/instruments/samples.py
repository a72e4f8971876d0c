"""What steps go through one after the other: calibration samples, layers, forward passes; and how well layers were quantized.

A sample is one call of a reader that returned data, or one item of a loader: a batch, as a rule. A layer is what
the library goes through one after the other: where it shows a progress bar, what that goes through.

Where a program itself runs a model between its preparation and its conversion, each forward pass is a sample. A
prepared model gets a hook that is called before its forward pass, and loses it when it is converted. The hook
changes neither results nor exceptions, and no copy of the model has it: not one that is pickled, and no script.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sized
from contextlib import suppress
from functools import partial
from numbers import Real
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import wrapt

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.hooks import (
    HOOKS,
    RETURNED,
    Arguments,
    Function,
    Hook,
    Library,
    library,
    uncounted,
    wraps,
)
from otel_quant.capture.instruments.steps import (
    activation_of,
    around,
    distributions_built_on,
    enclosing_steps,
    open_library_step,
    owners_of,
)
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import Activation
from otel_quant.schema.readings import AttributeValue, LayerAccuracy, ProfileStep

if TYPE_CHECKING:
    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy  # generic since wrapt 2 only

COUNTING: Final = "counting samples and layers"
"""Origin of failures, for :meth:`Faults.kept_in`."""

_ARRAYS: Final = frozenset({("numpy", "ndarray"), ("torch", "Tensor")})
"""Module and name of the classes of arrays, neither of which is to be imported for them."""

# --- samples and layers -------------------------------------------------------------------


def _step_of(owners: Collection[str] | None) -> OpenStep | None:
    """Returns the innermost open step of some distributions; for None the innermost calibration."""
    if not RUNTIME.is_running:
        return None
    for step in enclosing_steps():
        is_calibration = step.info.kind == ProfileStep.CALIBRATION
        if is_calibration if owners is None else step.info.library in owners:
            return step
    return None


def count_sample(source: object, batch: object, owners: Collection[str] | None = None) -> None:
    """Counts one sample for the innermost open step of some distributions, or calibration, if there is one."""
    with FAULTS.kept_in(COUNTING):
        if (step := _step_of(owners)) is not None:
            if "sample" not in step.counts and (total := _length_of(source)) is not None:
                step.recorder.expect(step, "sample", total)
            step.recorder.count_sample(step, items_in(batch))


def count_layer(owners: Collection[str]) -> None:
    """Counts one layer for the innermost open step of some distributions, if there is one."""
    with FAULTS.kept_in(COUNTING):
        if (step := _step_of(owners)) is not None:
            step.recorder.count(step, "layer")


def expect_layers(total: int | None, owners: Collection[str]) -> None:
    """Notes that the innermost open step of some distributions goes through so many layers from now on."""
    with FAULTS.kept_in(COUNTING):
        if total and (step := _step_of(owners)) is not None:
            step.recorder.expect(step, "layer", total)


def sample(call: Mapping[str, Any], result: object) -> None:
    """Each call that returns something is one calibration sample."""
    if result is not None:
        count_sample(call["self"], result)
        note_shapes(result)


def layer(call: Mapping[str, Any], owner: Library) -> None:
    """Counts each call as one layer of the step around it."""
    count_layer(owners_of(owner))


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
        waiting = [operation for operation in around() if not operation.input_shapes]
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
        open_pass: Callable[[], OpenStep | None] | None = None,
        count: Callable[[object, object], None] | None = None,
    ) -> None:
        super().__init__(loader)
        self._self_open_pass, self._self_count = open_pass, count or count_sample

    @uncounted
    def __iter__(self) -> Iterator[Any]:
        activation = activation_of(self._self_open_pass)
        try:
            for item in self.__wrapped__:
                self._self_count(self.__wrapped__, item)
                yield item
        except BaseException as error:
            activation.finish(error)
            raise
        activation.finish()

    @uncounted
    def get_next(self, *args: Any, **kwargs: Any) -> Any:
        """Reads the next item, as onnxruntime does; what ends the data is None, or empty."""
        inputs = self.__wrapped__.get_next(*args, **kwargs)
        with FAULTS.kept_in(COUNTING):
            if inputs:
                count_sample(self.__wrapped__, inputs)
                note_shapes(inputs)
        return inputs


def counted(loader: Any, open_pass: Callable[[], OpenStep | None] | None = None) -> Any:
    """Returns a data loader whose items are counted; each pass over it is a step if one opens."""
    return None if loader is None else Counted(loader, open_pass)


def counting(function: Function, hook: Hook, arguments: Arguments) -> Function:
    """Has the items of the loader counted that a function takes or returns."""
    if hook.counts != RETURNED:
        return arguments.replacing(function, hook.counts, counted)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return Counted(function(*args, **kwargs))

    return wrapper


def passes(function: Function, hook: Hook, owner: Library) -> Function:
    """Each pass over its `{counts}` is step **{step}**, each item one calibration sample."""
    open_pass = partial(open_library_step, hook.step, owner, filled_in=hook.filled_in)
    change = partial(counted, open_pass=open_pass)
    return Arguments(function).replacing(function, hook.counts, change)


def bar(function: Function, hook: Hook, owner: Library) -> Function:
    """A progress bar: each item is one {counts} of the step around it."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        shown, owners = function(*args, **kwargs), owners_of(owner)
        if hook.counts == "sample":
            return Counted(shown, count=partial(count_sample, owners=owners))
        expect_layers(_length_of(shown), owners)
        return Counted(shown, count=lambda source, item: count_layer(owners))

    return wrapper


_MOST_PARTS: Final = 64
"""A longer list has data in it, not the inputs of a model."""


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


# --- how well layers were quantized -------------------------------------------------------

# A figure is taken where it is a Python value: what a function of the library's returns or is called with. Where it
# is neither, but a local variable of a function of the library's, it is read while that function calls another.

Layers = Iterator[LayerAccuracy]


def value_of(value: Any, **more: Any) -> Layers:
    """Yields a value of a layer; nothing if it is no number."""
    if isinstance(value, Real) or getattr(value, "ndim", None) == 0:  # of numpy and torch
        found = float(value)
        yield LayerAccuracy(value=found if math.isfinite(found) else None, **more)


lower_is_better: Final = partial(value_of, better="lower")


def variables_of(function: str) -> dict[str, Any]:
    """Returns the variables of the innermost function of that name that is under way; none without one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    if frame is None:
        return {}
    found = dict(frame.f_locals)
    if sys.version_info < (3, 13):
        # There it is a copy that lasts as long as the function, and would keep alive what the function lets go.
        frame.f_locals.clear()
    return found


# --- forward passes -----------------------------------------------------------------------


class _Watched:
    """A model whose forward passes are counted."""

    def __init__(self, model: Any, by: OpenStep) -> None:
        self.attributes, self._by = dict(by.attributes), by.info
        self._step: OpenStep | None = None
        if not model._forward_pre_hooks:
            model._forward_pre_hooks = _HooksOfOne()
        self._hook = model.register_forward_pre_hook(_before_forward, with_kwargs=True)
        self._dropped = weakref.finalize(model, _end_watch, id(model))
        self._dropped.atexit = False

    def passed(self, inputs: object) -> None:
        """Counts a forward pass, for the calibration around it or one that begins with it."""
        if _step_of(None) is not None:
            count_sample(None, inputs)
            return
        if self._step is None or self._step.closed:
            self._step = RUNTIME.recorder.open(
                ProfileStep.CALIBRATION,
                library=self._by.library,
                library_version=self._by.library_version,
                attributes=self.attributes,
            )
        if self._step is not None:
            self._step.ends_with_parent = True
            self._step.recorder.count_sample(self._step, items_in(inputs))

    def end(self, *, is_released: bool = False) -> None:
        """Ends the calibration, if it has begun, and leaves the model as it was if that is not needed any more."""
        Activation(self._step).finish()
        if is_released:
            self._dropped.detach()
            self._hook.remove()


_WATCHED: Final[dict[int, _Watched]] = {}
"""The models that were prepared and not converted, by identity."""


class _HooksOfOne(OrderedDict[int, Any]):
    """The hooks of a prepared model; ours is neither copied nor compiled into a script."""

    def values(self) -> Any:
        return [hook for hook in super().values() if hook is not _before_forward]

    def __reduce__(self) -> Any:
        return OrderedDict, ([pair for pair in self.items() if pair[1] is not _before_forward],)


def _before_forward(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    with FAULTS.kept_in(COUNTING):
        watched = _WATCHED.get(id(model))
        if watched is not None and HOOKS.active:
            watched.passed(args or dict(kwargs))


def _end_watch(model: int) -> Mapping[str, AttributeValue] | None:
    """Ends the calibration of a model; returns what describes it, None if the model was not prepared."""
    watched = _WATCHED.pop(model, None)
    if watched is None:
        return None
    watched.end(is_released=True)
    return watched.attributes


def _model_of(call: Mapping[str, Any]) -> Any:
    return next(iter(call.values()), None)


def watch(call: Mapping[str, Any], result: object) -> None:
    """Forward passes of the model it returns are step **Calibration**, which its conversion ends."""
    model, step = _model_of(call) if result is None else result, RUNTIME.current_step()
    if step is not None and step.info.kind == ProfileStep.MODEL_PREPARATION:
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
    attributes = _end_watch(id(_model_of(call)))
    if attributes is None:  # it is a copy of one of those that were prepared
        for watched in list(_WATCHED.values()):  # another thread may drop a model meanwhile
            watched.end()
    return attributes or {}


def end_of_first_part(call: Mapping[str, Any]) -> Mapping[str, AttributeValue]:
    """Ends the calibration of a model that was prepared in place."""
    return _end_watch(id(_model_of(call))) or {}


def part_of(call: Mapping[str, Any]) -> str:
    """Step **Model Quantization**, or a layer of a step around it; a configuration with two parts first prepares, then converts."""
    count_layer(distributions_built_on(library("torchao")))
    config = call.get("config")
    part = str(getattr(config, "step", "")).rpartition(".")[2].lower()
    prepares = part in ("prepare", "observe") and "QAT" not in type(config).__name__
    return ProfileStep.MODEL_PREPARATION if prepares else ProfileStep.MODEL_QUANTIZATION
