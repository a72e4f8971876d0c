"""Memory of torch's caching allocator, if the program already uses torch on a GPU.

Nothing here imports torch or starts CUDA: the figures are absent unless the program has
imported torch and initialised its CUDA. They are the allocator's own counters, which then exist
for every device. Reading them creates no context on a device and waits for no kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Literal

from otel_quant.schema.records import GpuReading

Platform = Literal["cuda", "hip"]


def with_torch_memory(
    readings: tuple[GpuReading, ...],
    platform: Platform,
    modules: Mapping[str, ModuleType] = sys.modules,
) -> tuple[GpuReading, ...]:
    """Adds the allocator's figures to the readings of the devices they belong to.

    Devices are matched by UUID. If none of torch's UUIDs matches (old versions have none, HIP
    has different ones), devices are matched by index.
    """
    cuda = _initialised_cuda(platform, modules)
    if cuda is None or not readings:
        return readings
    count = cuda.device_count()
    by_uuid = {_uuid(cuda, position): position for position in range(count)}
    matches = [by_uuid.get(reading.id.partition("-")[2]) for reading in readings]
    if all(match is None for match in matches):
        matches = [reading.index if reading.index < count else None for reading in readings]
    return tuple(
        reading if position is None else _with_figures(reading, cuda, position)
        for reading, position in zip(readings, matches, strict=True)
    )


def _initialised_cuda(platform: Platform, modules: Mapping[str, ModuleType]) -> Any:
    """Returns ``torch.cuda`` if it is in use; another thread may still be importing it."""
    version = getattr(modules.get("torch"), "version", None)
    cuda: Any = modules.get("torch.cuda")
    is_initialized = getattr(cuda, "is_initialized", None)
    if version is None or is_initialized is None or not is_initialized():
        return None
    built_for = "hip" if getattr(version, "hip", None) else "cuda"
    return cuda if built_for == platform else None


def _uuid(cuda: Any, position: int) -> str:
    return str(getattr(cuda.get_device_properties(position), "uuid", position))


def _with_figures(reading: GpuReading, cuda: Any, position: int) -> GpuReading:
    try:
        # Not memory_allocated(): each call flattens and sorts hundreds of counters.
        counters = cuda.memory_stats_as_nested_dict(position)
        return replace(
            reading,
            torch_allocated=int(counters["allocated_bytes"]["all"]["current"]),
            torch_reserved=int(counters["reserved_bytes"]["all"]["current"]),
        )
    except (KeyError, RuntimeError):  # the program uses an allocator without counters
        return reading
