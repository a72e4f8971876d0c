"""Watches the program from outside: a curve of the recording, and what is known when it has ended.

From outside it is blind neither while the program holds Python's lock nor after it is dead.

Memory at a kill is not the last reading alone: the kernel tells the highest RSS with the exit status, and
while its out-of-memory killer works memory already falls, so the highest of the last second counts.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.probes.cpu import ThreadWaits
from otel_quant.capture.probes.memory import MemoryProbe
from otel_quant.capture.probes.process_tree import descendants
from otel_quant.capture.probes.readers import PROBES, Probe
from otel_quant.capture.sampler import Sampler
from otel_quant.format import series
from otel_quant.format.curve import SMALLEST_SHARE, CurveFile, LargestProcesses, Number
from otel_quant.format.event_file import process_file
from otel_quant.launcher.gpu_watch import GpuWatch
from otel_quant.launcher.program import signal_name
from otel_quant.launcher.start import now_ns
from otel_quant.launcher.surroundings import (
    Child,
    Disk,
    Exits,
    OomKills,
    ProcessUse,
    Surroundings,
    batch_job,
    cache_growth,
    disks,
)
from otel_quant.schema.dataclass import dataclass, field
from otel_quant.schema.figures import RESOURCES, curve_levels, curve_totals
from otel_quant.schema.readings import GpuReading, Limits, MemoryReading

if TYPE_CHECKING:
    from otel_quant.launcher.program import Ended

if sys.platform != "win32":
    import resource


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The last moment at which a process was alive."""

    time_ns: int  # Wall clock, in nanoseconds since the epoch
    memory: int  # RSS of the process tree then, in bytes
    # Highest RSS of the process tree within a second before, in bytes. While the kernel ends a
    # process for want of memory, its memory already falls.
    highest: int
    processes: tuple[tuple[str, int], ...]  # The largest then: name and RSS in bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the launcher has seen."""

    pid: int  # The program
    time_ns: int  # Wall clock at the end, in nanoseconds since the epoch
    exit_code: int | None = None  # Exit code; None if a signal ended it
    signal: str | None = None  # Name of the signal that ended it; None if it exited
    last_seen: Mapping[int, LastSeen] = field(default_factory=dict)  # Of large processes, by id
    # RSS that one of the processes has reached after the last reading, in bytes, as the kernel
    # told when the program had ended; None if it was not above what had been read
    mark: int | None = None
    limits: Limits = field(default_factory=Limits)  # The limit of memory in force
    uses: Mapping[int, ProcessUse] = field(default_factory=dict)  # Of those with a limit, by id
    oom_kills: OomKills | None = None  # None where no counter can be read
    disks: tuple[Disk, ...] = ()  # File systems that the program may have written to
    batch_job: str | None = None  # What a batch system reports of its limits; None outside of one
    exits: Mapping[int, Child] = field(default_factory=dict)  # Of children that failed, by id
    gpus: tuple[GpuReading, ...] = ()  # The GPUs at the last reading
    memory_of_others: int | None = None  # What other programs of the machine used, in bytes

    @property
    def signals(self) -> Mapping[int, str]:
        """The names of the signals that ended child processes, by process id."""
        return {pid: signal_name(-each.code) for pid, each in self.exits.items() if each.code < 0}


@dataclass(frozen=True, slots=True)
class TreeReading:
    """What the program and its child processes use at a moment."""

    clock_ns: int  # Monotonic clock, in nanoseconds
    memory: int  # RSS of all together, in bytes
    high_water: int  # Highest RSS of one of the processes, in bytes; 0 if not known
    processes: Mapping[int, int]  # RSS of each process by its id, the program first, in bytes
    resources: Mapping[str, Any]  # Records of the other probes, by resource


INTERVAL: Final = 0.05  # Seconds between two readings

_SHARE: Final = 0.03
"""Part of one core that readings of many processes may take; then they become rarer."""

_LOOK_NS: Final = 1_000_000_000
"""Nanoseconds between two looks at names, limits and counters. Also the age of readings that count
for what a program held that was killed for want of memory: it is freed while the kernel works."""

_AT_ONCE_NS: Final = 1_000_000
"""Nanoseconds that reading the memory of one process takes, unless this one was suspended meanwhile."""

_UNIT: Final = 1 if sys.platform == "darwin" else 1024
"""Bytes in which getrusage(2) and wait4(2) give the highest RSS."""

_OWN_WAY: Final = frozenset({"memory", "gpu", "cache"})
"""Resources that are not read as the others are: caches only the program's processes know."""

_MOST_REMEMBERED: Final = 200  # Processes that have ended of which something is kept


