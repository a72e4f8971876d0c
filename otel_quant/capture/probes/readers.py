"""The probe of each resource, and readings of all of them.

To add a resource, add its figures to the schema, a file here that reads it, and a line to :data:`PROBES`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.kernel_files import SELF
from otel_quant.capture.probes.cache_directories import CACHE_DIRECTORIES
from otel_quant.capture.probes.cpu import CpuProbe
from otel_quant.capture.probes.disk import DiskProbe
from otel_quant.capture.probes.gpu import GPUS
from otel_quant.capture.probes.memory import MemoryProbe, reset_high_water
from otel_quant.capture.probes.process_tree import descendants
from otel_quant.schema.figures import RESOURCES, Resource
from otel_quant.schema.readings import MemoryReading, Reading

Probe: TypeAlias = Callable[[Collection[int]], Any]
"""Reads a resource, given the process ids of this process's descendants, parents first. Returns
a record from which the figures are taken; None or an empty tuple if the resource cannot be
measured. May raise. If it has a method ``sample``, that is called between checkpoints instead."""

PROBES: Final[Mapping[str, Callable[[int], Probe]]] = {
    "memory": MemoryProbe, "gpu": lambda _: GPUS, "disk": DiskProbe, "cpu": CpuProbe,
    "cache": lambda _: CACHE_DIRECTORIES.for_new_run(),
}  # fmt: skip
"""By the name of the resource in :data:`otel_quant.schema.figures.RESOURCES`: what makes the probe of the
tree below a process, this one's or, for the launcher, the program's."""


_MEMORY: Final = "memory"

_LONGEST_GAP: Final = 20_000
"""Nanoseconds that may lie between reading the two clocks; usually there are 1,000."""

_TRIES: Final = 5  # How often the clocks are read until the gap is short enough

_LONGEST_WAIT: Final = 1.0
"""Seconds to wait for another thread's reading, which usually takes a millisecond. Not for ever: a step may end
during a reading (a generator is garbage-collected) and wait for a thread that waits here."""

_ORDER: Final = itertools.count(1)  # Numbers the readings of memory in this process


_LOOK_LASTS: Final = 300_000_000
"""Nanoseconds between two looks of the sampler for new processes, at least. On a busy machine others start some in
each pause, and to find out whose they are took as long as all else of a sample. A process that lives for half a
second is seen all the same."""

_descendants: Final = FAULTS.kept_in("probe process tree").around(descendants)
_Sources: TypeAlias = tuple[tuple[str, Probe], ...]  # Probes by the names of their resources


class Probes:
    """The probes of a run."""

    def __init__(self, resources: Sequence[Resource] = RESOURCES, **instead: Probe) -> None:
        self.resources = tuple(resources)
        probes = {r.name: instead.get(r.name) or PROBES[r.name](SELF) for r in self.resources}
        self._pids: Collection[int] = ()  # the descendants
        self._looked = -_LOOK_LASTS  # when they were last looked for, by the monotonic clock
        # Memory last: its marks may be lowered right after it.
        serial = [r for r in self.resources if r.reads_proc]
        serial.sort(key=lambda r: r.name == _MEMORY)
        self._serial, self._serial_between = _sources(serial, probes)
        concurrent = [r for r in self.resources if not r.reads_proc]
        self._concurrent, self._concurrent_between = _sources(concurrent, probes)
        # One thread at a time reads `/proc`: the kernel counts the bytes that any thread reads there as the
        # program's, and the disk probe can subtract only bytes of finished reads. Reentrant: a signal handler
        # may take a reading in the middle of one.
        self._turn = threading.RLock()

    def read(self, *, lowers_marks: bool = False) -> Reading:
        """Reads every resource, in the exact mode with the kernel's memory marks lowered right after it (Linux only).

        A resource whose probe fails is left out.
        """
        return self._read(self._look(self._concurrent), self._serial, lowers_marks)

    def sample(self, *, totals: bool = False) -> Reading:
        """Reads the resources that have peaks: for example memory."""
        if time.perf_counter_ns() - self._looked >= _LOOK_LASTS:
            found = self._look(self._concurrent_between)
        else:
            found = FAULTS.call_each("probe", self._concurrent_between, self._pids)
        return self._read(found, self._serial if totals else self._serial_between)

    def _look(self, sources: _Sources) -> dict[str, Any]:
        """Looks for new processes, and reads what needs no turn."""
        self._looked = time.perf_counter_ns()
        self._pids = _descendants() or ()
        # GPUs first: the first reading loads over 10 MB to reach the drivers, which must not
        # look like growth of the first step. Without the lock: a driver that hangs in one
        # thread must not stop the others.
        return FAULTS.call_each("probe", sources, self._pids)

    def _read(
        self, found: dict[str, Any], sources: _Sources, lowers_marks: bool = False
    ) -> Reading:
        is_ours = self._turn.acquire(timeout=_LONGEST_WAIT)
        try:
            # Numbered before memory is read, so that no reading counts as newer than it is.
            order = next(_ORDER)
            found |= FAULTS.call_each("probe", sources, self._pids)
            lowered = _lowered(found.get(_MEMORY)) if lowers_marks else None
        finally:
            if is_ours:
                self._turn.release()
        return Reading(*_clocks(), found, order, lowered)


def _lowered(memory: MemoryReading | None) -> Reading | None:
    """Lowers the marks to the memory in use; returns that, None if it cannot be done."""
    if memory is not None:
        with FAULTS.kept_in("probe memory (exact mode)"):
            lowered = reset_high_water([pid for pid, _, _ in memory.children])
            return Reading(0, 0, {_MEMORY: memory.with_marks_lowered(lowered)}, next(_ORDER))
    return None


def _sources(
    resources: Sequence[Resource], probes: Mapping[str, Probe]
) -> tuple[_Sources, _Sources]:
    """Returns what is read at checkpoints, and what is read between them."""
    sampled = [(r.name, probes[r.name]) for r in resources if r.is_sampled]
    between = tuple((name, getattr(probe, "sample", probe)) for name, probe in sampled)
    return tuple((r.name, probes[r.name]) for r in resources), between


def _clocks() -> tuple[int, int]:
    """Reads the wall clock and the monotonic clock at the same moment.

    Between the two calls the system may suspend the thread for milliseconds. A span that starts
    with such a reading would end that much before the log record of its end. So the clocks are
    read again if the gap is too long.
    """
    for _ in range(_TRIES):
        before, wall, clock = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
        if clock - before <= _LONGEST_GAP:
            break
    return wall, clock
