"""The metrics of the local file, and the base classes for metrics of your own.

A metric is an object with a ``name`` (the key in the file), a ``get_definition()`` (its line in
the comment at the end of the file) and a ``collect(context)`` that returns the value, or None to
leave the key out. The classes, their keys, units and rounding are the same as in AMD Quark's profiler,
so that a metric written for one works with the other. "mb" in a key means 1024 * 1024 bytes.
"""
# ruff: noqa: D102 - the base classes document the methods that every metric has.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from otel_quant.schema.figures import Figure, Number

__all__ = [
    "BaseMetric", "CPUMemoryMbMetric", "CPUPeakMemoryMetric", "CheckpointMetric", "DiskReadMbMetric",
    "DiskWriteMbMetric", "GPUMemoryMbMetric", "GPUPeakMemoryMetric", "MetricContext",
    "PeakCacheDirDiskUsageMbMetric", "RelativeTimeMetric", "StepNameMetric", "SummaryMetric",
    "TimestampMetric", "TotalDiskReadMbMetric", "TotalDiskWriteMbMetric", "TotalTimeMetric",
]  # fmt: skip

_MIB: Final = 1024 * 1024


@dataclass
class MetricContext:
    """The data that a metric's ``collect`` receives.

    The fields up to ``cache_dir_peak_disk_mb`` and their defaults are Quark's. The later ones are
    ours; they also have defaults, so that code written for Quark's class works here.

    Attributes:
        start_time: Wall clock at the run's first checkpoint, seconds since the epoch.
        end_time: Wall clock at the last one; summary metrics only.
        base_memory: RSS of the process tree at the first checkpoint, in bytes.
        process: ``psutil.Process`` of this process.
        step_name: Name of the checkpoint; checkpoint metrics only.
        current_time: Wall clock at the checkpoint; checkpoint metrics only.
        current_memory: RSS of the process tree now, in bytes; 0 if it was not measured.
        gpu_available: Whether GPU memory was measured.
        gpu_baseline_memory: Memory in use on all visible GPUs at the first checkpoint.
        gpu_current_memory: The same now, in bytes.
        gpu_peak_memory: Largest value during the run; summary metrics only.
        disk_io_available: Whether disk I/O was measured.
        baseline_disk_read_bytes: Bytes fetched from storage before the first checkpoint.
        baseline_disk_write_bytes: Bytes sent to storage before the first checkpoint.
        current_disk_read_bytes: Bytes fetched from storage up to now.
        current_disk_write_bytes: Bytes sent to storage up to now.
        cache_dir_peak_disk_mb: Largest growth of a watched directory; summary only.
        elapsed: Seconds since the first checkpoint by the monotonic clock.
        peak_memory: Highest RSS of this process alone, in bytes; summary metrics only.
        figures: Figures of resources that Quark does not measure, by name; for those that only
            rise, the amount since the first checkpoint. Checkpoint metrics only.
    """

    start_time: float | None = None
    end_time: float | None = None
    base_memory: int = 0
    process: Any = None
    step_name: str | None = None
    current_time: float | None = None
    current_memory: int = 0
    gpu_available: bool = False
    gpu_baseline_memory: int = 0
    gpu_current_memory: int = 0
    gpu_peak_memory: int = 0
    disk_io_available: bool = False
    baseline_disk_read_bytes: int = 0
    baseline_disk_write_bytes: int = 0
    current_disk_read_bytes: int = 0
    current_disk_write_bytes: int = 0
    cache_dir_peak_disk_mb: float | None = None
    elapsed: float | None = None
    peak_memory: int | None = None
    figures: Mapping[str, Number] = field(default_factory=dict)


class BaseMetric(ABC):
    """A column of the file. Extend :class:`CheckpointMetric` or :class:`SummaryMetric`."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Key in the file."""

    @abstractmethod
    def get_definition(self) -> str:
        """Returns what is measured and in which unit, for the comment at the end of the file."""


