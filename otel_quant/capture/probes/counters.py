"""Probes for what only rises: CPU time, page faults and waits for a processor, and disk I/O, of the process tree.

What threads wait for a processor is what a busy machine, or a limit of CPUs, adds to the time of a program. The
bytes that the probes read from ``/proc`` are subtracted from ``read_chars``: the program did not read them. The few
kilobytes of the local profile are not subtracted from what was written.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final

from otel_quant.base.kernel_files import (
    SELF,
    ask_psutil,
    bytes_read,
    read_proc,
    read_process,
    threads_of,
)
from otel_quant.capture.probes.process_tree import descendants_now
from otel_quant.schema.records import CpuReading, DiskReading

_LINUX = sys.platform == "linux"

Figures = tuple[int, ...]

_PASSES: Final = (1, 2, 3)
"""Passes for one reading. If children start and exit all the time, no pass is complete; the
next reading then corrects this one."""


class Cumulative:
    """Counters summed over a process and its descendants: what exited ones used stays in the sum.

    When a parent waits for an exited child, the kernel adds the child's counters to the parent's. One that is
    waited for in the middle of a pass is missed in it, not counted twice, as parents are read first: the pass is
    repeated. A process that nobody waits for (its parent ignores SIGCHLD, or it belongs to ``init``) takes its
    figures with it. So if the sum is still lower after another pass, the difference is added from then on.
    """

    def __init__(
        self,
        own: Callable[[], Figures],
        of_child: Callable[[int], Figures],
        list_descendants: Callable[[], Collection[int]] = descendants_now,
    ) -> None:
        self._own = own
        self._of_child = of_child
        self._list = list_descendants
        self._highest: Figures = ()
        self._lost: Figures = ()  # empty until something is

    def read(self, pids: Collection[int]) -> Figures:
        """Reads the totals. No total is lower than at the previous reading."""
        for number in _PASSES:
            if number > 1:
                pids = self._list()
            totals, is_complete, is_hidden = self._own(), True, False
            for pid in pids:
                try:
                    totals = _added(totals, self._of_child(pid))
                except (FileNotFoundError, ProcessLookupError):
                    is_complete = False
                except OSError:
                    is_hidden = True  # another user's: it ran a setuid program
            if self._lost:
                totals = _added(totals, self._lost)
            has_fallen = any(map(operator.lt, totals, self._highest))
            if is_complete and (is_hidden or not has_fallen):
                break
        if has_fallen:
            highest = tuple(map(max, self._highest, totals))
            # What is hidden comes back with the end of its process.
            if is_complete and not is_hidden:
                missing = tuple(map(operator.sub, highest, totals))
                self._lost = _added(self._lost, missing) if self._lost else missing
            totals = highest
        self._highest = totals
        return totals


def _added(first: Iterable[int], second: Iterable[int]) -> Figures:
    return tuple(map(operator.add, first, second))


# --- disk ---------------------------------------------------------------------------------

_AVAILABLE: Final = sys.platform != "darwin"
"""Whether the system offers these counters to an ordinary user."""


class DiskProbe:
    """Reads cumulative I/O of a process and its descendants, in bytes."""

    def __init__(self, pid: int = SELF) -> None:
        self._read_before = bytes_read()
        own = self._own if pid == SELF else functools.partial(_io_of, pid)
        self._totals = Cumulative(own, _io_of, functools.partial(descendants_now, pid))

    def __call__(self, pids: Collection[int] = ()) -> DiskReading | None:
        """Reads the counters."""
        return DiskReading(*self._totals.read(pids)) if _AVAILABLE else None

    def _own(self) -> Figures:
        ours = bytes_read() - self._read_before  # without this read, which the counter lacks too
        read, write, *chars = _io_of(SELF)
        if not chars:
            return read, write
        read_chars, write_chars = chars
        return read, write, read_chars - ours, write_chars


def _io_of(pid: int) -> Figures:
    """Returns read, write and, where known, read_chars and write_chars of one process."""
    if not _LINUX:
        counters = ask_psutil(pid, "io_counters")
        return counters.read_bytes, counters.write_bytes
    # In the order of the kernel; takes a third of a regular expression's time.
    fields = read_process(pid, "io").split()
    return int(fields[9]), int(fields[11]), int(fields[1]), int(fields[3])


# --- CPU ----------------------------------------------------------------------------------

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
            for thread in threads_of(pid):
                try:
                    waited = _waited(read_proc(f"/proc/{pid}/task/{thread}/schedstat"))
                except OSError:
                    continue  # the thread has ended, or the system has no such file
                if waited is not None:
                    found[thread] = waited
                    # A lower figure belongs to a new thread with the id of one that has ended.
                    self._sum += max(0, waited - self._last.get(thread, 0))
        if not found and not self._last:
            return None
        self._last = found
        return self._sum / _SECOND


def _waited(schedstat: bytes) -> int | None:
    """Returns nanoseconds; None of a kernel that does not count: it reports that nothing ever ran."""
    _, waited, turns = schedstat.split()
    return int(waited) if turns != b"0" else None


_MICROSECONDS: Final = 1_000_000
_TICK = _MICROSECONDS // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10_000

if sys.platform != "win32":
    import resource

# Positions in /proc/PID/stat, counted from the field after the command's name (proc(5)).
_MAJOR_FAULTS, _CHILDREN_MAJOR_FAULTS = 9, 10
_USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 11, 12, 13, 14


class CpuProbe:
    """Reads cumulative CPU time of a process and its descendants."""

    def __init__(self, pid: int = SELF) -> None:
        own = _own_cpu if pid == SELF else functools.partial(_cpu_of, pid)
        self._pid = pid
        self._totals = Cumulative(own, _cpu_of, functools.partial(descendants_now, pid))

    def __call__(self, pids: Collection[int] = ()) -> CpuReading | None:
        """Reads the counters."""
        if sys.platform == "win32":
            times = ask_psutil(self._pid, "cpu_times")
            return CpuReading(times.user, times.system)
        user, system, faults = self._totals.read(pids if _LINUX else ())
        wait = main_thread_wait(self._pid)
        return CpuReading(user / _MICROSECONDS, system / _MICROSECONDS, faults, wait)


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
