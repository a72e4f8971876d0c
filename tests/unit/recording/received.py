"""A sink that keeps what it receives, and recorders whose readings and metrics a test decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.recorder.program_metrics import ProgramMetrics
from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.capture.recorder.run_info import new_run_info
from otel_quant.schema.records import (
    Checkpoint,
    MemoryReading,
    Peaks,
    Reading,
    RunRecord,
    StepRecord,
)
from otel_quant.schema.sink import Sink


class Received(Sink):
    """Keeps what arrives.

    Attributes:
        names: Names of the checkpoints and "reported" for a report, in order of arrival.
        steps: Records of the steps that ended, in order of arrival.
        runs: Records of the reports and of the run's end, in order of arrival.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.steps: list[StepRecord] = []
        self.runs: list[RunRecord] = []

    def run_started(self, run: object, checkpoint: Checkpoint) -> None:
        self.names.append(checkpoint.name)

    def step_started(self, step: object, checkpoint: Checkpoint, attributes: object) -> None:
        self.names.append(checkpoint.name)

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        self.names.append(checkpoint.name)
        self.steps.append(record)

    def point(self, checkpoint: Checkpoint) -> None:
        self.names.append(checkpoint.name)

    def run_reported(self, record: RunRecord) -> None:
        self.names.append("reported")
        self.runs.append(record)

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        self.names.append(checkpoint.name)
        self.runs.append(record)


class Metric(ProgramMetrics):
    """A metric ``m`` of a program.

    Args:
        at_checkpoint: Returns its value, given the name of the checkpoint; None for no value.
        at_end: Called when the run ends.
    """

    def __init__(
        self,
        at_checkpoint: Callable[[str], object] = lambda name: None,
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._at_checkpoint, self._at_end = at_checkpoint, at_end

    def at_checkpoint(self, name: str, reading: Reading, baseline: Reading) -> dict[str, object]:
        value = self._at_checkpoint(name)
        return {} if value is None else {"m": value}

    def at_end(self, reading: Reading, baseline: Reading, peaks: Peaks) -> dict[str, object]:
        self._at_end()
        return {}


def recorder_of(
    sinks: Sequence[Sink],
    memory: Callable[[Collection[int]], MemoryReading | None] = lambda pids: None,
    metrics: ProgramMetrics | None = None,
    *,
    sample_interval: float = 0,
    **probes: Any,
) -> Recorder:
    """Returns a recorder that reads memory as a test says, and no disk or CPU time."""
    nothing = dict.fromkeys(("disk", "cpu"), lambda pids: None)
    return Recorder(
        new_run_info({}),
        Probes(memory=memory, **nothing, **probes),
        sinks,
        metrics,
        sample_interval=sample_interval,
    )


def in_thread(act: Callable[[], object], seconds: float = 60) -> threading.Thread:
    """Runs something in a thread, and waits for it at most so long."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)
    return thread
