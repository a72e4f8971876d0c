"""What the live view shows of a recording: its newest figures, wherever they were taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from otel_quant.export.recording.curve_file import RecordedCurve
from otel_quant.recordings import summary
from otel_quant.recordings.model import LAUNCHER, Attributes, Recording, number
from otel_quant.recordings.steps import PlacedStep, placed_steps
from otel_quant.schema import semconv, series
from otel_quant.schema.figures import QUANTITIES
from otel_quant.views.forecast import forecast_of


@dataclass(frozen=True, slots=True)
class Usage:
    """Something that is used; None for what is not known."""

    name: str  # What it is
    now: float | None  # The newest figure
    peak: float | None = None  # The highest so far
    limit: float | None = None  # What there is
    unit: str = "By"  # UCUM unit


def steps_of(recording: Recording) -> list[PlacedStep]:
    """Returns the steps of all runs, in the order in which they opened."""
    steps = placed_steps(recording.runs, recording.duration)
    return sorted(steps, key=lambda each: each.step.start)


def step_peaks(recording: Recording) -> Callable[[PlacedStep], float | None]:
    """Returns a function that returns the highest memory of a step."""
    of_run = summary.steps_of(recording)
    return lambda each: of_run(each).value(each.step, summary.MEMORY_PEAK)


def forecast(each: PlacedStep) -> Attributes:
    """Returns what the forecast of a step says."""
    return forecast_of(each.run, each.step)


def place(recording: Recording, each: PlacedStep) -> str:
    """Returns which of several runs a step belongs to; empty if there is one."""
    if len(recording.runs) < 2:
        return ""
    run = each.run
    return f"rank {run.rank}" if run.rank is not None else f"process {run.process}"


def curve_of(recording: Recording) -> RecordedCurve | None:
    """Returns the launcher's curve; without one, that of the process with the highest memory."""
    curves = recording.curves
    return curves.get(LAUNCHER) or max(
        curves.values(), key=lambda each: _peak(each, series.MEMORY) or 0, default=None
    )


def memory(recording: Recording) -> Usage:
    """Returns the memory of the whole: the newest figure, the peak and the limit."""
    now = _newest(curve_of(recording), series.MEMORY)
    if now is None:
        read = [each.last.attributes for each in recording.runs if each.last is not None]
        known = [number(each, f"{semconv.READING_PREFIX}memory") for each in read]
        now = max(filter(None, known), default=None)
    limit = summary.limit(recording)
    peak = summary.value(recording, summary.MEMORY_PEAK)
    return Usage("memory", now, peak, None if limit is None else limit.value)


def others(recording: Recording) -> Iterator[Usage]:
    """Yields what else is used: each GPU, the disk and the caches."""
    curve = curve_of(recording)
    if curve is None:
        return
    names = sorted({name for bucket in curve.curve.buckets.values() for name in bucket.levels})
    for name in names:
        if name.startswith("gpu.") and name.endswith(".used"):
            yield Usage(f"GPU {name.split('.')[1]}", _newest(curve, name), _peak(curve, name))
    newest = max(curve.curve.buckets.values(), key=lambda each: each.position, default=None)
    totals = newest.totals if newest is not None else {}
    for quantity in QUANTITIES:
        name = _WORDS.get(quantity.name, quantity.heading.removesuffix(" PEAK").lower())
        if not quantity.curve or not quantity.heading or quantity.name == summary.MEMORY_PEAK:
            continue
        if peak := _peak(curve, quantity.curve):
            yield Usage(name, _newest(curve, quantity.curve), peak, unit=quantity.unit)
        elif quantity.curve in totals:
            yield Usage(name, totals[quantity.curve], unit=quantity.unit)


_WORDS: Final = {"disk.read": "disk read", "disk.write": "disk written", "cpu.time": "CPU time"}


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
