"""How long threads were ready to run and waited for a processor, as Linux counts it.

That is what a busy machine, or a limit of CPUs, adds to the time of a program.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Final

from otel_quant.capture.probes.kernel_files import read_proc, read_process

_SECOND: Final = 1_000_000_000

_MANY: Final = 32
"""Threads from which on they are read once a second: each takes 2 µs."""


def main_thread_wait(pid: int) -> float | None:
    """Returns how long the main thread of a process has waited since it began, in seconds."""
    try:
        waited = _waited(read_process(pid, "schedstat"))
    except OSError:
        return None
    return None if waited is None else waited / _SECOND


class ThreadWaits:
    """Adds up the waits of all threads of processes; a thread that has ended stays in the sum."""

    def __init__(self) -> None:
        self._sum = 0
        self._last: dict[str, int] = {}
        self._next_ns = 0

    def read(self, pids: Iterable[int]) -> float | None:
        """Returns how long all threads together have waited since they began, in seconds."""
        now = time.monotonic_ns()
        if len(self._last) >= _MANY and now < self._next_ns:
            return None
        self._next_ns = now + _SECOND
        found: dict[str, int] = {}
        for pid in pids:
            try:
                threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - takes half as long as iterdir
            except OSError:
                continue  # the process has ended
            for thread in threads:
                try:
                    waited = _waited(read_proc(f"/proc/{pid}/task/{thread}/schedstat"))
                except OSError:
                    continue  # the thread has ended, or the system has no such file
                if waited is not None:
                    found[thread] = waited
                    # A lower figure is that of a new thread with the id of one that has ended.
                    self._sum += max(0, waited - self._last.get(thread, 0))
        if not found and not self._last:
            return None
        self._last = found
        return self._sum / _SECOND


def _waited(schedstat: bytes) -> int | None:
    """Returns nanoseconds; None of a kernel that does not count: it says that nothing ever ran."""
    _, waited, turns = schedstat.split()
    return int(waited) if turns != b"0" else None
