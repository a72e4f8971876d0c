"""Charts with the curves of two runs, aligned by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeAlias

from otel_quant.comparison.common_time import CommonTime
from otel_quant.comparison.runs import ComparedRun
from otel_quant.recordings import series
from otel_quant.recordings.attributes import number
from otel_quant.rendering.units import size
from otel_quant.report.bands import ShownStep, most_telling
from otel_quant.report.charts import Chart, Series
from otel_quant.report.grid import Grid, Values, grid_of
from otel_quant.report.subject import subject_of
from otel_quant.telemetry import semconv

_CELLS: Final = 800
_MOST_GPUS: Final = 8
_NOTE: Final = (
    "Every step begins at the same place for both. Where a step is shorter in one run, its curve "
    "waits for the other."
)

_CHECKPOINTS: Final = (
    "Read at checkpoints only where no curve was taken: what was between two of them is not known."
)

_Highest: TypeAlias = Callable[[float, float], float | None]
"""Returns the highest value of a run between two times; None if none is known."""


def comparison_charts(
    names: tuple[str, str], runs: tuple[ComparedRun, ComparedRun], time: CommonTime
) -> list[Chart]:
    """Returns the charts of the levels that a run has, memory first.

    Args:
        names: Names of the two sides.
        runs: A run of each.
        time: Their common axis.
    """
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
        for cell in range(int(stretch.begin / every), min(_CELLS - 1, int(end / every)) + 1):
            first, last = max(stretch.begin, cell * every), min(end, (cell + 1) * every)
            value = highest(first + offset, last + offset) if first <= last else None
            known = values[cell]
            if value is not None and (known is None or value > known):
                values[cell] = value
    return tuple(values)


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
            yield name, _of_grid(grid, grid.highest[name])


def _memory_grid(run: ComparedRun) -> Grid | None:
    """Returns the curves of a run if they have its memory."""
    grid = grid_of(run.recording.curves, run.recording.began_ns)
    return grid if grid is not None and series.MEMORY in grid.highest else None


def _has_own(grid: Grid | None, index: int) -> bool:
    return grid is not None and series.gpu_process_used(index) in grid.highest


def _of_grid(grid: Grid, values: Values) -> _Highest:
    def highest(first: float, last: float) -> float | None:
        begin = max(0, int((first - grid.start) // grid.every))
        end = max(0, 1 + int((last - grid.start) // grid.every))
        found = [value for value in values[begin:end] if value is not None]
        return max(found, default=None)

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

    def highest(first: float, last: float) -> float | None:
        middle = (first + last) / 2
        for (start, low), (end, high) in pairwise(points):
            if start <= middle <= end:
                return low + (high - low) * ((middle - start) / (end - start) if end > start else 1)
        return None

    return highest