class CheckpointMetric(BaseMetric):
    """A column with a value at every checkpoint."""

    @abstractmethod
    def collect(self, context: MetricContext) -> Any:
        """Returns the value at a checkpoint; None to leave the key out."""


class SummaryMetric(BaseMetric):
    """A figure of the run, taken once at its end."""

    @abstractmethod
    def collect(self, context: MetricContext) -> Any:
        """Returns the value for the run; None to leave the key out."""


Metric: TypeAlias = CheckpointMetric | SummaryMetric
"""A metric; of what a program adds, only the methods are used."""


class _BuiltIn(BaseMetric):
    """A metric of ours, with its definition as a text."""

    definition: str

    def get_definition(self) -> str:
        return self.definition


# --- checkpoint metrics -------------------------------------------------------------------


class StepNameMetric(_BuiltIn, CheckpointMetric):
    """Name of the checkpoint."""

    name = "step"
    definition = (
        "The point that was reached. The run begins with Start and closes with End;\n"
        '    - a step writes its name with "Start" when it opens and with "End" when it closes\n'
        "    - steps nest: one that opens before another has closed is part of it\n"
        "    - any other name is a checkpoint that the program asked for"
    )

    def collect(self, context: MetricContext) -> str:
        return context.step_name or ""


class TimestampMetric(_BuiltIn, CheckpointMetric):
    """Wall clock."""

    name = "timestamp"
    definition = "Wall clock at the reading: seconds since 1970-01-01 00:00 UTC."

    def collect(self, context: MetricContext) -> float:
        return context.current_time or 0.0


class RelativeTimeMetric(_BuiltIn, CheckpointMetric):
    """Seconds since the run's first checkpoint."""

    name = "relative_time_secs"
    definition = (
        "Seconds since the first checkpoint, by a clock that setting the time does not move."
    )

    def collect(self, context: MetricContext) -> float:
        if context.elapsed is not None:
            return context.elapsed
        if context.start_time is None or context.current_time is None:
            return 0.0
        return context.current_time - context.start_time


class CPUMemoryMbMetric(_BuiltIn, CheckpointMetric):
    """RSS of the process tree."""

    name = "cpu_memory_mb"
    definition = (
        "RAM held at that instant (RSS) by this process and all its living descendants "
        "together, in MiB. A page that several of them share counts for each."
    )

    def collect(self, context: MetricContext) -> float | None:
        # 0 means that nothing was measured: no process has an RSS of 0.
        return round(context.current_memory / _MIB, 2) if context.current_memory else None


class GPUMemoryMbMetric(_BuiltIn, CheckpointMetric):
    """Memory in use on the visible GPUs."""

    name = "gpu_memory_mb"
    definition = (
        "Memory in use, by any process, on all GPUs that this one can see, added up, in MiB. "
        "Left out where there is no GPU or its driver does not report it."
    )

    def collect(self, context: MetricContext) -> float | None:
        return round(context.gpu_current_memory / _MIB, 2) if context.gpu_available else None


_DISK_SCOPE = (
    "by this process and its descendants, in MiB; exited ones count once their parent has waited "
    "for them. Data that never left the page cache is not in it. Left out where the system keeps "
    "no such counts."
)


class DiskReadMbMetric(_BuiltIn, CheckpointMetric):
    """Bytes fetched from storage so far."""

    name = "disk_read_mb"
    definition = f"Fetched from storage since the first checkpoint {_DISK_SCOPE}"

    def collect(self, context: MetricContext) -> float | None:
        return _growth(context, context.current_disk_read_bytes, context.baseline_disk_read_bytes)


class DiskWriteMbMetric(_BuiltIn, CheckpointMetric):
    """Bytes sent to storage so far."""

    name = "disk_write_mb"
    definition = f"Sent to storage since the first checkpoint {_DISK_SCOPE}"

    def collect(self, context: MetricContext) -> float | None:
        return _growth(context, context.current_disk_write_bytes, context.baseline_disk_write_bytes)


# --- summary metrics ----------------------------------------------------------------------


