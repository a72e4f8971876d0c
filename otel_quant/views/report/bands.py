"""The steps of a report: which are shown, and in which row of the chart each one is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from otel_quant.recordings.model import RecordedRun, RecordedStep, State

MOST_STEPS: Final = 250
"""Steps that are shown: the table, the chart and the file stay readable."""

ROWS: Final = 6
"""Rows of bands; steps that are nested deeper have none."""


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step with its place."""

    step: RecordedStep  # The step
    run: RecordedRun  # Its run
    depth: int  # Steps around it
    row: int  # Row of its band, from 0; a step beside another of its depth has a further row
    end: float  # When it ended; of an open step the end of what is known
    path: tuple[str, ...]  # Names of the steps around it and its own, outermost first

    @property
    def duration(self) -> float:
        """Seconds from its start to its end, or to the end of what is known."""
        return max(0.0, self.end - self.step.start)

    @property
    def state(self) -> State:
        """How it stands."""
        return self.step.state


def shown_steps(runs: Iterable[RecordedRun], until: float) -> list[ShownStep]:
    """Returns the steps of runs in order of time, each in a row of its own at its time."""
    shown: list[ShownStep] = []
    free_from: list[float] = []
    for run in runs:
        places: dict[int, ShownStep] = {}
        for step in sorted(run.steps, key=lambda step: (step.start, step.index)):
            above = places.get(step.parent) if step.parent is not None else None
            end = step.end if step.end is not None else max(until, step.start)
            row = 0 if above is None else above.row + 1
            while row < len(free_from) and free_from[row] > step.start:
                row += 1
            free_from += [0.0] * (row + 1 - len(free_from))
            free_from[row] = end
            depth, names = (0, ()) if above is None else (above.depth + 1, above.path)
            place = ShownStep(step, run, depth, row, end, (*names, step.name))
            places[step.index] = place
            shown.append(place)
    return shown


def most_telling(steps: Sequence[ShownStep]) -> list[ShownStep]:
    """Returns the steps to show: those that did not end well, then the longest, in their order."""
    if len(steps) <= MOST_STEPS:
        return list(steps)
    ranked = sorted(
        range(len(steps)),
        key=lambda at: (
            steps[at].state == "ended",
            -round(steps[at].duration, 6),  # microseconds are noise: of equal ones the first
            steps[at].depth,
        ),
    )
    return [steps[at] for at in sorted(ranked[:MOST_STEPS])]


def step_at(steps: Iterable[ShownStep], time: float) -> ShownStep | None:
    """Returns the innermost step that was open at a time; None if none was."""
    within = [step for step in steps if step.step.start <= time <= step.end]
    return max(within, key=lambda step: (step.depth, step.step.start), default=None)
