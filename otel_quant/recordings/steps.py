"""The steps of runs as a tree: where each one is, until when, and what no step within it took."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from otel_quant.recordings.model import RecordedRun, RecordedStep, Recording

StepPath: TypeAlias = tuple[tuple[str, int], ...]
"""The steps around a step and the step itself: the name of each, and which of that name it is within
the one around it, from 1. The path of the whole is empty."""


@dataclass(slots=True)
class PlacedStep:
    """A step with its place."""

    step: RecordedStep
    run: RecordedRun
    depth: int  # Steps around it
    path: StepPath
    end: float  # When it ended; of an open step the end of what is known
    own: float  # Seconds that no step within it took

    @property
    def duration(self) -> float:
        """Seconds from its start to its end, or to the end of what is known."""
        return max(0.0, self.end - self.step.start)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the steps around it and its own, outermost first."""
        return tuple(name for name, _ in self.path)


def steps_in(
    recording: Recording, runs: Sequence[RecordedRun] | None = None
) -> Sequence[PlacedStep]:
    """Returns the steps of a recording, or of some of its runs, as :func:`placed_steps` does."""
    every = recording.memo.get("steps")
    if every is None:
        every = recording.memo["steps"] = placed_steps(recording.runs, recording.duration)
    if runs is None or len(runs) == len(recording.runs):
        return every
    wanted = set(map(id, runs))
    return [each for each in every if id(each.run) in wanted]


def placed_steps(runs: Iterable[RecordedRun], until: float) -> list[PlacedStep]:
    """Returns the steps of runs: run by run, in the order in which they opened."""
    placed: list[PlacedStep] = []
    seen: dict[tuple[str, StepPath], dict[str, int]] = {}
    for run in runs:
        places: dict[int | None, PlacedStep] = {}
        for step in sorted(run.steps, key=lambda each: each.index):
            above = places.get(step.parent)
            depth, around = (0, ()) if above is None else (above.depth + 1, above.path)
            names = seen.setdefault((run.process, around), {})
            number = names[step.name] = names.get(step.name, 0) + 1
            end = step.end if step.end is not None else max(until, step.start)
            seconds = max(0.0, end - step.start)
            place = PlacedStep(step, run, depth, (*around, (step.name, number)), end, seconds)
            places[step.index] = place
            if above is not None:
                above.own = max(0.0, above.own - seconds)
            placed.append(place)
    return placed


def covered(steps: Sequence[PlacedStep]) -> float:
    """Returns the seconds in which a step was open."""
    seconds, until = 0.0, -math.inf
    for each in sorted(steps, key=lambda step: step.step.start):
        seconds += max(0.0, each.end - max(each.step.start, until))
        until = max(until, each.end)
    return seconds


def step_at(steps: Iterable[PlacedStep], time: float) -> PlacedStep | None:
    """Returns the innermost step that was open at a time; None if none was."""
    within = [each for each in steps if each.step.start <= time <= each.end]
    return max(within, key=lambda each: (each.depth, each.step.start), default=None)


def name_text(path: StepPath) -> str:
    """Returns the last part of a path: ``Layer #2``, ``total``."""
    return _place_text(path[-1]) if path else "total"


def path_text(path: StepPath) -> str:
    """Returns a path in words: ``Model Quantization > Layer #2``, ``total``."""
    return " > ".join(map(_place_text, path)) or "total"


def _place_text(place: tuple[str, int]) -> str:
    name, occurrence = place
    return name if occurrence == 1 else f"{name} #{occurrence}"
