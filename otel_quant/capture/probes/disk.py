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

from otel_quant.base.kernel_files import SELF, ask_psutil, bytes_read, read_process
from otel_quant.capture.probes.process_tree import Cumulative, Figures, descendants_now
from otel_quant.schema.records import DiskReading

_LINUX = sys.platform == "linux"
_AVAILABLE: Final = sys.platform != "darwin"
"""Whether the system offers these counters to an ordinary user."""


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
        ours = bytes_read() - self._read_before  # without this read, which the counter lacks too
        read, write, *chars = _counters(SELF)
        if not chars:
            return read, write
        read_chars, write_chars = chars
        return read, write, read_chars - ours, write_chars


def _counters(pid: int) -> Figures:
    """Returns read, write and, where known, read_chars and write_chars of one process."""
    if not _LINUX:
        counters = ask_psutil(pid, "io_counters")
        return counters.read_bytes, counters.write_bytes
    # In the order of the kernel; takes a third of a regular expression's time.
    _, read_chars, _, write_chars, _, _, _, _, _, read, _, write, *_ = read_process(
        pid, "io"
    ).split()
    return int(read), int(write), int(read_chars), int(write_chars)
