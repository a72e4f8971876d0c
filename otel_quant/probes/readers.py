"""All probes together: one call takes one reading."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from otel_quant.fault_boundary import FAULTS
from otel_quant.probes.cpu import CpuProbe
from otel_quant.probes.disk import DiskProbe
from otel_quant.probes.kernel_files import close_all, retain
from otel_quant.probes.memory import MemoryProbe
from otel_quant.probes.tree import descendants
from otel_quant.records import CpuReading, DiskReading, GpuReading, MemoryReading, Reading

_AT_ONCE: Final = 20_000
"""Nanoseconds between two clocks that are read at one moment; a twentieth of that as a rule."""

_TRIES: Final = 5

_PATIENCE: Final = 1.0
"""Seconds to wait for another thread's reading, which takes a thousandth of that as a rule."""


def _no_gpus(pids: Collection[int]) -> tuple[GpuReading, ...]:
    return ()


@dataclass(slots=True)
class Probes:
    """The probes that a run asks.

    Attributes:
        memory: Reads process memory.
        disk: Reads disk I/O.
        cpu: Reads CPU time.
        gpu: Reads GPU memory.
    """

    memory: Callable[[Collection[int]], MemoryReading | None] = field(default_factory=MemoryProbe)
    disk: Callable[[Collection[int]], DiskReading | None] = field(default_factory=DiskProbe)
    cpu: Callable[[Collection[int]], CpuReading | None] = field(default_factory=CpuProbe)
    gpu: Callable[[Collection[int]], tuple[GpuReading, ...]] = _no_gpus
    _pids: tuple[int, ...] = field(default=(), init=False)
    # Reentrant: a signal handler may take a reading in the middle of one.
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)

    def read(self) -> Reading:
        """Takes a whole reading. A probe that fails leaves its figure out of it."""
        return self._read(whole=True)

    def sample(self) -> Reading:
        """Takes a reading of what has peaks: memory of the process tree and the GPUs."""
        return self._read(whole=False)

    def close(self) -> None:
        """Gives back what is kept open from one reading to the next."""
        close_all()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One thread at a time reads ``/proc``.

        What another's reading has just read there the kernel has counted as the program's, and
        we have not yet taken it off. Nobody waits for ever: a generator that is collected in
        the middle of a reading ends its step, and may wait for a thread that waits here.
        """
        alone = self._lock.acquire(timeout=_PATIENCE)
        try:
            yield
        finally:
            if alone:
                self._lock.release()

    def _read(self, whole: bool) -> Reading:
        memory: MemoryReading | None = None
        disk: DiskReading | None = None
        cpu: CpuReading | None = None
        gpus: tuple[GpuReading, ...] = ()
        pids: tuple[int, ...] = ()
        with self._turn(), FAULTS.kept_in("probe process tree"):
            pids = descendants()
            if pids != self._pids:
                self._pids = pids
                retain(pids)
        # Before memory: what the first reading loads to reach the drivers (over 10 MB) is
        # then in the first figure already, and no growth of the first step. Beside other
        # readings: a driver that hangs in one thread must not stop the others.
        with FAULTS.kept_in("probe gpu"):
            gpus = self.gpu(pids)
        with self._turn():
            with FAULTS.kept_in("probe memory"):
                memory = self.memory(pids)
            if whole:
                with FAULTS.kept_in("probe disk"):
                    disk = self.disk(pids)
                with FAULTS.kept_in("probe cpu"):
                    cpu = self.cpu(pids)
        return Reading(*_clocks(), memory, disk, cpu, gpus)


def _clocks() -> tuple[int, int]:
    """Reads the wall clock and the monotonic clock at one moment.

    A thread may lose the processor between two calls, for milliseconds. A span that began
    with such a reading would end that much before the log record of its end.

    Returns:
        Both, in nanoseconds.
    """
    for _ in range(_TRIES):
        before, wall, clock = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
        if clock - before <= _AT_ONCE:
            break
    return wall, clock
