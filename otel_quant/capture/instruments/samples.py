"""Wrappers that count: the samples that a calibration takes, and layers.

A sample is one call of a reader that returned data, or one item of a loader: a batch, as a rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sized
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import wrapt

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.hooks import (
    Arguments,
    Function,
    Hook,
    Library,
    uncounted,
    wraps,
)
from otel_quant.capture.instruments.steps import (
    around,
    distributions_built_on,
    enclosing_steps,
    open_library_step,
)
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import OPENING_A_STEP, Activation
from otel_quant.schema import semconv
from otel_quant.schema.records import ProfileStep

if TYPE_CHECKING:
    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy  # generic since wrapt 2 only

COUNTING_SAMPLES: Final = "counting calibration samples"
"""Origin of a failure, for :meth:`Faults.kept_in`."""

_ARRAYS: Final = frozenset({("numpy", "ndarray"), ("torch", "Tensor")})
"""Module and name of the classes of arrays, neither of which is to be imported for them."""

OpenPass = Callable[[], OpenStep | None]
"""Opens the step that one pass over a data loader is."""


def sample(call: Mapping[str, Any], result: object) -> None:
    """Each call that returns something is one calibration sample."""
    if result is not None:
        count_sample(call["self"], result)
        note_shapes(result)


def samples(function: Function, hook: Hook, library: Library) -> Function:
    """Counts what the iterator that a call returns yields, for the calibration around it."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Iterator[Any]:
        for item in function(*args, **kwargs):
            count_sample(args[0], item)
            yield item

    return wrapper


def count_sample(source: object, batch: object) -> None:
    """Counts one sample for the innermost open calibration, if there is one."""
    with FAULTS.kept_in(COUNTING_SAMPLES):
        if not RUNTIME.is_running:
            return
        for step in enclosing_steps():
            if step.info.kind == ProfileStep.CALIBRATION:
                if not step.samples and isinstance(source, Sized):
                    # Some readers have a length for some data only, or declare one they lack.
                    with suppress(TypeError, NotImplementedError):
                        total = len(source)
                        step.attributes[semconv.CALIBRATION_SAMPLE_TOTAL] = total
                        step.recorder.expect_samples(step, total)
                step.recorder.count_sample(step, items_in(batch))
                return


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
    """A data loader or reader that is used as before, and whose items are counted."""

    def __init__(self, loader: Any, open_pass: OpenPass | None = None) -> None:
        super().__init__(loader)
        self._self_open_pass = open_pass

    @uncounted
    def __iter__(self) -> Iterator[Any]:
        activation = Activation(None)
        if self._self_open_pass is not None:
            with FAULTS.kept_in(OPENING_A_STEP):
                activation = Activation(self._self_open_pass())
        try:
            for item in self.__wrapped__:
                count_sample(self.__wrapped__, item)
                yield item
        except BaseException as error:
            activation.finish(error)
            raise
        activation.finish()

    @uncounted
    def get_next(self, *args: Any, **kwargs: Any) -> Any:
        """Reads the next item, as onnxruntime does; what ends the data is None, or empty."""
        inputs = self.__wrapped__.get_next(*args, **kwargs)
        with FAULTS.kept_in(COUNTING_SAMPLES):
            if inputs:
                count_sample(self.__wrapped__, inputs)
                note_shapes(inputs)
        return inputs


def counted(loader: Any, open_pass: OpenPass | None = None) -> Any:
    """Returns a data loader whose items are counted; each pass over it is a step if one opens."""
    return None if loader is None else Counted(loader, open_pass)


def passes(function: Function, hook: Hook, library: Library) -> Function:
    """Each pass over its `{counts}` is step **{step}**, each item one calibration sample."""

    def change(loader: Any) -> Any:
        open_pass = functools.partial(
            open_library_step, hook.step, library, filled_in=hook.filled_in
        )
        return counted(loader, open_pass)

    return Arguments(function).replacing(function, hook.counts, change)


def layer(function: Function, hook: Hook, library: Library) -> Function:
    """Counts each call as one layer of the step around it."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        count_layer({library.distribution, *distributions_built_on(library)})
        return function(*args, **kwargs)

    return wrapper


def count_layer(owners: Collection[str]) -> None:
    """Counts one layer for the innermost open step of some distributions, if there is one."""
    with FAULTS.kept_in("counting layers"):
        if not RUNTIME.is_running:
            return
        for step in enclosing_steps():
            if step.info.library in owners:
                step.recorder.count_in(step, semconv.LAYER_COUNT)
                return


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
