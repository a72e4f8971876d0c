"""Metrics that the program has added: what is asked of them, and their last values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from otel_quant.fault_boundary import FAULTS
from otel_quant.records import Peaks, Reading

_ORIGIN = "metrics of the program"


class ProgramMetrics(Protocol):
    """Metrics that the program has added. Several threads may call it at the same time."""

    def at_checkpoint(self, name: str, reading: Reading, baseline: Reading) -> dict[str, object]:
        """Returns their values at a checkpoint, by name.

        Args:
            name: Name of the checkpoint.
            reading: The checkpoint's reading.
            baseline: The run's first reading.
        """

    def at_end(self, reading: Reading, baseline: Reading, peaks: Peaks) -> dict[str, object]:
        """Returns the values of the metrics of the whole run, by name.

        Args:
            reading: The run's last reading.
            baseline: Its first.
            peaks: Highest figures of the run.
        """


class ProgramValues:
    """Asks the metrics of one run, and keeps their last values.

    Args:
        metrics: The metrics; None for none.
    """

    def __init__(self, metrics: ProgramMetrics | None) -> None:
        self._metrics = metrics
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

    def keep(self, values: Mapping[str, object], reading: Reading) -> None:
        """Keeps values, unless there are newer ones. Called by one thread at a time.

        Args:
            values: The values, by name.
            reading: The reading of their checkpoint.
        """
        for name, value in values.items():
            order, _ = self._last.get(name, (0, None))
            if reading.order >= order:
                self._last[name] = reading.order, value

    def last(self) -> dict[str, object]:
        """Returns the last value of each metric, by name."""
        return {name: value for name, (_, value) in self._last.items()}
