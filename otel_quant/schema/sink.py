"""The interface of sinks: what receives the events of a run, and when."""

from __future__ import annotations

from contextvars import Token
from typing import Any

from otel_quant.schema.events import Event, EventKind
from otel_quant.schema.records import Reading, StepInfo


class Sink:
    """Receives a run as it happens. Every method does nothing unless overridden.

    Each kind of event has a method of its own; what treats all alike overrides :meth:`receive`. The
    recorder sends one event at a time for a given step, but steps of different threads may begin
    and end at the same time; ``reading.taken`` and ``forecast.exceeded`` come from the sampler's
    thread at any time, and perhaps once more after the run has ended. A method may raise: the error
    is logged once; the program and the other sinks are not affected.
    """

    name: str = "sink"  # Its name in the log

    def receive(self, event: Event) -> None:
        """Receives an event: calls the method of its kind."""
        getattr(self, method_of(event.kind))(event)

    def run_started(self, event: Event) -> None:
        """The run begins."""

    def step_started(self, event: Event) -> None:
        """A step opens. Its code runs only after this method has returned."""

    def samples_expected(self, event: Event) -> None:
        """It is known how many calibration samples a step will consume."""

    def step_ended(self, event: Event) -> None:
        """A step has closed, with or without an error."""

    def checkpoint(self, event: Event) -> None:
        """A checkpoint was taken that is neither the start nor the end of a step."""

    def models_costed(self, event: Event) -> None:
        """The static cost of models is known."""

    def reading_taken(self, event: Event) -> None:
        """The run goes on. While this runs no sample is taken: it must return soon."""

    def forecast_exceeded(self, event: Event) -> None:
        """Memory will not suffice for the samples that are left."""

    def run_reported(self, event: Event) -> None:
        """A worker is between two tasks; the run continues with the next step, if there is one."""

    def run_ended(self, event: Event) -> None:
        """The run has ended."""

    def run_killed(self, event: Event) -> None:
        """The program was killed in the run. Of a recording only."""

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
