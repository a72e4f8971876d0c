"""The sinks of a run, and what each of them is called with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Token
from typing import Any, TypeAlias

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.schema.events import EVENTS, Event, Sink, method_of
from otel_quant.schema.readings import Reading, StepInfo

_Receive: TypeAlias = Callable[..., Any]
"""A method of a sink, within the boundary of that sink: a failure of one is logged, and the others go on."""

SinkTokens: TypeAlias = list[tuple[_Receive, Token[Any] | None]]
"""What leaves a step that a sink has entered, and what it needs."""


class Sinks:
    """The sinks of a run; each is called only with what it handles."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks: tuple[Sink, ...] = ()
        self.add(*sinks)

    def add(self, *sinks: Sink) -> None:
        """Adds sinks, which receive what happens from now on."""
        self._sinks = (*self._sinks, *sinks)
        self._receivers = {kind: self._receivers_of(kind) for kind in EVENTS}
        self._counters = self._that_override("counted")
        self._samplers = self._that_override("sampled")
        self._entering = [
            (_within(sink, sink.step_entered), _within(sink, sink.step_left))
            for sink in self._sinks
            if type(sink).step_entered is not Sink.step_entered
        ]

    def send(self, event: Event) -> None:
        """Sends an event."""
        FAULTS.call_each("sink", self._receivers[event.kind], event)

    def counted(self, step: StepInfo, unit: str, count: int) -> None:
        """Sends that a step has begun samples or layers."""
        for receive in self._counters:
            receive(step, unit, count)

    def sampled(self, reading: Reading) -> None:
        """Sends a sample."""
        for receive in self._samplers:
            receive(reading)

    def forget(self) -> None:
        """Has all drop the run."""
        for sink in self._sinks:
            _within(sink, sink.forget)()

    def enter(self, step: StepInfo) -> SinkTokens:
        """Enters a step in the calling context; returns what :meth:`leave` needs."""
        return [(leave, enter(step)) for enter, leave in self._entering]

    def leave(self, step: StepInfo, tokens: SinkTokens) -> None:
        """Leaves a step in the calling context."""
        for leave, token in reversed(tokens):
            leave(step, token)

    def _receivers_of(self, kind: str) -> list[tuple[str, _Receive]]:
        name, found = method_of(kind), []
        for sink in self._sinks:
            receives_all = type(sink).receive is not Sink.receive
            if (receive := sink.receive if receives_all else getattr(sink, name, None)) is not None:
                found.append((sink.name, receive))
        # The sink of spans comes before those of metrics and log records, which refer to a span: at an
        # end it is after them.
        return found[::-1] if kind in ("step.ended", "run.ended") else found

    def _that_override(self, name: str) -> list[_Receive]:
        return [
            _within(sink, getattr(sink, name))
            for sink in self._sinks
            if getattr(type(sink), name) is not getattr(Sink, name)
        ]


def _within(sink: Sink, method: _Receive) -> _Receive:
    return FAULTS.kept_in(f"sink {sink.name}").around(method)
