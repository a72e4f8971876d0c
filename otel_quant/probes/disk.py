"""Probe for the disk I/O of the process tree.

The kernel adds the I/O of a child that has been waited for to its parent's counters, so
a total over the living processes also holds what the dead ones did. Between a child's
exit and the moment its parent waits for it a reading can miss it: totals never fall.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection

import psutil

from otel_quant.probes.tree import read_proc
from otel_quant.readings import DiskReading

_COUNTER = re.compile(rb"^(rchar|wchar|read_bytes|write_bytes): (\d+)", re.MULTILINE)
_LINUX = sys.platform == "linux"


class DiskProbe:
    """Reads cumulative I/O of this process and its descendants, in bytes."""

    def __init__(self) -> None:
        self._highest: tuple[int, ...] = ()

    def __call__(self, pids: Collection[int] = ()) -> DiskReading | None:
        """Reads the counters.

        Args:
            pids: Process ids of the descendants.

        Returns:
            The totals; None where the system keeps no such counters for an ordinary user.

        Raises:
            OSError: The process may not read its own counters.
        """
        # This process comes first: a child that it waits for meanwhile is then missed
        # once (and the total held), instead of being counted twice.
        totals = _counters(os.getpid())
        if totals is None:
            return None
        for pid in pids:
            try:
                child = _counters(pid)
            except (OSError, psutil.Error):
                continue  # it has exited, or belongs to someone else
            if child is not None:
                totals = tuple(map(sum, zip(totals, child, strict=False)))
        if self._highest:
            totals = tuple(map(max, zip(totals, self._highest, strict=False)))
        self._highest = totals
        return DiskReading(*totals)


def _counters(pid: int) -> tuple[int, ...] | None:
    """Returns read, write and, where known, read_chars and write_chars of one process."""
    if _LINUX:
        counters = dict(_COUNTER.findall(read_proc(f"/proc/{pid}/io")))
        return (
            int(counters[b"read_bytes"]),
            int(counters[b"write_bytes"]),
            int(counters[b"rchar"]),
            int(counters[b"wchar"]),
        )
    process = psutil.Process(pid)
    if not hasattr(process, "io_counters"):
        return None  # macOS
    counters_ = process.io_counters()
    return counters_.read_bytes, counters_.write_bytes
