"""How a run ended that has not said so itself, as its spans and a log record tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_quant.recordings.model import Ending, RecordedRun, Recording
from otel_quant.schema import semconv
from otel_quant.views.ending import ending_lines


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a run that was killed, or is gone."""

    time: float  # When, in seconds since the recording began
    error: str  # What ended it: the name of a signal, else ``lost``
    lines: tuple[str, ...]  # What is to be said of it, the most important first
    # What the launcher has seen; empty without one
    attributes: Mapping[str, Any] = field(default_factory=dict)
    is_told: bool = False  # Whether the launcher knows what happened


def cut_of(run: RecordedRun, recording: Recording) -> Cut | None:
    """Returns how a run ended that has not said so itself."""
    if run.end is not None:
        return None
    ending = recording.ending
    lost = ("the process is gone and has not said why",)
    if ending is None:
        return Cut(_latest(run), "lost", lost)
    lines = tuple(ending_lines(ending))
    return Cut(
        time=max(run.start, ending.time),
        error=ending.signal or ending.process_signal or "lost",
        lines=lines or lost,
        attributes=_attributes_of(ending),
        is_told=bool(lines),
    )


def _attributes_of(ending: Ending) -> dict[str, Any]:
    attributes = {
        semconv.ENDING_SIGNAL: ending.signal or ending.process_signal,
        semconv.ENDING_OUT_OF_MEMORY: ending.out_of_memory,
        semconv.ENDING_EVIDENCE: ending.evidence,
        semconv.ENDING_OPEN_STEPS: ending.open_steps or None,
        semconv.ENDING_MEMORY: ending.memory,
        semconv.ENDING_MEMORY_LIMIT: ending.memory_limit,
        semconv.ENDING_MEMORY_LIMIT_SOURCE: ending.memory_limit_source,
        semconv.ENDING_MEMORY_PER_SAMPLE: ending.memory_per_sample,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _latest(run: RecordedRun) -> float:
    """Returns the last time that is known of a run."""
    return max(
        run.start,
        *(checkpoint.time for checkpoint in run.checkpoints),
        *(time for step in run.steps for time, _ in step.progress[-1:]),
        *([run.last.time] if run.last is not None else []),
    )
