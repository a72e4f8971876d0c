"""The charts of a recording, and of two recordings that are compared.

About a thousand points are drawn of any number of readings, each the highest of its stretch, and the
exact peak is a mark of its own.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final, Literal, NamedTuple, TypeAlias

from otel_quant.format import series
from otel_quant.format.curve import MOST, Bucket, Level, RecordedCurve
from otel_quant.recordings.compared_runs import CommonTime, ComparedRun
from otel_quant.recordings.model import LAUNCHER, PlacedStep, Recording, number, step_at
from otel_quant.schema import semconv
from otel_quant.schema.units import clock_text, cut, digits_text, share_text, size
from otel_quant.views.charts import Band, Chart, Line, Mark, Series, Values
from otel_quant.views.steps import BEFORE, Subject, memory_limit, most_telling, subject_of

_LONGEST_NAME: Final = 40
_LONGEST_BAND: Final = 80

_LEAST_BEFORE: Final = 0.01
"""Share of the time until the last step ended from which on the time before the first one has a band."""

# --- curves as columns --------------------------------------------------------------------

_SMOOTHED: Final = 4
"""Buckets over which a rate is taken, or the buckets of a second if these are more."""

_CELLS: Final = 10_000
_FEWEST, _MOST = 200, 1_200
"""Points of a chart: as many as a wide screen has, fewer where there are many series, so that the
report of any run stays small."""


class Grid(NamedTuple):
    """A curve, or several that were added up, in buckets that are coarse enough for a chart."""

    start: float  # When the first bucket begins, in seconds since the recording began
    every: float  # Seconds of one bucket
    buckets: Sequence[Bucket]  # One after another; empty where nothing was read
    offset: float  # What the times in them count from, in seconds since the recording began
    parts: int = 1  # Number of curves that were added up

    @property
    def times(self) -> tuple[float, ...]:
        """The middle of each bucket, in seconds since the recording began."""
        return tuple(self.start + (at + 0.5) * self.every for at in range(len(self.buckets)))

    @property
    def levels(self) -> list[str]:
        """The names of its levels, in the order in which they were first read."""
        return list(dict.fromkeys(name for bucket in self.buckets for name in bucket.levels))

    def values(self, name: str, part: Literal["lowest", "highest", "last"] = "highest") -> Values:
        """Returns a level, or the last values of a total, in each bucket."""
        return tuple(
            getattr(bucket.levels[name], part) if name in bucket.levels else bucket.totals.get(name)
            for bucket in self.buckets
        )

    def points(self, name: str) -> list[tuple[float, float]]:
        """Returns the highest values of a level with the times at which they were read."""
        found = [bucket.levels[name] for bucket in self.buckets if name in bucket.levels]
        return [(self.offset + level.at / 1000, level.highest) for level in found]

    def peak(self, name: str) -> tuple[float, float]:
        """Returns the highest value of a level and when it was first read."""
        at, value = max(self.points(name), key=lambda point: point[1])
        return value, at

    def rate(self, name: str, until: float) -> Values:
        """Returns how fast a total rose until the end of each bucket, per second.

        It is taken over some buckets: readings that are evenly spaced fall now once, now twice into one.
        A total counts from the beginning of the recording, which may be before the first bucket.
        """
        known_end = (until - self.start) / self.every
        least = max(_SMOOTHED, 1.0 / self.every)
        rates: list[float | None] = []
        # The end of a bucket, and the total then; a clock that was set may begin a curve before it
        known = deque([(min(0.0, -self.start / self.every), 0.0)])
        for at, bucket in enumerate(self.buckets):
            value = bucket.totals.get(name)
            if value is None:
                rates.append(None)
                continue
            end = known_end if at < known_end < at + 1 else at + 1
            while len(known) > 1 and end - known[1][0] >= least:
                known.popleft()
            since, before = known[0]
            rates.append(max(0.0, value - before) / ((end - since) * self.every))
            known.append((end, value))
        return tuple(rates)

    def newest(self, name: str) -> float | None:
        """Returns the last value of a level, or what a total came to; None if it was not read."""
        values = reversed(self.values(name, "last"))
        return next((value for value in values if value is not None), None)


def grid_of(curves: Mapping[str, RecordedCurve], began_ns: int) -> Grid | None:
    """Returns curves on one axis of time, coarse enough for a chart.

    The launcher's curve has everything. Without one the curves of the processes are added up.
    """
    chosen = [curve for curve in curves.values() if curve.curve.buckets]
    if LAUNCHER in curves and curves[LAUNCHER].curve.buckets:
        chosen = [curves[LAUNCHER]]
    if not chosen:
        return None
    spans = [_span(curve, began_ns) for curve in chosen]
    start, end = min(first for first, _ in spans), max(last for _, last in spans)
    every = max(curve.curve.length for curve in chosen) / 1000
    names = {
        name
        for curve in chosen
        for bucket in curve.curve.buckets.values()
        for name in (*bucket.levels, *bucket.totals)
    }
    points = max(_FEWEST, min(_MOST, _CELLS // (len(names) + 2)))
    every *= max(1, -int(-((end - start) / every) // points))
    count = max(1, int((end - start) / every + 0.999))
    parts = [_coarse(curve, began_ns, start, every, count) for curve in chosen]
    return parts[0] if len(parts) == 1 else _sum(parts)


def _span(curve: RecordedCurve, began_ns: int) -> tuple[float, float]:
    offset, length = (curve.began_ns - began_ns) / 1e9, curve.curve.length / 1000
    positions = curve.curve.buckets
    return offset + min(positions) * length, offset + (max(positions) + 1) * length


def _coarse(curve: RecordedCurve, began_ns: int, start: float, every: float, count: int) -> Grid:
    offset, length = (curve.began_ns - began_ns) / 1e9, curve.curve.length / 1000
    buckets = [Bucket(at) for at in range(count)]
    for position, bucket in sorted(curve.curve.buckets.items()):
        # From the middle of the bucket, so that no rounding puts it into the one before.
        into = buckets[min(count - 1, int((offset + (position + 0.5) * length - start) / every))]
        for name, level in bucket.levels.items():
            if (known := into.levels.get(name)) is None:
                into.levels[name] = Level(level.lowest, level.highest, level.last, level.at)
            else:
                known.merge(level)
        into.totals |= bucket.totals
    # Until its first child has a series, all memory is the program's.
    processes = (
        name for each in buckets for name in each.levels if name.startswith(series.PROCESS)
    )
    if (program := next(processes, None)) is not None:
        for bucket in takewhile(lambda each: program not in each.levels, buckets):
            if series.MEMORY in bucket.levels:
                bucket.levels[program] = bucket.levels[series.MEMORY]
    return Grid(start, every, buckets, offset)


def _sum(parts: Sequence[Grid]) -> Grid:
    """Adds up the last values of curves: only those were there at one time, the highest were not."""
    start, every = parts[0].start, parts[0].every
    buckets = [Bucket(at) for at in range(len(parts[0].buckets))]
    for name in dict.fromkeys(
        name for part in parts for each in part.buckets for name in (*each.levels, *each.totals)
    ):
        is_level = name not in series.TOTALS
        rows = zip(*(_held(part.values(name, "last"), is_level) for part in parts), strict=True)
        gpu = series.gpu_of(name)
        # What each process reads of the same device or folder counts once.
        is_shared = name == series.CACHE or (gpu is not None and gpu[1] == series.USED)
        for bucket, row in zip(buckets, rows, strict=True):
            if known := [value for value in row if value is not None]:
                value = max(known) if is_shared else sum(known)
                middle = round((bucket.position + 0.5) * every * 1000)
                if is_level:
                    bucket.levels[name] = Level(value, value, value, middle)
                else:
                    bucket.totals[name] = value
    return Grid(start, every, buckets, start, len(parts))


def _held(values: Sequence[float | None], ends: bool) -> Values:
    """Returns values that stay until the next one; a level ends with its last, a total never."""
    known = [at for at, value in enumerate(values) if value is not None]
    until = known[-1] if known and ends else len(values)
    held: list[float | None] = []
    for at, value in enumerate(values):
        held.append(held[-1] if value is None and held and at < until else value)
    return tuple(held)


# --- the charts of a recording ------------------------------------------------------------


_TITLES: Final = {
    series.MEMORY: "Memory of the process tree",
    series.CACHE: "Growth of the cache directory",
}


def charts_of(recording: Recording, subject: Subject) -> list[Chart]:
    """Returns the charts for which a recording has figures, the main one first."""
    steps = subject.steps
    grid = grid_of(_outermost(recording), recording.began_ns)
    charts = list(_from_curve(grid, recording, steps)) if grid is not None else []
    if not any(chart.is_large for chart in charts):
        charts[:0] = _from_checkpoints(recording, subject)
    return charts


def _outermost(recording: Recording) -> Mapping[str, RecordedCurve]:
    """Returns the curves without processes that are in the curve of one above them."""
    curves = recording.curves
    watched = {run.pid for run in recording.runs if run.pid is not None and run.process in curves}
    below = {run.process for run in recording.runs if run.parent_pid in watched}
    return {process: curve for process, curve in curves.items() if process not in below}


def _from_curve(grid: Grid, recording: Recording, steps: Sequence[PlacedStep]) -> Iterator[Chart]:
    if series.MEMORY in grid.levels:
        note = f"The sum of {grid.parts:,} processes; what they share counts in each."
        yield _level(
            grid, steps, series.MEMORY, _of_memory(grid), _TITLES[series.MEMORY], series.MEMORY,
            memory_limit(recording), note if grid.parts > 1 else "",
        )  # fmt: skip
    yield from _gpus(grid, recording, steps)
    yield from _rates(grid, recording.duration)
    if series.CACHE in grid.levels:
        caches = [Series("caches", grid.values(series.CACHE))]
        yield _level(grid, steps, series.CACHE, caches, _TITLES[series.CACHE], series.CACHE)


def _of_memory(grid: Grid) -> list[Series]:
    """Returns all memory, over the memory of the program and of its largest children if it has some."""
    memory = Series("memory", grid.values(series.MEMORY))
    program, *children = [name for name in grid.levels if name.startswith(series.PROCESS)] or [""]
    if not children:
        return [memory, Series("lowest", grid.values(series.MEMORY, "lowest"), "lowest")]
    kept = [program, *heapq.nlargest(MOST, children, key=lambda name: grid.peak(name)[0])]
    columns = [grid.values(name, "last") for name in kept]
    layers = [
        Series(cut(name.removeprefix(series.PROCESS), _LONGEST_NAME), column, "stacked")
        for name, column in zip(kept, columns, strict=True)
    ]
    rest = tuple(
        None if total is None else max(0.0, total - sum(value or 0.0 for value in row))
        for total, *row in zip(grid.values(series.MEMORY, "last"), *columns, strict=True)
    )
    if any(rest):
        layers.append(Series("other processes", rest, "stacked"))
    return [*layers, memory]


def _gpus(grid: Grid, recording: Recording, steps: Sequence[PlacedStep]) -> Iterator[Chart]:
    levels = grid.levels
    found = sorted({gpu[0] for name in levels if (gpu := series.gpu_of(name)) is not None})
    limit, gpus = _gpu_limit(recording)
    note = f"The limit assumes that all {gpus:.0f} GPUs are equally large." if gpus > 1 else ""
    for index in found:
        used, own = series.gpu_used(index), series.gpu_process_used(index)
        lines = [Series("this program", grid.values(own))] if own in levels else []
        if used in levels:
            lines.append(Series("all programs", grid.values(used), "second" if lines else "main"))
        yield _level(
            grid, steps, f"gpu-{index}", lines, f"Memory of GPU {index}",
            own if own in levels else used, limit, note if index == found[-1] else "",
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
    grid: Grid,
    steps: Sequence[PlacedStep],
    chart: str,
    shown: Sequence[Series],
    title: str,
    peak_of: str,
    limit: float | None = None,
    note: str = "",
) -> Chart:
    peak, at = grid.peak(peak_of)
    inside = step_at(steps, at)
    summary = f"Highest {size(peak)} at {clock_text(at)}"
    summary += f" in {cut(inside.step.name, _LONGEST_NAME)}" if inside is not None else ""
    summary += f", {share_text(peak / limit)} of the limit of {size(limit)}" if limit else ""
    return Chart(
        chart, title, "bytes", grid.times, shown,
        limit=None if limit is None else Line("limit", limit),
        mark=Mark(f"peak {size(peak)}", at, peak),
        summary=f"{summary}.",
        note=note,
        every=grid.every,
        is_large=chart == series.MEMORY,
    )  # fmt: skip


def _rates(grid: Grid, until: float) -> Iterator[Chart]:
    ways = (("written", series.DISK_WRITE), ("read", series.DISK_READ))
    lines: list[Series] = []
    totals: list[str] = []
    for word, name in ways:
        if (total := grid.newest(name)) is not None:
            lines.append(Series(word, grid.rate(name, until), "second" if lines else "main"))
            totals.append(f"{size(total)} {word}")
    if lines:
        summary = f"{' and '.join(totals)} in all."
        yield Chart("disk", "Disk", "bytes/s", grid.times, lines, summary=summary, every=grid.every)
    if (seconds := grid.newest(series.CPU)) is not None:
        mean = seconds / max(grid.every, until - grid.start)
        summary = f"{digits_text(mean)} cores in use on average."
        lines = [Series("cores in use", grid.rate(series.CPU, until))]
        yield Chart("cpu", "CPU", "cores", grid.times, lines, summary=summary, every=grid.every)


def _at_checkpoints(subject: Subject) -> list[tuple[float, float]]:
    """Returns the memory that was read at checkpoints, with the times."""
    return sorted(
        (point.time, value)
        for run in subject.runs
        for point in run.checkpoints
        if (value := number(point.attributes, semconv.CHECKPOINT_MEMORY)) is not None
    )


def _from_checkpoints(recording: Recording, subject: Subject) -> Iterator[Chart]:
    """Yields a chart of what was read at the checkpoints, where no curve was taken."""
    if points := _at_checkpoints(subject):
        times, values = zip(*points, strict=True)
        limit = memory_limit(recording)
        yield Chart(
            series.MEMORY, _TITLES[series.MEMORY], "bytes", times, [Series("memory", values)],
            limit=None if limit is None else Line("limit", limit),
            summary=f"Highest {size(max(values))} at a checkpoint.",
            note="Read at checkpoints only: what was between two of them is not known.",
            is_large=True,
        )  # fmt: skip


def bands_of(steps: Sequence[PlacedStep]) -> list[Band]:
    """Returns the bands of the steps that tell most, each in a row of its own at its time."""
    free_from: list[float] = []
    rows: dict[tuple[int, int | None], int] = {}  # by run and index
    for each in steps:
        step = each.step
        row = rows.get((id(each.run), step.parent), -1) + 1
        while row < len(free_from) and free_from[row] > step.start:
            row += 1
        free_from += [0.0] * (row + 1 - len(free_from))
        free_from[row] = each.end
        rows[id(each.run), step.index] = row
    bands = [
        Band(
            cut(each.step.name, _LONGEST_BAND),
            each.step.start,
            each.end,
            rows[id(each.run), each.step.index],
            each.depth,
            each.step.state,
        )
        for each in most_telling(steps)
    ]
    first = min((each.step.start for each in steps), default=0.0)
    if first > _LEAST_BEFORE * max(free_from, default=0.0):  # imports, mostly
        bands.insert(0, Band(BEFORE, 0.0, first, 0, 0, "ended"))
    return bands


# --- two runs on one axis -----------------------------------------------------------------

_CELLS_OF_TWO: Final = 800
_NOTE: Final = (
    "Every step begins at the same place for both. Where a step is shorter in one run, its curve "
    "waits for the other."
)
_CHECKPOINTS: Final = (
    "Read at checkpoints only where no curve was taken: what was between two of them is not known."
)

_Points: TypeAlias = list[tuple[float, float]]
"""Values with the times at which they were read, in seconds since the recording began."""


def comparison_charts(
    names: tuple[str, str], runs: tuple[ComparedRun, ComparedRun], time: CommonTime
) -> Iterator[Chart]:
    """Yields the charts of the levels that a run has, memory first."""
    (first, first_read), (second, second_read) = map(_levels, runs)
    every = time.until / _CELLS_OF_TWO
    times = tuple((cell + 0.5) * every for cell in range(_CELLS_OF_TWO))
    order = sorted({**first, **second}, key=lambda name: (name != series.MEMORY, name))
    for name in order:
        sides = [
            (side, levels[name]) for side, levels in ((1, second), (0, first)) if name in levels
        ]
        lines = [
            Series(names[side], _placed(points, side, time), "main" if side else "second")
            for side, points in sides
        ]
        peaks = [
            f"{names[side]} up to {size(max(value for _, value in points))}"
            for side, points in reversed(sides)
        ]
        is_memory = name == series.MEMORY
        is_read = first_read and second_read
        gpu = series.gpu_of(name)
        yield Chart(
            name.replace(".", "-"),
            f"Memory of GPU {gpu[0]}" if gpu is not None else _TITLES[name],
            "bytes", times, lines,
            summary=f"{', '.join(peaks)}.",
            note="" if not is_memory else _NOTE if is_read else f"{_NOTE} {_CHECKPOINTS}",
            every=every,
            is_large=is_memory,
        )  # fmt: skip


def comparison_bands(run: ComparedRun, side: int, time: CommonTime) -> list[Band]:
    """Returns the steps of a run at their places on the common axis."""
    return [
        each._replace(start=time.place(side, each.start), end=time.place(side, each.end))
        for each in bands_of(subject_of(run.recording).steps)
    ]


def _levels(run: ComparedRun) -> tuple[dict[str, _Points], bool]:
    """Returns what is shown of a run, and whether its memory was read all the time."""
    grid = grid_of(run.recording.curves, run.recording.began_ns)
    found: dict[str, _Points] = {}
    levels = grid.levels if grid is not None else []
    for name in levels:
        gpu = series.gpu_of(name)
        own = gpu is not None and (
            gpu[1] != series.USED or series.gpu_process_used(gpu[0]) not in levels
        )
        if grid is not None and (name in _TITLES or own):
            found[name] = grid.points(name)
    if series.MEMORY in found:
        return found, True
    points = _at_checkpoints(subject_of(run.recording))
    return found | ({series.MEMORY: points} if points else {}), False


def _placed(points: _Points, side: int, time: CommonTime) -> Values:
    """Returns the highest value of a run in each cell of the common axis; it stays until the next."""
    values: list[float | None] = [None] * _CELLS_OF_TWO
    for at, value in points:
        cell = min(_CELLS_OF_TWO - 1, int(time.place(side, at) / time.until * _CELLS_OF_TWO))
        known = values[cell]
        values[cell] = value if known is None else max(known, value)
    return _held(values, ends=True)
