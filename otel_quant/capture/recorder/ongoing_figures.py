"""What a run, the part of it that was not reported yet, and its open steps have used so far."""

from __future__ import annotations

from collections.abc import Sequence

from otel_quant.capture.recorder.open_step import OpenStep
from otel_quant.capture.recorder.peaks import PeakTracker, with_peaks
from otel_quant.capture.recorder.period import Period
from otel_quant.schema.figures import Resource
from otel_quant.schema.records import Reading


class OngoingFigures:
    """Passes each reading to all that tracks peaks.

    It has no lock: its methods are called with the recorder's.
    """

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._with_peaks = with_peaks(resources)
        self.latest: Reading | None = None
        self.whole: Period | None = None
        self.unreported: Period | None = None
        self.open: dict[int, OpenStep] = {}

    def begin(self, reading: Reading) -> None:
        """Begins the run with its first reading."""
        self.whole = self.unreported = Period(reading, PeakTracker(reading, self._with_peaks))
        self.latest = reading

    def reported(self, reading: Reading) -> None:
        """Begins the part that the next report will cover with the last reading of this one."""
        self.unreported = Period(reading, PeakTracker(reading, self._with_peaks))

    def begin_step(self, reading: Reading) -> PeakTracker:
        """Returns the tracker of a step that begins with a reading."""
        tracker = PeakTracker(reading, self._with_peaks)
        tracker.fold(self.fold(reading))
        return tracker

    def fold(self, reading: Reading) -> Reading:
        """Adds a reading to the peaks of the run and of the open steps; returns the newest one."""
        newest = self.latest
        if newest is None or reading.order >= newest.order:
            newest = self.latest = reading
        for period in self._periods():
            period.tracker.fold(reading)
        for step in self.open.values():
            step.tracker.fold(reading)
        return newest

    def marks_lowered(self, before: Reading, after: Reading) -> None:
        """Notes that the kernel's memory marks have been lowered to the memory in use now."""
        trackers = [period.tracker for period in self._periods()]
        for tracker in (*trackers, *(step.tracker for step in self.open.values())):
            tracker.fold(before)
            tracker.marks_lowered(after)

    def count_step(self, *, failed: bool) -> None:
        """Counts a step that has ended."""
        for period in self._periods():
            period.steps += 1
            period.failed += failed

    def _periods(self) -> tuple[Period, ...]:
        if self.whole is None or self.unreported is None:
            return ()
        if self.whole is self.unreported:
            return (self.whole,)
        return (self.whole, self.unreported)
