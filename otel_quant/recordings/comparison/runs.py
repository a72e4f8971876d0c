"""A run as it is compared: its figures, and its steps by names that the next run has too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from otel_quant.recordings.comparison.figures import (
    Figures,
    figures_of,
    figures_of_steps,
    outermost_runs,
)
from otel_quant.recordings.comparison.waits import processors, waits_between
from otel_quant.recordings.model import RecordedStep, Recording, State

StepPath: TypeAlias = tuple[tuple[str, int], ...]
"""The steps around a step and the step itself: the name of each, and which of that name it is within
the one around it, from 1. The path of the whole is empty."""

TOTAL: Final[StepPath] = ()

Standing = Literal["whole", "failed", "partial"]
"""Whether a recording has a run that ended well, one that failed, or only a part of one."""

_PARTIAL: Final[Mapping[State, str]] = {
    "running": "is still running",
    "lost": "has no end: the file is cut, or its process was killed",
}


@dataclass(frozen=True, slots=True)
class ComparedStep:
    """A step."""

    step: RecordedStep  # The step
    figures: Figures  # Its figures


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A recording."""

    name: str  # Its path, as it was given
    recording: Recording  # What was read
    total: Figures  # Figures of the whole
    steps: Mapping[StepPath, ComparedStep]  # Its steps, in the order in which they opened
    standing: Standing  # Whether it is whole
    why: str  # Why it is not: ``is still running``; empty if it is
    cpus: float | None  # How many processors it could use; None if that is not known


def compared_run(name: str, recording: Recording) -> ComparedRun:
    """Returns a recording as it is compared."""
    standing, why = _standing(recording)
    return ComparedRun(
        name=name,
        recording=recording,
        total=figures_of(recording),
        steps=dict(_steps(recording)),
        standing=standing,
        why=why,
        cpus=processors(recording),
    )


def path_text(path: StepPath) -> str:
    """Returns a path in words: ``Model Quantization > Layer #2``, ``total``."""
    return " > ".join(map(_place_text, path)) or "total"


def name_text(path: StepPath) -> str:
    """Returns the last part of a path: ``Layer #2``, ``total``."""
    return _place_text(path[-1]) if path else "total"


def _place_text(place: tuple[str, int]) -> str:
    name, occurrence = place
    return name if occurrence == 1 else f"{name} #{occurrence}"


def _steps(recording: Recording) -> Iterator[tuple[StepPath, ComparedStep]]:
    """Yields the steps of all processes; those of the first have no process in their path."""
    processes = list(dict.fromkeys(run.process for run in recording.runs))
    seen: Counter[tuple[StepPath, str]] = Counter()
    waits = waits_between(recording)
    found: list[tuple[float, int, StepPath, ComparedStep]] = []
    for run in recording.runs:
        number = processes.index(run.process)
        above = TOTAL
        if number:
            rank = f"rank {run.rank}" if run.rank is not None else f"process {number + 1}"
            above = ((rank, 1),)
        figures = figures_of_steps(run, waits)
        paths: dict[int, StepPath] = {}
        for step in sorted(run.steps, key=lambda each: each.index):
            around = above if step.parent is None else paths.get(step.parent, above)
            seen[around, step.name] += 1
            path = paths[step.index] = (*around, (step.name, seen[around, step.name]))
            found.append((step.start, number, path, ComparedStep(step, figures[step.index])))
    if len(processes) > 1:
        found.sort(key=lambda each: (each[1], each[0]))
    yield from ((path, step) for _, _, path, step in found)


def _standing(recording: Recording) -> tuple[Standing, str]:
    if recording.state in ("failed", "killed"):
        return "failed", _failure(recording)
    if recording.state != "ended":
        return "partial", _PARTIAL[recording.state]
    outermost = list(outermost_runs(recording))
    if not outermost:
        return "partial", "has no run: the program has opened no step"
    if any(run.end is None for run in outermost):
        return "partial", _PARTIAL["lost"]
    if recording.problems:
        return "partial", f"could not be read whole: {recording.problems[0]}"
    return "whole", ""


def _failure(recording: Recording) -> str:
    ending = recording.ending
    error = next((run.error for run in recording.runs if run.error), None)
    if ending is not None and ending.signal is not None:
        how = f"was killed by {ending.signal}"
    elif error is not None:
        how = f"failed with {error}"
    elif ending is not None and ending.exit_code:
        how = f"failed with exit code {ending.exit_code}"
    else:
        how = "failed"
    stopped = [step for run in recording.runs for step in run.steps if step.state != "ended"]
    return f"{how} in {stopped[-1].name}" if stopped else how
