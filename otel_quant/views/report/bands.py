"""The steps of a report: which are shown, and in which row of the chart each one is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from otel_quant.recordings.model import RecordedRun, State
from otel_quant.recordings.steps import PlacedStep, placed_steps

MOST_STEPS: Final = 250
"""Steps that are shown: the table, the chart and the file stay readable."""

ROWS: Final = 6
"""Rows of bands; steps that are nested deeper have none."""


@dataclass(slots=True)
class ShownStep(PlacedStep):
    """A step with its place, also in the chart."""

    row: int = 0  # Of its band, from 0; a step beside another of its depth has a further row

    @property
    def state(self) -> State:
        """How it stands."""
        return self.step.state


def shown_steps(runs: Iterable[RecordedRun], until: float) -> list[ShownStep]:
    """Returns the steps of runs in order of time, each in a row of its own at its time."""
    shown: list[ShownStep] = []
    free_from: list[float] = []
    for run in runs:
        rows: dict[int, int] = {}
        every = placed_steps([run], until)
        for each in sorted(every, key=lambda each: (each.step.start, each.step.index)):
            step = each.step
            row = 0 if each.depth == 0 or step.parent not in rows else rows[step.parent] + 1
            while row < len(free_from) and free_from[row] > step.start:
                row += 1
            free_from += [0.0] * (row + 1 - len(free_from))
            free_from[row] = each.end
            rows[step.index] = row
            shown.append(ShownStep(step, run, each.depth, each.path, each.end, each.own, row))
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
