"""Probe for the resident memory of the process tree.

On Linux the figures come from ``/proc/PID/status``, whose ``VmHWM`` is the kernel's own
high-water mark; elsewhere from psutil.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection

import psutil

from otel_quant.probes.tree import read_proc
from otel_quant.readings import MemoryReading

_HIGH_WATER = re.compile(rb"^VmHWM:\s*(\d+) kB", re.MULTILINE)
_RSS = re.compile(rb"^VmRSS:\s*(\d+) kB", re.MULTILINE)
_LINUX = sys.platform == "linux"

if sys.platform != "win32":
    import resource


def read_memory(pids: Collection[int] = ()) -> MemoryReading:
    """Reads the memory of this process and of the given descendants.

    Args:
        pids: Process ids of the descendants; one that has exited since is passed over.

    Returns:
        The reading, in bytes.

    Raises:
        OSError: The process may not read its own figures.
        psutil.Error: The same, where psutil is asked.
    """
    rss, high_water = _own() if _LINUX else (psutil.Process().memory_info().rss, None)
    children = tuple(_of_children(pids))
    return MemoryReading(
        rss=rss,
        tree_rss=rss + sum(child[1] for child in children),
        high_water=high_water,
        children=children,
        reaped_high_water=_reaped_high_water(),
    )


def reset_high_water(pids: Collection[int] = ()) -> None:
    """Lowers the kernel's marks to the memory in use now (exact mode; Linux only).

    Args:
        pids: Descendants whose marks are lowered too.

    Raises:
        OSError: This process's own mark may not be reset.
    """
    _reset(os.getpid())
    for pid in pids:
        try:
            _reset(pid)
        except OSError:
            continue  # it has exited, or belongs to someone else: its peaks are sampled


def _reset(pid: int) -> None:
    handle = os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, b"5")  # proc(5): reset the peak resident set size
    finally:
        os.close(handle)


def _own() -> tuple[int, int | None]:
    rss, mark = _parse(read_proc("/proc/self/status"))
    return rss or 0, mark


def _of_children(pids: Collection[int]) -> list[tuple[int, int, int | None]]:
    found: list[tuple[int, int, int | None]] = []
    for pid in pids:
        try:
            if _LINUX:
                rss, mark = _parse(read_proc(f"/proc/{pid}/status"))
            else:
                rss, mark = psutil.Process(pid).memory_info().rss, None
        except (OSError, psutil.Error):
            continue
        if rss is not None:  # a zombie has no memory left
            found.append((pid, rss, mark))
    return found


def _parse(status: bytes) -> tuple[int | None, int | None]:
    rss, mark = _RSS.search(status), _HIGH_WATER.search(status)
    return (
        int(rss.group(1)) * 1024 if rss else None,
        int(mark.group(1)) * 1024 if mark else None,
    )


def _reaped_high_water() -> int | None:
    if sys.platform == "win32":
        return None
    mark = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    # Kibibytes on Linux and the BSDs, bytes on macOS; 0 means that no child was waited for.
    return mark * (1 if sys.platform == "darwin" else 1024) if mark else None
