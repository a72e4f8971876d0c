"""The charts of a recording, and of two recordings that are compared.

About a thousand points are drawn of any number of readings, each the highest of its stretch, and the
exact peak is a mark of its own.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, repeat, takewhile
from typing import Final, Literal, NamedTuple, TypeAlias

from otel_quant.diagnosis.headline import of_limit
from otel_quant.format import series
from otel_quant.format.curve import MOST, Bucket, Level, RecordedCurve
from otel_quant.recordings.compared_runs import CommonTime, ComparedRun
from otel_quant.recordings.gpus import gpu_limit_of_one, shows_all_programs
from otel_quant.recordings.model import LAUNCHER, PlacedStep, Recording, number, step_at
from otel_quant.recordings.outside import NAMES
from otel_quant.recordings.summary import peak as peak_of
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import BEFORE
from otel_quant.schema.figures import RESOURCES, Figure
from otel_quant.schema.units import cut, digits_text, moment_of, size
from otel_quant.views.answer import peak_place
from otel_quant.views.charts import Band, Chart, ChartSeries, Mark, Style, Values
from otel_quant.views.gpu_devices import activity_charts
from otel_quant.views.steps import ShownProcess, memory_limit, most_telling, subject_of
from otel_quant.views.text import number_text, phrase

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


NO_GRID: Final = Grid(0.0, 1.0, (), 0.0)  # Of a recording without a curve


def grid_of(curves: Mapping[str, RecordedCurve], began_ns: int) -> Grid | None:
    """Returns curves on one axis of time, coarse enough for a chart.

    The launcher's curve has everything. Without one the curves of the processes are added up.
    """
    known = {process: curve for process, curve in curves.items() if curve.curve.buckets}
    if not known:
        return None
    chosen = [known[LAUNCHER]] if LAUNCHER in known else [*known.values()]
    spans = []
    for curve in chosen:
        offset, length = _axis(curve, began_ns)
        ends = min(curve.curve.buckets), max(curve.curve.buckets) + 1
        spans += [offset + at * length for at in ends]
    start, seconds = min(spans), max(spans) - min(spans)
    every = max(curve.curve.length for curve in chosen) / 1000
    names: set[str] = set().union(*(curve.curve.summary() for curve in chosen))
    points = max(_FEWEST, min(_MOST, _CELLS // (len(names) + 2)))
    every *= max(1, -int(-(seconds / every) // points))
    count = max(1, int(seconds / every + 0.999))
    parts = [_coarse(curve, began_ns, start, every, count) for curve in chosen]
    return parts[0] if len(parts) == 1 else _sum(parts)


def _axis(curve: RecordedCurve, began_ns: int) -> tuple[float, float]:
    """Returns when a curve begins, and the length of its buckets, in seconds."""
    return (curve.began_ns - began_ns) / 1e9, curve.curve.length / 1000


def _coarse(curve: RecordedCurve, began_ns: int, start: float, every: float, count: int) -> Grid:
    offset, length = _axis(curve, began_ns)
    buckets = [Bucket(at) for at in range(count)]
    for position, bucket in sorted(curve.curve.buckets.items()):
        # From the middle of the bucket, so that no rounding puts it into the one before.
        into = buckets[min(count - 1, int((offset + (position + 0.5) * length - start) / every))]
        copied = {name: replace(level) for name, level in bucket.levels.items()}
        into.merge(Bucket(position, copied, bucket.totals))
    # Until its first child has a series, all memory is the program's.
    names = chain.from_iterable(each.levels for each in buckets)
    program = next((name for name in names if name.startswith(series.PROCESS)), series.MEMORY)
    for bucket in takewhile(lambda each: program not in each.levels, buckets):
        if series.MEMORY in bucket.levels:
            bucket.levels[program] = bucket.levels[series.MEMORY]
    return Grid(start, every, buckets, offset)


def _sum(parts: Sequence[Grid]) -> Grid:
    """Adds up the last values of curves: only those were there at one time, the highest were not."""
    start, every = parts[0].start, parts[0].every
    buckets = [Bucket(at) for at in range(len(parts[0].buckets))]
    given = chain.from_iterable(part.buckets for part in parts)
    for name in dict.fromkeys(chain.from_iterable((*b.levels, *b.totals) for b in given)):
        is_level = name not in series.TOTALS
        values = [_held(part.values(name, "last"), is_level) for part in parts]
        for bucket, row in zip(buckets, zip(*values, strict=True), strict=True):
            known = [value for value in row if value is not None]
            # What each process reads of the same device or folder counts once.
            value = max(known, default=0.0) if _SHARED.fullmatch(name) else sum(known)
            if known and is_level:
                middle = round((bucket.position + 0.5) * every * 1000)
                bucket.levels[name] = Level(value, value, value, middle)
            elif known:
                bucket.totals[name] = value
    return Grid(start, every, buckets, start, len(parts))


_SHARED: Final = re.compile(
    rf"{series.CACHE}|[cg]pu\.energy|gpu\.memory|gpu\.[0-9]+\.(?!{series.PROCESS_USED}).*"
)


def _held(values: Values, ends: bool) -> Values:
    """Returns values that stay until the next one; a level ends with its last, a total never."""
    held: Values = tuple(accumulate(values, lambda last, value: last if value is None else value))
    end = max((at for at, value in enumerate(values, 1) if value is not None), default=0)
    return held[:end] + values[end:] if ends else held


# --- the charts of a recording ------------------------------------------------------------


LEVELS: Final[Mapping[str, Figure]] = {
    figure.curve: figure
    for resource in RESOURCES
    for figure in resource.figures
    if figure.curve and not figure.is_total and not resource.device_figures
}
"""The figures that rise and fall and have a series, by its name; not sums over devices, each of which has a chart."""

OTHER_LEVELS: Final[Mapping[str, str]] = {
    name: figure.heading.lower() or figure.name
    for name, figure in LEVELS.items()
    if name != series.MEMORY
}
"""What the levels beside memory are called, by the names of their series."""

_TITLES: Final = {name: figure.brief for name, figure in LEVELS.items()} | {
    series.MEMORY: "Memory of the process tree",
    series.CACHE: "Growth of the cache directory",
}


def charts_of(recording: Recording, subject: ShownProcess) -> list[Chart]:
    """Returns the charts for which a recording has figures, the main one first."""
    # Without processes that are in the curve of one above them
    curves = recording.curves
    watched = {run.pid for run in recording.runs if run.pid is not None and run.process in curves}
    below = {run.process for run in recording.runs if run.parent_pid in watched}
    outermost = {process: curve for process, curve in curves.items() if process not in below}
    grid = grid_of(outermost, recording.began_ns) or NO_GRID
    charts = list(_from_curve(grid, recording, subject.steps))
    if not any(chart.is_large for chart in charts):
        charts[:0] = _from_checkpoints(recording, subject)
    return charts


def _from_curve(grid: Grid, recording: Recording, steps: Sequence[PlacedStep]) -> Iterator[Chart]:
    if series.MEMORY in grid.levels:
        note = f"The sum of {grid.parts:,} processes; what they share counts in each."
        chart = _level(
            grid, steps, series.MEMORY, _of_memory(grid),
            limit=memory_limit(recording), note=note if grid.parts > 1 else "",
        )  # fmt: skip
        if (peak := peak_of(recording)) is not None and peak.since is not None:
            where, when = peak_place(recording, peak)
            near = phrase(", {}", of_limit(peak.value, memory_limit(recording)))
            at = phrase(" at {}", when and peak.time, moment_of)
            text = f"Highest {number_text(peak.value, 'By')}{at}{where}{near}."
            chart = chart._replace(mark=chart.mark if when else None, summary=text)
        yield chart
    yield from _gpus(grid, recording, steps)
    yield from activity_charts(grid)
    yield from _rates(grid, recording.duration)
    for name, label in OTHER_LEVELS.items():
        if name in grid.levels:
            yield _level(grid, steps, name, [ChartSeries(label, grid.values(name))])


def _of_memory(grid: Grid) -> list[ChartSeries]:
    """Returns all memory, over the memory of the program and of its largest children if it has some."""
    memory = ChartSeries("memory", grid.values(series.MEMORY))
    program, *children = [name for name in grid.levels if name.startswith(series.PROCESS)] or [""]
    if not children:
        return [memory, ChartSeries("lowest", grid.values(series.MEMORY, "lowest"), "lowest")]
    largest = heapq.nlargest(MOST, children, key=lambda name: grid.peak(name)[0])
    layers = []
    for name in (program, *largest):
        label = cut(name.removeprefix(series.PROCESS), _LONGEST_NAME)
        layers.append(ChartSeries(label, grid.values(name, "last"), "stacked"))
    totals = grid.values(series.MEMORY, "last")
    shown = zip(*(each.values for each in layers), strict=True)
    rest = tuple(
        None if total is None else max(0.0, total - sum(filter(None, row)))
        for total, row in zip(totals, shown, strict=True)
    )
    if any(rest):
        layers.append(ChartSeries("other processes", rest, "stacked"))
    return [*layers, memory]


OF_PROGRAM: Final = "this program"


def _gpus(grid: Grid, recording: Recording, steps: Sequence[PlacedStep]) -> Iterator[Chart]:
    found = sorted({gpu[0] for name in grid.levels if (gpu := series.gpu_of(name)) is not None})
    limit, gpus = gpu_limit_of_one(recording)
    note = f"The limit assumes that all {gpus:.0f} GPUs are equally large." if gpus > 1 else ""
    for index in found:
        named = {series.gpu_process_used(index): OF_PROGRAM, series.gpu_used(index): "all programs"}
        known = [(name, label) for name, label in named.items() if name in grid.levels]
        if not shows_all_programs(recording):
            known = known[:1]
        shown = _beside([(label, grid.values(name)) for name, label in known])
        last = note if index == found[-1] else ""
        yield _level(grid, steps, known[0][0], shown, f"gpu-{index}", limit, last)


def _beside(named: Sequence[tuple[str, Values]]) -> list[ChartSeries]:
    """Returns series of which the first is the chart's own."""
    styles: Iterator[Style] = chain(("main",), repeat("second"))
    return [ChartSeries(*each, style) for each, style in zip(named, styles, strict=False)]


