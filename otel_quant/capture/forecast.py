"""Where an open step will be at its end: time left, and memory that grows with its samples.

The readings are kept as the lowest values of at most :data:`MOST_BUCKETS` buckets of equal numbers of samples. The
first part of them is left out: what is allocated at the start of a step is not growth. A slope is the median of the
slopes between all pairs of buckets (the Theil-Sen estimator, which a few outliers do not move), taken of the whole
and of three parts. It is growth only if all three parts rise, evenly, and nothing large has been given back: saw
teeth, jumps and what levels off do not grow.
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate, combinations
from statistics import median
from typing import Final, Literal, NamedTuple, TypeAlias

from otel_quant.schema.records import Forecast, GrowthForecast, Limits, Reading, StepProgress

MOST_BUCKETS: Final = 48
"""A fit looks at every pair of the buckets of a part."""

_FEWEST_BUCKETS: Final = 7
"""With fewer, the start left out, nothing is said."""

_START: Final = 0.2
"""Part of the samples that is taken for the start of the step."""

_FALL: Final = 0.35
"""Largest fall to a later low, divided by the growth, of a figure that grows. After a larger one it may fall again."""

_UNEVEN: Final = 2.0
"""Most by which the slope of the middle part may differ from the mean of the others: of a figure that
rises in jumps, one part has a jump and another none."""

_STEADY: Final = (0.7, 2.5)
"""The least and the most that the last part may rise, divided by the first's rise: else it levels off, or jumps."""

_Point: TypeAlias = tuple[int, float]
"""Position of a bucket and its lowest value."""

_SEEN: Final = 0.35
"""Part of the growth up to the limit that has to be seen before a warning. A leak that reaches the
limit after an hour is told of after 21 minutes; saw teeth that take less of the room are not told of
in their first tooth."""

_MOST_TIMES: Final = 256
"""Readings that the pace of the samples is taken from, the newest."""

_Key: TypeAlias = tuple[Literal["memory", "gpu"], str | None]

_MB: Final = 1_000_000


class Line(NamedTuple):
    """How a figure grows."""

    start: float  # What it would have been at the first sample, growth alone counted
    now: float  # What it is now, by the line
    per_sample: float
    samples: int  # Samples consumed so far


class Growth:
    """The readings of one figure of a step, in bounded memory."""

    def __init__(self) -> None:
        self._width = 1
        self._lowest: dict[int, float] = {}

    def add(self, samples: int, value: float) -> None:
        """Adds a reading."""
        position = samples // self._width
        self._lowest[position] = min(value, self._lowest.get(position, value))
        while len(self._lowest) > MOST_BUCKETS:
            self._width *= 2
            merged: dict[int, float] = {}
            for position, lowest in self._lowest.items():
                merged[position // 2] = min(lowest, merged.get(position // 2, lowest))
            self._lowest = merged

    def line(self) -> Line | None:
        """Returns how the figure grows; None if it does not, or there are too few readings."""
        # Without the last bucket: it may hold the beginning of a sample only.
        every = sorted(self._lowest.items())[:-1]
        newest = every[-1][0] if every else 0
        points = [point for point in every if point[0] >= newest * _START]
        size = len(points)
        if size < _FEWEST_BUCKETS:
            return None
        parts = [points[size * n // 3 : size * (n + 1) // 3] for n in range(3)]
        first, middle, last = map(_slope, parts)
        slope = _slope(points)
        values = [value for _, value in every]
        fall = max(high - low for high, low in zip(accumulate(values, max), values, strict=True))
        least, most = _STEADY
        if (
            min(first, middle, last, slope) <= 0
            or not 1 / _UNEVEN < 2 * middle / (first + last) < _UNEVEN
            or not least * first <= last <= most * first
            or fall > _FALL * slope * newest
        ):
            return None
        now = median(value + slope * (newest - position) for position, value in parts[-1])
        # What grows is lowest at the first sample of its bucket.
        return Line(now - slope * newest, now, slope / self._width, newest * self._width)


def _slope(points: list[_Point]) -> float:
    return median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))


class StepForecast:
    """Follows one step."""

    def __init__(self, expected_samples: int, limits: Limits) -> None:
        self._expected = expected_samples
        self._limits = limits
        self._growths: dict[_Key, Growth] = {}
        self._limit_of: dict[_Key, int] = {}
        self._warned: set[_Key] = set()
        self._samples = 0
        self._times: deque[tuple[int, int]] = deque(maxlen=_MOST_TIMES)  # samples, monotonic ns

    def add(self, samples: int, reading: Reading) -> None:
        """Adds a reading."""
        if samples > self._samples:
            self._samples = samples
            self._times.append((samples, reading.clock_ns))
        if reading.memory is not None and self._limits.memory is not None:
            self._add(("memory", None), samples, reading.memory.tree_rss, self._limits.memory)
        for gpu in reading.gpus:
            if gpu.limit is not None:
                self._add(("gpu", gpu.id), samples, gpu.used, gpu.limit)

    def result(self, clock_ns: int) -> Forecast:
        """Returns the forecast."""
        forecasts = (self._growth(key) for key in self._growths)
        return Forecast(self._time_left(clock_ns), tuple(each for each in forecasts if each))

    def _add(self, key: _Key, samples: int, value: int, limit: int) -> None:
        if key not in self._growths:
            self._growths[key] = Growth()
        self._limit_of[key] = limit
        self._growths[key].add(samples, value)

    def _growth(self, key: _Key) -> GrowthForecast | None:
        line = self._growths[key].line()
        if line is None:
            return None
        limit = self._limit_of[key]
        at_end = line.now + line.per_sample * max(0, self._expected - line.samples)
        if at_end > limit and line.now - line.start >= _SEEN * (limit - line.start):
            self._warned.add(key)
        return GrowthForecast(
            key[0], round(at_end), round(line.per_sample), limit, key[1], key in self._warned
        )

    def _time_left(self, clock_ns: int) -> float | None:
        left = self._expected - self._samples
        if len(self._times) < 2 or left < 0:
            return None
        # The first half may hold what is done once: sessions, compilation.
        samples, started_ns = self._times[len(self._times) // 2 if len(self._times) > 3 else 0]
        newest, seen_ns = self._times[-1]
        if newest == samples:
            return None
        per_sample = (seen_ns - started_ns) / (newest - samples)
        return max(0.0, (left * per_sample - (clock_ns - seen_ns)) / 1e9)


def sentence(step: StepProgress, growth: GrowthForecast, limits: Limits) -> str:
    """Returns a warning in words."""
    what, limit = f"memory of GPU {growth.device}", "it has"
    if growth.device is None:
        what, limit = "memory", f"the limit ({limits.memory_source}) is"
    return (
        f"{step.info.label}, sample {step.samples} of {step.expected_samples}: {what} grows by "
        f"{growth.per_sample / _MB:,.1f} MB with each sample and would be "
        f"{growth.at_end / _MB:,.0f} MB after the last one (estimated); {limit} "
        f"{growth.limit / _MB:,.0f} MB. Fewer or smaller samples, or a calibration method that keeps "
        "less, would help"
    )
