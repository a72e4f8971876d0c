"""Both clocks of a reading are read at the same moment, even if the thread is suspended."""

from __future__ import annotations

import pytest

from otel_quant.capture.probes import readers
from otel_quant.capture.probes.readers import Probes

SUSPENDED = 5_000_000
"""Nanoseconds for which a thread does not run."""

EPOCH = 1_700_000_000_000_000_000


class Clocks:
    """Replaces the module ``time`` in a thread that is suspended between two calls.

    Args:
        suspended_after: Calls after which the thread is suspended, from 1.
    """

    def __init__(self, suspended_after: set[int]) -> None:
        self._suspended_after = suspended_after
        self._calls = 0
        self._now = 0

    def _call(self) -> int:
        now = self._now
        self._calls += 1
        self._now += SUSPENDED if self._calls in self._suspended_after else 50
        return now

    def time_ns(self) -> int:
        return EPOCH + self._call()

    def perf_counter_ns(self) -> int:
        return self._call()


@pytest.mark.parametrize("suspended_after", [set(), {1}, {2}, {3}, {1, 2}, {2, 5}, {1, 4, 8}])
def test_both_clocks_of_a_reading_are_of_the_same_moment(
    monkeypatch: pytest.MonkeyPatch, suspended_after: set[int]
) -> None:
    monkeypatch.setattr(readers, "time", Clocks(suspended_after))

    reading = Probes().sample()

    assert reading.clock_ns - (reading.time_ns - EPOCH) == 50
