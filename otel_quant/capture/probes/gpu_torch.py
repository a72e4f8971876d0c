"""Counters of torch's caching allocator on the visible GPUs. torch is never imported, only used if the program has loaded it.

The allocator keeps the highest of what it has reserved and allocated since the process began, or since the program
has reset these marks, which we never do. A mark that has moved between two readings was reached between them. It is
numbered by how often it was seen to move, so that no reading that comes late is taken for a newer one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from otel_quant.capture.probes.gpu_devices import Platform
from otel_quant.schema.readings import AllocatorMark, GpuReading, TorchMemory

_EVERY: Final = 1.0
"""Seconds between two samples that ask the allocator, which takes 20 us: what it held meanwhile is in its marks."""


def platform_of_torch(modules: Mapping[str, ModuleType] = sys.modules) -> Platform | None:
    """Returns what torch was built for; None if the program has not loaded it."""
    version = getattr(modules.get("torch"), "version", None)
    built_for: Platform = "hip" if getattr(version, "hip", None) else "cuda"
    return None if version is None else built_for


class TorchCounters:
    """The allocator's counters on the devices of one vendor."""

    def __init__(self, platform: Platform, modules: Mapping[str, ModuleType] = sys.modules) -> None:
        self._platform, self._modules = platform, modules
        self._cuda: Any = None  # ``torch.cuda``, once it is in use
        self._seen = 0  # Devices whose positions are known
        self._positions: Mapping[int, int] = {}  # torch's number of a device, by index
        self._asked_at = float("-inf")  # Monotonic clock when the allocator was asked, in seconds
        self._latest: dict[int, TorchMemory] = {}  # By index

    def add_to(self, readings: Sequence[GpuReading], *, is_brief: bool = False) -> None:
        """Adds the counters to readings; to a sample those of the last second."""
        now = time.monotonic()
        if not is_brief or now - self._asked_at >= _EVERY:
            self._asked_at = now
            self._ask(readings)
        for reading in readings:
            reading.torch = self._latest.get(reading.index)

    def _in_use(self) -> Any:
        """Returns ``torch.cuda`` if it is in use, which it then remains; another thread may still be importing it."""
        cuda: Any = self._modules.get("torch.cuda")
        is_in_use = getattr(cuda, "is_initialized", bool)()
        return cuda if is_in_use and platform_of_torch(self._modules) == self._platform else None

    def _ask(self, readings: Sequence[GpuReading]) -> None:
        cuda = self._cuda = self._cuda or self._in_use()
        if cuda is None:
            return
        if len(readings) > self._seen:
            self._seen, self._positions = len(readings), _positions(readings, cuda)
        for index, position in self._positions.items():
            before = self._latest.pop(index, None)
            try:
                # Not memory_allocated(): each call flattens and sorts hundreds of counters.
                counters = cuda.memory_stats_as_nested_dict(position)
                allocated = counters["allocated_bytes"]["all"]
                reserved = counters["reserved_bytes"]["all"]
                self._latest[index] = TorchMemory(
                    allocated["current"],
                    reserved["current"],
                    _moved(before and before.allocated_mark, allocated["peak"]),
                    _moved(before and before.reserved_mark, reserved["peak"]),
                    counters.get("num_alloc_retries"),
                )
            except (KeyError, RuntimeError):
                continue  # the program uses an allocator without counters


def _positions(readings: Sequence[GpuReading], cuda: Any) -> Mapping[int, int]:
    """Matches devices by UUID, or by index where none matches (old versions, HIP)."""
    positions = range(cuda.device_count())
    properties = map(cuda.get_device_properties, positions)
    by_uuid = {str(getattr(each, "uuid", None)): n for n, each in enumerate(properties)}
    uuids = {reading.index: reading.id.partition("-")[2] for reading in readings}
    found = {index: by_uuid[uuid] for index, uuid in uuids.items() if uuid in by_uuid}
    return found or dict(enumerate(positions))


def _moved(before: AllocatorMark | None, value: int) -> AllocatorMark:
    if before is None:
        return AllocatorMark(1, value)
    return before if before.bytes == value else AllocatorMark(before.moves + 1, value)
