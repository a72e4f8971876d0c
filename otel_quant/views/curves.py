"""The charts of a recording, and those of two that are compared.

About a thousand points are drawn of any number of readings, each the highest of its stretch, and the
exact peak is a mark of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeAlias

from otel_quant.export.recording.curve import RecordedCurve
from otel_quant.recordings.comparison.runs import CommonTime, ComparedRun
from otel_quant.recordings.model import Recording, number
from otel_quant.recordings.steps import step_at
from otel_quant.schema import semconv, series
from otel_quant.schema.units import clock_text, counted, cut, digits_text, share_text, size
from otel_quant.views.charts import Chart, Grid, Line, Mark, Series, Values, grid_of
from otel_quant.views.shown_steps import ShownStep, Subject, memory_limit, most_telling, subject_of

_MOST_PROCESSES: Final = 5
_MOST_GPUS: Final = 16
_MOST_CALIBRATIONS: Final = 4
_LONGEST_NAME: Final = 40


def charts_of(recording: Recording, subject: Subject | None) -> list[Chart]:
    """Returns the charts for which a recording has figures, the main one first."""
    steps = subject.steps if subject is not None else ()
    grid = grid_of(_outermost(recording), recording.began_ns)
    charts = list(_from_curve(grid, recording, steps) if grid is not None else ())
    if not any(chart.is_large for chart in charts) and subject is not None:
        charts[:0] = _from_checkpoints(recording, subject)
    return [*charts, *_calibrations(steps)]


def _outermost(recording: Recording) -> Mapping[str, RecordedCurve]:
    """Returns the curves without those of processes that are in the curve of one above them."""
    curves = recording.curves
    watched = {run.pid for run in recording.runs if run.pid is not None and run.process in curves}
    below = {run.process for run in recording.runs if run.parent_pid in watched}
    return {process: curve for process, curve in curves.items() if process not in below}


def _from_curve(grid: Grid, recording: Recording, steps: Sequence[ShownStep]) -> Iterator[Chart]:
    if series.MEMORY in grid.highest:
        yield _memory(grid, recording, steps)
    yield from _gpus(grid, recording, steps)
    yield from _rates(grid, recording.duration)
    if series.CACHE in grid.highest:
        caches = (Series("caches", grid.highest[series.CACHE]),)
        yield _level("cache", "Growth of the cache directory", caches, grid, series.CACHE, steps)


def _memory(grid: Grid, recording: Recording, steps: Sequence[ShownStep]) -> Chart:
    names = [name for name in grid.last if name.startswith(series.PROCESS)]
    names.sort(key=lambda name: -grid.peaks[name].value if name in grid.peaks else 0.0)
    layers: list[Series] = []
    if len(names) > 1:
        kept = [grid.last[name] for name in names[:_MOST_PROCESSES]]
        layers = [
            Series(cut(name.removeprefix(series.PROCESS), _LONGEST_NAME), values, "stacked")
            for name, values in zip(names, kept, strict=False)
        ]
        rest = _rest(grid.last[series.MEMORY], kept)
        if any(rest):
            layers.append(Series("other processes", rest, "stacked"))
    limit = memory_limit(recording)
    note = ""
    if grid.parts > 1:
        note = f"The sum of {grid.parts:,} processes; what they share counts in each."
    memory = Series("memory", grid.highest[series.MEMORY])
    lowest = Series("lowest", grid.lowest[series.MEMORY], "lowest")
    return _level(
        "memory",
        "Memory of the process tree",
        (*layers, memory, *(() if layers else (lowest,))),
        grid,
        series.MEMORY,
        steps,
        None if limit is None else Line("limit", limit),
        note,
    )


def _rest(whole: Values, parts: Sequence[Values]) -> Values:
    columns = zip(whole, *parts, strict=True)
    return tuple(
        None if total is None else max(0.0, total - sum(value or 0.0 for value in row))
        for total, *row in columns
    )


def _gpus(grid: Grid, recording: Recording, steps: Sequence[ShownStep]) -> Iterator[Chart]:
    found: dict[int, set[str]] = {}
    for name in grid.highest:
        gpu = series.gpu_of(name)
        if gpu is not None:
            found.setdefault(gpu[0], set()).add(gpu[1])
    limit, gpus = _gpu_limit(recording)
    for index in sorted(found)[:_MOST_GPUS]:
        used, own = series.gpu_used(index), series.gpu_process_used(index)
        shown: list[Series] = []
        if own in grid.highest:
            shown.append(Series("this program", grid.highest[own]))
        if used in grid.highest:
            every = Series("all programs", grid.highest[used], "second" if shown else "main")
            shown.append(every)
        note = ""
        if index == sorted(found)[:_MOST_GPUS][-1]:
            note = (
                f"The limit assumes that all {gpus:.0f} GPUs are equally large. "
                if gpus > 1
                else ""
            )
            left_out = len(found) - _MOST_GPUS
            note += f"{counted(left_out, 'more GPU')} left out." if left_out > 0 else ""
        peak = own if own in grid.peaks else used
        yield _level(
            f"gpu-{index}", f"Memory of GPU {index}", tuple(shown), grid, peak, steps,
            None if limit is None else Line("limit", limit), note,
        )  # fmt: skip


def _gpu_limit(recording: Recording) -> tuple[float | None, float]:
    """Returns the memory of one GPU, and of how many the run knows it; it has the sum of all."""
    for run in recording.runs:
        limit = number(run.attributes, semconv.GPU_MEMORY_LIMIT)
        gpus = number(run.attributes, semconv.GPU_COUNT)
        if limit and gpus:
            return limit / gpus, gpus
    return None, 0


def _level(
    name: str,
    title: str,
    shown: tuple[Series, ...],
    grid: Grid,
    peak_of: str,
    steps: Sequence[ShownStep],
    limit: Line | None = None,
    note: str = "",
) -> Chart:
    peak = grid.peaks[peak_of]
    inside = step_at(steps, peak.time)
    summary = f"Highest {size(peak.value)} at {clock_text(peak.time)}"
    summary += f" in {cut(inside.step.name, _LONGEST_NAME)}" if inside is not None else ""
    if limit is not None:
        share = share_text(peak.value / limit.value)
        summary += f", {share} of the limit of {size(limit.value)}"
    return Chart(
        id=name,
        title=title,
        unit="bytes",
        times=grid.times,
        series=shown,
        limit=limit,
        mark=Mark(f"peak {size(peak.value)}", peak.time, peak.value),
        summary=f"{summary}.",
        note=note,
        every=grid.every,
        is_large=name == "memory",
    )


def _rates(grid: Grid, until: float) -> Iterator[Chart]:
    written, read = (grid.rate(name, until) for name in (series.DISK_WRITE, series.DISK_READ))
    if written or read:
        shown = [Series("written", written)] if written else []
        shown += [Series("read", read, "second" if written else "main")] if read else []
        totals = (
            f"{size(total)} {word}"
            for word, name in (("written", series.DISK_WRITE), ("read", series.DISK_READ))
            if (total := _final(grid.last.get(name, ()))) is not None
        )
        yield Chart(
            id="disk",
            title="Disk",
            unit="bytes/s",
            times=grid.times,
            series=tuple(shown),
            summary=f"{' and '.join(totals)} in all.",
            every=grid.every,
        )
    cores = grid.rate(series.CPU, until)
    if cores:
        total = _final(grid.last[series.CPU]) or 0.0
        mean = total / max(grid.every, until - grid.start)
        yield Chart(
            id="cpu",
            title="CPU",
            unit="cores",
            times=grid.times,
            series=(Series("cores in use", cores),),
            summary=f"{digits_text(mean)} cores in use on average.",
            every=grid.every,
        )


def _final(values: Values) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _from_checkpoints(recording: Recording, subject: Subject) -> Iterator[Chart]:
    """Yields a chart of what was read at the checkpoints, where no curve was taken."""
    points = [
        (checkpoint.time, value)
        for run in subject.runs
        for checkpoint in run.checkpoints
        if (value := number(checkpoint.attributes, semconv.CHECKPOINT_MEMORY)) is not None
    ]
    if not points:
        return
    times, values = zip(*sorted(points), strict=True)
    limit = memory_limit(recording)
    highest = max(values)
    yield Chart(
        id="memory",
        title="Memory of the process tree",
        unit="bytes",
        times=times,
        series=(Series("memory", values),),
        limit=None if limit is None else Line("limit", limit),
        summary=f"Highest {size(highest)} at a checkpoint.",
        note="Read at checkpoints only: what was between two of them is not known.",
        is_large=True,
    )


def _calibrations(steps: Sequence[ShownStep]) -> Iterator[Chart]:
    counted = [each for each in steps if each.step.progress]
    counted.sort(key=lambda each: -(each.step.samples or 0))
    for at, each in enumerate(counted[:_MOST_CALIBRATIONS]):
        step = each.step
        times, samples = zip(*sorted([(step.start, 0), *step.progress]), strict=True)
        done = step.samples if step.samples is not None else step.progress[-1][1]
        of_all = "" if step.expected_samples is None else f" of {step.expected_samples:,}"
        rate = f", {digits_text(done / each.duration)} a second" if each.duration else ""
        left_out = len(counted) - _MOST_CALIBRATIONS
        note = ""
        if left_out > 0 and at == _MOST_CALIBRATIONS - 1:
            note = f"{left_out:,} more steps with samples are not shown."
        yield Chart(
            id=f"samples-{at}",
            title=f"Samples of {cut(step.name, _LONGEST_NAME)}",
            unit="samples",
            times=times,
            series=(Series("samples", samples),),
            limit=None
            if step.expected_samples is None
            else Line("expected", step.expected_samples),
            summary=f"{done:,}{of_all} samples{rate}.",
            note=note,
        )


_CELLS: Final = 800
_MOST_COMPARED_GPUS: Final = 8
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
        if len(charts) <= _MOST_COMPARED_GPUS + 1:
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
