"""Decides whether a figure goes on growing: memory with the samples of a step, or with its time.

The readings are kept as the lowest values of at most :data:`_MOST_BUCKETS` buckets of equal numbers of samples. The
first part of them is left out: what is allocated at the start of a step is not growth. A slope is the median of the
slopes between all pairs of buckets (the Theil-Sen estimator, which a few outliers do not move), of the complete
series and of three parts. It is growth only if all three parts rise, evenly, and nothing large has been given back: saw
teeth, jumps and what levels off do not grow.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, combinations
from typing import Final, NamedTuple, TypeAlias

_MOST_BUCKETS: Final = 48  # A fit looks at every pair of the buckets of a part
_FEWEST_BUCKETS: Final = 7  # With fewer, the start left out, growth is not judged
_START: Final = 0.2  # Part of the samples that is taken for the start of the step

_FALL: Final = 0.35
"""Largest fall to a later low, divided by the growth, of a figure that grows. After a larger one it may fall again."""

_UNEVEN: Final = 2.0
"""Most by which the slope of the middle part may differ from the mean of the others: of a figure that
rises in jumps, one part has a jump and another none."""

_STEADY: Final = (0.7, 2.5)
"""The least and the most that the last part may rise, divided by the first's rise: else it levels off, or jumps."""

_Point: TypeAlias = tuple[int, float]  # Position of a bucket and its lowest value


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
        while len(self._lowest) > _MOST_BUCKETS:
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


def median(values: Iterable[float]) -> float:
    """Returns the median of values, with a module that takes 2 ms of a command or a start to load: only now."""
    import statistics

    return statistics.median(values)
