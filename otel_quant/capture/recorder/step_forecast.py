"""Where an open step will be at its end."""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

from otel_quant.diagnosis.growth import Growth
from otel_quant.schema.dataclass import dataclass, field
from otel_quant.schema.readings import Forecast, GrowthForecast, Limits, Reading

_SEEN: Final = 0.35
"""Part of the growth up to the limit that has to be seen before a warning. A leak that reaches the
limit after an hour is reported after 21 minutes; saw teeth that take less of the room are not reported
in their first tooth."""

_MOST_TIMES: Final = 256  # Readings that the pace is taken from, the newest
_STALL: Final = 20.0
_STALL_TIMES: Final = 10
"""A step has stalled if no sample or layer came for both: seconds, and so many times as long as the longest so far took."""

_STILL: Final = 30.0
"""Seconds for which a step is at one line, while nothing of the program runs, from which on it has stalled."""


@dataclass(slots=True)
class StallWatch:
    """How the samples of a step come, or its layers."""

    done: int = 0
    longest: float = 0.0  # Seconds between two of them; in the first much may be done once
    newest_ns: int = 0  # Monotonic clock, when the newest was counted

    def count(self, done: int, clock_ns: int) -> None:
        """Notes that so many have begun."""
        if done > max(self.done, 2):
            self.longest = max(self.longest, (clock_ns - self.newest_ns) / 1e9)
        self.done, self.newest_ns = done, clock_ns

    def stalled(self, clock_ns: int, expected: int | None, still: float) -> float | None:
        """Returns for how many seconds nothing has moved, if that is far too long.

        `still`: seconds at one line while nothing of the program ran. After the last of what is expected none is waited for.
        """
        usual = _STALL_TIMES * self.longest if self.done >= _FEWEST else 0.0
        silent = (clock_ns - self.newest_ns) / 1e9
        if self.done >= _FEWEST and self.done < (expected or 0) and silent > max(_STALL, usual):
            return silent
        return still if still > max(_STILL, usual) else None


_FEWEST: Final = 3  # Samples or layers from which on the next one can be called late


@dataclass(slots=True)
class _Level:
    """Memory that may grow with the samples or layers."""

    resource: Literal["memory", "gpu"]
    device: str | None  # Identifier of the GPU; None for the process tree
    limit: int = 0  # bytes
    growth: Growth = field(default_factory=Growth)
    is_warning: bool = False  # From the first time on

    def forecast(self, expected: int, unit: str) -> GrowthForecast | None:
        """Returns where it will be after the last sample or layer; None before that can be told."""
        line = self.growth.line()
        if line is None:
            return None
        at_end = line.now + line.per_sample * max(0, expected - line.samples)
        if at_end > self.limit and line.now - line.start >= _SEEN * (self.limit - line.start):
            self.is_warning = True
        per_unit, warns = round(line.per_sample), self.is_warning
        return GrowthForecast(
            self.resource, round(at_end), per_unit, self.limit, self.device, warns, unit
        )


class StepForecast:
    """Follows the samples or the layers of one step."""

    def __init__(self, expected: int, limits: Limits, unit: str = "sample") -> None:
        self.unit = unit
        self._expected = expected
        self._limits = limits
        self._levels: dict[str | None, _Level] = {}  # By identifier of the GPU; None for memory
        self._samples = 0
        self._times: deque[tuple[int, int]] = deque(maxlen=_MOST_TIMES)  # samples, monotonic ns

    def add(self, samples: int, reading: Reading, most: int | None = None) -> None:
        """Adds a reading, with that RSS of the process at most: what a sample takes beyond it may be given back."""
        if samples > self._samples:
            self._samples = samples
            self._times.append((samples, reading.clock_ns))
        if reading.memory is not None:
            self._add(None, samples, reading.memory.within(most), self._limits.memory)
        for gpu in reading.gpus:
            self._add(gpu.id, samples, gpu.used, gpu.limit)

    def result(self, clock_ns: int) -> Forecast:
        """Returns the forecast."""
        forecasts = (level.forecast(self._expected, self.unit) for level in self._levels.values())
        return Forecast(self._time_left(clock_ns), tuple(filter(None, forecasts)))

    def _add(self, device: str | None, samples: int, value: int, limit: int | None) -> None:
        if limit is None:
            return
        if device not in self._levels:
            self._levels[device] = _Level("memory" if device is None else "gpu", device)
        level = self._levels[device]
        level.limit = limit
        level.growth.add(samples, value)

    def _time_left(self, clock_ns: int) -> float | None:
        left = self._expected - self._samples
        left += left >= 0 and self.unit == "layer"  # most of a step's time may be in its last layer
        if len(self._times) < 2 or left < 0:
            return None
        # The first half may hold what is done once: sessions, compilation.
        samples, started_ns = self._times[len(self._times) // 2 if len(self._times) > 3 else 0]
        newest, seen_ns = self._times[-1]
        per_sample = (seen_ns - started_ns) / (newest - samples)
        return max(0.0, (left * per_sample - (clock_ns - seen_ns)) / 1e9)
