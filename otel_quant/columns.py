"""The columns of one run's local file, and what they hold at each checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

import psutil

from otel_quant.faults import FAULTS
from otel_quant.profile_metrics import CHECKPOINT_METRICS, SUMMARY_METRICS, Metric, MetricContext
from otel_quant.readings import GpuReading, Peaks, Reading

_BUILT_IN: Final[frozenset[type]] = frozenset((*CHECKPOINT_METRICS, *SUMMARY_METRICS))
_QUARKS_OWN: Final = "quark.common.profiler."
_SECOND: Final = 1_000_000_000  # an int: dividing by 1e9 would round today's nanoseconds twice


class Columns:
    """The columns of one run's file, and what they hold.

    Attributes:
        checkpoint_metrics: Columns of every checkpoint, in order; may be changed at any
            time.
        summary_metrics: Figures of the summary, in order; may be changed until the end.
        cache_dir_peak: Tells the largest growth of a watched cache directory in MiB, or
            None; asked once, when the run ends.
    """

    def __init__(self) -> None:
        self.checkpoint_metrics: list[Metric] = [metric() for metric in CHECKPOINT_METRICS]
        self.summary_metrics: list[Metric] = [metric() for metric in SUMMARY_METRICS]
        self.cache_dir_peak: Callable[[], float | None] | None = None
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
        return _collect(self.checkpoint_metrics, context)

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
        if self.cache_dir_peak is not None:
            with FAULTS.kept_in("watch of the cache directories"):
                context.cache_dir_peak_disk_mb = self.cache_dir_peak()
        return _collect(self.summary_metrics, context)

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
        Name and definition of each, in order; a metric that fails to tell is left out.
    """
    told = []
    for metric in metrics:
        with FAULTS.kept_in(f"definition of {type(metric).__name__}"):
            told.append((str(metric.name), str(metric.get_definition())))
    return told


def _collect(
    metrics: Sequence[Metric], context: MetricContext
) -> tuple[dict[str, object], dict[str, object]]:
    columns: dict[str, object] = {}
    custom: dict[str, object] = {}
    for metric in tuple(metrics):  # another thread may append to the list meanwhile
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
                    if not kind.__module__.startswith(_QUARKS_OWN):
                        custom[name] = value
    return columns, custom


def _used(gpus: tuple[GpuReading, ...]) -> int:
    return sum(gpu.used for gpu in gpus)
