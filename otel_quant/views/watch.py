"""The live view of a recording: figures, sentences, and lines without a terminal. It only reads files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from otel_quant.export.recording.curve import RecordedCurve
from otel_quant.recordings import summary
from otel_quant.recordings.model import LAUNCHER, Attributes, RecordedStep, Recording, number
from otel_quant.recordings.steps import PlacedStep, placed_steps
from otel_quant.schema import semconv, series
from otel_quant.schema.figures import RESOURCES
from otel_quant.schema.units import duration_text, share_text, size
from otel_quant.views.cells import number_text
from otel_quant.views.ending import ended_as, exceeded, forecast_of, time_left
from otel_quant.views.steps import process_name
from otel_quant.views.text import printable


@dataclass(frozen=True, slots=True)
class Usage:
    """Something that is used. Bytes, or whatever the name says; None for what is not known."""

    name: str  # What it is
    now: float | None  # The newest figure
    peak: float | None = None  # The highest so far
    limit: float | None = None  # What there is
    unit: str = "By"


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
    cache = _peak(curve, series.CACHE)
    if cache:
        yield Usage("caches", _newest(curve, series.CACHE), cache)
    newest = max(curve.curve.buckets.values(), key=lambda each: each.position, default=None)
    totals = newest.totals if newest is not None else {}
    for resource in RESOURCES:
        for figure in resource.figures:
            if figure.heading and figure.is_total and figure.curve in totals:
                name = f"{resource.name} {figure.heading.lower()}"
                yield Usage(name, totals[figure.curve], unit=figure.unit)


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


def program_text(recording: Recording) -> str:
    """Returns what is run: its command, or the recording's name."""
    command = recording.origin.get("process.command_line")
    return printable(str(command or recording.path.name))


def name_text(recording: Recording, line: PlacedStep) -> str:
    """Returns the name of a step, and of its run if there are several."""
    run = process_name(line.run) if len(recording.runs) > 1 else ""
    return printable(f"{line.step.name} ({run})" if run else line.step.name)


def samples_text(step: RecordedStep) -> str:
    """Returns how far a step has come: ``sample 37 of 512``; empty if none were counted."""
    if step.samples is None and step.expected_samples is None:
        return ""
    of = f" of {step.expected_samples:,}" if step.expected_samples is not None else ""
    return f"sample {step.samples or 0:,}{of}"


def usage_text(use: Usage) -> str:
    """Returns figures in words: ``7.52 GB, peak 8.10 GB, limit 16.0 GB (50.6 % of it)``."""
    texts = [number_text(use.now, use.unit)] if use.now is not None else []
    if use.peak is not None:
        texts.append(f"peak {number_text(use.peak, use.unit)}")
    if use.limit is not None:
        share = f" ({share_text(use.peak / use.limit)} of it)" if use.peak and use.limit else ""
        texts.append(f"limit {size(use.limit)}{share}")
    return ", ".join(texts)


def ended_text(line: PlacedStep, peak: float | None) -> str:
    """Returns how a step ended: ``took 2 min 05 s, peak 7.52 GB``."""
    step = line.step
    texts = [f"took {duration_text((step.end or step.start) - step.start)}"]
    if peak is not None:
        texts.append(f"peak {size(peak)}")
    if step.error is not None:
        texts.append(printable(": ".join(filter(None, (step.error, step.error_message)))))
    return ", ".join(texts)


EVERY: Final = 30.0
"""Seconds between two lines that say how the run goes on."""


class PlainView:
    """Tells what has changed since it was asked last."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], bool] = {}  # whether the step had ended
        self._began = False
        self._next = EVERY

    def lines(self, recording: Recording) -> Iterator[str]:
        """Yields what is new."""
        if not self._began:
            self._began = True
            yield self._line(recording, 0.0, program_text(recording))
        news: list[tuple[float, str]] = []
        peak_of = step_peaks(recording)
        for line in steps_of(recording):
            key, text = (line.run.id, line.step.index), name_text(recording, line)
            if key not in self._told:
                news.append((line.step.start, f"{text} began"))
            if line.step.end is not None and not self._told.get(key, False):
                verb = "failed" if line.step.error is not None else "ended"
                news.append((line.step.end, f"{text} {verb}: {ended_text(line, peak_of(line))}"))
            self._told[key] = line.step.end is not None
        for at, text in sorted(news, key=lambda each: each[0]):
            yield self._line(recording, at, text)
        if recording.state == "running" and recording.duration >= self._next:
            self._next = recording.duration + EVERY
            yield self._line(recording, recording.duration, self._now(recording))
        if recording.state != "running":
            text = f"{ended_as(recording)} after {duration_text(recording.duration)}"
            yield self._line(recording, recording.duration, text)

    def _now(self, recording: Recording) -> str:
        texts: list[str] = []
        for line in steps_of(recording):
            if line.step.end is None and line.step.state == "running":
                parts = (
                    samples_text(line.step),
                    time_left(forecast(line)),
                    exceeded(forecast(line)),
                )
                texts.append(", ".join(filter(None, (name_text(recording, line), *parts))))
        return "; ".join((*texts, f"memory {usage_text(memory(recording))}"))

    @staticmethod
    def _line(recording: Recording, at: float, text: str) -> str:
        clock = time.localtime(recording.began_ns / 1e9 + at)
        return f"{time.strftime('%H:%M:%S', clock)} {text}"
