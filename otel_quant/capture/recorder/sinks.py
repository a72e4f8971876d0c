"""The sinks of a run: a failure of one is logged, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Token
from typing import Any, TypeAlias

from otel_quant.base.fault_boundary import FAULTS, Boundary
from otel_quant.schema.records import Reading, StepInfo
from otel_quant.schema.sink import Sink

SinkTokens: TypeAlias = list[tuple[Sink, Boundary, Token[Any] | None]]
"""What each sink needs to leave a step that it has entered."""


class Sinks:
    """Calls sinks."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple((sink, FAULTS.kept_in(f"sink {sink.name}")) for sink in sinks)

    def add(self, sink: Sink) -> None:
        """Adds a sink; it receives what happens from now on."""
        self._sinks = (*self._sinks, (sink, FAULTS.kept_in(f"sink {sink.name}")))

    def each(self, send: Callable[[Sink], None]) -> None:
        """Calls something for each sink."""
        for sink, boundary in self._sinks:
            with boundary:
                send(sink)

    def sampled(self, reading: Reading) -> None:
        """Sends a sample to the sinks; most do nothing with it."""
        for sink, boundary in self._sinks:
            if type(sink).sampled is not Sink.sampled:
                with boundary:
                    sink.sampled(reading)

    def each_in_reverse(self, send: Callable[[Sink], None]) -> None:
        """Sends the end of a step or run to the sinks, in reverse order.

        The spans sink is first, so it ends the span after the metrics and logs that refer to it
        have been written.
        """
        for sink, boundary in reversed(self._sinks):
            with boundary:
                send(sink)

    def enter(self, step: StepInfo) -> SinkTokens:
        """Enters a step in the calling context; returns what :meth:`leave` needs."""
        tokens: SinkTokens = []
        for sink, boundary in self._sinks:
            if type(sink).step_entered is not Sink.step_entered:  # most sinks do nothing there
                with boundary:
                    tokens.append((sink, boundary, sink.step_entered(step)))
        return tokens

    def leave(self, step: StepInfo, tokens: SinkTokens) -> None:
        """Leaves a step in the calling context."""
        for sink, boundary, token in reversed(tokens):
            with boundary:
                sink.step_left(step, token)
