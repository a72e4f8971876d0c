"""The time in which no step was open, as rows like steps: before the first, between two, after the last.

Their figures are those of the curve: of the launcher where the steps are all that there are, else of the process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Final

from otel_quant.recordings.model import (
    LAUNCHER,
    PlacedStep,
    RecordedRun,
    RecordedStep,
    Recording,
    Spans,
    known,
    number,
    steps_in,
)
from otel_quant.recordings.summary import outermost_runs, windows
from otel_quant.schema import semconv
from otel_quant.schema.catalog import QUANTITIES
from otel_quant.schema.code_lines import AFTER, BEFORE, BETWEEN
from otel_quant.schema.events import present
from otel_quant.schema.figures import TREE_MEMORY

NAMES: Final = {
    BEFORE: "(before the first step)",
    BETWEEN: "(between steps)",
    AFTER: "(after the last step)",
}
"""The names of the rows, by index."""

_LEAST: Final = 0.001
"""Share of the run's time below which a time without a step is not shown."""


def outside_of(recording: Recording, runs: Sequence[RecordedRun]) -> list[PlacedStep]:
    """Returns the time outside of the steps of runs, and of all that they have started, unless there are others.

    Nothing of processes that a recorded one has started.
    """
    return recording.once(("outside", *map(id, runs)), lambda: list(_outside(recording, runs)))


def row_of(recording: Recording, run: RecordedRun, index: int) -> PlacedStep | None:
    """Returns the row of what a run has seen under an index; None where it is of other stretches of time as well."""
    outermost = outermost_runs(recording)
    in_turn = all((one.end or math.inf) <= after.start for one, after in pairwise(outermost))
    runs = outermost if in_turn else [each for each in outermost if each.process == run.process]
    known, around = {*map(id, runs)}, _steps_around(recording, runs)
    if id(run) not in known or not {id(each.run) for each in around} <= known:
        return None
    if (index == BEFORE and run is not runs[0]) or (index == AFTER and run is not runs[-1]):
        index = BETWEEN  # of a stage of several
    rows = outside_of(recording, runs)
    return next((row for row in rows if row.step.index == index), None)


def outside_at(rows: Sequence[PlacedStep], time: float) -> PlacedStep | None:
    """Returns the row that has a moment; None if a step was open then."""
    return next(
        (row for row in rows for span in row.step.spans if span[0] <= time <= span[1]), None
    )


def words_of(row: PlacedStep) -> str:
    """Returns the name of a row in a sentence: ``before the first step``."""
    return row.step.name.strip("()")


def _is_all(recording: Recording, runs: Sequence[RecordedRun]) -> bool:
    """Whether no process is beside those of some runs."""
    return {run.process for run in outermost_runs(recording)} <= {run.process for run in runs}


def _steps_around(recording: Recording, runs: Sequence[RecordedRun]) -> Sequence[PlacedStep]:
    return steps_in(recording, None if _is_all(recording, runs) else runs)


def _outside(recording: Recording, runs: Sequence[RecordedRun]) -> Iterator[PlacedStep]:
    outermost = outermost_runs(recording)
    if not runs or not {*map(id, runs)} <= {*map(id, outermost)}:
        return
    steps = _steps_around(recording, runs)
    gaps = list(_gaps(steps, min(known((recording.duration, *(run.cut for run in runs))))))
    first = min((each.step.start for each in steps), default=math.inf)
    last = max((each.end for each in steps), default=math.inf)
    process = runs[0].process
    processes = {run.process for run in outermost}
    if _is_all(recording, runs) and (LAUNCHER in recording.curves or len(processes) > 1):
        process = LAUNCHER
    spans = {
        BEFORE: tuple(gap for gap in gaps if gap[1] <= first),
        BETWEEN: tuple(gap for gap in gaps if first < gap[1] and gap[0] < last),
        AFTER: tuple(gap for gap in gaps if gap[0] >= last),
    }
    for index, each in spans.items():
        seconds = sum(end - start for start, end in each)
        if seconds >= _LEAST * recording.duration > 0:
            start = each[0][0]
            end = start + seconds
            step = RecordedStep(
                index=index,
                name=NAMES[index],
                kind="",
                start=start,
                end=end,
                state="ended",
                attributes=_figures(recording, runs, process, each),
                spans=each,
            )
            run = runs[0] if index == BEFORE else runs[-1]
            yield PlacedStep(step, run, ((step.name, 1),), end, seconds)


def _gaps(steps: Sequence[PlacedStep], until: float) -> Iterator[tuple[float, float]]:
    """Yields the stretches of time in which none of the steps was open."""
    at = 0.0
    for each in sorted(steps, key=lambda each: each.step.start):
        if each.step.start > at:
            yield at, each.step.start
        at = max(at, each.end)
    if until > at:
        yield at, until


def _figures(
    recording: Recording, runs: Sequence[RecordedRun], process: str, spans: Spans
) -> dict[str, float]:
    """Returns what is known of some stretches of time, by the names of attributes."""
    memory = windows(recording, TREE_MEMORY.curve, process)
    points = chain.from_iterable(run.checkpoints for run in runs)
    at = {each.time: number(each.attributes, semconv.CHECKPOINT_MEMORY) for each in points}
    start, end = (at.get(time) or memory.at(time) for time in (spans[0][0], spans[-1][1]))
    found = present({TREE_MEMORY.attribute("start"): start, TREE_MEMORY.attribute("end"): end})
    if start is not None and end is not None:
        found[TREE_MEMORY.attribute("delta")] = end - start
    for each in QUANTITIES:
        if each.curve and each.is_of_steps and each.attributes:
            series = windows(recording, each.curve, process)
            if each.over_steps == "sum":
                values = known(series.rise(*span, is_most=False) for span in spans)
                # Of CPU time, which has two attributes, a curve has the sum.
                amounts = {each.attributes[0]: sum(values)} if values else {}
                found |= dict.fromkeys(each.attributes if values else (), 0) | amounts
            elif values := known(series.highest(*span) for span in spans):
                found[each.attributes[0]] = max(values)
    if semconv.MEMORY_PEAK in found:
        found[semconv.MEMORY_PEAK] = max(found[semconv.MEMORY_PEAK], *known((start, end)))
    return found
