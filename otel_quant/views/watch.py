"""What the live view of a recording tells: figures, sentences, and lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from otel_quant.export.recording.curve import RecordedCurve
from otel_quant.recordings import summary
from otel_quant.recordings.model import LAUNCHER, RecordedStep, Recording, number
from otel_quant.recordings.steps import PlacedStep, steps_in
from otel_quant.schema import semconv, series
from otel_quant.schema.figures import RESOURCES
from otel_quant.schema.units import duration_text, share_text, size
from otel_quant.views.cells import number_text
from otel_quant.views.ending import ended_as, exceeded, time_left
from otel_quant.views.steps import process_name
from otel_quant.views.text import printable


class Usage(NamedTuple):
    """Something that is used. Bytes, or whatever the name says; None for what is not known."""

    name: str  # What it is
    now: float | None  # The newest figure
    peak: float | None = None  # The highest so far
    limit: float | None = None  # What there is
    unit: str = "By"

    @property
    def text(self) -> str:
        """Figures in words: ``7.52 GB, peak 8.10 GB, limit 16.0 GB (50.6 % of it)``."""
        texts = [number_text(self.now, self.unit)] if self.now is not None else []
        if self.peak is not None:
            texts.append(f"peak {number_text(self.peak, self.unit)}")
        if self.limit is not None:
            share = f" ({share_text(self.peak / self.limit)} of it)" if self.peak else ""
            texts.append(f"limit {size(self.limit)}{share}")
        return ", ".join(texts)


class Looked:
    """A recording, as far as it has come."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        placed = steps_in(recording)
        # The steps of all runs, in the order in which they opened
        self.steps = sorted(placed, key=lambda each: each.step.start)
        self._summaries = summary.steps_of(recording)
        curves = recording.curves
        # The launcher's curve; without one, that of the process with the highest memory
        self.curve = curves.get(LAUNCHER) or max(
            curves.values(), key=lambda each: _level(each, series.MEMORY)[1] or 0, default=None
        )

    @property
    def program(self) -> str:
        """What is run: its command, or the recording's name."""
        command = self.recording.origin.get(semconv.PROCESS_COMMAND_LINE)
        return printable(str(command or self.recording.path.name))

    def name(self, each: PlacedStep) -> str:
        """Returns the name of a step, and of its run if there are several."""
        run = f" ({process_name(each.run)})" if len(self.recording.runs) > 1 else ""
        return printable(f"{each.step.name}{run}")

    def peak(self, each: PlacedStep) -> float | None:
        """Returns the highest memory of a step."""
        return self._summaries(each).value(each.step, summary.MEMORY_PEAK)

    def memory(self) -> Usage:
        """Returns the memory of the whole: the newest figure, the peak and the limit."""
        now, _ = _level(self.curve, series.MEMORY)
        if now is None:
            read = (each.last.attributes for each in self.recording.runs if each.last is not None)
            known = (number(each, f"{semconv.READING_PREFIX}memory") for each in read)
            now = max(filter(None, known), default=None)
        limit = summary.limit(self.recording)
        peak = summary.value(self.recording, summary.MEMORY_PEAK)
        return Usage("memory", now, peak, None if limit is None else limit.value)

    def usage(self) -> Iterator[Usage]:
        """Yields what is used: memory, each GPU, the caches and what has been read and written."""
        yield self.memory()
        buckets = self.curve.curve.buckets if self.curve is not None else {}
        for name in sorted({name for bucket in buckets.values() for name in bucket.levels}):
            now, peak = _level(self.curve, name)
            gpu = series.gpu_of(name)
            if gpu is not None and gpu[1] == series.USED:
                yield Usage(f"GPU {gpu[0]}", now, peak)
            elif name == series.CACHE and peak:
                yield Usage("caches", now, peak)
        totals = buckets[max(buckets)].totals if buckets else {}
        for resource in RESOURCES:
            for figure in resource.figures:
                if figure.heading and figure.is_total and figure.curve in totals:
                    name = f"{resource.name} {figure.heading.lower()}"
                    yield Usage(name, totals[figure.curve], unit=figure.unit)


def _level(curve: RecordedCurve | None, name: str) -> tuple[float | None, float | None]:
    """Returns the newest value of a level and the highest; None where it was not read."""
    buckets = curve.curve.buckets if curve is not None else {}
    found = [buckets[at].levels[name] for at in sorted(buckets) if name in buckets[at].levels]
    return (found[-1].last, max(each.highest for each in found)) if found else (None, None)


def columns(curve: RecordedCurve, name: str, count: int) -> Sequence[float]:
    """Returns a level over time: the highest value of each of a number of equal stretches."""
    buckets = curve.curve.buckets
    last = max(buckets, default=-1) + 1
    highest = [0.0] * min(count, last)
    for position, bucket in buckets.items():
        if (level := bucket.levels.get(name)) is not None:
            at = position * len(highest) // last
            highest[at] = max(highest[at], level.highest)
    for at in range(1, len(highest)):  # a stretch without a reading is as the one before
        highest[at] = highest[at] or highest[at - 1]
    return highest


def progress(each: PlacedStep) -> list[str]:
    """Returns how far a step has come: ``sample 37 of 512``, ``about 30 min left``, and its line."""
    step, sample = each.step, ""
    if step.samples is not None or step.expected_samples is not None:
        of = f" of {step.expected_samples:,}" if step.expected_samples is not None else ""
        sample = f"sample {step.samples or 0:,}{of}"
    line = f"at {printable(step.line.short)}" if step.line is not None else ""
    return list(filter(None, (sample, time_left(each.run, step), line)))


def _ended_text(step: RecordedStep, end: float, peak: float | None) -> str:
    """Returns how a step ended: ``took 2 min 05 s, peak 7.52 GB``."""
    texts = [f"took {duration_text(end - step.start)}"]
    if peak is not None:
        texts.append(f"peak {size(peak)}")
    if step.error is not None:
        texts.append(printable(": ".join(filter(None, (step.error, step.error_message)))))
    return ", ".join(texts)


_EVERY: Final = 30.0
"""Seconds between two lines that say how the run goes on."""


class PlainView:
    """Tells what has changed since it was asked last."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], bool] = {}  # whether the step had ended
        self._next = 0.0

    def lines(self, recording: Recording) -> Iterator[str]:
        """Yields what is new."""
        looked, now = Looked(recording), recording.duration
        news: list[tuple[float, str]] = []
        if not self._next:
            self._next = _EVERY
            news.append((0.0, looked.program))
        for each in looked.steps:
            step, key, text = each.step, (each.run.id, each.step.index), looked.name(each)
            if key not in self._told:
                news.append((step.start, f"{text} began"))
            if step.end is not None and not self._told.get(key, False):
                verb = "failed" if step.error is not None else "ended"
                how = _ended_text(step, step.end, looked.peak(each))
                news.append((step.end, f"{text} {verb}: {how}"))
            self._told[key] = step.end is not None
        news.sort(key=lambda each: each[0])
        if recording.state != "running":
            news.append((now, f"{ended_as(recording)} after {duration_text(now)}"))
        elif now >= self._next:
            self._next = now + _EVERY
            news.append((now, _now(looked)))
        for at, text in news:
            clock = time.localtime(recording.began_ns / 1e9 + at)
            yield f"{time.strftime('%H:%M:%S', clock)} {text}"


def _now(looked: Looked) -> str:
    texts = [
        ", ".join(filter(None, (looked.name(each), *progress(each), exceeded(each.run, each.step))))
        for each in looked.steps
        if each.step.state == "running"
    ]
    return "; ".join((*texts, f"memory {looked.memory().text}"))