def _level(
    grid: Grid, steps: Sequence[PlacedStep], name: str, shown: Sequence[ChartSeries],
    chart: str = "", limit: float | None = None, note: str = "",
) -> Chart:  # fmt: skip
    """Returns the chart of a level, with the highest value of one of its series."""
    (title, unit), (peak, at) = _title_and_unit(name), grid.peak(name)
    text = number_text(peak, unit)
    inside = phrase(" in {}", step_at(steps, at), lambda each: cut(each.step.name, _LONGEST_NAME))
    summary = f"Highest {text} at {moment_of(at)}{inside}"
    return Chart(
        chart or name.replace(".", "-"), title, _UNITS.get(unit, unit), grid.times, shown,
        limit=limit,
        mark=Mark(f"peak {text}", at, peak),
        summary=f"{summary}{phrase(', {}', of_limit(peak, limit))}.",
        note=note,
        every=grid.every,
        is_large=name == series.MEMORY,
    )  # fmt: skip


_UNITS: Final = {"By": "bytes"}  # How a chart names a unit, where it does not take the figure's


def _title_and_unit(name: str) -> tuple[str, str]:
    """Returns the title of a level's chart, and the unit of its figure."""
    gpu = series.gpu_of(name)
    return (_TITLES[name], LEVELS[name].unit) if gpu is None else (f"Memory of GPU {gpu[0]}", "By")


