"""Reads the program and its child processes from outside: memory, GPUs, disk, CPU and waits for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.probes.cpu import CpuProbe, ThreadWaits
from otel_quant.capture.probes.disk import DiskProbe
from otel_quant.capture.probes.gpu import GpuProbe
from otel_quant.capture.probes.kernel_files import read_proc
from otel_quant.capture.probes.memory import MemoryProbe
from otel_quant.capture.probes.process_tree import descendants
from otel_quant.schema.records import CpuReading, DiskReading, GpuReading

_Reading = TypeVar("_Reading")


@dataclass(frozen=True, slots=True)
class TreeReading:
    """What the program and its child processes use at a moment."""

    clock_ns: int  # Monotonic clock, in nanoseconds
    memory: int  # RSS of all together, in bytes
    # The highest RSS that one of the processes has had, by the kernel, in bytes; None if the
    # kernel does not tell
    high_water: int | None
    processes: Mapping[int, int]  # RSS of each process by its id, the program first, in bytes
    # Processes that have ended and that their parents have not waited for
    zombies: tuple[int, ...] = ()
    gpus: tuple[GpuReading, ...] = ()  # The GPUs that the program can see
    disk: DiskReading | None = None  # Bytes read and written; None if they cannot be read
    cpu: CpuReading | None = None  # CPU time; None if it cannot be read
    # Seconds for which threads were ready to run and waited for a processor, added up over all
    # threads; None if they were not read
    waits: float | None = None


@dataclass(slots=True)
class ProgramTree:
    """Reads a program and its descendants."""

    pid: int  # The program
    # Its environment, which says what GPUs it can see
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _memory: MemoryProbe = field(init=False)
    _disk: DiskProbe = field(init=False)
    _cpu: CpuProbe = field(init=False)
    _gpus: GpuProbe = field(init=False)
    _waits: ThreadWaits = field(default_factory=ThreadWaits)

    def __post_init__(self) -> None:
        self._memory = MemoryProbe(self.pid)
        self._disk, self._cpu = DiskProbe(self.pid), CpuProbe(self.pid)
        self._gpus = GpuProbe(self.environ)

    def read(self) -> TreeReading | None:
        """Takes a reading; None once the program and all that it has started are gone."""
        children = descendants(self.pid)
        gpus: tuple[GpuReading, ...] = ()
        with FAULTS.kept_in("observer, GPUs"):
            gpus = self._gpus((self.pid, *children))
        clock_ns = time.monotonic_ns()
        try:
            memory = self._memory(children)
        except OSError:
            return None
        if not memory.tree_rss:
            return None  # a process that has ended has no memory left
        alive = {pid: rss for pid, rss, _ in memory.children}
        marks = [mark for _, _, mark in memory.children if mark is not None]
        if memory.high_water is not None:
            marks.append(memory.high_water)
        return TreeReading(
            clock_ns=clock_ns,
            memory=memory.tree_rss,
            high_water=max(marks, default=None),
            processes={self.pid: memory.rss, **alive} if memory.rss else alive,
            zombies=tuple(pid for pid in children if pid not in alive),
            gpus=gpus,
            disk=_unless_gone(self._disk, children),
            cpu=_unless_gone(self._cpu, children),
            waits=self._waits.read((self.pid, *children)),
        )

    def close(self) -> None:
        """Closes the drivers of the GPUs."""
        self._gpus.close()


def signal_of(pid: int) -> int | None:
    """Returns the signal that ended a process that was not waited for; None for none."""
    try:
        status = int(read_proc(f"/proc/{pid}/stat").split()[-1])
    except (OSError, IndexError, ValueError):
        return None
    return status & 0x7F or None


def _unless_gone(
    probe: Callable[[tuple[int, ...]], _Reading | None], children: tuple[int, ...]
) -> _Reading | None:
    try:
        return probe(children)
    except OSError:
        return None
