"""The interface of sinks: what receives the events of a run, and when."""

from __future__ import annotations

from contextvars import Token
from typing import Any

from otel_quant.schema.events import Event, EventKind
from otel_quant.schema.records import Reading, StepInfo


class Sink:
    """Receives a run as it happens: events by methods of the names of their kinds, of which it has some.

    ``step.started`` calls ``step_started(event)``; what treats all alike overrides :meth:`receive`. The
    recorder sends one event at a time for a given step, but steps of different threads may begin
    and end at the same time; ``reading.taken`` and ``forecast.exceeded`` come from the sampler's
    thread at any time, and perhaps once more after the run has ended. A method may raise: the error
    is logged once; the program and the other sinks are not affected.
    """

    name: str = "sink"  # Its name in the log

    def receive(self, event: Event) -> None:
        """Receives an event: calls the method of its kind, if there is one."""
        method = getattr(self, method_of(event.kind), None)
        if method is not None:
            method(event)

    # What happens too often to be an event:

    def step_entered(self, step: StepInfo) -> Token[Any] | None:
        """The code of the step is about to run in the calling context.

        Called each time the code is entered: once for a function, once for every resumption of
        a generator.
        """
        return None

    def step_left(self, step: StepInfo, token: Token[Any] | None) -> None:
        """The code of the step no longer runs in the calling context."""

    def samples_counted(self, step: StepInfo, count: int) -> None:
        """A step has consumed ``count`` more calibration samples."""

    def sampled(self, reading: Reading) -> None:
        """A sample was taken between two checkpoints, on the sampler's thread."""

    def forget(self) -> None:
        """Drops the run, without writing or sending anything.

        Called in a forked child, whose run it is not, and when the sink is not used any more.
        """


def method_of(kind: EventKind) -> str:
    """Returns the name of the method of a kind of event."""
    return kind.replace(".", "_")
