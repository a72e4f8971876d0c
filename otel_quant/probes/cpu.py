"""Probe for the CPU time and the major page faults of the process tree."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

import psutil

from otel_quant.probes.tree import read_proc
from otel_quant.readings import CpuReading

_LINUX = sys.platform == "linux"
_TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01

if sys.platform != "win32":
    import resource

# Fields of /proc/PID/stat counted from the one after the command's name (proc(5)).
_MAJOR_FAULTS, _CHILDREN_MAJOR_FAULTS = 9, 10
_USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 11, 12, 13, 14


class CpuProbe:
    """Reads cumulative CPU time of this process and its descendants."""

    def __init__(self) -> None:
        self._highest: tuple[float, float, int] = (0.0, 0.0, 0)

    def __call__(self, pids: Collection[int] = ()) -> CpuReading | None:
        """Reads the counters.

        Args:
            pids: Process ids of the descendants.

        Returns:
            The totals, those of descendants that have been waited for included.
        """
        if sys.platform == "win32":
            times = psutil.Process().cpu_times()
            return CpuReading(times.user, times.system)
        own = resource.getrusage(resource.RUSAGE_SELF)
        reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
        user = own.ru_utime + reaped.ru_utime
        system = own.ru_stime + reaped.ru_stime
        faults = own.ru_majflt + reaped.ru_majflt
        for pid in pids if _LINUX else ():
            try:
                fields = read_proc(f"/proc/{pid}/stat").rpartition(b")")[2].split()
                user += (int(fields[_USER]) + int(fields[_CHILDREN_USER])) * _TICK
                system += (int(fields[_SYSTEM]) + int(fields[_CHILDREN_SYSTEM])) * _TICK
                faults += int(fields[_MAJOR_FAULTS]) + int(fields[_CHILDREN_MAJOR_FAULTS])
            except (OSError, IndexError):
                continue  # it has exited since
        # A child between its exit and its parent's wait can be missed: totals never fall.
        self._highest = (
            max(user, self._highest[0]),
            max(system, self._highest[1]),
            max(faults, self._highest[2]),
        )
        return CpuReading(*self._highest)
