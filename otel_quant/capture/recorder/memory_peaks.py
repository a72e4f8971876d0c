"""Highest memory of a step: from the kernel's marks if they rose, and from samples."""

from __future__ import annotations

from otel_quant.schema.records import MemoryReading, PeakSource


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
