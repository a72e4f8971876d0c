"""One axis of time for two runs on which the steps of both begin at the same place."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from otel_quant.recordings.comparison.runs import ComparedRun

_MOST_STEPS: Final = 250


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the axis between two moments that both runs have."""

    begin: float  # Where it begins on the axis, in seconds
    length: float  # Its length: that of the run that takes longer
    starts: tuple[float, float]  # When it begins in each run, in seconds since the recording began
    lengths: tuple[float, float]  # How long it is in each run


@dataclass(frozen=True, slots=True)
class CommonTime:
    """The axis."""

    stretches: tuple[Stretch, ...]  # Its parts, one after the other, at least one

    @property
    def until(self) -> float:
        """Its length, in seconds."""
        last = self.stretches[-1]
        return last.begin + last.length

    def place(self, side: int, time: float) -> float:
        """Returns where a moment of a run is on the axis."""
        starts = [stretch.starts[side] for stretch in self.stretches]
        stretch = self.stretches[max(0, bisect_right(starts, time) - 1)]
        return stretch.begin + min(max(0.0, time - stretch.starts[side]), stretch.length)


def common_time(base: ComparedRun, new: ComparedRun) -> CommonTime:
    """Returns the common axis of two runs: it goes on where both have reached the same moment."""
    moments = [(0.0, 0.0), (base.recording.duration, new.recording.duration)]
    for moment in _in_both(base, new):
        at = bisect_left(moments, moment)
        before, after = moments[at - 1] if at else moments[0], moments[min(at, len(moments) - 1)]
        if before[1] <= moment[1] <= after[1] and before[0] <= moment[0] <= after[0]:
            moments.insert(at, moment)
    stretches: list[Stretch] = []
    begin = 0.0
    for (first, other_first), (last, other_last) in pairwise(moments):
        lengths = last - first, other_last - other_first
        stretches.append(Stretch(begin, max(lengths), (first, other_first), lengths))
        begin += max(lengths)
    return CommonTime(tuple(stretches))


def _in_both(base: ComparedRun, new: ComparedRun) -> Iterator[tuple[float, float]]:
    """Yields when steps begin and end in both runs, outer steps first."""
    paths = [path for path in base.steps if path in new.steps]
    for path in sorted(paths, key=len)[:_MOST_STEPS]:
        first, second = base.steps[path].step, new.steps[path].step
        yield first.start, second.start
        if first.end is not None and second.end is not None:
            yield first.end, second.end
