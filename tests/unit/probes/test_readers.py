"""The two clocks of a reading tell the same moment, whatever happens between reading them."""

from __future__ import annotations

import pytest

from otel_quant.probes import readers
from otel_quant.probes.readers import Probes

LOST = 5_000_000
"""Nanoseconds for which a thread does not run when another has the processor."""

EPOCH = 1_700_000_000_000_000_000


class Clocks:
    """Stands for the module ``time`` in a thread that loses the processor between two calls.

    Args:
        loses_after: Calls after which it does, from 1.
    """

    def __init__(self, loses_after: set[int]) -> None:
        self._loses_after = loses_after
        self._calls = 0
        self._now = 0

    def _call(self) -> int:
        now = self._now
        self._calls += 1
        self._now += LOST if self._calls in self._loses_after else 50
        return now

    def time_ns(self) -> int:
        return EPOCH + self._call()

    def perf_counter_ns(self) -> int:
        return self._call()


@pytest.mark.parametrize("loses_after", [set(), {1}, {2}, {3}, {1, 2}, {2, 5}, {1, 4, 8}])
def test_a_reading_has_both_clocks_of_one_moment(
    monkeypatch: pytest.MonkeyPatch, loses_after: set[int]
) -> None:
    monkeypatch.setattr(readers, "time", Clocks(loses_after))

    reading = Probes().sample()

    assert reading.clock_ns - (reading.time_ns - EPOCH) == 50
