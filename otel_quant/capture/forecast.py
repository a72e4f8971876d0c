"""Where an open step will be at its end: time left, and memory that grows with its samples.

The readings are kept as at most :data:`MOST_BUCKETS` buckets of equal numbers of samples, each with
its lowest and highest value. The first part of them is left out: what is allocated at the start of a
step is not growth. The rest is divided into three parts. A slope is the median of the slopes between
all pairs of buckets (the Theil-Sen estimator, which a few outliers do not move), taken for the lowest
and for the highest values; the smaller of the two counts. So saw teeth, whose lowest values stay
where they are, do not grow.

It is growth only if all three parts rise, and evenly, and nothing large has been given back. If the last part rises less than the first, the slope is
taken to go on falling by the same factor, which is exact for a figure that levels off exponentially.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final, Literal, TypeAlias

from otel_quant.schema.records import Forecast, GrowthForecast, Limits, Reading, StepProgress

MOST_BUCKETS: Final = 48
"""A fit looks at every pair of the buckets of a part."""

_FEWEST_BUCKETS: Final = 7
"""With fewer, the start left out, nothing is said."""

_START: Final = 0.2
"""Part of the samples that is taken for the start of the step."""

_PARTS: Final = 3

_FALL: Final = 0.5
"""Largest fall from a high to a later low, divided by the growth, of a figure that grows. After a
larger one it may fall again."""

_UNEVEN: Final = 2.0
"""Most by which the slope of the middle part may differ from the mean of the others: of a figure that
rises in jumps, one part has a jump and another none."""

_BEND: Final = 2.5
"""Most by which the last part may rise more than the first."""

_STEADY: Final = 0.9
"""The last part's slope divided by the first's from which growth is taken to be steady."""

_Point: TypeAlias = tuple[int, float]
"""Position of a bucket and its lowest or highest value."""

_SEEN: Final = 0.35
"""Part of the growth up to the limit that has to be seen before a warning. A leak that reaches the
limit after an hour is told of after 21 minutes; saw teeth that take less of the room are not told of
in their first tooth."""

_MOST_TIMES: Final = 256
"""Readings that the pace of the samples is taken from, the newest."""

_Key: TypeAlias = tuple[Literal["memory", "gpu"], str | None]

_MB: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """How a figure grows."""

    start: float  # What it would have been at the first sample, growth alone counted
    now: float  # What it is now, by the line
    per_sample: float  # Growth with each sample, now
    fading: float  # Factor by which the slope changes in ``width`` samples; 1 for steady growth
    width: float  # Number of samples
    samples: float  # Samples consumed so far

    def after(self, samples: int) -> float:
        """Returns what it will be after a number of samples in all."""
        left = samples - self.samples
        if left <= 0:
            return self.now
        if self.fading >= 1:
            return self.now + self.per_sample * left
        # The sum of a geometric series, for a fraction of steps too.
        steps = left / self.width
        factor = self.fading * (1 - self.fading**steps) / (1 - self.fading)
        return float(self.now + self.per_sample * self.width * factor)


class Growth:
    """The readings of one figure of a step.

    Memory is bounded, however many readings there are.
    """

    def __init__(self) -> None:
        self._width = 1
        self._lowest: dict[int, float] = {}
        self._highest: dict[int, float] = {}

    def add(self, samples: int, value: float) -> None:
        """Adds a reading."""
        position = samples // self._width
        if position in self._lowest:
            self._lowest[position] = min(self._lowest[position], value)
            self._highest[position] = max(self._highest[position], value)
            return
        self._lowest[position] = self._highest[position] = value
        while len(self._lowest) > MOST_BUCKETS:
            self._width *= 2
            self._lowest = _merged(self._lowest, min)
            self._highest = _merged(self._highest, max)

    def line(self) -> Line | None:
        """Returns how the figure grows; None if it does not, or there are too few readings."""
        # Without the last bucket: it may hold the beginning of a sample only.
        positions = sorted(self._lowest)[:-1]
        if not positions:
            return None
        newest = positions[-1]
        fall = self._largest_fall(positions)
        positions = [each for each in positions if each >= newest * _START]
        if len(positions) < _FEWEST_BUCKETS:
            return None
        lowest = [(each, self._lowest[each]) for each in positions]
        highest = [(each, self._highest[each]) for each in positions]
        first, middle, last = (
            min(_slope(_part(lowest, part)), _slope(_part(highest, part))) for part in range(_PARTS)
        )
        overall = min(_slope(lowest), _slope(highest))
        if (
            min(first, middle, last, overall) <= 0
            or not 1 / _UNEVEN < 2 * middle / (first + last) < _UNEVEN
            or last > _BEND * first
            or fall > _FALL * overall * newest
        ):
            return None
        ratio = last / first
        width = (positions[-1] - positions[0]) / _PARTS
        steady = ratio >= _STEADY
        slope = overall if steady else last
        now = _value_at(newest, _part(highest, _PARTS - 1), slope)
        return Line(
            start=now - overall * newest,
            now=now,
            per_sample=slope / self._width,
            fading=1.0 if steady else ratio ** (1 / (_PARTS - 1)),
            width=width * self._width,
            samples=float((newest + 1) * self._width - 1),  # the highest of a bucket is its last
        )

    def _largest_fall(self, positions: list[int]) -> float:
        highest, largest = self._highest[positions[0]], 0.0
        for position in positions:
            largest = max(largest, highest - self._lowest[position])
            highest = max(highest, self._highest[position])
        return largest


def _merged(values: dict[int, float], of_two: Callable[[float, float], float]) -> dict[int, float]:
    merged: dict[int, float] = {}
    for position, value in values.items():
        known = merged.get(position // 2)
        merged[position // 2] = value if known is None else of_two(known, value)
    return merged


def _part(points: list[_Point], part: int) -> list[_Point]:
    size = len(points)
    return points[size * part // _PARTS : size * (part + 1) // _PARTS]


def _slope(points: list[_Point]) -> float:
    return median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))


def _value_at(position: int, points: list[_Point], slope: float) -> float:
    return median(y + slope * (position - x) for x, y in points)


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
        at_end = line.after(self._expected)
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
