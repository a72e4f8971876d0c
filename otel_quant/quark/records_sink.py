"""Stores the columns of each checkpoint for `GlobalProfiler.records`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_quant.capture.runtime import RUNTIME
from otel_quant.export.quark_yaml.columns import checkpoint_columns
from otel_quant.schema.records import (
    AttributeValue,
    Checkpoint,
    RunInfo,
    RunRecord,
    StepInfo,
    StepRecord,
)
from otel_quant.schema.sink import Sink


class RecordsSink(Sink):
    """Stores the columns of each checkpoint. Only used on request: memory grows with the run."""

    name = "records of the profiler"

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """Stores ``Start``."""
        self.point(checkpoint)

    def step_started(
        self, step: StepInfo, checkpoint: Checkpoint, attributes: Mapping[str, AttributeValue]
    ) -> None:
        """Stores the step's start."""
        self.point(checkpoint)

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        """Stores the step's end."""
        self.point(checkpoint)

    def point(self, checkpoint: Checkpoint) -> None:
        """Stores a checkpoint."""
        self.records.append(checkpoint_columns(RUNTIME.metrics, checkpoint))

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        """Stores ``End``."""
        self.point(checkpoint)


RECORDS: Final = RecordsSink()
"""The only instance of this process."""
