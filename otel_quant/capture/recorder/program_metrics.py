"""Metrics that the program has added, as the recorder asks them."""

from __future__ import annotations

from typing import Protocol

from otel_quant.schema.records import Peaks, Reading


class ProgramMetrics(Protocol):
    """Metrics that the program has added. Several threads may call it at the same time."""

    def at_checkpoint(self, name: str, reading: Reading, baseline: Reading) -> dict[str, object]:
        """Returns their values at a checkpoint, by name."""

    def at_end(self, reading: Reading, baseline: Reading, peaks: Peaks) -> dict[str, object]:
        """Returns the values of the metrics of the whole run, by name."""
