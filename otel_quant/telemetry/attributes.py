"""Figures of a step or a run as attributes: the same keys for both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from otel_quant.records import (
    AttributeValue,
    CostedModel,
    GpuReading,
    Peaks,
    Reading,
    RunInfo,
    StepInfo,
)
from otel_quant.telemetry import semconv

# Figure of a device -> how its attributes are called. The first is the device's total.
_GPU_FIGURES = (
    ("used", "memory"),
    ("process_used", "process_memory"),
    ("torch_allocated", "torch_allocated"),
    ("torch_reserved", "torch_reserved"),
)


def identity_of(step: StepInfo) -> dict[str, AttributeValue]:
    """Returns the attributes that say which step it is."""
    return _present(
        {
            semconv.STEP_NAME: step.label,
            semconv.STEP_KIND: step.kind,
            semconv.STEP_INDEX: step.index,
            semconv.LIBRARY_NAME: step.library,
            semconv.LIBRARY_VERSION: step.library_version,
            semconv.CODE_FUNCTION_NAME: step.function,
        }
    )


def run_identity_of(run: RunInfo) -> dict[str, AttributeValue]:
    """Returns the attributes that say which run it is and what it may use."""
    return _present(
        {
            semconv.RUN_ID: run.id,
            semconv.RUN_RANK: run.rank,
            semconv.RUN_WORLD_SIZE: run.world_size,
            semconv.PROCESS_PID: run.pid,
            semconv.MEMORY_LIMIT: run.limits.memory,
            semconv.MEMORY_LIMIT_SOURCE: run.limits.memory_source,
        }
    )


def devices_of(reading: Reading) -> dict[str, AttributeValue]:
    """Returns the attributes that describe the visible GPUs; none if there are none."""
    if not reading.gpus:
        return {}
    limits = [gpu.limit for gpu in reading.gpus]
    attributes: dict[str, AttributeValue | None] = {
        semconv.GPU_COUNT: len(reading.gpus),
        semconv.GPU_MEMORY_LIMIT: None if None in limits else sum(filter(None, limits)),
    }
    for gpu in reading.gpus:
        prefix = f"{semconv.GPU_DEVICE_PREFIX}{gpu.index}."
        attributes[prefix + "id"] = gpu.id
        attributes[prefix + "name"] = gpu.name
        attributes[prefix + "memory.limit"] = gpu.limit
    return _present(attributes)


def usage_of(
    start: Reading, end: Reading, peaks: Peaks, memory_limit: int | None
) -> dict[str, AttributeValue]:
    """Returns what was used between two readings.

    Args:
        start: Reading at the start.
        end: Reading at the end.
        peaks: Highest figures between the two.
        memory_limit: Bytes that the process may use.

    Returns:
        Attributes in bytes, seconds and counts; a figure that either reading lacks is
        absent.
    """
    attributes: dict[str, AttributeValue | None] = {}
    if start.memory and end.memory:
        attributes |= {
            semconv.MEMORY_START: start.memory.tree_rss,
            semconv.MEMORY_END: end.memory.tree_rss,
            semconv.MEMORY_DELTA: end.memory.tree_rss - start.memory.tree_rss,
        }
    if peaks.memory is not None:
        attributes |= {
            semconv.MEMORY_PEAK: peaks.memory,
            semconv.MEMORY_PEAK_SOURCE: peaks.memory_source,
            semconv.MEMORY_PEAK_RATIO: round(peaks.memory / memory_limit, 6)
            if memory_limit
            else None,
        }
    attributes |= _gpu_usage(start, end, peaks)
    if start.disk and end.disk:
        attributes |= {
            semconv.DISK_READ: end.disk.read - start.disk.read,
            semconv.DISK_WRITE: end.disk.write - start.disk.write,
            semconv.DISK_READ_CHARS: _difference(end.disk.read_chars, start.disk.read_chars),
            semconv.DISK_WRITE_CHARS: _difference(end.disk.write_chars, start.disk.write_chars),
        }
    if start.cpu and end.cpu:
        attributes |= {
            semconv.CPU_USER: round(end.cpu.user - start.cpu.user, 6),
            semconv.CPU_SYSTEM: round(end.cpu.system - start.cpu.system, 6),
            semconv.MAJOR_FAULTS: _difference(end.cpu.major_faults, start.cpu.major_faults),
        }
    return _present(attributes)


def cost_of(cost: CostedModel) -> dict[str, AttributeValue]:
    """Returns the totals of a costed model."""
    return {f"quant.model.{cost.role}.{name}": value for name, value in cost.figures.items()}


def cost_identity_of(cost: CostedModel) -> dict[str, AttributeValue]:
    """Returns the attributes that say which model it is."""
    return _present({semconv.MODEL_ROLE: cost.role, semconv.MODEL_PATH: cost.path})


def custom_of(values: Mapping[str, object]) -> dict[str, AttributeValue]:
    """Returns the values of custom metrics that an attribute can hold."""
    return {
        semconv.CUSTOM_PREFIX + name: value
        for name, value in values.items()
        if isinstance(value, str | bool | int | float)
    }


def gpu_total(gpus: tuple[GpuReading, ...]) -> int | None:
    """Returns the bytes in use on all visible GPUs; None without any."""
    return sum(gpu.used for gpu in gpus) if gpus else None


def _gpu_usage(start: Reading, end: Reading, peaks: Peaks) -> dict[str, AttributeValue | None]:
    before, after = gpu_total(start.gpus), gpu_total(end.gpus)
    attributes: dict[str, AttributeValue | None] = {
        semconv.GPU_MEMORY_START: before,
        semconv.GPU_MEMORY_END: after,
        semconv.GPU_MEMORY_DELTA: _difference(after, before),
        semconv.GPU_MEMORY_PEAK: peaks.gpu,
    }
    at_start = {gpu.index: gpu for gpu in start.gpus}
    at_end = {gpu.index: gpu for gpu in end.gpus}
    for index in sorted(at_start.keys() | at_end.keys()):
        highest = peaks.gpus.get(index, {})
        for figure, name in _GPU_FIGURES:
            prefix = f"{semconv.GPU_DEVICE_PREFIX}{index}.{name}."
            first = getattr(at_start.get(index), figure, None)
            last = getattr(at_end.get(index), figure, None)
            attributes[prefix + "start"] = first
            attributes[prefix + "end"] = last
            attributes[prefix + "delta"] = _difference(last, first)
            attributes[prefix + "peak"] = highest.get(figure)
    return attributes


def _difference(end: int | None, start: int | None) -> int | None:
    return None if end is None or start is None else end - start


def _present(attributes: Mapping[str, Any]) -> dict[str, AttributeValue]:
    return dict(_items_present(attributes))


def _items_present(attributes: Mapping[str, Any]) -> Iterator[tuple[str, AttributeValue]]:
    return ((key, value) for key, value in attributes.items() if value is not None)