class Observer:
    """Takes readings of the program until it has ended. It never raises: what fails is logged once, and missing."""

    def __init__(
        self, folder: Path, pid: int, interval: float = INTERVAL,
        environ: Mapping[str, str] = os.environ,
    ) -> None:  # fmt: skip
        self._folder, self._pid, self._interval, self._environ = folder, pid, interval, environ
        self._began_ns = now_ns()
        self._memory, self._gpus = MemoryProbe(pid), GpuWatch(environ)
        self._others: Mapping[str, Probe] = {
            resource.name: PROBES[resource.name](pid)
            for resource in RESOURCES
            if resource.name not in _OWN_WAY and any(each.curve for each in resource.figures)
        }
        self._waits = ThreadWaits()
        self._largest = LargestProcesses(pid)
        self._surroundings, self._exits = Surroundings(), Exits()
        self._sampler = Sampler(self._sample, interval, _SHARE)
        self._curve: CurveFile | None = None
        self._recent: deque[TreeReading] = deque()
        self._last_seen: dict[int, LastSeen] = {}
        self._looked_ns = 0
        self._cache: int | None = None
        self._disks: dict[str, Disk] = {}  # By what is on them
        self._highest_mark = self._highest = 0  # of one process, and of all together
        # A program is started as a copy of this process, whose memory is in the mark that the kernel has of it at its
        # end. What this process was a copy of itself is in its own usage, but not in that.
        self._mark_before = 0
        if sys.platform != "win32":
            used = _UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            self._mark_before = MemoryProbe()().high_water or used

    def start(self) -> None:
        """Starts a thread that takes readings. To be called as soon as the program runs."""
        with FAULTS.kept_in("observer, file"):
            self._curve = CurveFile(
                process_file(self._folder, "curve", "launcher"),
                now_ns(),
                time.monotonic_ns(),
                self._interval,
            )
        with FAULTS.kept_in("observer"):
            self._sample()
        with FAULTS.kept_in("observer, thread"):
            self._sampler.start()

    def look_last(self) -> None:
        """Reads what the kernel knows of the program until it is waited for."""
        self._sampler.stop()
        with FAULTS.kept_in("observer, end"):
            self._surroundings.meet((self._pid,))
            self._exits.look((), ())
        with FAULTS.kept_in("observer, GPUs"):
            if self._curve is not None and (gpus := self._gpus.last()):
                self._curve.add(time.monotonic_ns(), {}, curve_totals({"gpu": gpus}))

    def observe(self, ended: Ended) -> Observation:
        """Ends the thread and completes the curve."""
        time_ns, clock_ns = now_ns(), time.monotonic_ns()
        self._sampler.stop()
        code, max_rss = ended
        how: Any = {"exit_code": code} if code >= 0 else {"signal": signal_name(-code)}
        seen = Observation(pid=self._pid, time_ns=time_ns, **how)
        with FAULTS.kept_in("observer, end"):
            mark, last = _UNIT * (max_rss or 0), self._recent[-1] if self._recent else None
            for pid in last.processes if last is not None else ():
                self._note_last(pid)
            seen = dataclasses.replace(
                seen, last_seen=self._last_seen,
                mark=mark if mark > max(self._mark_before, self._highest_mark) else None,
                limits=self._surroundings.limits, uses=self._surroundings.uses,
                oom_kills=self._surroundings.oom_kills(), disks=self._look_at_disks(),
                batch_job=batch_job(self._environ, (time_ns - self._began_ns) / 1e9),
                exits=self._exits.failed, memory_of_others=self._surroundings.memory_of_others,
                gpus=last.resources.get("gpu", ()) if last is not None else (),
            )  # fmt: skip
        with FAULTS.kept_in("observer, file"):
            if self._curve is not None:
                held = self._recent[-1].memory if self._recent else 0
                if seen.mark is not None and seen.mark > held:
                    # Perhaps of a child that nobody has seen: it may have risen at any time.
                    self._curve.add(clock_ns, {series.MEMORY: seen.mark}, {series.SINCE: 0})
                self._curve.close()
        return seen

    def summary(self) -> dict[str, Number]:
        """Returns the highest value of each level of the curve and the last of each total; not of single processes."""
        found = self._curve.summary() if self._curve is not None else {}
        found.pop(series.SINCE, None)
        return {name: value for name, value in found.items() if not name.startswith(series.PROCESS)}

    def _read(self) -> TreeReading | None:
        """Takes a reading; None once the program and all that it has started are gone."""
        children = descendants(self._pid)
        found: dict[str, Any] = {"gpu": self._gpus((self._pid, *children))}
        try:
            clock_ns, memory = self._read_memory(children)
        except OSError:
            return None
        if not memory.tree_rss:
            return None  # a process that has ended has no memory left
        processes = {pid: rss for pid, rss, _ in memory.children}
        self._exits.look(children, processes)
        self._surroundings.meet((self._pid, *children))
        for name, probe in self._others.items():
            with FAULTS.kept_in(f"observer, {name}"), suppress(OSError):  # it has just ended
                found[name] = probe(children)
        found["waits"] = self._waits.read((self._pid, *children))
        marks = (memory.high_water, *(mark for _, _, mark in memory.children))
        return TreeReading(
            clock_ns, memory.tree_rss, max(mark or 0 for mark in marks),
            {self._pid: memory.rss, **processes} if memory.rss else processes, found,
        )  # fmt: skip

    def _read_memory(self, children: Collection[int]) -> tuple[int, MemoryReading]:
        """Reads memory, and the clock as it was then: once more where nobody knows that."""
        clock_ns, memory = time.monotonic_ns(), self._memory(children)
        if not children and time.monotonic_ns() - clock_ns > _AT_ONCE_NS:
            clock_ns, memory = time.monotonic_ns(), self._memory(children)
        return clock_ns, memory

    def _sample(self) -> None:
        reading = self._read()
        if reading is None:
            return
        if self._recent:  # before a look, which forgets the names of those that are gone
            before = self._recent[-1]
            least = before.memory * SMALLEST_SHARE
            for pid in before.processes.keys() - reading.processes.keys():
                if before.processes[pid] >= least or pid == self._pid:
                    self._note_last(pid)
        if reading.clock_ns - self._looked_ns >= _LOOK_NS:
            self._looked_ns = reading.clock_ns
            for name in self._largest.look(reading.processes):
                if self._curve is not None:
                    self._curve.drop(series.PROCESS + name)
            self._surroundings.look(self._pid, reading.processes, reading.memory)
            self._cache = cache_growth(self._folder)
            self._look_at_disks()
        else:
            self._largest.meet(reading.processes)
        peak, since_ns = self._peak_between(reading)
        self._recent.append(reading)
        while reading.clock_ns - self._recent[0].clock_ns > _LOOK_NS:
            self._recent.popleft()
        if self._curve is not None:
            with FAULTS.kept_in("observer, file"):
                totals = _totals(reading)
                if peak > self._highest or peak > reading.memory:
                    totals[series.SINCE] = self._curve.at(since_ns)
                if peak > reading.memory:
                    self._curve.add(reading.clock_ns, {series.MEMORY: peak}, {})
                self._curve.add(reading.clock_ns, self._levels(reading), totals)
        self._highest = max(self._highest, peak)

    def _look_at_disks(self) -> tuple[Disk, ...]:
        """Returns the disks with the least room that was seen: temporary files may be gone at the end."""
        for disk in disks(self._folder, self._environ):
            before = self._disks.get(disk.places, disk)
            self._disks[disk.places] = disk._replace(free=min(before.free, disk.free))
        return tuple(self._disks.values())

    def _peak_between(self, reading: TreeReading) -> tuple[int, int]:
        """Returns the highest since the last reading, as far as is known, and since when it may have been.

        Of a program without children that is the kernel's mark, if it rose; else what is in use now.
        """
        mark, before = reading.high_water, self._highest_mark
        self._highest_mark = max(self._highest_mark, mark)
        if len(reading.processes) == 1 and mark > max(before, reading.memory):
            # On a busy machine it may have risen before the first reading.
            return mark, self._recent[-1].clock_ns if self._recent else 0
        return reading.memory, reading.clock_ns

    def _note_last(self, pid: int) -> None:
        """Notes the newest reading as the last in which a process was alive."""
        last = self._recent[-1]
        self._last_seen.pop(pid, None)  # the id may have been used before
        self._last_seen[pid] = LastSeen(
            now_ns() - (time.monotonic_ns() - last.clock_ns),
            last.memory,
            max(reading.memory for reading in self._recent),
            self._largest.named(last.processes),
        )
        while len(self._last_seen) > _MOST_REMEMBERED:
            del self._last_seen[next(iter(self._last_seen))]

    def _levels(self, reading: TreeReading) -> dict[str, Number]:
        levels = curve_levels(reading.resources)
        levels[series.MEMORY] = reading.memory
        for name, rss in self._largest.series(reading.processes).items():
            levels[series.PROCESS + name] = rss
        if self._cache is not None:
            levels[series.CACHE] = self._cache
        return levels


def _totals(reading: TreeReading) -> dict[str, Number]:
    totals = curve_totals(reading.resources)
    if (waits := reading.resources["waits"]) is not None:
        totals[series.CPU_WAITS] = round(waits, 3)
    return totals
