"""Probe for the CPU time of a process and its descendants, how long threads wait for a processor, and the processors' energy.

What threads wait for a processor is what a busy machine, or a limit of CPUs, adds to the time of a program.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Collection, Iterable
from typing import Final

from otel_quant.base.kernel_files import SELF, ask_psutil, read_proc, read_process, threads_of
from otel_quant.capture.probes.energy import PackageEnergy
from otel_quant.capture.probes.process_tree import Cumulative, Figures, descendants_now
from otel_quant.schema.readings import CpuReading

if sys.platform != "win32":
    import resource

_SECOND: Final = 1_000_000_000
_MANY: Final = 32  # Threads from which on they are read once a second: each takes 2 µs


def main_thread_wait(pid: int) -> float | None:
    """Returns how long the main thread of a process has waited since it began, in seconds."""
    try:
        return _waited(read_process(pid, "schedstat")) / _SECOND
    except OSError:
        return None


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
            for thread in threads_of(pid):
                try:
                    waited = _waited(read_proc(f"/proc/{pid}/task/{thread}/schedstat"))
                except OSError:
                    continue  # the thread has ended, or the system does not tell
                found[thread] = waited
                # A lower figure belongs to a new thread with the id of one that has ended.
                self._sum += max(0, waited - self._last.get(thread, 0))
        if not found and not self._last:
            return None
        self._last = found
        return self._sum / _SECOND


def _waited(schedstat: bytes) -> int:
    """Returns nanoseconds; raises OSError of a kernel that does not count: it reports that nothing ever ran."""
    _, waited, turns = schedstat.split()
    if turns == b"0":
        raise OSError("no scheduler statistics")
    return int(waited)


_MICROSECONDS: Final = 1_000_000
_TICK = _MICROSECONDS // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10_000

# Positions in /proc/PID/stat, counted from the field after the command's name (proc(5)).
_MAJOR_FAULTS, _CHILDREN_MAJOR_FAULTS = 9, 10
_USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 11, 12, 13, 14


class CpuProbe:
    """Reads cumulative CPU time of a process and its descendants."""

    def __init__(self, pid: int = SELF) -> None:
        own = _own_cpu if pid == SELF else functools.partial(_cpu_of, pid)
        self._pid = pid
        self._energy = PackageEnergy()
        self._totals = Cumulative(own, _cpu_of, functools.partial(descendants_now, pid))

    def __call__(self, pids: Collection[int] = ()) -> CpuReading | None:
        """Reads the counters."""
        if sys.platform == "win32":
            times = ask_psutil(self._pid, "cpu_times")
            return CpuReading(times.user, times.system)
        user, system, faults = self._totals.read(pids if sys.platform == "linux" else ())
        wait = main_thread_wait(self._pid)
        seconds = user / _MICROSECONDS, system / _MICROSECONDS
        return CpuReading(*seconds, faults, wait, self._energy.read())


def _own_cpu() -> Figures:
    """Returns microseconds in user mode and in the kernel, and major faults."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        round((own.ru_utime + reaped.ru_utime) * _MICROSECONDS),
        round((own.ru_stime + reaped.ru_stime) * _MICROSECONDS),
        own.ru_majflt + reaped.ru_majflt,
    )


def _cpu_of(pid: int) -> Figures:
    fields = read_process(pid, "stat").rpartition(b")")[2].split(None, _CHILDREN_SYSTEM + 1)
    if not fields:
        raise ProcessLookupError(pid)
    return (
        (int(fields[_USER]) + int(fields[_CHILDREN_USER])) * _TICK,
        (int(fields[_SYSTEM]) + int(fields[_CHILDREN_SYSTEM])) * _TICK,
        int(fields[_MAJOR_FAULTS]) + int(fields[_CHILDREN_MAJOR_FAULTS]),
    )
