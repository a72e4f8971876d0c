"""How busy an NVIDIA device is, how hot, and what slows it down.

A query that a device does not support is not asked again. These figures change slowly and some
drivers take a millisecond for them, so a device is asked once a second at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from otel_quant.schema.records import GpuActivity

_EVERY: Final = 1.0
"""Seconds between two readings of a device."""

_SLOWED_BY: Final = (
    (0x08, "hardware slowdown"),
    (0x20, "heat (by software)"),
    (0x40, "heat (by hardware)"),
    (0x80, "power brake"),
)
"""Bits of NVML's clock event reasons that tell of trouble. Being idle, a limit of clocks that
somebody has set and the power cap under load are not."""

_SM_CLOCK: Final = 1
_MEMORY_CLOCK: Final = 2
_UNCORRECTED: Final = 1
_SINCE_LOADED: Final = 0
_CORE: Final = 0

_Query = Callable[[Any, Any], Any]

_QUERIES: Final[dict[str, _Query]] = {
    "utilization": lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
    "power": lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "temperature": lambda nvml, handle: nvml.nvmlDeviceGetTemperature(handle, _CORE),
    "clock": lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, _SM_CLOCK) * 1_000_000,
    "memory_clock": lambda nvml, handle: (
        nvml.nvmlDeviceGetClockInfo(handle, _MEMORY_CLOCK) * 1_000_000
    ),
    "slowed_by": lambda nvml, handle: _slowed_by(nvml, handle),
    "memory_errors": lambda nvml, handle: nvml.nvmlDeviceGetTotalEccErrors(
        handle, _UNCORRECTED, _SINCE_LOADED
    ),
}
"""How each field of :class:`GpuActivity` is read."""


def _slowed_by(nvml: Any, handle: Any) -> tuple[str, ...]:
    # The older name is to go with CUDA 14; older drivers know no other.
    older = getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None)
    bits = (older or nvml.nvmlDeviceGetCurrentClocksEventReasons)(handle)
    return tuple(name for bit, name in _SLOWED_BY if bits & bit)


class NvmlActivity:
    """Reads one device."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._queries = dict(_QUERIES)
        self._read_at = float("-inf")
        self._latest: GpuActivity | None = None

    def read(self, handle: Any) -> GpuActivity | None:
        """Returns the newest figures; None if the device tells none."""
        now = time.monotonic()
        if now - self._read_at < _EVERY or not self._queries:
            return self._latest
        self._read_at = now
        found: dict[str, Any] = {}
        for name, query in list(self._queries.items()):
            try:
                found[name] = query(self._nvml, handle)
            except self._nvml.NVMLError:
                # Of a device that fails, the reading of its memory tells.
                del self._queries[name]
        self._latest = GpuActivity(**found) if found else None
        return self._latest
