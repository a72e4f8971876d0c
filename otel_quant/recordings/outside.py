"""The time of a run in which no step of any process was open, as rows like steps.

Their figures are those of the curve: the launcher's, else that of the only process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Final

from otel_quant.format.event_file import BEFORE_RUNS, process_file
from otel_quant.recordings import model
from otel_quant.recordings.summary import Windows, outermost_runs, value, windows
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

_WITHOUT: Final = "(outside of steps)"  # The name of the only row of a recording without a step
_LEAST: Final = 0.001  # Share of the run's time below which a time without a step is not shown

_IN_CURVES: Final = [it for it in QUANTITIES if it.curve and it.is_of_steps and it.attributes]

_MARKS_DIFFER: Final = 1.04
"""What one of the kernel's marks may be, divided by another of the same memory."""

_MOST_SPANS: Final = 1000
"""Stretches of time between steps of which figures are worked out; of more, each is a moment."""


def outside_of(recording: model.Recording) -> list[model.PlacedStep]:
    """Returns the rows of a recording, in the order of time."""
    return recording.once("outside", lambda: list(_outside(recording)))


def row_of(
    recording: model.Recording, run: model.RecordedRun, index: int
) -> model.PlacedStep | None:
    """Returns the row of what a run has seen under an index; None where that is of other times as well."""
    every, own = model.steps_in(recording), model.steps_in(recording, [run])
    if every and not own:
        return None
    is_edge = {BEFORE: _first(own) == _first(every), AFTER: _last(own) == _last(every)}
    if not is_edge.get(index):
        runs = outermost_runs(recording)
        has_children = not {id(each.run) for each in every} <= {*map(id, runs)}
        if has_children or any((one.end or math.inf) > two.start for one, two in pairwise(runs)):
            return None
        index = BETWEEN  # also before a later stage of several
    return next((row for row in outside_of(recording) if row.step.index == index), None)


def outside_at(
    recording: model.Recording, time: float, least: float = 0.0
) -> model.PlacedStep | None:
    """Returns the row that has a moment, and a memory peak of so many bytes; None if a step was open then."""
    every = ((row, span) for row in outside_of(recording) for span in row.step.spans)
    found = (row for row, (start, end) in every if start <= time <= end)
    name = semconv.MEMORY_PEAK
    has = (row for row in found if (model.number(row.step.attributes, name) or 0) >= least)
    return next(has, None)


def words_of(row: model.PlacedStep) -> str:
    """Returns the name of a row in a sentence: ``before the first step``."""
    return row.step.name.strip("()")


def _first(steps: Iterable[model.PlacedStep]) -> float:
    return min((each.step.start for each in steps), default=math.inf)


def _last(steps: Iterable[model.PlacedStep]) -> float:
    return max((each.end for each in steps), default=math.inf)


def _outside(recording: model.Recording) -> Iterator[model.PlacedStep]:
    steps = model.steps_in(recording)
    runs = outermost_runs(recording) or [*_before_runs(recording)]
    first, last = _first(steps), _last(steps)
    spans: dict[int, list[tuple[float, float]]] = {}
    for start, end in _gaps(recording):
        index = BEFORE if end <= first else AFTER if start >= last else BETWEEN
        spans.setdefault(index, []).append((start, end))
    times = {index: sum(end - start for start, end in each) for index, each in spans.items()}
    shown = [index for index in spans if runs and times[index] >= _LEAST * recording.duration]
    figures = {index: _figures(recording, spans[index], index) for index in shown}
    _without_steps(recording, figures.values())
    for index in shown:
        (start, _), name = spans[index][0], NAMES[index] if steps else _WITHOUT
        end = start + times[index]
        step = model.RecordedStep(
            index=index, name=name, kind="", start=start, end=end, state="ended",
            attributes=figures[index], spans=tuple(spans[index]),
        )  # fmt: skip
        run = runs[0 if index == BEFORE else -1]
        yield model.PlacedStep(step, run, ((name, 1),), end, times[index])