def _rates(grid: Grid, until: float) -> Iterator[Chart]:
    totals, ways = [], []
    for word, name in (("written", series.DISK_WRITE), ("read", series.DISK_READ)):
        if (total := grid.newest(name)) is not None:
            totals.append(f"{size(total)} {word}")
            ways.append((word, grid.rate(name, until)))
    if ways:
        lines, summary = _beside(ways), f"{' and '.join(totals)} in all."
        yield Chart("disk", "Disk", "bytes/s", grid.times, lines, summary=summary, every=grid.every)
    if (seconds := grid.newest(series.CPU)) is not None:
        mean = seconds / max(grid.every, until - grid.start)
        summary = f"{digits_text(mean)} cores in use on average."
        lines = [ChartSeries("cores in use", grid.rate(series.CPU, until))]
        yield Chart("cpu", "CPU", "cores", grid.times, lines, summary=summary, every=grid.every)


def _at_checkpoints(subject: ShownProcess) -> list[tuple[float, float]]:
    """Returns the memory that was read at checkpoints, with the times."""
    return sorted(
        (point.time, value)
        for run in subject.runs
        for point in run.checkpoints
        if (value := number(point.attributes, semconv.CHECKPOINT_MEMORY)) is not None
    )


def _from_checkpoints(recording: Recording, subject: ShownProcess) -> Iterator[Chart]:
    """Yields a chart of what was read at the checkpoints, where no curve was taken."""
    if points := _at_checkpoints(subject):
        times, values = zip(*points, strict=True)
        yield Chart(
            series.MEMORY, _TITLES[series.MEMORY], "bytes", times, [ChartSeries("memory", values)],
            limit=memory_limit(recording),
            summary=f"Highest {size(max(values))} at a checkpoint.",
            note="Read at checkpoints only: what was between two of them is not known.",
            is_large=True,
        )  # fmt: skip


