"""Where a figure that grows with the samples of a step will be after the last one.

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

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final, TypeAlias

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
