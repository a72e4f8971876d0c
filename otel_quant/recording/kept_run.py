"""Keeps the figures of a run and of its steps as data, for the program that asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from otel_quant.recording.failures import message_of
from otel_quant.recording.sink import Sink
from otel_quant.records import (
    Checkpoint,
    CostedModel,
    CpuReading,
    DiskReading,
    Peaks,
    PeakSource,
    Reading,
    RunInfo,
    RunRecord,
    StepRecord,
    error_type,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What was measured between two readings. A figure that could not be measured is None.

    Attributes:
        duration: Seconds.
        memory_start: RSS of the process tree at the start, in bytes.
        memory_end: The same at the end.
        memory_delta: The difference of the two.
        memory_peak: The highest in between, in bytes.
        memory_peak_source: ``kernel`` if the peak is exact, ``sampled`` if it is the largest
            sample.
        gpu_memory_start: Memory in use on all visible GPUs at the start, by all processes, in
            bytes.
        gpu_memory_end: The same at the end.
        gpu_memory_delta: The difference of the two.
        gpu_memory_peak: The highest in between, in bytes.
        disk_read: Bytes fetched from storage by the process tree.
        disk_write: Bytes sent to storage by the process tree.
        cpu_user: CPU time of the process tree in user mode, in seconds.
        cpu_system: CPU time of the process tree in the kernel, in seconds.
    """

    duration: float
    memory_start: int | None = None
    memory_end: int | None = None
    memory_delta: int | None = None
    memory_peak: int | None = None
    memory_peak_source: PeakSource | None = None
    gpu_memory_start: int | None = None
    gpu_memory_end: int | None = None
    gpu_memory_delta: int | None = None
    gpu_memory_peak: int | None = None
    disk_read: int | None = None
    disk_write: int | None = None
    cpu_user: float | None = None
    cpu_system: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep(RunFigures):
    """A step that has ended, with the fields of :class:`RunFigures`.

    Attributes:
        index: Position in the run, from 0, in order of opening.
        name: Label of the step: its kind, or the message of a User-Defined step.
        kind: The ``ProfileStep`` constant.
        parent: Index of the enclosing step; None at the top.
        library: Distribution that the step's code belongs to; None for the program's own.
        library_version: Its version.
        start: Seconds from the run's start to the step's.
        samples: Calibration samples consumed; None if none were counted.
        error: Class name of the exception that ended the step; None for no error.
        error_message: Its message, on one line.
    """

    index: int
    name: str
    kind: str
    parent: int | None
    library: str | None
    library_version: str | None
    start: float
    samples: int | None
    error: str | None
    error_message: str | None


class KeptRun(Sink):
    """Keeps a run. Memory grows with the number of steps.

    Args:
        paths: Whether messages of exceptions may be kept: they may contain paths.

    Attributes:
        info: Description of the run; None before it begins.
        steps: The steps that have ended, in the order of their ends.
        models: Static cost of the models.
        total: Figures of the whole run; None before its end.
    """

    name = "kept run"

    def __init__(self, *, paths: bool) -> None:
        self._paths = paths
        self.info: RunInfo | None = None
        self.steps: list[RunStep] = []
        self.models: list[CostedModel] = []
        self.total: RunFigures | None = None

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """Keeps the description."""
        self.info = run

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        """Keeps the step."""
        info, error = record.info, record.error
        self.steps.append(
            RunStep(
                index=info.index,
                name=info.label,
                kind=info.kind,
                parent=info.parent,
                library=info.library,
                library_version=info.library_version,
                start=(record.start.clock_ns - checkpoint.baseline.clock_ns) / 1e9,
                samples=record.samples,
                error=error_type(error) if error else None,
                error_message=message_of(error, paths=self._paths) if error else None,
                **_figures(record.start, record.end, record.peaks),
            )
        )

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """Keeps the costs."""
        self.models.extend(costs)

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        """Keeps the totals."""
        self.total = RunFigures(**_figures(checkpoint.baseline, record.end, record.run_peaks))


def _figures(start: Reading, end: Reading, peaks: Peaks) -> dict[str, Any]:
    memory = [reading.memory.tree_rss if reading.memory else None for reading in (start, end)]
    gpus = [
        sum(gpu.used for gpu in reading.gpus) if reading.gpus else None for reading in (start, end)
    ]
    disk: list[DiskReading | None] = [reading.resources.get("disk") for reading in (start, end)]
    cpu: list[CpuReading | None] = [reading.resources.get("cpu") for reading in (start, end)]
    figures: dict[str, Any] = {
        "duration": (end.clock_ns - start.clock_ns) / 1e9,
        "memory_start": memory[0],
        "memory_end": memory[1],
        "memory_delta": _difference(*memory),
        "memory_peak": peaks.figures.get("memory"),
        "memory_peak_source": peaks.sources.get("memory"),
        "gpu_memory_start": gpus[0],
        "gpu_memory_end": gpus[1],
        "gpu_memory_delta": _difference(*gpus),
        "gpu_memory_peak": peaks.figures.get("gpu.memory"),
    }
    if disk[0] is not None and disk[1] is not None:
        figures["disk_read"] = disk[1].read - disk[0].read
        figures["disk_write"] = disk[1].write - disk[0].write
    if cpu[0] is not None and cpu[1] is not None:
        figures["cpu_user"] = cpu[1].user - cpu[0].user
        figures["cpu_system"] = cpu[1].system - cpu[0].system
    return figures


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
