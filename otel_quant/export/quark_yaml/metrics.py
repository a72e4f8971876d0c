"""The metrics of the local file, and the base classes for metrics of your own.

A metric is an object with a ``name`` (the key in the file), a ``get_definition()`` (its line in
the comment at the end of the file) and a ``collect(context)`` that returns the value, or None to
leave the key out. The classes, their keys, units and rounding are the same as in AMD Quark's profiler,
so that a metric written for one works with the other. "mb" in a key means 1024 * 1024 bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
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


# --- those of Quark's profiler ------------------------------------------------------------

_Collect: TypeAlias = Callable[[MetricContext], Any]


def _made(base: Any, name: str, brief: str, key: str, collect: _Collect, text: str) -> Any:
    """Returns a class of metrics, with its definition as a text."""
    members = {
        "__doc__": brief, "__module__": __name__, "name": key,
        "collect": lambda self, context: collect(context), "get_definition": lambda self: text,
    }  # fmt: skip
    return type(name, (base,), members)


def _mib(size: float) -> float:
    return round(size / _MIB, 2)


def _passed(context: MetricContext, until: float | None) -> float | None:
    if context.elapsed is not None or context.start_time is None or until is None:
        return context.elapsed
    return until - context.start_time


def _total(context: MetricContext) -> float | None:
    seconds = _passed(context, context.end_time)
    return None if seconds is None else round(seconds, 4)


def _disk(way: str) -> _Collect:
    def grown(context: MetricContext) -> float | None:
        now, first = (getattr(context, f"{of}_disk_{way}_bytes") for of in ("current", "baseline"))
        # A counter falls if a child that was counted exits and is not waited for.
        return _mib(max(now - first, 0)) if context.disk_io_available else None

    return grown


_DISK_SCOPE: Final = (
    "by this process and its descendants, in MiB; exited ones count once their parent has waited "
    "for them. Data that never left the page cache is not in it. Left out where the system keeps "
    "no such counts."
)

# fmt: off
StepNameMetric = _made(CheckpointMetric, "StepNameMetric", "Name of the checkpoint.", "step", lambda it: it.step_name or "",
    'The point that was reached. The run begins with Start and closes with End;\n    - a step writes its name with "Start" when it opens '
    'and with "End" when it closes\n    - steps nest: one that opens before another has closed is part of it\n'
    "    - any other name is a checkpoint that the program asked for")
TimestampMetric = _made(CheckpointMetric, "TimestampMetric", "Wall clock.", "timestamp", lambda it: it.current_time or 0.0,
    "Wall clock at the reading: seconds since 1970-01-01 00:00 UTC.")
RelativeTimeMetric = _made(CheckpointMetric, "RelativeTimeMetric", "Seconds since the run's first checkpoint.", "relative_time_secs",
    lambda it: _passed(it, it.current_time) or 0.0,
    "Seconds since the first checkpoint, by a clock that setting the time does not move.")
# 0 means that nothing was measured: no process has an RSS of 0.
CPUMemoryMbMetric = _made(CheckpointMetric, "CPUMemoryMbMetric", "RSS of the process tree.", "cpu_memory_mb",
    lambda it: _mib(it.current_memory) if it.current_memory else None,
    "RAM held at that instant (RSS) by this process and all its living descendants together, in MiB. A page that several of them share "
    "counts for each.")
GPUMemoryMbMetric = _made(CheckpointMetric, "GPUMemoryMbMetric", "Memory in use on the visible GPUs.", "gpu_memory_mb",
    lambda it: _mib(it.gpu_current_memory) if it.gpu_available else None,
    "Memory in use, by any process, on all GPUs that this one can see, added up, in MiB. Left out where there is no GPU or its driver "
    "does not report it.")
DiskReadMbMetric = _made(CheckpointMetric, "DiskReadMbMetric", "Bytes fetched from storage so far.", "disk_read_mb", _disk("read"),
    f"Fetched from storage since the first checkpoint {_DISK_SCOPE}")
DiskWriteMbMetric = _made(CheckpointMetric, "DiskWriteMbMetric", "Bytes sent to storage so far.", "disk_write_mb", _disk("write"),
    f"Sent to storage since the first checkpoint {_DISK_SCOPE}")

TotalTimeMetric = _made(SummaryMetric, "TotalTimeMetric", "Duration of the run.", "total_quantization_time_seconds", _total,
    "Seconds from the first checkpoint to the last.")
CPUPeakMemoryMetric = _made(SummaryMetric, "CPUPeakMemoryMetric", "Highest RSS of the main process.", "peak_memory_mb",
    lambda it: _mib(it.peak_memory) if it.peak_memory else None,
    "Most RAM that this process alone, without its descendants, has held since it began, in MiB: the kernel's own mark (VmHWM) on Linux, "
    "elsewhere the largest reading of the run.")
GPUPeakMemoryMetric = _made(SummaryMetric, "GPUPeakMemoryMetric", "Largest use of the visible GPUs.", "peak_gpu_memory_mb",
    lambda it: _mib(it.gpu_peak_memory) if it.gpu_available else None,
    "Largest total of memory in use on all visible GPUs in any reading of the run, at checkpoints and between them, in MiB. Left out "
    "where gpu_memory_mb is.")
TotalDiskReadMbMetric = _made(SummaryMetric, "TotalDiskReadMbMetric", "Bytes fetched from storage during the run.", "total_disk_read_mb",
    _disk("read"), f"Fetched from storage during the run {_DISK_SCOPE}")
TotalDiskWriteMbMetric = _made(SummaryMetric, "TotalDiskWriteMbMetric", "Bytes sent to storage during the run.", "total_disk_write_mb",
    _disk("write"), f"Sent to storage during the run {_DISK_SCOPE}")
PeakCacheDirDiskUsageMbMetric = _made(SummaryMetric, "PeakCacheDirDiskUsageMbMetric", "Largest growth of a watched cache directory.",
    "peak_cache_dir_disk_usage_mb", lambda it: it.cache_dir_peak_disk_mb,
    "Most that any one of the watched cache directories grew beyond what it held when its watch began, in MiB: the sizes of its files, "
    "added up at each checkpoint and five times a second, less often if that takes long. Left out if none grew.")
# fmt: on


class FigureMetric(CheckpointMetric):
    """A figure of a resource that Quark's profiler does not measure."""

    name = ""

    def __init__(self, figure: Figure) -> None:
        assert figure.column is not None
        self.name, self._definition = figure.column.key, figure.column.definition
        self._figure, self._scale = figure.name, figure.column.scale

    def get_definition(self) -> str:
        return self._definition

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
