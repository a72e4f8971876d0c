"""The run, or the part of it that was not reported yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from otel_quant.capture.recorder.peaks import PeakTracker
from otel_quant.schema.records import Peaks, Reading, RunInfo, RunRecord


@dataclass(slots=True)
class Period:
    """The run, or a part of it, since a reading."""

    start: Reading  # The reading
    tracker: PeakTracker  # Peaks since then
    steps: int = 0  # Number of steps that ended
    failed: int = 0  # Number of steps that ended with an error

    def record(
        self,
        info: RunInfo,
        end: Reading,
        custom: Mapping[str, object],
        run_peaks: Peaks,
        error: str | None = None,
    ) -> RunRecord:
        """Returns the record of the period up to a reading."""
        return RunRecord(
            info=info,
            start=self.start,
            end=end,
            peaks=self.tracker.result(),
            steps=self.steps,
            failed_steps=self.failed,
            custom=custom,
            error=error,
            run_peaks=run_peaks,
        )