class TotalTimeMetric(_BuiltIn, SummaryMetric):
    """Duration of the run."""

    name = "total_quantization_time_seconds"
    definition = "Seconds from the first checkpoint to the last."

    def collect(self, context: MetricContext) -> float | None:
        if context.elapsed is not None:
            return round(context.elapsed, 4)
        if context.start_time is None or context.end_time is None:
            return None
        return round(context.end_time - context.start_time, 4)


class CPUPeakMemoryMetric(_BuiltIn, SummaryMetric):
    """Highest RSS of the main process."""

    name = "peak_memory_mb"
    definition = (
        "Most RAM that this process alone, without its descendants, has held since it began, "
        "in MiB: the kernel's own mark (VmHWM) on Linux, elsewhere the largest reading of the "
        "run."
    )

    def collect(self, context: MetricContext) -> float | None:
        return round(context.peak_memory / _MIB, 2) if context.peak_memory else None


class GPUPeakMemoryMetric(_BuiltIn, SummaryMetric):
    """Largest use of the visible GPUs."""

    name = "peak_gpu_memory_mb"
    definition = (
        "Largest total of memory in use on all visible GPUs in any reading of the run, "
        "at checkpoints and between them, in MiB. Left out where gpu_memory_mb is."
    )

    def collect(self, context: MetricContext) -> float | None:
        return round(context.gpu_peak_memory / _MIB, 2) if context.gpu_available else None


class TotalDiskReadMbMetric(_BuiltIn, SummaryMetric):
    """Bytes fetched from storage during the run."""

    name = "total_disk_read_mb"
    definition = f"Fetched from storage during the run {_DISK_SCOPE}"

    collect = DiskReadMbMetric.collect


class TotalDiskWriteMbMetric(_BuiltIn, SummaryMetric):
    """Bytes sent to storage during the run."""

    name = "total_disk_write_mb"
    definition = f"Sent to storage during the run {_DISK_SCOPE}"

    collect = DiskWriteMbMetric.collect


class PeakCacheDirDiskUsageMbMetric(_BuiltIn, SummaryMetric):
    """Largest growth of a watched cache directory."""

    name = "peak_cache_dir_disk_usage_mb"
    definition = (
        "Most that any one of the watched cache directories grew beyond what it held when its "
        "watch began, in MiB: the sizes of its files, added up at each checkpoint and five "
        "times a second, less often if that takes long. Left out if none grew."
    )

    def collect(self, context: MetricContext) -> float | None:
        return context.cache_dir_peak_disk_mb


def _growth(context: MetricContext, current: int, baseline: int) -> float | None:
    if not context.disk_io_available:
        return None
    # A counter falls if a child that was counted exits and is not waited for.
    return round(max(current - baseline, 0) / _MIB, 2)


class FigureMetric(_BuiltIn, CheckpointMetric):
    """A figure of a resource that Quark's profiler does not measure."""

    name = ""

    def __init__(self, figure: Figure) -> None:
        assert figure.column is not None
        self.name, self.definition = figure.column.key, figure.column.definition
        self._figure, self._scale = figure.name, figure.column.scale

    def collect(self, context: MetricContext) -> float | None:
        value = context.figures.get(self._figure)
        return None if value is None else round(value / self._scale, 2)


CHECKPOINT_METRICS: Final[tuple[type[CheckpointMetric], ...]] = (
    StepNameMetric, TimestampMetric, RelativeTimeMetric, CPUMemoryMbMetric, GPUMemoryMbMetric,
    DiskReadMbMetric, DiskWriteMbMetric,
)  # fmt: skip
"""The built-in columns of a checkpoint, in the order of the file."""

SUMMARY_METRICS: Final[tuple[type[SummaryMetric], ...]] = (
    TotalTimeMetric, CPUPeakMemoryMetric, GPUPeakMemoryMetric, TotalDiskReadMbMetric,
    TotalDiskWriteMbMetric, PeakCacheDirDiskUsageMbMetric,
)  # fmt: skip
"""The built-in figures of the summary, in the order of the file."""
