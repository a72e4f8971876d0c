"""Probe for the disk I/O of a process and its descendants.

The bytes that the probes read from ``/proc`` are subtracted from ``read_chars``: the program did not read them. The
few kilobytes of the local profile are not subtracted from what was written.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Collection

from otel_quant.base.kernel_files import SELF, ask_psutil, bytes_read, read_process
from otel_quant.capture.probes.process_tree import Cumulative, Figures, descendants_now
from otel_quant.schema.readings import DiskReading


class DiskProbe:
    """Reads cumulative I/O of a process and its descendants, in bytes."""

    def __init__(self, pid: int = SELF) -> None:
        self._read_before = bytes_read()
        own = self._own if pid == SELF else functools.partial(_io_of, pid)
        self._totals = Cumulative(own, _io_of, functools.partial(descendants_now, pid))

    def __call__(self, pids: Collection[int] = ()) -> DiskReading | None:
        """Reads the counters, which macOS does not offer to an ordinary user."""
        return DiskReading(*self._totals.read(pids)) if sys.platform != "darwin" else None

    def _own(self) -> Figures:
        ours = bytes_read() - self._read_before  # without this read, which the counter lacks too
        read, write, *chars = _io_of(SELF)
        return read, write, *map(operator.sub, chars, (ours, 0))


def _io_of(pid: int) -> Figures:
    """Returns read, write and, where known, read_chars and write_chars of one process."""
    if sys.platform != "linux":
        counters = ask_psutil(pid, "io_counters")
        return counters.read_bytes, counters.write_bytes
    # In the order of the kernel; takes a third of a regular expression's time.
    fields = read_process(pid, "io").split()
    return int(fields[9]), int(fields[11]), int(fields[1]), int(fields[3])
