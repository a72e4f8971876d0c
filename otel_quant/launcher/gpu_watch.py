"""GPUs as the launcher reads them: on a thread of its own, so that a driver that hangs does not make the launcher hang."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Final

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS, start_thread
from otel_quant.capture.probes.gpu import GpuProbe
from otel_quant.schema.readings import GpuReading

_LONGEST_WAIT: Final = 0.2
"""Seconds to wait for a reading, which takes a tenth of a millisecond; the first, which loads the driver, a tenth of a second."""


class GpuWatch:
    """Takes readings of what a program has of the GPUs that it can see."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._probe = GpuProbe(environ)
        self._is_off = not settings_from(environ, warn=False).gpu
        self._pids: Collection[int] = ()
        self._found: tuple[GpuReading, ...] = ()
        # Both are at 0 while nothing is asked; the thread, if there is one, waits for the first.
        self._asked, self._answered = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._is_late = False  # The driver has not answered yet
        self._is_last = False

    def __call__(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        """Takes a reading; none while the driver does not answer."""
        if self._is_off or self._probe.has_none:
            return ()
        if self._is_late and not self._answered.acquire(blocking=False):
            return ()
        if self._thread is None:
            self._thread = start_thread(self._read, "otel-quant-gpus")
        self._pids = pids
        self._asked.release()
        self._is_late = not self._answered.acquire(timeout=_LONGEST_WAIT)
        return () if self._is_late else self._found

    def last(self) -> tuple[GpuReading, ...]:
        """Takes a reading that has the counters of energy as they are now, which takes some milliseconds."""
        self._is_last = True
        return self(())

    def _read(self) -> None:
        while self._asked.acquire():
            self._found = ()
            with FAULTS.kept_in("observer, GPUs"):
                self._found = self._probe(self._pids, is_brief=not self._is_last)
            self._answered.release()
