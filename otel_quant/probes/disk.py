"""Probe for the disk I/O of the process tree.

The bytes that the probes themselves read from ``/proc`` are no I/O of the program and are
taken out of ``read_chars``; the local profile's own few kilobytes are not taken out of
what was written.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Final

import psutil

from otel_quant.probes.cumulative import Cumulative, Figures
from otel_quant.probes.kernel_files import SELF, bytes_read, read_process
from otel_quant.records import DiskReading

_LINUX = sys.platform == "linux"
_KEPT: Final = _LINUX or hasattr(psutil.Process, "io_counters")
"""Whether the system keeps such counters for an ordinary user; macOS does not."""


class DiskProbe:
    """Reads cumulative I/O of this process and its descendants, in bytes."""

    def __init__(self) -> None:
        self._read_before = bytes_read()
        self._totals = Cumulative(self._own, _counters)

    def __call__(self, pids: Collection[int] = ()) -> DiskReading | None:
        """Reads the counters.

        Args:
            pids: Process ids of the descendants, parents first.

        Returns:
            The totals, which never fall; None where the system keeps no such counters.

        Raises:
            OSError: The process may not read its own counters.
        """
        return DiskReading(*self._totals.read(pids)) if _KEPT else None

    def _own(self) -> Figures:
        read, write, *chars = _counters(SELF)
        if not chars:
            return read, write
        read_chars, write_chars = chars
        return read, write, read_chars - (bytes_read() - self._read_before), write_chars


def _counters(pid: int) -> Figures:
    """Returns read, write and, where known, read_chars and write_chars of one process."""
    if _LINUX:
        words = read_process(pid, "io").split()
        counters = dict(zip(words[::2], words[1::2], strict=True))  # a third of a pattern's cost
        return (
            int(counters[b"read_bytes:"]),
            int(counters[b"write_bytes:"]),
            int(counters[b"rchar:"]),
            int(counters[b"wchar:"]),
        )
    counters_ = psutil.Process(pid or None).io_counters()
    return counters_.read_bytes, counters_.write_bytes
