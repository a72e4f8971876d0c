"""Names of the series of a curve.

Levels: :data:`MEMORY`, :data:`CACHE`, ``gpu.<index>.used``, ``gpu.<index>.process_used`` and
``process.<name>``, in bytes. Totals since the curve began: :data:`DISK_READ`, :data:`DISK_WRITE` in
bytes, :data:`CPU` in seconds.
"""

from __future__ import annotations

from typing import Final

MEMORY: Final = "memory"
"""RSS of the process tree."""

CACHE: Final = "cache"
"""Most that one of the library's cache directories has grown."""

CACHE_GROWTH: Final = "quant.cache.disk.peak"
"""The attribute of a reading that says so of a run, in ``state.<pid>.json``."""

DISK_READ: Final = "disk.read"
DISK_WRITE: Final = "disk.write"

CPU: Final = "cpu"
"""CPU time of the process tree, user and system."""

PROCESS: Final = "process."
"""Beginning of the name of a process's own RSS; the largest processes have one each."""


def gpu_used(index: int) -> str:
    """Returns the series of all memory in use on a GPU, by whatever process."""
    return f"gpu.{index}.used"


def gpu_process_used(index: int) -> str:
    """Returns the series of the memory that this process tree uses on a GPU."""
    return f"gpu.{index}.process_used"
