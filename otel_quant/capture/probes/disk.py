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

from otel_quant.capture.probes.cumulative import Cumulative, Figures
from otel_quant.capture.probes.kernel_files import SELF, bytes_read, read_process
from otel_quant.capture.probes.tree import descendants_now
from otel_quant.schema.records import DiskReading
from otel_quant.schema.resources import TOTAL, Column, Figure, Metric, Resource, Series

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


_DURING_STEPS: Final = Metric(
    "quant.step.disk.io",
    "counter",
    "By",
    "Bytes moved to or from storage during steps.",
)
_SO_FAR: Final = Metric(
    "quant.run.disk.io",
    "observable_counter",
    "By",
    "Bytes that the process tree moved to or from storage since the run began.",
)

DISK: Final = Resource(
    name="disk",
    probe=DiskProbe,
    figures=(
        Figure(
            "disk.read",
            "By",
            "Bytes that the process tree fetched from storage",
            lambda disk: disk.read,
            TOTAL,
            "102400000",
            checkpoint="disk_read",
            steps=(Series(_DURING_STEPS, labels={"disk.io.direction": "read"}),),
            live=Series(_SO_FAR, labels={"disk.io.direction": "read"}),
            column=Column("disk_read_mb", in_quark=True),
        ),
        Figure(
            "disk.write",
            "By",
            "Bytes that the process tree sent to storage",
            lambda disk: disk.write,
            TOTAL,
            "26214400",
            checkpoint="disk_write",
            steps=(Series(_DURING_STEPS, labels={"disk.io.direction": "write"}),),
            live=Series(_SO_FAR, labels={"disk.io.direction": "write"}),
            column=Column("disk_write_mb", in_quark=True),
        ),
        Figure(
            "disk.read_chars",
            "By",
            "Bytes read through system calls, including those that were in the page cache",
            lambda disk: disk.read_chars,
            TOTAL,
            "204800000",
        ),
        Figure(
            "disk.write_chars",
            "By",
            "Bytes written through system calls",
            lambda disk: disk.write_chars,
            TOTAL,
            "26214400",
        ),
    ),
)
