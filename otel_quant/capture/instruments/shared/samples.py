"""Wrappers that count the samples that a calibration takes.

A sample is one call of a reader that returned data, or one item of a loader: a batch, as a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import wrapt

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.arguments import with_argument
from otel_quant.capture.instruments.shared.batches import items_in
from otel_quant.capture.instruments.shared.library import Hook, Library
from otel_quant.capture.instruments.shared.nesting import enclosing_steps
from otel_quant.capture.instruments.shared.operations import around
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import OPENING_A_STEP, Activation
from otel_quant.capture.uncounted_frames import uncounted, wraps
from otel_quant.schema import semconv
from otel_quant.schema.step_names import ProfileStep

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


def sample(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Counts each call that returns something as one sample of the calibration around it."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result is not None:
            count_sample(args[0], result)
            note_shapes(result)
        return result

    return wrapper


def samples(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
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


class CountedLoader(_Proxy):
    """A data loader that is iterated as before, and whose items are counted."""

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


def with_counted_loader(
    function: Callable[..., Any], parameter: str, open_pass: OpenPass | None = None
) -> Callable[..., Any]:
    """Has the items of the data loader counted that each call of a function is passed."""

    def change(loader: Any) -> Any:
        return None if loader is None else CountedLoader(loader, open_pass)

    return with_argument(function, parameter, change)
