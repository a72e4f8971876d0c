"""At which line the memory of this process was highest in each open step, by samples and by the kernel's mark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from otel_quant.capture.probes.memory import high_water
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.diagnosis.spots import spot_of
from otel_quant.schema.code_lines import RECORDER, Place, Spot
from otel_quant.schema.readings import MemoryReading

_MOVES: Final = 1 << 20  # Bytes by which memory has to rise for another line to be that of the peak

_MATTERS: Final = 8 << 20
"""Bytes by which a peak may be above what was seen at a line, or a sixteenth of it, to be that line's."""


class PeakLines:
    """Of each open step the highest memory, and where the thread was that took it."""

    def __init__(self) -> None:
        self._highest: dict[int, tuple[int, Spot | None]] = {}  # By the step's index, in bytes
        self._mark = 0  # The kernel's, in bytes, when it was read last

    def add(
        self, steps: Mapping[int, OpenStep], memory: MemoryReading | None, lines: Sequence[Place]
    ) -> None:
        """Adds a sample, with the stack of the thread that has taken the memory; empty if nobody knows which."""
        if memory is None or not steps:
            return
        mark, before = 0, self._mark
        is_known = bool(lines) and RECORDER not in lines
        # Only where enough was touched since the last sample is the mark read: it takes as long as a sample.
        if memory.possible > before + _MOVES:
            mark = self._mark = high_water() or 0
        for index, step in steps.items():
            start = step.start.memory
            if start is None:
                continue
            is_new = mark > max(before, start.high_water or mark) + _MOVES
            value = max(memory.rss, mark if is_new else 0)
            highest, _ = self._highest.get(index, (start.rss, None))
            if value > highest + _MOVES:
                self._highest[index] = value, spot_of(lines) if is_known else None

    def end(self, index: int, peak: float) -> str | None:
        """Forgets a step; returns the line of a peak, in words, if it was seen there."""
        value, spot = self._highest.pop(index, (0, None))
        is_seen = abs(peak - value) <= max(_MATTERS, peak / 16)
        return spot.words if spot is not None and is_seen else None
