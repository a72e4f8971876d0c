"""Which runs this process had, when each began and ended and how much memory it took."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opentelemetry.metrics import CallbackOptions, Observation

from otel_quant.schema import semconv
from otel_quant.schema.records import Peaks, Reading, RunInfo, RunRecord


@dataclass(slots=True)
class _Run:
    """One run."""

    began: float  # Seconds since the epoch
    identity: dict[str, str | int]  # Attributes of the point that says when it began
    ended: float | None = None  # Seconds since the epoch; None while it goes on
    # Highest memory of a run that has ended, in bytes; None if it was not measured
    peak: float | None = None

    @property
    def name(self) -> dict[str, str | int]:
        """Attributes of its other points."""
        return {semconv.RUN_NAME: self.identity[semconv.RUN_NAME]}


class RunTimes:
    """Keeps the latest run, and those that ended since the last collection.

    A run may begin and end between two collections, and the next one begin before the second:
    without its end in the metrics it would be taken for one that was killed.
    """

    def __init__(self, peaks: Callable[[], Peaks | None]) -> None:
        self._peaks = peaks
        self.forget()

    def began(self, run: RunInfo, reading: Reading, trace_id: str | None) -> None:
        """Notes that a run has begun."""
        described: dict[str, str | int | None] = {
            semconv.RUN_NAME: run.name,
            semconv.RUN_RANK: run.rank,
            semconv.PROCESS_PID: run.pid,
            semconv.RUN_TRACE_ID: trace_id,
            semconv.INPUT_NAME: run.model,
            semconv.CALIBRATION_METHOD: run.method,
            semconv.CONFIG_NAME: run.config,
        }
        identity = {key: value for key, value in described.items() if value is not None}
        with self._lock:
            self._runs[run.id] = _Run(reading.time_ns / 1e9, identity)

    def ended(self, record: RunRecord) -> None:
        """Notes that a run has ended."""
        with self._lock:
            run = self._runs.get(record.info.id)
            if run is not None:
                run.ended = record.end.time_ns / 1e9
                run.peak = record.run_peaks.figures.get("memory")

    def observe_starts(self, options: CallbackOptions) -> Iterable[Observation]:
        """Yields the start of each run."""
        return [Observation(run.began, run.identity) for run in self._kept()]

    def observe_peaks(self, options: CallbackOptions) -> Iterable[Observation]:
        """Yields the highest memory of each run so far."""
        for run in self._kept():
            peak = run.peak
            if run.ended is None and (peaks := self._peaks()) is not None:
                peak = peaks.figures.get("memory")
            if peak is not None:
                yield Observation(peak, run.name)

    def observe_ends(self, options: CallbackOptions) -> Iterable[Observation]:
        """Yields the end of each run that has ended, and drops all but the latest run."""
        kept = self._kept()
        with self._lock:
            # The rest has been observed: instruments are in the order in which they were made.
            for run in tuple(self._runs)[:-1]:
                del self._runs[run]
        return [Observation(run.ended, run.name) for run in kept if run.ended is not None]

    def forget(self) -> None:
        """Drops the runs. In a forked child, a thread that does not exist may hold the lock."""
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def _kept(self) -> tuple[_Run, ...]:
        with self._lock:
            return tuple(self._runs.values())