def _without_steps(recording: model.Recording, rows: Iterable[dict[str, Any]]) -> None:
    """Has rows come to no more of what adds up than the run without its steps: a bucket of the curve has of both."""
    steps = [each.step for each in model.steps_in(recording) if each.step.parent is None]
    for each in QUANTITIES:
        if each.over_steps == "sum" and each.curve and each.attributes:
            own = [row for row in rows if each.attributes[0] in row]
            found, total = sum(row[each.attributes[0]] for row in own), value(recording, each.name)
            of = [model.number(step.attributes, name) for step in steps for name in each.attributes]
            if total is None or not found or None in of:
                continue
            share = min(1.0, max(0.0, total - sum(model.known(of))) / found)
            for row in own:
                row[each.attributes[0]] *= share


def _before_runs(recording: model.Recording) -> Iterator[model.RecordedRun]:
    """Yields what stands for a run of the process that was seen longest before it began one, if any was."""
    files = recording.path.glob(process_file(recording.path, "stacks", "*", BEFORE_RUNS).name)
    if largest := max(files, key=lambda path: path.stat().st_size, default=None):
        process = largest.name.split(".")[1]
        yield model.RecordedRun(id=BEFORE_RUNS, process=process, start=0.0, state=recording.state)


def _gaps(recording: model.Recording) -> Iterator[tuple[float, float]]:
    """Yields the stretches of time in which no step was open, until the program ended or was no longer recorded."""
    at, until = 0.0, min(model.known((recording.duration, *(run.cut for run in recording.runs))))
    starts = sorted((each.step.start, each.end) for each in model.steps_in(recording))
    for start, end in (*starts, (until, until)):
        if at < min(start, until):  # a child may live on
            yield at, min(start, until)
        at = max(at, end)


def _peak_after(recording: model.Recording, memory: Windows, start: float) -> float | None:
    """Returns how high the kernel's mark rose after the only run, in bytes, by the curve's end; None if that is not known."""
    run = recording.runs[0] if len(recording.runs) == 1 else None
    mark = model.number(run.attributes, semconv.MEMORY_PROCESS_PEAK) if run else None
    if run is None or run.end is None or mark is None:
        return None
    # Of two of the kernel's marks of the same memory one may be a little higher.
    least = max(round(mark * _MARKS_DIFFER), *(step.mark or 0 for step in run.steps), 0)
    return memory.highest(start, math.inf, least)


def _figures(
    recording: model.Recording, spans: Sequence[tuple[float, float]], index: int
) -> dict[str, Any]:
    """Returns what is known of some stretches of time, by the names of attributes."""
    runs = recording.runs
    is_alone = model.LAUNCHER not in recording.curves and len({run.process for run in runs}) == 1
    process = runs[0].process if is_alone else model.LAUNCHER
    memory = windows(recording, TREE_MEMORY.curve, process)
    points = chain.from_iterable(run.checkpoints for run in runs)
    at = {each.time: model.number(each.attributes, semconv.CHECKPOINT_MEMORY) for each in points}
    start, end = (at.get(time) or memory.at(time) for time in (spans[0][0], spans[-1][1]))
    found = present({TREE_MEMORY.attribute("start"): start, TREE_MEMORY.attribute("end"): end})
    if start is not None and end is not None:
        found[TREE_MEMORY.attribute("delta")] = end - start
    # A process's own curve begins with its run: what was before is in no curve.
    is_in_curve = not is_alone or recording.curve(process)[0] <= spans[0][0]
    for each in _IN_CURVES if is_in_curve and len(spans) <= _MOST_SPANS else ():
        series = windows(recording, each.curve, process)
        if each.over_steps != "sum":
            if values := model.known(series.highest(*span) for span in spans):
                found[each.attributes[0]] = max(values)
        elif values := model.known(series.rise(*span, is_most=False) for span in spans):
            # Of CPU time, which has two attributes, a curve has the sum.
            found |= dict.fromkeys(each.attributes, 0) | {each.attributes[0]: sum(values)}
    last = _peak_after(recording, memory, spans[-1][0]) if index == AFTER else None
    peak = found.get(semconv.MEMORY_PEAK, last)
    if peak is not None:
        found[semconv.MEMORY_PEAK] = max(peak, *model.known((last, start, end)))
    return found
