"""Keeps the figures of a run and of its steps as data, for the program that asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from otel_quant.base.fault_boundary import error_type, message_of
from otel_quant.schema.records import (
    Checkpoint,
    CostedModel,
    CpuReading,
    DiskReading,
    Peaks,
    PeakSource,
    Reading,
    RunInfo,
    RunRecord,
    StepInfo,
    StepRecord,
)
from otel_quant.schema.sink import Sink


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
        cache_disk_peak: Most that one of the library's cache directories has grown, in bytes.
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
    cache_disk_peak: int | None = None
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
        samples: Calibration samples consumed, each a batch; None if none were counted.
        items: Items in these samples; None if one of them did not tell.
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
    items: int | None
    error: str | None
    error_message: str | None


class _Instant(NamedTuple):
    """What is kept of a reading, which is larger; a `RunStep` takes longer to make."""

    clock_ns: int
    memory: int | None
    gpu_memory: int | None
    disk: DiskReading | None
    cpu: CpuReading | None


class _Ended(NamedTuple):
    """What is kept of a step that has ended."""

    info: StepInfo
    run_start_ns: int
    start: _Instant
    end: _Instant
    peaks: Peaks
    samples: int | None
    items: int | None
    error: str | None
    message: str | None


class KeptRun(Sink):
    """Keeps a run. Memory grows with the number of steps."""

    name = "kept run"

    def __init__(self) -> None:
        self._steps: list[_Ended] = []
        self.info: RunInfo | None = None
        self.models: list[CostedModel] = []
        self.total: RunFigures | None = None
        self.text: list[str] = []

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """Keeps the description."""
        self.info = run

    def step_ended(self, record: StepRecord, checkpoint: Checkpoint) -> None:
        """Keeps the step; of its exception, not what the traceback holds."""
        error = record.error
        paths = self.info is None or self.info.paths
        self._steps.append(
            _Ended(
                record.info,
                checkpoint.baseline.clock_ns,
                _instant(record.start),
                _instant(record.end),
                record.peaks,
                record.samples,
                record.items,
                error_type(error) if error else None,
                message_of(error, paths=paths) if error else None,
            )
        )

    def models_costed(self, costs: Sequence[CostedModel]) -> None:
        """Keeps the costs."""
        self.models.extend(costs)

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        """Keeps the totals."""
        start, end = _instant(checkpoint.baseline), _instant(record.end)
        self.total = RunFigures(**_figures(start, end, record.run_peaks))

    def steps(self) -> tuple[RunStep, ...]:
        """Returns the steps that have ended, in the order in which they opened."""
        return tuple(_step(ended) for ended in sorted(self._steps, key=lambda e: e.info.index))


def _step(ended: _Ended) -> RunStep:
    info = ended.info
    return RunStep(
        index=info.index,
        name=info.label,
        kind=info.kind,
        parent=info.parent,
        library=info.library,
        library_version=info.library_version,
        start=(ended.start.clock_ns - ended.run_start_ns) / 1e9,
        samples=ended.samples,
        items=ended.items,
        error=ended.error,
        error_message=ended.message,
        **_figures(ended.start, ended.end, ended.peaks),
    )


def _instant(reading: Reading) -> _Instant:
    memory, gpus = reading.memory, reading.gpus
    return _Instant(
        reading.clock_ns,
        memory.tree_rss if memory is not None else None,
        sum(gpu.used for gpu in gpus) if gpus else None,
        reading.resources.get("disk"),
        reading.resources.get("cpu"),
    )


def _figures(start: _Instant, end: _Instant, peaks: Peaks) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "duration": (end.clock_ns - start.clock_ns) / 1e9,
        "memory_start": start.memory,
        "memory_end": end.memory,
        "memory_delta": _difference(start.memory, end.memory),
        "memory_peak": peaks.figures.get("memory"),
        "memory_peak_source": peaks.sources.get("memory"),
        "gpu_memory_start": start.gpu_memory,
        "gpu_memory_end": end.gpu_memory,
        "gpu_memory_delta": _difference(start.gpu_memory, end.gpu_memory),
        "gpu_memory_peak": peaks.figures.get("gpu.memory"),
        "cache_disk_peak": peaks.figures.get("cache.disk"),
    }
    if start.disk is not None and end.disk is not None:
        figures["disk_read"] = end.disk.read - start.disk.read
        figures["disk_write"] = end.disk.write - start.disk.write
    if start.cpu is not None and end.cpu is not None:
        figures["cpu_user"] = end.cpu.user - start.cpu.user
        figures["cpu_system"] = end.cpu.system - start.cpu.system
    return figures


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
