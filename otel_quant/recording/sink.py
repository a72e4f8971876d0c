"""What the recorder tells its sinks, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Token
from typing import Any

from otel_quant.records import (
    AttributeValue,
    Checkpoint,
    CostedModel,
    RunInfo,
    RunRecord,
    StepInfo,
    StepRecord,
)


class Sink:
    """Receives a run as it happens. Every method does nothing unless overridden.

    The recorder calls one method at a time for a given step, but steps of different
    threads may begin and end at once. A method may raise: that is logged once, and the
    program and the other sinks go on.

    Attributes:
        name: What it is called in the log.
    """

    name: str = "sink"

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """The run begins; ``checkpoint`` is its ``Start``."""

    def step_started(
        self, step: StepInfo, checkpoint: Checkpoint, attributes: Mapping[str, AttributeValue]
    ) -> None:
        """A step opens. Its body does not run before this has returned."""

    def step_entered(self, step: StepInfo) -> Token[Any] | None:
        """The code of the step is about to run in the calling context.

        Called each time that code is entered: once for a function, once for every
        resumption of a generator.

        Returns:
            What :meth:`step_left` needs to undo it.
        """
        return None

    def step_left(self, step: StepInfo, token: Token[Any] | None) -> None:
        """The code of the step no longer runs in the calling context."""

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        """A step has closed, well or not."""

    def samples_expected(self, step: StepInfo, total: int) -> None:
        """A step is about to consume so many calibration samples in all."""

    def samples_counted(self, step: StepInfo, count: int) -> None:
        """A step has consumed so many more calibration samples."""

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """The static cost of models is known."""

    def point(self, checkpoint: Checkpoint) -> None:
        """A checkpoint that belongs to no step's boundary was taken."""

    def run_reported(self, record: RunRecord) -> None:
        """In a worker, between two tasks: the process may be terminated from here on.

        ``record`` has what happened since the run began or was reported before. The run
        goes on with the next step, if there is one.
        """

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        """The run is over; ``checkpoint`` is its ``End``."""

    def forget(self) -> None:
        """In a forked child: drop the parent's run without writing or sending anything."""
