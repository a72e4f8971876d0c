"""Where an open step will be at its end: time left, and memory that grows with its samples."""

from __future__ import annotations

from collections import deque
from typing import Final, Literal, TypeAlias

from otel_quant.base.growth import Growth
from otel_quant.schema.records import Forecast, GrowthForecast, Limits, Reading, StepProgress
from otel_quant.schema.stacks import Place

_SEEN: Final = 0.35
"""Part of the growth up to the limit that has to be seen before a warning. A leak that reaches the
limit after an hour is reported after 21 minutes; saw teeth that take less of the room are not reported
in their first tooth."""

_MOST_TIMES: Final = 256
"""Readings that the pace of the samples is taken from, the newest."""

_STALL_NS: Final = 20_000_000_000
_STALL_TIMES: Final = 10
"""A step has stalled if no sample came for both: this long, and so many times as long as the longest so far took."""

_Key: TypeAlias = tuple[Literal["memory", "gpu"], str | None]

_MB: Final = 1_000_000


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
        self._longest_ns = 0  # Between two of them

    def add(self, samples: int, reading: Reading) -> None:
        """Adds a reading."""
        if samples > self._samples:
            self._samples = samples
            if self._times:
                self._longest_ns = max(self._longest_ns, reading.clock_ns - self._times[-1][1])
            self._times.append((samples, reading.clock_ns))
        if reading.memory is not None and self._limits.memory is not None:
            self._add(("memory", None), samples, reading.memory.tree_rss, self._limits.memory)
        for gpu in reading.gpus:
            if gpu.limit is not None:
                self._add(("gpu", gpu.id), samples, gpu.used, gpu.limit)

    def result(self, clock_ns: int) -> Forecast:
        """Returns the forecast."""
        forecasts = (self._growth(key) for key in self._growths)
        growths, stalled = tuple(each for each in forecasts if each), self._stalled(clock_ns)
        return Forecast(self._time_left(clock_ns) if stalled is None else None, growths, stalled)

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

    def _stalled(self, clock_ns: int) -> float | None:
        # After the last sample none is waited for.
        if len(self._times) < 3 or self._samples >= self._expected:
            return None
        silent_ns = clock_ns - self._times[-1][1]
        is_long = silent_ns > max(_STALL_NS, _STALL_TIMES * self._longest_ns)
        return silent_ns / 1e9 if is_long else None

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


def stall(step: StepProgress, seconds: float, line: Place | None) -> str:
    """Returns in words that a step has stalled, and where it was last seen."""
    at = f", at {line.short}" if line is not None else ""
    return (
        f"{step.info.label}, sample {step.samples} of {step.expected_samples}: no further sample for "
        f"{seconds:.0f} s, many times as long as any before{at}"
    )


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
