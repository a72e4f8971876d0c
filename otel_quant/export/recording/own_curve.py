"""The curve that a process takes of itself and its children, where no launcher takes it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from otel_quant.export.recording.curve import CurveFile
from otel_quant.export.recording.largest_processes import LargestProcesses
from otel_quant.schema import series
from otel_quant.schema.figures import curve_levels, curve_totals
from otel_quant.schema.records import Reading

_LOOK_NS: Final = 1_000_000_000
"""Nanoseconds between two looks at which processes are the largest."""


class OwnCurve:
    """Adds readings to the curve of this process."""

    def __init__(self, path: Path, first: Reading, interval: float) -> None:
        self._file = CurveFile(path, first.time_ns, first.clock_ns, interval)
        self._first = first
        self._largest = LargestProcesses(os.getpid())
        self._looked_ns = 0
        # The sampler may add its last reading while the run ends.
        self._lock = threading.RLock()
        self.flush(first)

    def add(self, reading: Reading) -> None:
        """Adds a reading."""
        levels = curve_levels(reading.resources)
        if reading.memory is not None:
            children = {pid: rss for pid, rss, _ in reading.memory.children}
            processes = {os.getpid(): reading.memory.rss, **children}
            if reading.clock_ns - self._looked_ns >= _LOOK_NS:
                self._looked_ns = reading.clock_ns
                self._largest.look(processes)
            for name, rss in self._largest.series(processes).items():
                levels[series.PROCESS + name] = rss
        with self._lock:
            self._file.add(
                reading.clock_ns, levels, curve_totals(reading.resources, self._first.resources)
            )

    def flush(self, last: Reading) -> None:
        """Writes all, with the last reading of a run."""
        with self._lock:
            self.add(last)
            self._file.flush()

    def forget(self) -> None:
        """In a forked child: closes its copy."""
        self._lock = threading.RLock()
        self._file.forget()
