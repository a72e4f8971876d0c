"""All probes together: one call takes one reading."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from otel_quant.fault_boundary import FAULTS
from otel_quant.probes.memory import reset_high_water
from otel_quant.probes.registry import RESOURCES
from otel_quant.probes.tree import descendants
from otel_quant.records import Reading
from otel_quant.resources import Probe, Resource

_AT_ONCE: Final = 20_000
"""Nanoseconds between two clocks that are read at one moment; a twentieth of that as a rule."""

_TRIES: Final = 5

_PATIENCE: Final = 1.0
"""Seconds to wait for another thread's reading, which takes a thousandth of that as a rule."""

_ORDER: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class _Source:
    """One resource and its probe.

    Attributes:
        name: The resource's.
        origin: What a failure of the probe is logged as.
        probe: The probe.
        is_sampled: Whether it is read between checkpoints too.
    """

    name: str
    origin: str
    probe: Probe
    is_sampled: bool


class Probes:
    """The probes of a run.

    Args:
        resources: What is read.
        instead: Probes that take the place of those that the resources make, by the
            resource's name.

    Attributes:
        resources: What is read.
    """

    def __init__(self, resources: Sequence[Resource] = RESOURCES, **instead: Probe) -> None:
        self.resources = tuple(resources)
        in_turn: list[_Source] = []
        beside: list[_Source] = []
        for resource in self.resources:
            probe = instead.get(resource.name) or resource.probe()
            source = _Source(resource.name, f"probe {resource.name}", probe, resource.is_sampled)
            (in_turn if resource.reads_proc else beside).append(source)
        self._in_turn, self._beside = tuple(in_turn), tuple(beside)
        self._memory = next((s.probe for s in in_turn if s.name == "memory"), None)
        # Reentrant: a signal handler may take a reading in the middle of one.
        self._lock = threading.RLock()

    def read(self) -> Reading:
        """Takes a whole reading. A probe that fails leaves its resource out of it."""
        return self._read(whole=True)

    def sample(self) -> Reading:
        """Takes a reading of what has peaks: memory of the process tree and the GPUs."""
        return self._read(whole=False)

    def lower_marks(self, reading: Reading) -> tuple[Reading, Reading] | None:
        """Lowers the kernel's memory marks to what is in use now (exact mode, Linux only).

        Args:
            reading: A reading that knows the descendants.

        Returns:
            What was in use just before, with the marks as they stood, and the same with the
            marks as they are now; None where memory cannot be read.

        Raises:
            OSError: This process's own mark may not be reset.
        """
        if reading.memory is None or self._memory is None:
            return None
        children = [pid for pid, _, _ in reading.memory.children]
        with self._turn():
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
        found: dict[str, Any] = {}
        pids: tuple[int, ...] = ()
        with self._turn(), FAULTS.kept_in("probe process tree"):
            pids = descendants()
        # Before memory: what the first reading loads to reach the drivers (over 10 MB) is
        # then in the first figure already, and no growth of the first step. Beside other
        # readings: a driver that hangs in one thread must not stop the others.
        self._ask(self._beside, whole, pids, found)
        with self._turn():
            # Before memory is read, so that no reading is taken to be newer than it is.
            order = next(_ORDER)
            self._ask(self._in_turn, whole, pids, found)
        return Reading(*_clocks(), found, order)

    @staticmethod
    def _ask(
        sources: tuple[_Source, ...], whole: bool, pids: tuple[int, ...], found: dict[str, Any]
    ) -> None:
        for source in sources:
            if whole or source.is_sampled:
                with FAULTS.kept_in(source.origin):
                    record = source.probe(pids)
                    if record is not None and record != ():
                        found[source.name] = record


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
