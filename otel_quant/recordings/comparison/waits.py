"""What the wait for a processor makes of a time: what a run would have taken on a machine of its own.

The main thread's wait is lost time. Other threads' waits may be: the main thread may wait for what
they do, or do something else meanwhile. And a busy machine computes slower too, because programs share
caches and cores. Of 380 pairs of identical runs on a busy machine the waits of all threads alone did not
explain the difference of a step in up to 54, twice as much did in all.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final

from otel_quant.recordings.attributes import numbers
from otel_quant.recordings.comparison.figures import (
    CPU_TIME,
    CPU_WAIT,
    CPU_WAITS,
    DURATION,
    LAUNCHER,
    SAMPLE_RATE,
    Figures,
)
from otel_quant.recordings.model import Recording
from otel_quant.schema import semconv, series

_LOST: Final = 2
"""Seconds that may be lost for each second that a thread waits."""


def waits_between(recording: Recording) -> Callable[[float, float], float | None]:
    """Returns a function that tells for how long all threads waited between two moments, at most."""
    recorded = recording.curves.get(LAUNCHER)
    if recorded is None:
        return lambda start, end: None
    length = recorded.curve.length / 1000
    begin = (recorded.began_ns - recording.began_ns) / 1e9
    buckets = [each for each in recorded.curve.buckets.values() if series.CPU_WAITS in each.totals]
    starts = [begin + each.position * length for each in buckets]
    sums = [0.0, *(each.totals[series.CPU_WAITS] for each in buckets)]

    def between(start: float, end: float) -> float | None:
        if not buckets:
            return None
        before = bisect_right(starts, start - length)  # buckets that had ended
        after = bisect_left(starts, end) + 1  # and one that had not begun
        return sums[min(after, len(buckets))] - sums[before]

    return between


def processors(recording: Recording) -> float | None:
    """Returns how many processors the program may use; None if that is not known."""
    known = (recording.origin, *(run.attributes for run in recording.runs))
    return min(filter(None, numbers(known, semconv.CPU_LIMIT)), default=None)


def alone(name: str, figures: Figures, cpus: float | None) -> tuple[float, float]:
    """Returns what a figure would have been on a machine of its own."""
    value, seconds = figures[name], figures.get(DURATION, 0.0)
    wait = figures.get(CPU_WAIT, 0.0)
    # A program that uses all processors itself waits for itself.
    busy = min(seconds, figures.get(CPU_TIME, 0.0) / cpus) if cpus else 0.0
    left = max(busy, seconds - wait)
    least = max(0.0, seconds - _LOST * max(wait, figures.get(CPU_WAITS, 0.0)))
    if name == DURATION:
        return left, least
    if name == CPU_TIME and seconds:  # a thread that waits for another may spin
        return value, value * least / seconds
    if name == SAMPLE_RATE and seconds:
        samples = value * seconds
        return samples / left if left else value, samples / least if least else math.inf
    return value, value
