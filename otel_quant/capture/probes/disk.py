"""Probe for the disk I/O of the process tree.

The bytes that the probes read from ``/proc`` are subtracted from ``read_chars``: the program
did not read them. The few kilobytes of the local profile are not subtracted from what was
written.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection
from typing import Final

import psutil

from otel_quant.base.kernel_files import SELF, bytes_read, read_process
from otel_quant.capture.probes.process_tree import Cumulative, Figures, descendants_now
from otel_quant.schema.records import DiskReading

_LINUX = sys.platform == "linux"
_AVAILABLE: Final = _LINUX or hasattr(psutil.Process, "io_counters")
"""Whether the system offers these counters to an ordinary user; macOS does not."""


class DiskProbe:
    """Reads cumulative I/O of a process and its descendants, in bytes."""

    def __init__(self, pid: int = SELF) -> None:
        self._read_before = bytes_read()
        own = self._own if pid == SELF else functools.partial(_counters, pid)
        self._totals = Cumulative(own, _counters, functools.partial(descendants_now, pid))

    def __call__(self, pids: Collection[int] = ()) -> DiskReading | None:
        """Reads the counters."""
        return DiskReading(*self._totals.read(pids)) if _AVAILABLE else None

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
        counters = dict(
            zip(words[::2], words[1::2], strict=True)
        )  # takes a third of a regular expression's time
        return (
            int(counters[b"read_bytes:"]),
            int(counters[b"write_bytes:"]),
            int(counters[b"rchar:"]),
            int(counters[b"wchar:"]),
        )
    counters_ = psutil.Process(pid or None).io_counters()
    return counters_.read_bytes, counters_.write_bytes
