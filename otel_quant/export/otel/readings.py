"""When a reading between two checkpoints is worth a log record, and what the record says."""

from __future__ import annotations

from typing import Any, Final

from otel_quant.export.otel import forecasts
from otel_quant.export.otel.attributes import FigureAttributes, run_ids_of
from otel_quant.schema import semconv
from otel_quant.schema.records import Reading, RunInfo, RunProgress

_SPACING: Final = 28_000_000_000
"""Nanoseconds between a record and the next reading's: with the second between two readings and
the time of delivery, what a backend knows of the memory is at most 30 s old."""

_MOVED: Final = 0.01
"""Part of the memory by which it has to change."""


class Due:
    """Decides which readings are sent."""

    def __init__(self) -> None:
        self._sent: Reading | None = None

    def note(self, reading: Reading) -> None:
        """Notes that a record with a reading is sent, that of a checkpoint or another."""
        self._sent = reading

    def is_due(self, reading: Reading) -> bool:
        """Whether memory, that of the processes or of the GPUs, has moved since the last record."""
        sent = self._sent
        if sent is None or reading.clock_ns - sent.clock_ns < _SPACING:
            return False
        return any(
            abs(now - before) > _MOVED * before
            for before, now in zip(_memory(sent), _memory(reading), strict=True)
        )


def _memory(reading: Reading) -> tuple[int, int]:
    tree = reading.memory.tree_rss if reading.memory is not None else 0
    return tree, sum(gpu.used for gpu in reading.gpus)


def attributes_of(progress: RunProgress, run: RunInfo, figures: FigureAttributes) -> dict[str, Any]:
    """Returns the attributes of a reading's record."""
    attributes: dict[str, Any] = {
        **run_ids_of(run),
        semconv.PROCESS_PID: run.pid,
        semconv.READING_ELAPSED: (progress.reading.clock_ns - progress.baseline.clock_ns) / 1e9,
        semconv.READING_MEMORY_LIMIT: run.limits.memory,
        semconv.READING_MEMORY_PEAK: progress.peaks.figures.get("memory"),
        semconv.READING_OPEN_STEPS: tuple(step.info.label for step in progress.steps) or None,
        **figures.at_reading(progress.reading, progress.baseline),
    }
    if progress.steps:
        innermost = progress.steps[-1]
        attributes |= {
            semconv.STEP_NAME: innermost.info.label,
            semconv.STEP_KIND: innermost.info.kind,
            semconv.STEP_INDEX: innermost.info.index,
            semconv.LIBRARY_NAME: innermost.info.library,
            semconv.CALIBRATION_SAMPLE_COUNT: innermost.samples,
            semconv.CALIBRATION_SAMPLE_TOTAL: innermost.expected_samples,
            **forecasts.newest_of(innermost),
        }
    return {key: value for key, value in attributes.items() if value is not None}
