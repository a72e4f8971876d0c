"""Builds the contexts for metrics of the local file: of a checkpoint and of a whole run."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Final

import psutil

from otel_quant.export.quark_yaml.metrics import MetricContext
from otel_quant.schema.figures import Figure, Number, total_used
from otel_quant.schema.records import Peaks, Reading

_MIB: Final = 1 << 20
_SECOND: Final = 1_000_000_000  # an int: with 1e9, today's nanoseconds would be rounded twice


def at_checkpoint(
    name: str, reading: Reading, baseline: Reading, figures: Sequence[tuple[str, Figure]] = ()
) -> MetricContext:
    """Describes a checkpoint."""
    context = _common(reading, baseline)
    context.step_name = name
    context.current_time = reading.time_ns / _SECOND
    context.gpu_available = total_used(reading.gpus) is not None
    context.gpu_baseline_memory = (total_used(baseline.gpus) or 0) if context.gpu_available else 0
    if figures:
        context.figures = _values(reading, baseline, figures)
    return context


def at_end(reading: Reading, baseline: Reading, peaks: Peaks) -> MetricContext:
    """Describes a run that has ended."""
    context = _common(reading, baseline)
    gpu_peak = peaks.figures.get("gpu.memory")
    # In exact mode the kernel's mark is lowered during the run, so the last mark alone would be
    # too low.
    marks = [r.memory.high_water for r in (baseline, reading) if r.memory]
    context.end_time = reading.time_ns / _SECOND
    context.gpu_available = gpu_peak is not None
    context.gpu_baseline_memory = total_used(baseline.gpus) or 0
    context.gpu_peak_memory = int(gpu_peak or 0)
    grown = peaks.figures.get("cache.disk")
    context.cache_dir_peak_disk_mb = grown / _MIB if grown else None
    context.peak_memory = max(
        (mark for mark in (*marks, peaks.process_memory) if mark is not None), default=None
    )
    return context


def _common(reading: Reading, baseline: Reading) -> MetricContext:
    context = MetricContext(
        start_time=baseline.time_ns / _SECOND,
        base_memory=baseline.memory.tree_rss if baseline.memory else 0,
        process=_process(os.getpid()),
        current_memory=reading.memory.tree_rss if reading.memory else 0,
        gpu_current_memory=total_used(reading.gpus) or 0,
        elapsed=(reading.clock_ns - baseline.clock_ns) / 1e9,
    )
    first, disk = baseline.resources.get("disk"), reading.resources.get("disk")
    if first and disk:
        context.disk_io_available = True
        context.baseline_disk_read_bytes = first.read
        context.baseline_disk_write_bytes = first.write
        context.current_disk_read_bytes = disk.read
        context.current_disk_write_bytes = disk.write
    return context


def _values(
    reading: Reading, baseline: Reading, figures: Sequence[tuple[str, Figure]]
) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for resource, figure in figures:
        value = figure.since(baseline.resources.get(resource), reading.resources.get(resource))
        if value is not None:
            found[figure.name] = value
    return found


@functools.lru_cache(maxsize=1)
def _process(pid: int) -> psutil.Process:
    return psutil.Process(pid)  # cached by process id: a forked child needs its own object
