"""The live view without a terminal: a line for each step that begins or ends, and one every 30 s."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from otel_quant.recordings.model import Recording
from otel_quant.schema.units import duration_text
from otel_quant.views.forecast import exceeded, time_left
from otel_quant.views.watch import words
from otel_quant.views.watch.figures import forecast, memory, step_peaks, steps_of

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
            yield self._line(recording, 0.0, words.program(recording))
        news: list[tuple[float, str]] = []
        peak_of = step_peaks(recording)
        for line in steps_of(recording):
            key, text = (line.run.id, line.step.index), words.name(recording, line)
            if key not in self._told:
                news.append((line.step.start, f"{text} began"))
            if line.step.end is not None and not self._told.get(key, False):
                verb = "failed" if line.step.error is not None else "ended"
                news.append((line.step.end, f"{text} {verb}: {words.ended(line, peak_of(line))}"))
            self._told[key] = line.step.end is not None
        for at, text in sorted(news, key=lambda each: each[0]):
            yield self._line(recording, at, text)
        if recording.state == "running" and recording.duration >= self._next:
            self._next = recording.duration + EVERY
            yield self._line(recording, recording.duration, self._now(recording))
        if recording.state != "running":
            text = f"{words.outcome(recording)} after {duration_text(recording.duration)}"
            yield self._line(recording, recording.duration, text)

    def _now(self, recording: Recording) -> str:
        texts: list[str] = []
        for line in steps_of(recording):
            if line.step.end is None and line.step.state == "running":
                parts = (
                    words.samples(line.step),
                    time_left(forecast(line)),
                    exceeded(forecast(line)),
                )
                texts.append(", ".join(filter(None, (words.name(recording, line), *parts))))
        return "; ".join((*texts, f"memory {words.usage(memory(recording))}"))

    @staticmethod
    def _line(recording: Recording, at: float, text: str) -> str:
        clock = time.localtime(recording.began_ns / 1e9 + at)
        return f"{time.strftime('%H:%M:%S', clock)} {text}"
