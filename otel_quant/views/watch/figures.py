"""What the live view shows of a recording: its newest figures, wherever they were taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from otel_quant.export.recording.curve_file import RecordedCurve
from otel_quant.recordings.attributes import numbers
from otel_quant.recordings.model import Attributes, RecordedRun, RecordedStep, Recording
from otel_quant.schema import semconv, series
from otel_quant.views.forecast import forecast_of

LAUNCHER: Final = "launcher"


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step with its place."""

    run: RecordedRun  # Its run
    step: RecordedStep  # The step
    depth: int  # Steps around it

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.step.end is None

    @property
    def forecast(self) -> Attributes:
        """What its forecast says."""
        return forecast_of(self.run, self.step)


@dataclass(frozen=True, slots=True)
class Usage:
    """Something that is used. Bytes, or whatever the name says; None for what is not known."""

    name: str  # What it is
    now: float | None  # The newest figure
    peak: float | None = None  # The highest so far
    limit: float | None = None  # What there is


def step_lines(recording: Recording) -> list[StepLine]:
    """Returns the steps of all runs, in the order in which they opened."""
    lines: list[StepLine] = []
    for run in recording.runs:
        depths: dict[int, int] = {}
        for step in run.steps:
            depth = depths.get(step.parent, -1) + 1 if step.parent is not None else 0
            depths[step.index] = depth
            lines.append(StepLine(run, step, depth))
    return sorted(lines, key=lambda line: line.step.start)


def place(recording: Recording, line: StepLine) -> str:
    """Returns which of several runs a step belongs to; empty if there is one."""
    if len(recording.runs) < 2:
        return ""
    run = line.run
    return f"rank {run.rank}" if run.rank is not None else f"process {run.process}"


def curve_of(recording: Recording) -> RecordedCurve | None:
    """Returns the launcher's curve; without one, that of the process with the highest memory."""
    curves = recording.curves
    return curves.get(LAUNCHER) or max(
        curves.values(), key=lambda each: _peak(each, series.MEMORY) or 0, default=None
    )


def memory(recording: Recording) -> Usage:
    """Returns the memory of the whole: the newest figure, the peak and the limit."""
    runs, curve = recording.runs, curve_of(recording)
    peaks = [
        *numbers((run.attributes for run in runs), semconv.MEMORY_PEAK),
        *numbers(_last(runs), semconv.READING_MEMORY_PEAK),
        *numbers((s.attributes for run in runs for s in run.steps), semconv.MEMORY_PEAK),
    ]
    peak = _peak(curve, series.MEMORY)
    limits = [
        *numbers((recording.origin, *(run.attributes for run in runs)), semconv.MEMORY_LIMIT),
        *numbers(_last(runs), semconv.READING_MEMORY_LIMIT),
    ]
    now = _newest(curve, series.MEMORY)
    if now is None:
        now = max(numbers(_last(runs), f"{semconv.READING_PREFIX}memory"), default=None)
    every = [*peaks, *([peak] if peak is not None else [])]
    return Usage("memory", now, max(every, default=None), min(limits, default=None))


def others(recording: Recording) -> Iterator[Usage]:
    """Yields what else is used: each GPU, the disk and the caches."""
    curve = curve_of(recording)
    if curve is None:
        return
    names = sorted({name for bucket in curve.curve.buckets.values() for name in bucket.levels})
    for name in names:
        if name.startswith("gpu.") and name.endswith(".used"):
            yield Usage(f"GPU {name.split('.')[1]}", _newest(curve, name), _peak(curve, name))
    cache = _peak(curve, series.CACHE)
    if cache:
        yield Usage("caches", _newest(curve, series.CACHE), cache)
    newest = max(curve.curve.buckets.values(), key=lambda each: each.position, default=None)
    totals = newest.totals if newest is not None else {}
    for name, text in ((series.DISK_READ, "disk read"), (series.DISK_WRITE, "disk written")):
        if name in totals:
            yield Usage(text, totals[name])


def columns(curve: RecordedCurve, name: str, count: int) -> Sequence[float | None]:
    """Returns a level over time: the highest value of each of a number of equal stretches."""
    buckets = curve.curve.buckets
    if not buckets:
        return []
    last = max(buckets) + 1
    highest: list[float | None] = [None] * min(count, last)
    for position, bucket in buckets.items():
        level = bucket.levels.get(name)
        if level is not None:
            at = position * len(highest) // last
            highest[at] = max(highest[at] or 0, level.highest)
    for at in range(1, len(highest)):  # a stretch without a reading is as the one before
        if highest[at] is None:
            highest[at] = highest[at - 1]
    return highest


def _last(runs: Sequence[RecordedRun]) -> list[Attributes]:
    return [run.last.attributes for run in runs if run.last is not None]


def _peak(curve: RecordedCurve | None, name: str) -> float | None:
    buckets = curve.curve.buckets.values() if curve is not None else ()
    levels = (bucket.levels.get(name) for bucket in buckets)
    return max((level.highest for level in levels if level is not None), default=None)


def _newest(curve: RecordedCurve | None, name: str) -> float | None:
    buckets = curve.curve.buckets if curve is not None else {}
    for position in sorted(buckets, reverse=True):
        level = buckets[position].levels.get(name)
        if level is not None:
            return level.last
    return None
