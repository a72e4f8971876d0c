"""The steps that a report is about, which of them are shown, and their rows in a chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from otel_quant.recordings import summary
from otel_quant.recordings.model import STATES, WORST_FIRST, RecordedRun, Recording, State
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


@dataclass(frozen=True, slots=True)
class Subject:
    """The process whose steps are shown, or several that ran one after another, with those steps."""

    name: str  # The process in words: ``rank 3``, ``process 4711``
    runs: tuple[RecordedRun, ...]  # Its runs, in the order of their starts
    steps: tuple[ShownStep, ...]  # All of their steps, in order of time
    why: str = ""  # Why it is shown rather than another; empty if there is no other


def process_name(run: RecordedRun) -> str:
    """Returns a run's process in words."""
    return f"rank {run.rank}" if run.rank is not None else f"process {run.process}"


def memory_limit(recording: Recording) -> float | None:
    """Returns the limit of memory in force, in bytes; None if it is not known."""
    limit = summary.limit(recording)
    return None if limit is None else limit.value


def by_process(recording: Recording) -> dict[str, list[RecordedRun]]:
    """Returns the runs of each process, in the order of their starts."""
    processes: dict[str, list[RecordedRun]] = {}
    for run in recording.runs:
        processes.setdefault(run.process, []).append(run)
    return processes


def subject_of(recording: Recording) -> Subject | None:
    """Returns the process whose steps tell most: the first that did not end well, else the longest.

    Workers of another process that is recorded come after it. Processes that ran one after
    another, as a shell script starts them, are shown as one: each has done a part of the work.
    """
    processes = by_process(recording)
    if not processes:
        return None
    pids = {run.pid for run in recording.runs if run.pid is not None}
    above = [runs for runs in processes.values() if runs[0].parent_pid not in pids]
    if _one_after_another(above, recording.duration):
        above = [[run for runs in above for run in runs]]
    runs, why = _most_telling(above or list(processes.values()), recording.duration)
    steps = shown_steps(runs, recording.duration)
    return Subject(process_name(runs[0]), tuple(runs), tuple(steps), why if processes else "")


def _one_after_another(processes: list[list[RecordedRun]], until: float) -> bool:
    processes.sort(key=lambda runs: runs[0].start)
    return all(_end(before, until) <= after[0].start for before, after in pairwise(processes))


def _most_telling(
    processes: Sequence[list[RecordedRun]], until: float
) -> tuple[list[RecordedRun], str]:
    if len(processes) == 1:
        return processes[0], ""
    for state in WORST_FIRST[:-1]:
        stopped = [runs for runs in processes if any(run.state == state for run in runs)]
        if stopped and state != "running":
            first = min(stopped, key=lambda runs: _end(runs, until))
            return first, f"the first of {len(stopped):,} that {STATES[state].of_several}"
        if stopped:
            break
    longest = max(processes, key=lambda runs: _end(runs, until) - runs[0].start)
    return longest, f"the slowest of {len(processes):,}"


def _end(runs: Sequence[RecordedRun], until: float) -> float:
    return max(until if run.end is None else run.end for run in runs)
