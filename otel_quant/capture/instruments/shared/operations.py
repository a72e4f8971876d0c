"""Calls of entry points that are under way: what happens within one belongs together.

An operation is no step and makes no span. It has the name of the library at work, so that
a library on which that one is built reports nothing between its steps either; it has the
attributes for the steps within; it holds a step that several calls make up; and in a
worker process its end is when telemetry is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import Activation
from otel_quant.schema.records import AttributeValue


class Operation:
    """One call of an entry point."""

    __slots__ = ("attributes", "costs_models", "input_shapes", "owner", "shared_step")

    def __init__(
        self, owner: str, attributes: Mapping[str, AttributeValue], costs_models: bool
    ) -> None:
        self.owner = owner
        self.attributes = attributes
        self.costs_models = costs_models
        self.shared_step: Activation | None = None
        self.input_shapes: Mapping[str, tuple[int, ...]] = {}

    def begin_shared_step(self, activation: Activation) -> None:
        """Begins a step that lasts until :meth:`end_shared_step`, or to the operation's end."""
        activation.resume()
        self.shared_step = activation

    def end_shared_step(self, error: BaseException | None = None) -> None:
        """Ends the step that :meth:`begin_shared_step` began, if it is open."""
        activation, self.shared_step = self.shared_step, None
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
    found = _AROUND.get()
    return found[-1] if found else None


def inherited_attributes() -> Mapping[str, AttributeValue]:
    """Returns the attributes of the operations around; those of inner ones go first."""
    found = _AROUND.get()
    return found[-1].attributes if found else _NOTHING


def around() -> tuple[Operation, ...]:
    """Returns the operations that the calling context is in, outermost first.

    A thread that was started without a context, as the libraries' own worker threads are,
    is taken to be in every operation under way.
    """
    found = _AROUND.get()
    if not found and RUNTIME.current_step() is None:
        found = tuple(_UNDER_WAY)
    return found


def costs_models() -> bool:
    """Whether an operation around costs its models, so that one within does not."""
    return any(each.costs_models for each in _AROUND.get())


def is_within(owners: Collection[str]) -> bool:
    """Whether the calling context is in an operation of one of some distributions."""
    return bool(owners) and any(each.owner in owners for each in around())


@contextmanager
def operating(
    owner: str, attributes: Mapping[str, AttributeValue], *, costs_models: bool = False
) -> Iterator[Operation]:
    """Marks a block as an operation."""
    operation = Operation(owner, {**inherited_attributes(), **attributes}, costs_models)
    token = _AROUND.set((*_AROUND.get(), operation))
    _UNDER_WAY.append(operation)
    try:
        with RUNTIME.operation():
            try:
                yield operation
            except BaseException as error:
                operation.end_shared_step(error)
                raise
            operation.end_shared_step()
    finally:
        _UNDER_WAY.remove(operation)
        _AROUND.reset(token)
