"""The sinks of a run: a failure of one is logged, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import Token
from typing import Any, TypeAlias, get_args

from otel_quant.base.fault_boundary import FAULTS, Boundary
from otel_quant.schema.events import Event, EventKind, Sink, method_of
from otel_quant.schema.records import Reading, StepInfo

SinkTokens: TypeAlias = list[tuple[Sink, Boundary, Token[Any] | None]]
"""What each sink needs to leave a step that it has entered."""


class Sinks:
    """Calls sinks: those that do something with what there is."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks: tuple[tuple[Sink, Boundary], ...] = ()
        self._set((sink, FAULTS.kept_in(f"sink {sink.name}")) for sink in sinks)

    def add(self, sink: Sink) -> None:
        """Adds a sink; it receives what happens from now on."""
        self._set((*self._sinks, (sink, FAULTS.kept_in(f"sink {sink.name}"))))

    def send(self, event: Event) -> None:
        """Sends an event."""
        for boundary, receive in self._receivers[event.kind]:
            with boundary:
                receive(event)

    def samples_counted(self, step: StepInfo, count: int) -> None:
        """Sends that a step has consumed samples."""
        for boundary, receive in self._counters:
            with boundary:
                receive(step, count)

    def sampled(self, reading: Reading) -> None:
        """Sends a sample."""
        for boundary, receive in self._samplers:
            with boundary:
                receive(reading)

    def forget(self) -> None:
        """Has all drop the run."""
        for sink, boundary in self._sinks:
            with boundary:
                sink.forget()

    def enter(self, step: StepInfo) -> SinkTokens:
        """Enters a step in the calling context; returns what :meth:`leave` needs."""
        tokens: SinkTokens = []
        for sink, boundary in self._entering:
            with boundary:
                tokens.append((sink, boundary, sink.step_entered(step)))
        return tokens

    def leave(self, step: StepInfo, tokens: SinkTokens) -> None:
        """Leaves a step in the calling context."""
        for sink, boundary, token in reversed(tokens):
            with boundary:
                sink.step_left(step, token)

    def _set(
        self, sinks: Iterator[tuple[Sink, Boundary]] | Sequence[tuple[Sink, Boundary]]
    ) -> None:
        self._sinks = tuple(sinks)
        self._receivers = {kind: self._receivers_of(kind) for kind in get_args(EventKind)}
        self._counters = self._that_override("samples_counted")
        self._samplers = self._that_override("sampled")
        self._entering = tuple(
            each for each in self._sinks if type(each[0]).step_entered is not Sink.step_entered
        )

    def _receivers_of(
        self, kind: EventKind
    ) -> tuple[tuple[Boundary, Callable[[Event], None]], ...]:
        name = method_of(kind)
        found = tuple(
            (boundary, sink.receive if takes_all else getattr(sink, name))
            for sink, boundary in self._sinks
            for takes_all in (type(sink).receive is not Sink.receive,)
            if takes_all or hasattr(sink, name)
        )
        # The spans sink is first, so it ends the span after the metrics and logs that refer to it
        # have been written.
        return found[::-1] if kind in ("step.ended", "run.ended") else found

    def _that_override(self, name: str) -> tuple[tuple[Boundary, Callable[..., None]], ...]:
        return tuple(
            (boundary, getattr(sink, name))
            for sink, boundary in self._sinks
            if getattr(type(sink), name) is not getattr(Sink, name)
        )
