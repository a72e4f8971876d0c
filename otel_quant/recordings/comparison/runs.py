"""A run as it is compared: its figures, and its steps by names and times that the next run has too."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from otel_quant.recordings import summary
from otel_quant.recordings.model import RecordedStep, Recording, State
from otel_quant.recordings.steps import StepPath, placed_steps

Figures: TypeAlias = Mapping[str, float]
"""Numbers by the name of the quantity, in its unit."""

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


def compared_run(name: str, recording: Recording, *, of_runs: bool = False) -> ComparedRun:
    """Returns a recording as it is compared; with `of_runs` without what its launcher alone has seen.

    That is asked for where another one has no launcher: the whole of a profile is one run, from its
    first step on, and not the program.
    """
    standing, why = _standing(recording)
    measured = summary.of_runs(recording) if of_runs else recording
    return ComparedRun(
        name=name,
        recording=recording,
        total=summary.values(measured),
        steps=dict(_steps(measured)),
        standing=standing,
        why=why,
        cpus=summary.processors(recording),
    )


def _steps(recording: Recording) -> Iterator[tuple[StepPath, ComparedStep]]:
    """Yields the steps of all processes; those of the first have no process in their path."""
    processes = list(dict.fromkeys(run.process for run in recording.runs))
    of_run = summary.steps_of(recording)
    found: list[tuple[int, float, StepPath, ComparedStep]] = []
    for each in placed_steps(recording.runs, recording.duration):
        number, path = processes.index(each.run.process), each.path
        if number:
            rank = each.run.rank
            name = f"rank {rank}" if rank is not None else f"process {number + 1}"
            path = ((name, 1), *path)
        figures = of_run(each).values(each.step)
        found.append((number, each.step.start, path, ComparedStep(each.step, figures)))
    if len(processes) > 1:
        found.sort(key=lambda each: each[:2])
    yield from ((path, step) for _, _, path, step in found)


def _standing(recording: Recording) -> tuple[Standing, str]:
    if recording.state in ("failed", "killed"):
        return "failed", _failure(recording)
    if recording.state != "ended":
        return "partial", _PARTIAL[recording.state]
    outermost = summary.outermost_runs(recording)
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


# --- one axis of time for two runs ------------------------------------------------------

_MOST_STEPS: Final = 250


class CommonTime(NamedTuple):
    """The axis, in seconds: between two moments that both runs have, it is as long as in the slower."""

    moments: tuple[float, ...]  # Where these moments are on it, from the first to the last
    of_runs: tuple[tuple[float, ...], ...]  # The same moments in each run

    @property
    def until(self) -> float:
        """Its length."""
        return self.moments[-1]

    def place(self, side: int, time: float) -> float:
        """Returns where a moment of a run is on the axis."""
        own = self.of_runs[side]
        at = max(0, bisect_right(own[:-1], time) - 1)
        return min(self.moments[at] + max(0.0, time - own[at]), self.moments[at + 1])


def common_time(base: ComparedRun, new: ComparedRun) -> CommonTime:
    """Returns the common axis of two runs: it goes on where both have reached the same moment."""
    moments = [(0.0, 0.0), (base.recording.duration, new.recording.duration)]
    for moment in _in_both(base, new):
        at = bisect_left(moments, moment)
        before, after = moments[at - 1] if at else moments[0], moments[min(at, len(moments) - 1)]
        if before[1] <= moment[1] <= after[1] and before[0] <= moment[0] <= after[0]:
            moments.insert(at, moment)
    lengths = (max(b - a, d - c) for (a, c), (b, d) in pairwise(moments))
    return CommonTime(tuple(accumulate(lengths, initial=0.0)), tuple(zip(*moments, strict=True)))


def _in_both(base: ComparedRun, new: ComparedRun) -> Iterator[tuple[float, float]]:
    """Yields when steps begin and end in both runs, outer steps first."""
    paths = [path for path in base.steps if path in new.steps]
    for path in sorted(paths, key=len)[:_MOST_STEPS]:
        first, second = base.steps[path].step, new.steps[path].step
        yield first.start, second.start
        if first.end is not None and second.end is not None:
            yield first.end, second.end
