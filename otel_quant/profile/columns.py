"""The columns of one run's local file, and what they hold at each checkpoint."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, Literal

import psutil

from otel_quant.fault_boundary import FAULTS
from otel_quant.profile.cache_directories import CacheDirs
from otel_quant.profile.metrics import CHECKPOINT_METRICS, SUMMARY_METRICS, Metric, MetricContext
from otel_quant.records import GpuReading, Peaks, Reading

_BUILT_IN: Final[frozenset[type]] = frozenset((*CHECKPOINT_METRICS, *SUMMARY_METRICS))
_QUARKS_OWN: Final = "quark.common.profiler."
_SECOND: Final = 1_000_000_000  # an int: dividing by 1e9 would round today's nanoseconds twice


class Columns:
    """The columns of the local file, and what they hold.

    Attributes:
        checkpoint_metrics: Columns of every checkpoint, in order; may be changed at any
            time.
        summary_metrics: Figures of the summary, in order; may be changed until the end.
        cache_dirs: The cache directories whose growth is watched until a run ends.
        records: Where the columns of each checkpoint are kept as well; None if nobody
            asks for them, since they would grow with the run.
    """

    def __init__(self) -> None:
        self.checkpoint_metrics: list[Metric] = [metric() for metric in CHECKPOINT_METRICS]
        self.summary_metrics: list[Metric] = [metric() for metric in SUMMARY_METRICS]
        self.cache_dirs = CacheDirs()
        self.records: list[dict[str, Any]] | None = None
        self._adopted: Any = None
        self._process: psutil.Process | None = None

    def at_checkpoint(
        self, name: str, reading: Reading, baseline: Reading
    ) -> tuple[dict[str, object], dict[str, object]]:
        """Collects the columns of a checkpoint.

        Args:
            name: Name of the checkpoint.
            reading: What was measured there.
            baseline: The run's first reading.

        Returns:
            All values that there are, by key, in the order of the metrics; and those of
            them that come from metrics that are not built in.
        """
        with FAULTS.kept_in("watch of the cache directories"):
            self.cache_dirs.look_again()
        memory, gpus, disk = reading.memory, reading.gpus, reading.disk
        first_memory, first_disk = baseline.memory, baseline.disk
        context = MetricContext(
            start_time=baseline.time_ns / _SECOND,
            base_memory=first_memory.tree_rss if first_memory else 0,
            process=self._this_process(),
            step_name=name,
            current_time=reading.time_ns / _SECOND,
            current_memory=memory.tree_rss if memory else 0,
            gpu_available=bool(gpus),
            gpu_baseline_memory=_used(baseline.gpus) if gpus else 0,
            gpu_current_memory=_used(gpus) if gpus else 0,
            elapsed=(reading.clock_ns - baseline.clock_ns) / 1e9,
        )
        if disk and first_disk:
            context.disk_io_available = True
            context.baseline_disk_read_bytes = first_disk.read
            context.baseline_disk_write_bytes = first_disk.write
            context.current_disk_read_bytes = disk.read
            context.current_disk_write_bytes = disk.write
        columns, custom = _collect(self.every("checkpoint_metrics"), context)
        if self.records is not None:
            self.records.append(dict(columns))  # theirs to change
        return columns, custom

    def at_end(
        self, reading: Reading, baseline: Reading, peaks: Peaks
    ) -> tuple[dict[str, object], dict[str, object]]:
        """Collects the figures of the summary.

        Args:
            reading: The run's last reading.
            baseline: Its first.
            peaks: Highest figures between the two.

        Returns:
            All values that there are, by key, in the order of the metrics; and those of
            them that come from metrics that are not built in.
        """
        marks = [
            mark
            for mark in (
                baseline.memory.high_water if baseline.memory else None,
                reading.memory.high_water if reading.memory else None,
                peaks.process_memory,
            )
            if mark is not None
        ]
        context = MetricContext(
            start_time=baseline.time_ns / _SECOND,
            end_time=reading.time_ns / _SECOND,
            base_memory=baseline.memory.tree_rss if baseline.memory else 0,
            process=self._this_process(),
            current_memory=reading.memory.tree_rss if reading.memory else 0,
            gpu_available=peaks.gpu is not None,
            gpu_baseline_memory=_used(baseline.gpus),
            gpu_current_memory=_used(reading.gpus),
            gpu_peak_memory=peaks.gpu or 0,
            elapsed=(reading.clock_ns - baseline.clock_ns) / 1e9,
            # Exact peaks reset the kernel's mark: the first and the folded ones count too.
            peak_memory=max(marks, default=None),
        )
        if baseline.disk and reading.disk:
            context.disk_io_available = True
            context.baseline_disk_read_bytes = baseline.disk.read
            context.baseline_disk_write_bytes = baseline.disk.write
            context.current_disk_read_bytes = reading.disk.read
            context.current_disk_write_bytes = reading.disk.write
        with FAULTS.kept_in("watch of the cache directories"):
            context.cache_dir_peak_disk_mb = self.cache_dirs.finish()
        return _collect(self.every("summary_metrics"), context)

    def adopt(self, profiler: Any) -> None:
        """Shows the metrics, too, that a program has added to Quark's own profiler.

        They are collected by both, each for its own checkpoint. While Quark's profiler is
        switched off they are not collected at all: the program does not expect it.

        Args:
            profiler: Quark's profiler; its lists are looked at anew at each checkpoint.
        """
        self._adopted = profiler

    def every(self, kind: Literal["checkpoint_metrics", "summary_metrics"]) -> list[Metric]:
        """Returns all metrics of a kind, those of an adopted profiler last.

        Args:
            kind: Name of the list.
        """
        metrics: list[Metric] = list(getattr(self, kind))
        with FAULTS.kept_in("metrics of Quark's profiler"):
            if self._adopted is not None and self._adopted.enabled:
                metrics += [m for m in getattr(self._adopted, kind) if not _is_quarks_own(m)]
        return metrics

    def _this_process(self) -> psutil.Process:
        process = self._process
        if process is None or process.pid != os.getpid():  # a forked child has its own
            process = self._process = psutil.Process()
        return process


def definitions(metrics: Sequence[Metric]) -> list[tuple[str, str]]:
    """Asks metrics for their definitions.

    Args:
        metrics: The metrics.

    Returns:
        Name and definition of each, in order. A definition that fails is empty; a metric
        that does not even tell its name is left out.
    """
    told = []
    for metric in metrics:
        with FAULTS.kept_in(f"definition of {type(metric).__name__}"):
            name, definition = str(metric.name), ""
            with FAULTS.kept_in(f"definition of {name}"):
                definition = str(metric.get_definition())
            told.append((name, definition))
    return told


def _collect(
    metrics: Sequence[Metric], context: MetricContext
) -> tuple[dict[str, object], dict[str, object]]:
    columns: dict[str, object] = {}
    custom: dict[str, object] = {}
    for metric in metrics:
        kind = type(metric)
        if kind in _BUILT_IN:
            value = metric.collect(context)
            if value is not None:
                columns[metric.name] = value
            continue
        with FAULTS.kept_in(f"metric {getattr(kind, '__qualname__', kind)}"):
            name = str(metric.name)
            with FAULTS.kept_in(f"metric {name}"):
                value = metric.collect(context)
                if value is not None:
                    columns[name] = value
                    if not _is_quarks_own(metric):
                        custom[name] = value
    return columns, custom


def _is_quarks_own(metric: object) -> bool:
    return type(metric).__module__.startswith(_QUARKS_OWN)


def _used(gpus: tuple[GpuReading, ...]) -> int:
    return sum(gpu.used for gpu in gpus)
