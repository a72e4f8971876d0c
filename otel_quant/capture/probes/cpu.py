"""Probe for the CPU time, the major page faults and the waits for a processor of the process tree."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Collection
from typing import Final

import psutil

from otel_quant.capture.probes.cumulative import Cumulative, Figures
from otel_quant.capture.probes.kernel_files import SELF, read_process
from otel_quant.capture.probes.processor_waits import main_thread_wait
from otel_quant.capture.probes.tree import descendants_now
from otel_quant.schema.records import CpuReading

_LINUX = sys.platform == "linux"
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
        own = _own if pid == SELF else functools.partial(_of_child, pid)
        self._pid = pid
        self._totals = Cumulative(own, _of_child, functools.partial(descendants_now, pid))

    def __call__(self, pids: Collection[int] = ()) -> CpuReading | None:
        """Reads the counters."""
        if sys.platform == "win32":
            times = psutil.Process().cpu_times()
            return CpuReading(times.user, times.system)
        user, system, faults = self._totals.read(pids if _LINUX else ())
        wait = main_thread_wait(self._pid)
        return CpuReading(user / _MICROSECONDS, system / _MICROSECONDS, faults, wait)


def _own() -> Figures:
    """Returns microseconds in user mode and in the kernel, and major faults."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        round((own.ru_utime + reaped.ru_utime) * _MICROSECONDS),
        round((own.ru_stime + reaped.ru_stime) * _MICROSECONDS),
        own.ru_majflt + reaped.ru_majflt,
    )


def _of_child(pid: int) -> Figures:
    fields = read_process(pid, "stat").rpartition(b")")[2].split(None, _CHILDREN_SYSTEM + 1)
    if not fields:
        raise ProcessLookupError(pid)
    return (
        (int(fields[_USER]) + int(fields[_CHILDREN_USER])) * _TICK,
        (int(fields[_SYSTEM]) + int(fields[_CHILDREN_SYSTEM])) * _TICK,
        int(fields[_MAJOR_FAULTS]) + int(fields[_CHILDREN_MAJOR_FAULTS]),
    )
