"""Checkpoints of a run: their numbers, and the values of the program's metrics at them."""

from __future__ import annotations

from collections.abc import Mapping

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.recorder.program_metrics import ProgramMetrics
from otel_quant.schema.records import Checkpoint, Peaks, Phase, Reading, StepInfo

_ORIGIN = "metrics of the program"


class Checkpoints:
    """Makes the checkpoints of one run, and keeps the last value of each metric of the program."""

    def __init__(self, metrics: ProgramMetrics | None) -> None:
        self._metrics = metrics
        self._next = 0
        # By name, with the order of the reading: a slow metric may return after a newer one.
        self._last: dict[str, tuple[int, object]] = {}

    def at_checkpoint(self, name: str, reading: Reading, baseline: Reading) -> dict[str, object]:
        """Asks for the values at a checkpoint: see :meth:`ProgramMetrics.at_checkpoint`."""
        if self._metrics is not None:
            with FAULTS.kept_in(_ORIGIN):
                return self._metrics.at_checkpoint(name, reading, baseline)
        return {}

    def at_end(self, reading: Reading, baseline: Reading, peaks: Peaks) -> dict[str, object]:
        """Asks for the values of the run: see :meth:`ProgramMetrics.at_end`."""
        if self._metrics is not None:
            with FAULTS.kept_in(_ORIGIN):
                return self._metrics.at_end(reading, baseline, peaks)
        return {}

    def make(
        self,
        name: str,
        phase: Phase,
        reading: Reading,
        baseline: Reading,
        custom: Mapping[str, object],
        step: StepInfo | None = None,
        error: str | None = None,
    ) -> Checkpoint:
        """Makes the next checkpoint. Called with the recorder's lock."""
        for metric, value in custom.items():
            order, _ = self._last.get(metric, (0, None))
            if reading.order >= order:
                self._last[metric] = reading.order, value
        checkpoint = Checkpoint(
            sequence=self._next,
            name=name,
            phase=phase,
            reading=reading,
            baseline=baseline,
            step=step,
            custom=custom,
            error=error,
        )
        self._next += 1
        return checkpoint

    def last(self) -> dict[str, object]:
        """Returns the last value of each metric, by name."""
        return {name: value for name, (_, value) in self._last.items()}
