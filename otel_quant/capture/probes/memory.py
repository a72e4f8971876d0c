"""Probe for the resident memory of the process tree.

On Linux the figures come from ``/proc/PID/status``; ``VmHWM`` there is the kernel's high-water
mark, the highest RSS so far. Elsewhere they come from psutil.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection
from typing import Final

import psutil

from otel_quant.base.descriptors import open_apart
from otel_quant.capture.probes.kernel_files import SELF, read_process
from otel_quant.capture.probes.tree import descendants
from otel_quant.schema.records import MemoryReading

_LINUX = sys.platform == "linux"

if sys.platform != "win32":
    import resource


_MARGIN: Final = 4 << 20
"""Bytes by which two marks of the same memory may differ: each core counts on its own, and the
kernel adds the counts up only from time to time."""

_CORES: Final = os.cpu_count() or 1
_DRIFT: Final = 2 * _CORES * max(64, 2 * _CORES) * 4096
"""Bytes by which two marks may differ on a machine with many cores: each core (before Linux
6.2: each thread) may have so many pages not yet added up, for each of two kinds of pages."""

_ADDRESS_SPACE_KEYS: Final = (b"\nVmPeak:", b"\nVmStk:", b"\nVmExe:", b"\nVmLib:", b"\nRssFile:")
"""Figures that rarely change, so that they are equal in two readings of one address space."""


class MemoryProbe:
    """Reads the resident memory of a process and its descendants."""

    def __init__(self, pid: int = SELF) -> None:
        self._pid = pid
        self._highest_mark = 0

    def __call__(self, pids: Collection[int] = ()) -> MemoryReading:
        """Reads the memory."""
        # Read first: an exited child's mark may be a copy of a mark that is read below, which
        # may have risen by then.
        reaped = _reaped_high_water() if self._pid == SELF else None
        rss, high_water, virtual_peak = _own(self._pid)
        children = tuple(_of_children(pids, {self._pid or os.getpid(): virtual_peak}))
        for mark in (high_water, *(mark for _, _, mark in children)):
            self._highest_mark = max(self._highest_mark, mark or 0)
        return MemoryReading(
            rss=rss,
            tree_rss=rss + sum(child[1] for child in children),
            high_water=high_water,
            children=children,
            reaped_high_water=reaped if self._is_above_all_marks(reaped) else None,
            # Last: the children that have begun since the list was made must not be missed.
            reaped_faults=_reaped_faults() if self._may_have_reaped(children, high_water) else None,
        )

    def _may_have_reaped(self, children: Collection[object], high_water: int | None) -> bool:
        return self._pid == SELF and not children and high_water is not None

    def _is_above_all_marks(self, reaped: int | None) -> bool:
        """Whether the mark of exited descendants is above every mark read so far.

        Only then is it certainly a child's and certainly new. A child that calls exec starts
        with the mark of the process that it was forked from, and the mark of a long-lived
        child may come from an earlier step. The margin is small, so that a child that was read
        just before its peak does not hide that peak.
        """
        highest = self._highest_mark
        margin = max(_MARGIN, min(highest >> 5, _DRIFT))
        return reaped is not None and reaped > highest + margin


def reset_high_water(pids: Collection[int] = ()) -> frozenset[int]:
    """Lowers the kernel's marks to the memory in use now (exact mode; Linux only)."""
    _reset(os.getpid())
    lowered: set[int] = set()
    for pid in pids:
        try:
            _reset(pid)
        except OSError:
            continue
        lowered.add(pid)
    return frozenset(lowered)


def _reset(pid: int) -> None:
    handle = open_apart(f"/proc/{pid}/clear_refs", os.O_WRONLY)
    try:
        os.write(handle, b"5")  # proc(5): reset the peak resident set size
    finally:
        os.close(handle)


def _own(pid: int) -> tuple[int, int | None, int | None]:
    if not _LINUX:
        return psutil.Process(pid or None).memory_info().rss, None, None
    status = read_process(pid, "status")
    rss, mark = _parse(status)
    return rss or 0, mark, _kibibytes(status, b"\nVmPeak:")


def _of_children(
    pids: Collection[int], virtual_peaks: dict[int, int | None]
) -> list[tuple[int, int, int | None]]:
    found: list[tuple[int, int, int | None]] = []
    for pid in pids:
        try:
            if _LINUX:
                status = read_process(pid, "status")
                rss, mark = _parse(status)
                virtual_peak = virtual_peaks[pid] = _kibibytes(status, b"\nVmPeak:")
                parent = _number(status, b"\nPPid:", b"\n") or 0
                if virtual_peak == virtual_peaks.get(parent) and _shares_memory(status, parent):
                    continue
            else:
                rss, mark = psutil.Process(pid).memory_info().rss, None
        except (OSError, psutil.Error):
            continue
        if rss is not None:  # a zombie has no memory left
            found.append((pid, rss, mark))
    return found


def _shares_memory(status: bytes, parent: int) -> bool:
    """Whether a process is between vfork and exec and has no memory of its own yet.

    The kernel then shows its parent's figures for it, perhaps gigabytes. The figures of a
    forked child differ from its parent's: it starts without the parent's pages of files.
    """
    if _kibibytes(status, b"\nRssFile:") is None:
        return False
    parents = read_process(SELF if parent == os.getpid() else parent, "status")
    return all(_kibibytes(status, key) == _kibibytes(parents, key) for key in _ADDRESS_SPACE_KEYS)


def _parse(status: bytes) -> tuple[int | None, int | None]:
    """Returns RSS and mark in bytes; a zombie and a kernel thread have neither."""
    return _kibibytes(status, b"\nVmRSS:"), _kibibytes(status, b"\nVmHWM:")


def _kibibytes(status: bytes, key: bytes) -> int | None:
    number = _number(status, key, b" kB")
    return number * 1024 if number is not None else None


def _number(status: bytes, key: bytes, end: bytes) -> int | None:
    at = status.find(key)  # takes a tenth of a regular expression's time
    if at < 0:
        return None
    return int(status[at + len(key) : status.index(end, at + len(key))])


def _reaped_high_water() -> int | None:
    if sys.platform == "win32":
        return None
    mark = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    # Kibibytes on Linux and the BSDs, bytes on macOS; 0 means that no child was waited for.
    return mark * (1 if sys.platform == "darwin" else 1024) if mark else None


def _reaped_faults() -> int | None:
    """Returns ``MemoryReading.reaped_faults`` of this moment."""
    # With SIGCHLD ignored, the kernel adds nothing of an exited child to its parent's figures.
    if sys.platform == "win32" or signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        return None
    # In this order: a child that exits between the two calls is in the second answer.
    if descendants():
        return None
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
