"""Takes readings: one call reads all probes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS, Boundary
from otel_quant.capture.probes.memory import reset_high_water
from otel_quant.capture.probes.registry import PROBES, Probe
from otel_quant.capture.probes.tree import descendants
from otel_quant.schema.figures import RESOURCES, Resource
from otel_quant.schema.records import Reading

_LONGEST_GAP: Final = 20_000
"""Nanoseconds that may lie between reading the two clocks; usually there are 1,000."""

_TRIES: Final = 5
"""How often the clocks are read until the gap is short enough."""

_LONGEST_WAIT: Final = 1.0
"""Seconds to wait for another thread's reading, which usually takes a millisecond."""

_ORDER: Final = itertools.count(1)
"""Numbers the readings of memory in this process."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One resource and its probe."""

    name: str  # Name of the resource
    boundary: Boundary  # Logs a failure of the probe under its name
    probe: Probe  # Reads it at a checkpoint
    sample: Probe | None  # Reads it between checkpoints; None if it is not read then


class _Turn:
    """Lets one thread at a time read ``/proc``.

    The kernel counts the bytes that any thread reads there as the program's; the disk probe can
    subtract only those of finished reads. The wait is limited: a step may end during a reading (a
    generator is garbage-collected) and wait for a thread that waits here. A class, because a
    generator takes three times as long.
    """

    __slots__ = ("_acquired", "_lock")

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._acquired = False

    def __enter__(self) -> None:
        self._acquired = self._lock.acquire(timeout=_LONGEST_WAIT)

    def __exit__(self, *_: object) -> None:
        if self._acquired:
            self._lock.release()


class Probes:
    """The probes of a run."""

    def __init__(self, resources: Sequence[Resource] = RESOURCES, **instead: Probe) -> None:
        self.resources = tuple(resources)
        serial: list[_Source] = []
        concurrent: list[_Source] = []
        for resource in self.resources:
            probe = instead.get(resource.name) or PROBES[resource.name]()
            sample = getattr(probe, "sample", probe) if resource.is_sampled else None
            boundary = FAULTS.kept_in(f"probe {resource.name}")
            source = _Source(resource.name, boundary, probe, sample)
            (serial if resource.reads_proc else concurrent).append(source)
        self._serial, self._concurrent = tuple(serial), tuple(concurrent)
        self._memory = next((s.probe for s in serial if s.name == "memory"), None)
        # Reentrant: a signal handler may take a reading in the middle of one.
        self._lock = threading.RLock()

    def read(self) -> Reading:
        """Reads every resource. A resource whose probe fails is left out."""
        return self._read(whole=True)

    def sample(self, *, totals: bool = False) -> Reading:
        """Reads the resources that have peaks: for example memory."""
        return self._read(whole=False, totals=totals)

    def lower_marks(self, reading: Reading) -> tuple[Reading, Reading] | None:
        """Lowers the kernel's memory marks to the memory in use now (exact mode, Linux only)."""
        if reading.memory is None or self._memory is None:
            return None
        children = [pid for pid, _, _ in reading.memory.children]
        with _Turn(self._lock):
            order = next(_ORDER)
            memory = self._memory(children)
            if memory is None:
                return None
            lowered = reset_high_water(children)
            after = memory.with_marks_lowered(lowered)
            clocks = _clocks()
            return (
                Reading(*clocks, {"memory": memory}, order),
                Reading(*clocks, {"memory": after}, next(_ORDER)),
            )

    def _read(self, whole: bool, totals: bool = False) -> Reading:
        found: dict[str, Any] = {}
        pids: tuple[int, ...] = ()
        with _Turn(self._lock), FAULTS.kept_in("probe process tree"):
            pids = descendants()
        # GPUs first: the first reading loads over 10 MB to reach the drivers, which must not
        # look like growth of the first step. Without the lock: a driver that hangs in one
        # thread must not stop the others.
        self._read_probes(self._concurrent, whole, pids, found)
        with _Turn(self._lock):
            # Numbered before memory is read, so that no reading counts as newer than it is.
            order = next(_ORDER)
            self._read_probes(self._serial, whole or totals, pids, found)
        return Reading(*_clocks(), found, order)

    @staticmethod
    def _read_probes(
        sources: tuple[_Source, ...], whole: bool, pids: tuple[int, ...], found: dict[str, Any]
    ) -> None:
        for source in sources:
            probe = source.probe if whole else source.sample
            if probe is not None:
                with source.boundary:
                    record = probe(pids)
                    if record is not None and not (type(record) is tuple and not record):
                        found[source.name] = record


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
