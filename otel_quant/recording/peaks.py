"""Highest figures of a step, from the readings that were taken while it was open."""

from __future__ import annotations

from collections.abc import Collection

from otel_quant.records import GpuReading, MemoryReading, Peaks, PeakSource, Reading

_GPU_FIGURES = ("used", "process_used", "torch_allocated", "torch_reserved")


class PeakTracker:
    """Follows the peaks of a step or of the run.

    The kernel's marks are exact where they rise: a mark that rose between two readings
    was set between them. What the *other* processes held at that moment is known only if
    the process still stands at its mark. Otherwise the smaller of what they held at the
    two readings is taken, so that the sum never claims more than can have been in use.

    Args:
        first: The reading at the start; what was in use then counts.
    """

    def __init__(self, first: Reading) -> None:
        self._sampled: int | None = None
        self._kernel: int | None = None
        self._process: int | None = None
        self._previous: MemoryReading | None = first.memory
        self._marks_are_own = False
        self._gpu: int | None = None
        self._gpus: dict[int, dict[str, int]] = {}
        self.fold(first)

    def fold(self, reading: Reading) -> None:
        """Takes one more reading into account."""
        if reading.memory is not None:
            self._fold_memory(reading.memory)
        if reading.gpus:
            self._fold_gpus(reading.gpus)

    def marks_reset(self, sample: MemoryReading, lowered: Collection[int]) -> None:
        """The kernel's marks have been lowered to what is in use now.

        Args:
            sample: What was read, and folded, just before.
            lowered: The descendants whose marks were lowered; this process's was.
        """
        self._marks_are_own = True
        self._previous = MemoryReading(
            rss=sample.rss,
            tree_rss=sample.tree_rss,
            high_water=sample.rss,
            children=tuple(
                (pid, rss, rss if pid in lowered else mark) for pid, rss, mark in sample.children
            ),
            reaped_high_water=sample.reaped_high_water,
        )

    def result(self) -> Peaks:
        """Returns the peaks so far."""
        source: PeakSource | None = None
        memory = self._sampled
        if memory is not None:
            source = "sampled"
            if self._kernel is not None and self._kernel >= memory:
                memory, source = self._kernel, "kernel"
        return Peaks(
            memory=memory,
            memory_source=source,
            process_memory=self._process,
            gpu=self._gpu,
            gpus={index: dict(figures) for index, figures in self._gpus.items()},
        )

    def _fold_memory(self, now: MemoryReading) -> None:
        before = self._previous or now
        self._sampled = max(self._sampled or 0, now.tree_rss)
        self._process = max(self._process or 0, now.rss)
        mark, mark_before = now.high_water, before.high_water
        # A mark that was reset within the step is the step's own even if it stands still.
        if mark is not None and (
            self._marks_are_own or (mark_before is not None and mark > mark_before)
        ):
            others_before, others_now = before.tree_rss - before.rss, now.tree_rss - now.rss
            self._raise_kernel(mark, now.rss, others_before, others_now)
            self._process = max(self._process, mark)
        self._fold_children(before, now)
        self._fold_reaped(before, now)
        self._previous = now

    def _fold_children(self, before: MemoryReading, now: MemoryReading) -> None:
        if not now.children or before is now:
            return
        known = {pid: (rss, mark) for pid, rss, mark in before.children}
        for pid, rss, mark in now.children:
            rss_before, mark_before = known.get(pid, (0, 0))
            if mark is not None and mark > (mark_before or 0):
                self._raise_kernel(mark, rss, before.tree_rss - rss_before, now.tree_rss - rss)

    def _fold_reaped(self, before: MemoryReading, now: MemoryReading) -> None:
        """A descendant that came and went between two readings left only its mark."""
        mark = now.reaped_high_water
        if mark is not None and mark > (before.reaped_high_water or 0) and before is not now:
            self._raise_kernel(mark, 0, before.rss, now.rss)

    def _raise_kernel(self, mark: int, rss: int, others_before: int, others_now: int) -> None:
        others = others_now if rss >= mark else min(others_before, others_now)
        self._kernel = max(self._kernel or 0, mark + others)

    def _fold_gpus(self, gpus: tuple[GpuReading, ...]) -> None:
        self._gpu = max(self._gpu or 0, sum(gpu.used for gpu in gpus))
        for gpu in gpus:
            highest = self._gpus.setdefault(gpu.index, {})
            for figure in _GPU_FIGURES:
                value = getattr(gpu, figure)
                if value is not None and value >= highest.get(figure, 0):
                    highest[figure] = value
