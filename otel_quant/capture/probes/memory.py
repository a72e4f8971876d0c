"""Probe for the resident memory of the process tree.

On Linux the figures come from ``/proc/PID/status``; ``VmHWM`` there is the kernel's high-water
mark, the highest RSS so far. Elsewhere they come from psutil.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterator
from typing import Final

from otel_quant.base.files import open_apart
from otel_quant.base.kernel_files import SELF, ask_psutil, number_in, read_process
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

_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

_FALL: Final = 1 << 20
"""Bytes by which memory has to fall for the marks of children to be read: it moves by pages all the time."""

_MARKS_LAST: Final = 0.5
"""Seconds after which a sample has the marks of child processes again: they may end at any time."""

_Child = tuple[int, int, int | None]
"""Process id, RSS and mark of a child, in bytes."""


class MemoryProbe:
    """Reads the resident memory of a process and its descendants."""

    def __init__(self, pid: int = SELF) -> None:
        self._pid = pid
        self._highest_mark = 0
        self._pids: Collection[int] = ()  # descendants at the last reading that was not brief
        self._known: frozenset[int] = frozenset()  # those that had memory of their own
        self._read_at = 0.0  # monotonic clock of that reading, in seconds
        self._last = 0  # memory in use at the last sample, in bytes

    def sample(self, pids: Collection[int] = ()) -> MemoryReading:
        """Reads what is in use, in a third of the time: of a process without children the next mark tells the peak."""
        if (
            not _LINUX
            or pids != self._pids
            or (pids and time.monotonic() - self._read_at >= _MARKS_LAST)
        ):
            return self(pids)
        rss = _resident(self._pid)
        if not pids:
            return MemoryReading(rss, rss, is_brief=True)
        children: list[_Child] = []
        for pid in self._known:
            try:
                children.append((pid, _resident(pid), None))
            except OSError:
                continue  # it has ended
        total = rss + sum([child[1] for child in children])
        has_fallen, self._last = total < self._last - _FALL, total
        if has_fallen:  # what was higher in between is in the marks
            return self(pids)
        return MemoryReading(rss, total, children=tuple(children), is_brief=True)

    def __call__(self, pids: Collection[int] = ()) -> MemoryReading:
        """Reads the memory."""
        # Read first: an exited child's mark may be a copy of a mark that is read below, which
        # may have risen by then.
        reaped, faults = _of_reaped() if self._pid == SELF else (None, None)
        rss, mark = _own(self._pid)
        tree, highest = rss, max(self._highest_mark, mark or 0)
        children = tuple(_of_children(pids, self._known)) if pids else ()
        for _, rss_of_child, mark_of_child in children:
            tree += rss_of_child
            if mark_of_child is not None and mark_of_child > highest:
                highest = mark_of_child
        self._highest_mark = highest
        if pids or self._pids:
            self._pids, self._known = pids, frozenset([pid for pid, _, _ in children])
            self._read_at = time.monotonic()
        return MemoryReading(
            rss,
            tree,
            mark,
            children,
            reaped if self._is_above_all_marks(reaped) else None,
            faults if mark is not None and not pids else None,
        )

    def _is_above_all_marks(self, reaped: int | None) -> bool:
        """Whether the mark of exited descendants is above every mark read so far.

        Only then is it certainly a child's and certainly new. A child that calls exec starts
        with the mark of the process that it was forked from, and the mark of a long-lived
        child may come from an earlier step. The margin is small, so that a child that was read
        just before its peak does not hide that peak.
        """
        highest = self._highest_mark
        if reaped is None or reaped <= highest:
            return False
        return reaped > highest + max(_MARGIN, min(highest >> 5, _DRIFT))


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


def _own(pid: int) -> tuple[int, int | None]:
    """Returns RSS and mark in bytes."""
    if not _LINUX:
        return ask_psutil(pid, "memory_info").rss, None
    rss, mark = _parse(read_process(pid, "status"))
    return rss or 0, mark


def _resident(pid: int) -> int:
    """Returns RSS in bytes."""
    return int(read_process(pid, "statm").split(None, 2)[1]) * _PAGE


def _of_children(pids: Collection[int], known: Collection[int]) -> Iterator[_Child]:
    for pid in pids:
        try:
            if _LINUX:
                status = read_process(pid, "status")
                if pid not in known and _shares_memory(status):
                    continue
                rss, mark = _parse(status)
            else:
                rss, mark = ask_psutil(pid, "memory_info").rss, None
        except OSError:
            continue
        if rss is not None:  # a zombie has no memory left
            yield pid, rss, mark


def _shares_memory(status: bytes) -> bool:
    """Whether a process is between vfork and exec, where the kernel shows its parent's figures for it."""
    if number_in(status, b"\nRssFile:") is None:
        return False
    parent = number_in(status, b"\nPPid:") or 0
    parents = read_process(SELF if parent == os.getpid() else parent, "status")
    return all(number_in(status, key) == number_in(parents, key) for key in _ADDRESS_SPACE_KEYS)


def _parse(status: bytes) -> tuple[int | None, int | None]:
    """Returns RSS and mark in bytes; a zombie and a kernel thread have neither."""
    at = status.find(b"\nVmHWM:")
    if at < 0:
        return None, None
    # The line after it, always, is VmRSS. One search for both: a step reads this of each child twice.
    _, mark, _, _, rss, _ = status[at : at + 80].split(None, 5)
    return int(rss) << 10, int(mark) << 10


def _of_reaped() -> tuple[int | None, int | None]:
    """Returns the highest RSS in bytes, and the page faults, of children that were waited for."""
    if sys.platform == "win32":
        return None, None
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Kibibytes on Linux and the BSDs, bytes on macOS; 0 means that no child was waited for.
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss * unit or None, usage.ru_minflt
