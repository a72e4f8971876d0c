"""Sink that warns, once for a step, that memory will not suffice for the samples that are left."""

from __future__ import annotations

from otel_quant.base.log import LOG
from otel_quant.schema.forecast_warnings import NewWarnings, sentence
from otel_quant.schema.records import Checkpoint, Limits, RunInfo, RunProgress
from otel_quant.schema.sink import Sink


class ForecastWarningSink(Sink):
    """Logs the warning."""

    name = "forecast warning"

    def __init__(self) -> None:
        self._warnings = NewWarnings()
        self._limits = Limits()

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """Notes the limits."""
        self._warnings.clear()
        self._limits = run.limits

    def run_progressed(self, progress: RunProgress) -> None:
        """Warns of each growth beyond its limit, the first time."""
        for step, growth in self._warnings.of(progress):
            LOG.warning("%s", sentence(step, growth, self._limits))
