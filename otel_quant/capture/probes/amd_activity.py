"""How busy an AMD device is and how hot, from the kernel's files.

``amdsmi`` reads the same files. What slows a device down is only in a binary table whose layout
changes with the device, so it is not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from otel_quant.capture.probes.kernel_files import read_proc
from otel_quant.schema.records import GpuActivity

_FILES: Final = (
    ("utilization", "gpu_busy_percent", 1e-2),
    ("power", "hwmon/hwmon*/power1_average", 1e-6),
    ("power", "hwmon/hwmon*/power1_input", 1e-6),
    ("temperature", "hwmon/hwmon*/temp1_input", 1e-3),
    ("clock", "hwmon/hwmon*/freq1_input", 1),
    ("memory_clock", "hwmon/hwmon*/freq2_input", 1),
)
"""Field, file below the device's folder, and factor from the file's unit to ours. Of two files of one
field a device has one."""


def read_activity(folder: Path) -> GpuActivity | None:
    """Returns the newest figures of a device; None if the kernel shows none."""
    found: dict[str, float] = {}
    for field, pattern, factor in _FILES:
        for path in folder.glob(pattern):
            try:
                value = int(read_proc(str(path)))
            except (OSError, ValueError):
                continue  # the device sleeps, or does not have it
            found.setdefault(field, value * factor)
    if not found:
        return None
    return GpuActivity(
        utilization=found.get("utilization"),
        power=found.get("power"),
        temperature=found.get("temperature"),
        clock=_whole(found.get("clock")),
        memory_clock=_whole(found.get("memory_clock")),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
