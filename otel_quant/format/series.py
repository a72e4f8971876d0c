"""Names of the series of a curve.

Levels: :data:`MEMORY`, :data:`CACHE`, ``gpu.<index>.used``, ``gpu.<index>.process_used``, their sums over
the GPUs ``gpu.memory`` and ``gpu.process_memory``, and ``process.<name>``, in bytes. Totals since the curve began: :data:`DISK_READ`, :data:`DISK_WRITE` in
bytes, :data:`CPU`, :data:`CPU_WAIT` and :data:`CPU_WAITS` in seconds.
"""

from __future__ import annotations

import re
from typing import Final

from otel_quant.schema import figures, semconv

MEMORY: Final = "memory"  # RSS of the process tree
CACHE: Final = "cache"  # Most that one of the library's cache directories has grown
DISK_READ: Final = "disk.read"
DISK_WRITE: Final = "disk.write"
CPU: Final = "cpu"  # CPU time of the process tree, user and system
CPU_WAIT: Final = "cpu.wait"  # How long the main thread was ready to run and waited for a processor
CPU_WAITS: Final = "cpu.waits"  # The same of all threads of the process tree, added up
# Since when the highest of MEMORY may have been reached, in milliseconds since the curve began: a mark of the kernel
# tells how high memory was, and not when
SINCE: Final = f"{MEMORY}.since"
PROCESS: Final = "process."  # Beginning of a process's own RSS; the largest processes have one each
USED: Final = "used"
PROCESS_USED: Final = "process_used"

STATE_PEAKS: Final = {
    figures.CACHE_GROWTH.name: semconv.CACHE_GROWTH,
    **{
        each.name: f"{semconv.READING_PREFIX}{each.checkpoint}_peak"
        for each in (figures.TREE_GPU_MEMORY, figures.ALL_GPUS_MEMORY)
    },
}
"""Peaks of a run that are in its state and on no log record: figure and attribute."""

TOTALS: Final = frozenset({CPU, CPU_WAITS}) | {
    figure.curve
    for resource in figures.RESOURCES
    for figure in resource.figures
    if figure.curve and figure.is_total
}
"""The series that only rise; the others are levels."""

_ACTIVITY: Final = re.compile(
    rf"gpu\.([0-9]+)\.({figures.GPU_UTILIZATION.curve}|{figures.GPU_POWER.curve})"
)
_GPU: Final = re.compile(rf"gpu\.([0-9]+)\.({USED}|{PROCESS_USED})")


def gpu_of(name: str) -> tuple[int, str] | None:
    """Returns the index of a GPU and which figure of it a series is; None for any other series."""
    found = _GPU.fullmatch(name)
    return None if found is None else (int(found[1]), found[2])


def gpu_activity(name: str) -> tuple[int, str] | None:
    """Returns the index of a GPU and what it does that a series shows; None for any other series."""
    found = _ACTIVITY.fullmatch(name)
    return None if found is None else (int(found[1]), found[2])


def gpu_used(index: int) -> str:
    """Returns the series of all memory in use on a GPU, by whatever process."""
    return f"gpu.{index}.{USED}"


def gpu_process_used(index: int) -> str:
    """Returns the series of the memory that this process tree uses on a GPU."""
    return f"gpu.{index}.{PROCESS_USED}"
