"""Counts the samples that a calibration takes from an iterable."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import wrapt

from otel_quant.fault_boundary import FAULTS
from otel_quant.instruments.arguments import Arguments
from otel_quant.instruments.calls import count_sample, open_library_step
from otel_quant.instruments.library import Library
from otel_quant.scope import Activation
from otel_quant.steps import ProfileStep

if TYPE_CHECKING:
    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy  # generic since wrapt 2 only

_PARAMETER = "dataloader"


class CountedLoader(_Proxy):
    """A data loader that is iterated as before, and whose items are counted.

    One pass over it is the ``Calibration (Forward)`` step, which no function of the
    library stands for.
    """

    def __init__(self, loader: Any, library: Library) -> None:
        super().__init__(loader)
        self._self_library = library

    def __iter__(self) -> Iterator[Any]:
        activation = Activation(
            open_library_step(ProfileStep.CALIBRATION_FORWARD, self._self_library, filled_in=True)
        )
        try:
            for item in self.__wrapped__:
                with FAULTS.kept_in("counting calibration samples"):
                    count_sample(self.__wrapped__)
                yield item
        except BaseException as error:
            activation.finish(error)
            raise
        activation.finish()


def counting(function: Callable[..., Any], library: Library) -> Callable[..., Any]:
    """Has the items of a function's ``dataloader`` counted, if it takes one.

    Args:
        function: The function that iterates over the loader.
        library: Whose function it is.

    Returns:
        The wrapper, or the function itself if it takes no loader.
    """
    arguments = Arguments(function)
    position = arguments.position(_PARAMETER)
    if position is None:
        return function

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with FAULTS.kept_in("counting calibration samples"):
            if kwargs.get(_PARAMETER) is not None:
                kwargs[_PARAMETER] = CountedLoader(kwargs[_PARAMETER], library)
            elif len(args) > position and args[position] is not None:
                counted = CountedLoader(args[position], library)
                args = (*args[:position], counted, *args[position + 1 :])
        return function(*args, **kwargs)

    return wrapper
