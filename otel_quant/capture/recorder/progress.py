"""When the sinks of a run are told of its progress between two checkpoints, and what."""

from __future__ import annotations

import time
from typing import Final

from otel_quant.capture.recorder.ongoing_figures import OngoingFigures
from otel_quant.schema.records import Reading, RunProgress

_BETWEEN: Final = 1_000_000_000
"""Nanoseconds between two reports of progress. With the sampler's longest pause the last one of a
run that is killed is less than 2 s old."""


class Progress:
    """Progress of a run that has begun, from the samples that the sampler takes.

    It has no lock: its methods are called with the recorder's.
    """

    def __init__(self, figures: OngoingFigures) -> None:
        self._figures = figures
        self._told_ns = 0  # monotonic clock of the last report

    def is_due(self) -> bool:
        """Returns whether the next sample is to be reported."""
        whole = self._figures.whole
        assert whole is not None
        return time.perf_counter_ns() - max(self._told_ns, whole.start.clock_ns) >= _BETWEEN

    def add(self, reading: Reading) -> None:
        """Adds a sample to the forecasts of the open steps."""
        for step in self._figures.open.values():
            if step.forecast is not None and step.samples:
                step.forecast.add(step.samples, reading)

    def report(self, reading: Reading) -> RunProgress:
        """Returns what the sinks are told."""
        whole = self._figures.whole
        assert whole is not None
        self._told_ns = reading.clock_ns
        return RunProgress(
            reading,
            whole.start,
            whole.tracker.result(),
            tuple(step.progress(reading.clock_ns) for step in self._figures.open.values()),
        )
