"""The highest figures of a step, or of the run so far.

A peak is exact (``kernel`` or ``allocator``: a mark rose) or what was seen (``sampled``). The kernel remembers the peak of each
process and not when it was, so the peak of a process tree is the kernel's only if there was no child during the
step. A child's mark counts only above every mark of this process: the kernel charges a child with the memory of
the image that it was forked from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import gt
from typing import Any, Final, TypeAlias

from otel_quant.schema import readings
from otel_quant.schema.figures import (
    GPU,
    MEMORY,
    TREE_GPU_MEMORY,
    TREE_MEMORY,
    Figure,
    Number,
    Resource,
    tree_used,
)

_MEMORY: Final = TREE_MEMORY.name
_GPU_MEMORY: Final = TREE_GPU_MEMORY.name

_NO_MARKS: Final = readings.AllocatorMark(0, 0), readings.AllocatorMark(0, 0)

_MATTERS: Final = 8 << 20
"""Bytes by which a peak that was seen has to be too low, and a sixteenth of it, to be called so."""

_Tracked: TypeAlias = Mapping[str, tuple[tuple[Figure, ...], tuple[Figure, ...]]]
"""By the name of a resource: its figures that have a peak, and its devices' figures."""


def with_peaks(resources: Sequence[Resource]) -> _Tracked:
    """Returns the resources that have peaks beside memory, which is tracked in its own way."""
    found = {each.name: (_peaks(each.figures), _peaks(each.device_figures)) for each in resources}
    found.pop(MEMORY.name, None)
    return {name: tracked for name, tracked in found.items() if any(tracked)}


