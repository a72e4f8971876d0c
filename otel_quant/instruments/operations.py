"""Calls of entry points that are under way: what happens within one belongs together.

An operation is no step and makes no span. It says whose work this is, so that a library
upon which another is built stays silent between that other's steps as well as within
them; it holds steps that several calls make up; and in a worker it bounds the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from otel_quant.records import AttributeValue
from otel_quant.runtime import RUNTIME
from otel_quant.scope import Activation


class Operation:
    """One call of an entry point.

    Args:
        owner: Distribution whose entry point it is.
        attributes: What the arguments say, for the steps within.
        costs_models: Whether the models that it reads and writes are costed at its end.

    Attributes:
        spanning: A step that several calls within the operation make up, while it is open.
    """

    __slots__ = ("attributes", "costs_models", "owner", "spanning")

    def __init__(
        self, owner: str, attributes: Mapping[str, AttributeValue], costs_models: bool
    ) -> None:
        self.owner = owner
        self.attributes = attributes
        self.costs_models = costs_models
        self.spanning: Activation | None = None

    def span_calls(self, activation: Activation) -> None:
        """Opens a step that lasts beyond the call that opens it, at most to the end of this."""
        activation.resume()
        self.spanning = activation

    def end_spanning(self, error: BaseException | None = None) -> None:
        """Closes the step that :meth:`span_calls` opened, if it is open."""
        activation, self.spanning = self.spanning, None
        if activation is not None:
            activation.suspend()
            activation.finish(error)


# The operations that the calling context is in, outermost first.
_AROUND: Final[ContextVar[tuple[Operation, ...]]] = ContextVar("otel_quant_operations", default=())
# Those of all contexts, for threads that were started without one.
_UNDER_WAY: Final[list[Operation]] = []

_NOTHING: Final[Mapping[str, AttributeValue]] = MappingProxyType({})


def innermost() -> Operation | None:
    """Returns the innermost operation that the calling context is in."""
    around = _AROUND.get()
    return around[-1] if around else None


def inherited_attributes() -> Mapping[str, AttributeValue]:
    """Returns what the arguments of the operations around say; the inner ones go first."""
    around = _AROUND.get()
    return around[-1].attributes if around else _NOTHING


def costs_models() -> bool:
    """Whether an operation around costs its models, so that one within need not."""
    return any(each.costs_models for each in _AROUND.get())


def is_within(owners: Collection[str]) -> bool:
    """Whether the calling context is in an operation of one of some distributions.

    A thread that was started without a context belongs to any operation under way: the
    libraries' own worker threads are such.

    Args:
        owners: The distributions.
    """
    around = _AROUND.get()
    if not around and RUNTIME.current_step() is None:
        around = tuple(_UNDER_WAY)
    return any(each.owner in owners for each in around)


@contextmanager
def operating(
    owner: str, attributes: Mapping[str, AttributeValue], *, costs_models: bool = False
) -> Iterator[Operation]:
    """Marks a block as an operation.

    Args:
        owner: Distribution whose entry point it is.
        attributes: What its arguments say.
        costs_models: Whether the models that it reads and writes are costed at its end.

    Yields:
        The operation.
    """
    operation = Operation(owner, {**inherited_attributes(), **attributes}, costs_models)
    token = _AROUND.set((*_AROUND.get(), operation))
    _UNDER_WAY.append(operation)
    try:
        with RUNTIME.operation():
            try:
                yield operation
            except BaseException as error:
                operation.end_spanning(error)
                raise
            operation.end_spanning()
    finally:
        _UNDER_WAY.remove(operation)
        _AROUND.reset(token)
