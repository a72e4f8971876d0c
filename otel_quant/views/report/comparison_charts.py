"""Charts with the curves of two runs, aligned by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeAlias

from otel_quant.recordings.comparison.runs import CommonTime, ComparedRun
from otel_quant.recordings.model import number
from otel_quant.schema import semconv, series
from otel_quant.schema.units import size
from otel_quant.views.report.bands import ShownStep, most_telling
from otel_quant.views.report.charts import Chart, Series
from otel_quant.views.report.grid import Grid, Values, grid_of
from otel_quant.views.report.subject import subject_of

_CELLS: Final = 800
_MOST_GPUS: Final = 8
_NOTE: Final = (
    "Every step begins at the same place for both. Where a step is shorter in one run, its curve "
    "waits for the other."
)

_CHECKPOINTS: Final = (
    "Read at checkpoints only where no curve was taken: what was between two of them is not known."
)

_Span: TypeAlias = tuple[float, float]
"""Two times of a run."""

_Highest: TypeAlias = Callable[[_Span, _Span], float | None]
"""Returns the highest value of a run in a span of a stretch of it; None if none is known."""


def comparison_charts(
    names: tuple[str, str], runs: tuple[ComparedRun, ComparedRun], time: CommonTime
) -> list[Chart]:
    """Returns the charts of the levels that a run has, memory first."""
    levels = [dict(_levels(run)) for run in runs]
    charts: list[Chart] = []
    for name in sorted({**levels[0], **levels[1]}, key=lambda each: (each != series.MEMORY, each)):
        shown = [
            (side, highest) for side in (1, 0) if (highest := levels[side].get(name)) is not None
        ]
        lines = [
            Series(names[side], _values(time, side, highest), "main" if side else "second")
            for side, highest in shown
        ]
        note = ""
        if name == series.MEMORY:
            note = _NOTE if all(map(_memory_grid, runs)) else f"{_NOTE} {_CHECKPOINTS}"
        if len(charts) <= _MOST_GPUS + 1:
            charts.append(_chart(name, lines, time, note))
    return charts


def comparison_bands(run: ComparedRun, side: int, time: CommonTime) -> list[ShownStep]:
    """Returns the steps of a run at their places on the common axis."""
    subject = subject_of(run.recording)
    bands = []
    for each in most_telling(subject.steps) if subject is not None else ():
        start, end = time.place(side, each.step.start), time.place(side, each.end)
        bands.append(replace(each, step=replace(each.step, start=start), end=end))
    return bands


def _chart(name: str, lines: Sequence[Series], time: CommonTime, note: str) -> Chart:
    every = time.until / _CELLS
    peaks = (
        f"{line.label} up to {size(max(value for value in line.values if value is not None))}"
        for line in reversed(lines)
        if any(value is not None for value in line.values)
    )
    gpu = series.gpu_of(name)
    title = f"Memory of GPU {gpu[0]}" if gpu is not None else _TITLES[name]
    return Chart(
        id=name.replace(".", "-"),
        title=title,
        unit="bytes",
        times=tuple((cell + 0.5) * every for cell in range(_CELLS)),
        series=tuple(lines),
        summary=f"{', '.join(peaks)}.",
        note=note,
        every=every,
        is_large=name == series.MEMORY,
    )


_TITLES: Final = {
    series.MEMORY: "Memory of the process tree",
    series.CACHE: "Growth of the cache directory",
}


def _values(time: CommonTime, side: int, highest: _Highest) -> Values:
    """Returns the highest value of a run in each cell of the common axis."""
    every = time.until / _CELLS
    values: list[float | None] = [None] * _CELLS
    for stretch in time.stretches:
        end = stretch.begin + stretch.lengths[side]
        offset = stretch.starts[side] - stretch.begin
        whole = stretch.starts[side], stretch.starts[side] + stretch.lengths[side]
        for cell in range(int(stretch.begin / every), min(_CELLS - 1, int(end / every)) + 1):
            first, last = max(stretch.begin, cell * every), min(end, (cell + 1) * every)
            span = first + offset, last + offset
            value = highest(span, whole) if first <= last else None
            known = values[cell]
            if value is not None and (known is None or value > known):
                values[cell] = value
        if stretch is not time.stretches[-1]:  # at its end the run is over
            _wait(values, int(stretch.begin / every), int((stretch.begin + stretch.length) / every))
    return tuple(values)


def _wait(values: list[float | None], begin: int, end: int) -> None:
    """Keeps the last value of a stretch until the other run has come to its end."""
    known = [cell for cell in range(begin, end) if values[cell] is not None]
    if known:
        values[known[-1] : end] = [values[known[-1]]] * (end - known[-1])


def _levels(run: ComparedRun) -> Iterator[tuple[str, _Highest]]:
    grid = grid_of(run.recording.curves, run.recording.began_ns)
    if _memory_grid(run) is None:
        points = _checkpoints(run)
        if points:
            yield series.MEMORY, _between(points)
    for name in grid.highest if grid is not None else ():
        gpu = series.gpu_of(name)
        is_own = gpu is None or gpu[1] == series.PROCESS_USED
        if name in _TITLES or (gpu is not None and (is_own or not _has_own(grid, gpu[0]))):
            assert grid is not None
            yield name, _of_grid(grid, name)


def _memory_grid(run: ComparedRun) -> Grid | None:
    """Returns the curves of a run if they have its memory."""
    grid = grid_of(run.recording.curves, run.recording.began_ns)
    return grid if grid is not None and series.MEMORY in grid.highest else None


def _has_own(grid: Grid | None, index: int) -> bool:
    return grid is not None and series.gpu_process_used(index) in grid.highest


def _of_grid(grid: Grid, name: str) -> _Highest:
    columns = grid.highest[name], grid.lowest[name], grid.last[name]
    times = grid.highest_at.get(name, (None,) * grid.count)

    def value_of(at: int, whole: _Span) -> float | None:
        """Returns the value of a bucket; of one in which a stretch begins or ends that of its part."""
        highest, lowest, last = (column[at] for column in columns)
        when = times[at]
        if when is None or whole[0] <= when <= whole[1]:
            return highest
        if when < whole[0]:
            return last
        return lowest if lowest != highest else None  # one reading, and that is of the next stretch

    def highest(span: _Span, whole: _Span) -> float | None:
        begin, end = (int((each - grid.start) // grid.every) for each in span)
        found = (value_of(at, whole) for at in range(max(0, begin), min(grid.count, end + 1)))
        return max((value for value in found if value is not None), default=None)

    return highest


def _checkpoints(run: ComparedRun) -> list[tuple[float, float]]:
    subject = subject_of(run.recording)
    return sorted(
        (point.time, value)
        for each in (subject.runs if subject is not None else ())
        for point in each.checkpoints
        if (value := number(point.attributes, semconv.CHECKPOINT_MEMORY)) is not None
    )


def _between(points: Sequence[tuple[float, float]]) -> _Highest:
    """Returns values on the straight line between two points."""

    def highest(span: _Span, whole: _Span) -> float | None:
        middle = sum(span) / 2
        for (start, low), (end, high) in pairwise(points):
            if start <= middle <= end:
                return low + (high - low) * ((middle - start) / (end - start) if end > start else 1)
        return None

    return highest