def _peaks(figures: Sequence[Figure]) -> tuple[Figure, ...]:
    return tuple(figure for figure in figures if "peak" in figure.parts)


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

    A peak that was seen is too low where this process has touched many more pages between two readings than it
    was seen to hold, and its mark, which is of an earlier time, allows that. Not of huge pages: each is one fault.
    """

    def __init__(self, first: readings.Reading, tracked: _Tracked) -> None:
        self._tracked = tracked
        self._first = self._latest = first.order  # The latest has marks
        self._process = self._sampled = self._by_marks = self._possible = 0  # bytes; 0 for unknown
        self._had_descendants = False
        self._previous: readings.MemoryReading | None = None
        self._marks_are_own = False  # They were lowered since the step began
        self._highest: dict[str, Number] = {}
        self._devices: dict[str, dict[int, dict[str, Number]]] = {}
        # Of torch's allocator, by index of the GPU
        self._marks: dict[int, tuple[readings.AllocatorMark, readings.AllocatorMark]] = {}
        self._on_gpus: list[tuple[object, ...]] = []  # Of the newest reading
        self._by_allocator = 0  # Memory on GPUs in bytes; 0 if no mark rose
        self._is_certain_on_gpu = True  # One process, on one device, and its marks were not reset
        self.fold(first)
        self._possible = 0  # bytes, of this process

    def fold(self, reading: readings.Reading) -> None:
        """Takes one more reading into account; ignores one that is older than the first."""
        _, _, resources, order, lowered = reading
        if order < self._first:
            return
        is_late = order < self._latest
        memory = resources.get(MEMORY.name)
        if memory is not None:
            if memory.tree_rss > self._sampled:
                self._sampled = memory.tree_rss
            if memory.rss > self._process:
                self._process = memory.rss
            if memory.possible > self._possible:
                self._possible = memory.possible
            if not memory.is_brief and (lowered is not None or not is_late):
                self._fold_marks(self._previous or memory, memory)
            if not memory.is_brief and not is_late:
                self._latest, self._previous = order, memory
        for name in self._tracked:
            if name in resources:
                record = resources[name]
                if name == GPU.name:
                    levels = [gpu.levels for gpu in record]
                    if levels == self._on_gpus:
                        continue
                    self._on_gpus = levels
                    self._fold_allocator(record)
                self._fold_record(name, record)
        if lowered is not None:
            self.marks_lowered(lowered)

    def marks_lowered(self, reading: readings.Reading) -> None:
        """Notes that the kernel's memory marks have been lowered to the memory in use now."""
        self._marks_are_own = True
        if reading.order >= self._latest:
            self._latest, self._previous = reading.order, reading.memory

    def result(self) -> readings.Peaks:
        """Returns the peaks so far."""
        figures: dict[str, Number] = dict(self._highest)
        sources: dict[str, readings.PeakSource] = {}
        if self._sampled:
            is_exact = self._by_marks >= self._sampled and not self._had_descendants
            figures[_MEMORY] = max(self._by_marks, self._sampled)
            sources[_MEMORY] = "kernel" if is_exact else self._seen_as()
        if (of_tree := figures.get(_GPU_MEMORY)) is not None:
            is_exact = self._is_certain_on_gpu and self._by_allocator >= of_tree
            sources[_GPU_MEMORY] = "allocator" if is_exact else "sampled"
        devices = {
            name: {index: dict(highest) for index, highest in found.items()}
            for name, found in self._devices.items()
        }
        return readings.Peaks(figures, sources, devices, self._process or None)

    def _fold_record(self, name: str, record: Any) -> None:
        figures, device_figures = self._tracked[name]
        _raise(self._highest, figures, record)
        for device in record if device_figures else ():
            devices = self._devices.setdefault(name, {})
            _raise(devices.setdefault(device.index, {}), device_figures, device)

    def _fold_allocator(self, gpus: Sequence[readings.GpuReading]) -> None:
        """Takes the GPUs into account as they were when a mark of torch's allocator was reached since the last reading.

        What is not the allocator's counts as it is now: contexts and libraries keep theirs. Where torch
        was not in use at the last reading, all of its marks are of the time since.
        """
        self._is_certain_on_gpu &= sum(gpu.processes or 0 for gpu in gpus) <= 1
        for at, gpu in enumerate(gpus):
            torch = gpu.torch
            marks = (torch.allocated_mark, torch.reserved_mark) if torch is not None else _NO_MARKS
            known = self._marks.setdefault(gpu.index, marks)
            has_allocated, has_reserved = map(gt, marks, known)
            if torch is None or not (has_allocated or has_reserved):
                continue  # no mark has moved, or the reading comes late
            self._marks[gpu.index] = max(known[0], marks[0]), max(known[1], marks[1])
            allocated = marks[0].bytes if has_allocated else torch.allocated
            reserved = marks[1].bytes if has_reserved else torch.reserved
            more, own = max(0, reserved - torch.reserved), gpu.process_used
            then = replace(
                gpu,
                used=min(filter(None, (gpu.limit, gpu.used + more)), default=0),
                process_used=None if own is None else own + more,
                torch=torch._replace(allocated=allocated, reserved=reserved),
            )
            together = *gpus[:at], then, *gpus[at + 1 :]
            self._fold_record(GPU.name, together)
            if has_reserved:
                self._by_allocator = max(self._by_allocator, tree_used(together) or 0)
                # Lower only after the program has reset it: then nobody knows what was before.
                self._is_certain_on_gpu &= marks[1].bytes >= known[1].bytes

    def _seen_as(self) -> readings.PeakSource:
        mark = self._previous.high_water if self._previous is not None else None
        more = min(self._possible, mark or 0) - self._process
        return readings.AT_LEAST if more > max(_MATTERS, self._process >> 4) else "sampled"

    def _fold_marks(self, before: readings.MemoryReading, now: readings.MemoryReading) -> None:
        if now.reaped_faults is None or now.reaped_faults != before.reaped_faults:
            self._had_descendants = True
        # Case 1. After a reset within the step, the mark belongs to the step even if it did not rise.
        mark = now.high_water or 0
        if self._marks_are_own or mark > (before.high_water or mark):
            self._process = max(self._process, mark)
            self._add(mark, now.rss, before.tree_rss - before.rss, now.tree_rss - now.rss)
        if now.children:  # Case 2; most runs have none
            known = {pid: (rss, mark or 0) for pid, rss, mark in before.children}
            for pid, rss, its_mark in now.children:
                rss_before, mark_before = known.get(pid, (0, 0))
                if its_mark is not None and its_mark > mark_before:
                    self._add(its_mark, rss, before.tree_rss - rss_before, now.tree_rss - rss)
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
