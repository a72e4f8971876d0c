"""The interface of sinks: which events the recorder sends them, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Token
from typing import Any

from otel_quant.schema.records import (
    AttributeValue,
    Checkpoint,
    CostedModel,
    Reading,
    RunInfo,
    RunProgress,
    RunRecord,
    StepInfo,
    StepRecord,
)


class Sink:
    """Receives a run as it happens. Every method does nothing unless overridden.

    The recorder calls one method at a time for a given step, but steps of different
    threads may begin and end at the same time. A method may raise: the error is logged once;
    the program and the other sinks are not affected.
    """

    name: str = "sink"  # Its name in the log

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """The run begins; ``checkpoint`` is its ``Start``."""

    def step_started(
        self, step: StepInfo, checkpoint: Checkpoint, attributes: Mapping[str, AttributeValue]
    ) -> None:
        """A step opens. Its code runs only after this method has returned."""

    def step_entered(self, step: StepInfo) -> Token[Any] | None:
        """The code of the step is about to run in the calling context.

        Called each time the code is entered: once for a function, once for every resumption of
        a generator.
        """
        return None

    def step_left(self, step: StepInfo, token: Token[Any] | None) -> None:
        """The code of the step no longer runs in the calling context."""

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        """A step has closed, with or without an error."""

    def samples_expected(self, step: StepInfo, total: int) -> None:
        """A step is about to consume ``total`` calibration samples."""

    def samples_counted(self, step: StepInfo, count: int) -> None:
        """A step has consumed ``count`` more calibration samples."""

    def sampled(self, reading: Reading) -> None:
        """A sample was taken between two checkpoints, on the sampler's thread.

        What is said of :meth:`run_progressed` holds for this too. The reading has disk I/O and CPU
        time about once a second.
        """

    def run_progressed(self, progress: RunProgress) -> None:
        """The run goes on; checkpoints may be far apart.

        Called about once a second, on the sampler's thread and without the recorder's lock, so at
        the same time as other methods, and perhaps once more after ``run_ended``. It is not
        called while the sampler is switched off or something holds the GIL. While it runs no
        sample is taken: it must return soon.
        """

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """The static cost of models is known."""

    def point(self, checkpoint: Checkpoint) -> None:
        """A checkpoint was taken that is neither the start nor the end of a step."""

    def run_reported(self, record: RunRecord) -> None:
        """A worker process is between two tasks and may be terminated at any time.

        ``record`` covers the time since the run began or since the previous report. The run
        continues with the next step, if there is one.
        """

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        """The run has ended; ``checkpoint`` is its ``End``."""

    def forget(self) -> None:
        """Drops the run, without writing or sending anything.

        Called in a forked child, whose run it is not, and when the sink is not used any more.
        """
