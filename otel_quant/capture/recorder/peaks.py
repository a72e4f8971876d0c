"""The highest figures of a step, or of the run so far.

A peak is exact (``kernel``: a mark rose) or what was seen (``sampled``). The kernel remembers the peak of each
process and not when it was, so the peak of a process tree is the kernel's only if there was no child during the
step. A child's mark counts only above every mark of this process: the kernel charges a child with the memory of
the image that it was forked from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from otel_quant.schema.figures import Figure, Number, Resource
from otel_quant.schema.readings import MemoryReading, Peaks, PeakSource, Reading

_MEMORY = "memory"


_Figures: TypeAlias = dict[str, tuple[Figure, ...]]
"""Figures that have a peak, by the name of the resource."""


def with_peaks(resources: Sequence[Resource]) -> tuple[_Figures, _Figures]:
    """Returns the figures that have peaks, and those of devices; of memory, which is tracked in its own way, none."""
    others = [each for each in resources if each.name != _MEMORY]
    return (
        _peaks({each.name: each.figures for each in others}),
        _peaks({each.name: each.device_figures for each in others}),
    )


def _peaks(figures: Mapping[str, Sequence[Figure]]) -> _Figures:
    found = {name: [each for each in of if "peak" in each.parts] for name, of in figures.items()}
    return {name: tuple(tracked) for name, tracked in found.items() if tracked}


class PeakTracker:
    """Tracks the peaks of a step or of the run.

    The memory of the tree has a new peak where the kernel's mark of a process rose between two readings:

    1. The mark of this process. If there were no descendants meanwhile, it is the tree's exact peak.
    2. The mark of a descendant that lives.
    3. The mark of descendants that started and exited between the two.

    What the *other* processes used at that moment is known only if

    4. the process still uses as much as its mark: it is what they use now. Otherwise
    5. the smaller of their memory at the two readings is added.

    Such a sum counts as what was seen, like a sample.

    Several threads take readings, so an older reading may be folded after a newer one. Its memory in use
    counts; its marks do not, because they would seem to rise at the next reading. Where they were lowered
    right after it (exact mode) they do: no later reading has them.
    """

    def __init__(self, first: Reading, tracked: tuple[_Figures, _Figures]) -> None:
        self._figures, self._device_figures = tracked
        self._first = self._latest = first.order
        self._process = self._sampled = self._by_marks = 0  # bytes; 0 for unknown
        self._had_descendants = False
        self._previous: MemoryReading | None = None
        self._marks_are_own = False  # They were lowered since the step began
        self._highest: dict[str, Number] = {}
        self._devices: dict[str, dict[int, dict[str, Number]]] = {}
        self.fold(first)

    def fold(self, reading: Reading) -> None:
        """Takes one more reading into account; ignores one that is older than the first."""
        _, _, resources, order, lowered = reading
        if order < self._first:
            return
        is_late = order < self._latest
        memory = resources.get(_MEMORY)
        if memory is not None:
            self._sampled = max(self._sampled, memory.tree_rss)
            self._process = max(self._process, memory.rss)
            if not memory.is_brief:
                self._fold_marks(memory, is_late=is_late, are_lowered=lowered is not None)
        for name, figures in self._figures.items():
            if name in resources:
                _raise(self._highest, figures, resources[name])
        for name, figures in self._device_figures.items():
            for device in resources.get(name, ()):
                highest = self._devices.setdefault(name, {}).setdefault(device.index, {})
                _raise(highest, figures, device)
        if not is_late:
            self._latest = order
        if lowered is not None:
            self.marks_lowered(lowered)

    def marks_lowered(self, reading: Reading) -> None:
        """Notes that the kernel's memory marks have been lowered to the memory in use now."""
        self._marks_are_own = True
        if reading.order >= self._latest:
            self._latest, self._previous = reading.order, reading.memory

    def result(self) -> Peaks:
        """Returns the peaks so far."""
        figures: dict[str, Number] = dict(self._highest)
        sources: dict[str, PeakSource] = {}
        if self._sampled:
            is_exact = self._by_marks >= self._sampled and not self._had_descendants
            figures[_MEMORY] = max(self._by_marks, self._sampled)
            sources[_MEMORY] = "kernel" if is_exact else "sampled"
        devices = {
            name: {index: dict(highest) for index, highest in found.items()}
            for name, found in self._devices.items()
        }
        return Peaks(figures, sources, devices, self._process or None)

    def _fold_marks(self, now: MemoryReading, *, is_late: bool, are_lowered: bool) -> None:
        before = self._previous or now
        if not is_late:
            self._previous = now
        elif not are_lowered:
            return
        if now.reaped_faults is None or now.reaped_faults != before.reaped_faults:
            self._had_descendants = True
        # Case 1. After a reset within the step, the mark belongs to the step even if it did not rise.
        mark = now.high_water or 0
        if self._marks_are_own or mark > (before.high_water or mark):
            self._process = max(self._process, mark)
            self._add(mark, now.rss, before.tree_rss - before.rss, now.tree_rss - now.rss)
        # Case 2
        known = {pid: (rss, of_child or 0) for pid, rss, of_child in before.children}
        for pid, rss, of_child in now.children:
            rss_before, mark_before = known.get(pid, (0, 0))
            if (mark := of_child or 0) > mark_before:
                self._add(mark, rss, before.tree_rss - rss_before, now.tree_rss - rss)
        # Case 3
        mark = now.reaped_high_water or 0
        if mark > (before.reaped_high_water or 0):
            self._add(mark, 0, before.rss, now.rss)

    def _add(self, mark: int, rss: int, others_before: int, others_now: int) -> None:
        # Case 4, else case 5
        others = others_now if rss >= mark else min(others_before, others_now)
        self._by_marks = max(self._by_marks, mark + others)


def _raise(highest: dict[str, Number], figures: Sequence[Figure], record: Any) -> None:
    for figure in figures:
        value = figure.of(record)
        if value is not None and value >= highest.get(figure.name, value):
            highest[figure.name] = value
