"""Quark's ``CacheDirDiskMonitor``: how much one directory grows on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from otel_quant.capture.probes.cache_directories import size_of
from otel_quant.capture.sampler import Sampler

_MIB: Final = 1 << 20


class CacheDirDiskMonitor:
    """Measures a directory from :meth:`start` to :meth:`stop`, on a thread."""

    def __init__(self, path: str, interval: float = 1.0) -> None:
        self.path, self.interval = path, interval
        self.initial_mb = self.peak_mb = 0.0
        self._sampler = Sampler(self._measure, interval)

    def start(self) -> None:
        """Begins to measure; what the directory has in it is not counted."""
        self.initial_mb = (size_of(Path(self.path)) or 0) / _MIB
        self._sampler.start()

    def stop(self) -> None:
        """Measures a last time and stops."""
        self._sampler.stop()
        self._measure()

    def _measure(self) -> None:
        size = size_of(Path(self.path))
        if size is not None:
            self.peak_mb = max(self.peak_mb, size / _MIB - self.initial_mb)