def bands_of(steps: Sequence[PlacedStep]) -> list[Band]:
    """Returns the bands of the steps that tell most, each in a row of its own at its time."""
    free_from: defaultdict[int, float] = defaultdict(lambda: -math.inf)  # By row
    rows: dict[tuple[int, int | None], int] = {}  # by run and index
    for each in steps:
        row = rows.get((id(each.run), each.step.parent), -1) + 1
        while free_from[row] > each.step.start:
            row += 1
        free_from[row] = each.end
        rows[id(each.run), each.step.index] = row
    bands = []
    for each in most_telling(steps):
        step, row = each.step, rows[id(each.run), each.step.index]
        name = cut(step.name, _LONGEST_BAND)
        bands.append(Band(name, step.start, each.end, row, each.depth, step.state))
    first = min((each.step.start for each in steps), default=0.0)
    if first > _LEAST_BEFORE * max(free_from.values(), default=0.0):  # imports, mostly
        bands.insert(0, Band(NAMES[BEFORE], 0.0, first, 0, 0, "ended"))
    return bands


# --- two runs on one axis -----------------------------------------------------------------

_CELLS_OF_TWO: Final = 800
_NOTE: Final = "Every step begins at the same place for both. Where a step is shorter in one run, its curve waits for the other."
_CHECKPOINTS: Final = (
    "Read at checkpoints only where no curve was taken: what was between two of them is not known."
)

_STYLES: Final[tuple[Style, Style]] = ("second", "main")  # Of the base, and of the new run

_Points: TypeAlias = list[tuple[float, float]]
"""Values with the times at which they were read, in seconds since the recording began."""


def comparison_charts(
    names: tuple[str, str], runs: tuple[ComparedRun, ComparedRun], time: CommonTime
) -> Iterator[Chart]:
    """Yields the charts of the levels that a run has, memory first."""
    sides = [_levels(run) for run in runs]
    every = time.until / _CELLS_OF_TWO
    times = tuple((cell + 0.5) * every for cell in range(_CELLS_OF_TWO))
    notes = {series.MEMORY: _NOTE if all(read for _, read in sides) else f"{_NOTE} {_CHECKPOINTS}"}
    known = {name for levels, _ in sides for name in levels}
    for name in sorted(known, key=lambda name: (name != series.MEMORY, name)):
        title, unit = _title_and_unit(name)
        peaks, lines = [], []
        for side, (levels, _) in enumerate(sides):
            if points := levels.get(name):
                highest = number_text(max(value for _, value in points), unit)
                peaks.append(f"{names[side]} up to {highest}")
                placed = _placed(points, side, time)
                lines.append(ChartSeries(names[side], placed, _STYLES[side]))
        yield Chart(
            name.replace(".", "-"), title, _UNITS.get(unit, unit), times, lines[::-1],
            summary=f"{', '.join(peaks)}.",
            note=notes.get(name, ""),
            every=every,
            is_large=name == series.MEMORY,
        )  # fmt: skip


def comparison_bands(run: ComparedRun, side: int, time: CommonTime) -> list[Band]:
    """Returns the steps of a run at their places on the common axis."""
    return [
        each._replace(start=time.place(side, each.start), end=time.place(side, each.end))
        for each in bands_of(subject_of(run.recording).steps)
    ]


def _levels(run: ComparedRun) -> tuple[dict[str, _Points], bool]:
    """Returns what is shown of a run, and whether its memory was read all the time."""
    grid = grid_of(run.recording.curves, run.recording.began_ns) or NO_GRID
    gpus = {gpu: name for name in grid.levels if (gpu := series.gpu_of(name)) is not None}
    names = [name for name in grid.levels if name in LEVELS]
    for (index, of), name in gpus.items():
        # Of all programs on a GPU only where nothing is known of this one
        if of != series.USED or (index, series.PROCESS_USED) not in gpus:
            names.append(name)
    found = {name: grid.points(name) for name in names}
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
    return _held(tuple(values), ends=True)
