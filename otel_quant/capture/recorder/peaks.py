"""Highest figures of a step: from the kernel's marks if they rose, and from readings.

The kernel remembers the peak of each process and not when it was, so the peak of a process tree is the
kernel's only if there was no child during the step. A child's mark counts only above every mark of this
process: the kernel charges a child with the memory of the image that it was forked from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_quant.schema.figures import Figure, Number, Resource
from otel_quant.schema.records import MemoryReading, Peaks, PeakSource, Reading

_MEMORY = "memory"


def with_peaks(resources: Sequence[Resource]) -> tuple[Resource, ...]:
    """Returns the resources that have peaks beside memory, which is tracked in its own way."""
    return tuple(
        resource
        for resource in resources
        if resource.name != _MEMORY
        and any("peak" in f.parts for f in (*resource.figures, *resource.device_figures))
    )


class MemoryPeaks:
    """Tracks the memory of the process tree.

    A kernel's mark that rose between two readings is an exact peak of that process. If the
    process had no descendants meanwhile, it is the tree's peak too. Else the tree may have used
    more at another moment, and the memory of the *other* processes at this one is known only if
    the process still uses as much as its mark. Otherwise the smaller of their memory at the two
    readings is added. The sum counts as what was seen, like a sample.
    """

    def __init__(self) -> None:
        self.process: int | None = None
        self._sampled: int | None = None
        self._by_marks: int | None = None
        self._had_descendants = False
        self._previous: MemoryReading | None = None
        self._marks_are_own = False

    def fold(self, now: MemoryReading) -> None:
        """Takes one more reading into account, newer than those before it."""
        before = self._previous or now
        self.sample(now)
        if now.reaped_faults is None or now.reaped_faults != before.reaped_faults:
            self._had_descendants = True
        mark, mark_before = now.high_water, before.high_water
        # After a reset within the step, the mark belongs to the step even if it did not rise.
        if mark is not None and (
            self._marks_are_own or (mark_before is not None and mark > mark_before)
        ):
            others_before, others_now = before.tree_rss - before.rss, now.tree_rss - now.rss
            self._add(mark, now.rss, others_before, others_now)
            self.process = max(self.process or 0, mark)
        self._fold_children(before, now)
        self._fold_reaped(before, now)
        self._previous = now

    def sample(self, reading: MemoryReading) -> None:
        """Takes the memory in use at a reading into account, but not its marks."""
        self._sampled = max(self._sampled or 0, reading.tree_rss)
        self.process = max(self.process or 0, reading.rss)

    def marks_lowered(self, memory: MemoryReading) -> None:
        """Notes that the kernel's marks have been lowered to the memory in use now."""
        self._marks_are_own = True
        self._previous = memory

    def result(self) -> tuple[int, PeakSource] | None:
        """Returns the highest RSS of the process tree, in bytes, and its source."""
        if self._sampled is None:
            return None
        if self._by_marks is None or self._by_marks < self._sampled:
            return self._sampled, "sampled"
        return self._by_marks, "sampled" if self._had_descendants else "kernel"

    def _fold_children(self, before: MemoryReading, now: MemoryReading) -> None:
        if not now.children or before is now:
            return
        known = {pid: (rss, mark) for pid, rss, mark in before.children}
        for pid, rss, mark in now.children:
            rss_before, mark_before = known.get(pid, (0, 0))
            if mark is not None and mark > (mark_before or 0):
                self._add(mark, rss, before.tree_rss - rss_before, now.tree_rss - rss)

    def _fold_reaped(self, before: MemoryReading, now: MemoryReading) -> None:
        """Folds the mark of descendants that started and exited between two readings."""
        mark = now.reaped_high_water
        if mark is not None and mark > (before.reaped_high_water or 0) and before is not now:
            self._add(mark, 0, before.rss, now.rss)

    def _add(self, mark: int, rss: int, others_before: int, others_now: int) -> None:
        others = others_now if rss >= mark else min(others_before, others_now)
        self._by_marks = max(self._by_marks or 0, mark + others)


class PeakTracker:
    """Tracks the peaks of a step or of the run.

    Several threads take readings, so an older reading may be folded after a newer one. Its
    memory in use counts; its marks do not, because they would seem to rise at the next reading.
    """

    def __init__(self, first: Reading, resources: Sequence[Resource]) -> None:
        self._resources = resources
        self._first, self._latest = first.order, first.order
        self._memory = MemoryPeaks()
        self._highest: dict[str, Number] = {}
        self._devices: dict[str, dict[int, dict[str, Number]]] = {}
        self.fold(first)

    def fold(self, reading: Reading) -> None:
        """Takes one more reading into account; ignores one that is older than the first."""
        if reading.order < self._first:
            return
        is_late = reading.order < self._latest
        if not is_late:
            self._latest = reading.order
        memory = reading.memory
        if memory is not None:
            if is_late or memory.is_brief:
                self._memory.sample(memory)
            else:
                self._memory.fold(memory)
        for resource in self._resources:
            record = reading.resources.get(resource.name)
            if record is None:
                continue
            _raise(self._highest, resource.figures, record)
            if resource.device_figures:
                devices = self._devices.setdefault(resource.name, {})
                for device in record:
                    highest = devices.setdefault(device.index, {})
                    _raise(highest, resource.device_figures, device)

    def marks_lowered(self, reading: Reading) -> None:
        """Notes that the kernel's memory marks have been lowered to the memory in use now."""
        assert reading.memory is not None
        self._latest = reading.order
        self._memory.marks_lowered(reading.memory)

    def result(self) -> Peaks:
        """Returns the peaks so far."""
        memory = self._memory.result()
        return Peaks(
            figures=self._highest | ({_MEMORY: memory[0]} if memory else {}),
            sources={_MEMORY: memory[1]} if memory else {},
            devices={
                name: {index: dict(figures) for index, figures in devices.items()}
                for name, devices in self._devices.items()
            },
            process_memory=self._memory.process,
        )


def _raise(highest: dict[str, Number], figures: Sequence[Figure], record: Any) -> None:
    for figure in figures:
        if "peak" in figure.parts:
            value = figure.of(record)
            if value is not None and value >= highest.get(figure.name, value):
                highest[figure.name] = value
