"""The live view of a recording: a screen in a terminal, and lines where there is none."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

from otel_quant.base.files import open_regular
from otel_quant.format import series
from otel_quant.format.event_file import OUTPUT
from otel_quant.recordings import summary
from otel_quant.recordings.gpus import gpu_limit_of_one, highest_on, shows_all_programs
from otel_quant.recordings.model import PlacedStep, Recording, State, known, number, steps_in
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.figures import GPU_UTILIZATION, MEMORY, RESOURCES
from otel_quant.schema.units import clock_text, duration_text, share_text, size
from otel_quant.views import answer, endings
from otel_quant.views.charts import Values
from otel_quant.views.curves import LEVELS, NO_GRID, OTHER_LEVELS, grid_of
from otel_quant.views.document import Column, Document, Row, Table
from otel_quant.views.steps import memory_limit, process_name
from otel_quant.views.text import number_text, phrase, printable
from otel_quant.views.writers import terminal_text

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live


# --- what is known ------------------------------------------------------------------------


class Usage(NamedTuple):
    """Something that is used. Bytes, or what the name has; None for what is not known."""

    name: str  # What it is
    now: float | None  # The newest figure
    peak: float | None = None  # The highest so far
    limit: float | None = None  # What there is
    unit: str = "By"

    @property
    def text(self) -> str:
        """Figures in words: ``7.52 GB, peak 8.10 GB, limit 16.0 GB (50.6 % of it)``."""
        known = (("", self.now), ("peak ", self.peak))
        texts = [f"{name}{number_text(it, self.unit)}" for name, it in known if it is not None]
        if self.limit is not None:
            share = phrase(" ({} of it)", (self.peak or 0) / self.limit, share_text)
            texts.append(f"limit {size(self.limit)}{share}")
        return ", ".join(texts)


class Looked:
    """A recording, as far as it has come."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        # The steps of all runs, in the order in which they opened
        self.steps = sorted(steps_in(recording), key=lambda each: each.step.start)
        self._summaries = summary.steps_of(recording)
        self.grid = grid_of(recording.curves, recording.began_ns) or NO_GRID
        command = recording.origin.get(semconv.PROCESS_COMMAND_LINE, recording.path.name)
        self.program = printable(str(command))

    def name(self, each: PlacedStep) -> str:
        """Returns the name of a step, and of its run if there are several."""
        run = f" ({process_name(self.recording, each.run)})" if len(self.recording.runs) > 1 else ""
        return printable(f"{each.step.name}{run}")

    def peak(self, each: PlacedStep) -> float | None:
        """Returns the highest memory of a step."""
        return self._summaries(each).value(each.step, summary.MEMORY_PEAK)

    def memory(self) -> Usage:
        """Returns the memory of all processes: the newest figure, the peak and the limit."""
        now = self.grid.newest(series.MEMORY)
        if now is None:
            lasts = [each.last.attributes for each in self.recording.runs if each.last is not None]
            read = (number(last, f"{semconv.READING_PREFIX}{MEMORY.name}") for last in lasts)
            now = max(filter(None, read), default=None)
        peak = summary.value(self.recording, summary.MEMORY_PEAK)
        return Usage("memory", now, peak, memory_limit(self.recording))

    def usage(self) -> Iterator[Usage]:
        """Yields what is used: memory, each GPU, other levels, and what has been read and written."""
        yield self.memory()
        grid = self.grid
        for name in sorted(grid.levels):
            now, (peak, _), gpu = grid.newest(name), grid.peak(name), series.gpu_of(name)
            if gpu is not None:
                yield from self._of_gpu(gpu, Usage(f"GPU {gpu[0]}", now, peak))
            elif name in OTHER_LEVELS and peak:
                yield Usage(OTHER_LEVELS[name], now, peak, unit=LEVELS[name].unit)
        for resource, figure in _TOTALS:
            if (total := grid.newest(figure.curve)) is not None:
                yield Usage(f"{resource.name} {figure.heading.lower()}", total, unit=figure.unit)

    def _of_gpu(self, gpu: tuple[int, str], usage: Usage) -> Iterator[Usage]:
        """Yields what the program has of a GPU; of all programs where others have much of it, or no more is known."""
        (index, of), own = gpu, series.gpu_process_used(gpu[0])
        if of == series.PROCESS_USED:
            peak = max(known((usage.peak, highest_on(self.recording, index))))
            yield usage._replace(peak=peak, limit=gpu_limit_of_one(self.recording)[0])
        elif own not in self.grid.levels or shows_all_programs(self.recording):
            yield usage._replace(name=f"{usage.name}, all programs")


_TOTALS: Final = [
    (resource, figure)
    for resource in RESOURCES
    for figure in resource.figures
    if figure.is_total and figure.heading
]

_SILENT: Final = 5.0  # Seconds after which a reading is shown as old; there is one each second


def _progress(each: PlacedStep) -> list[str]:
    """Returns how far a step has come: ``sample 37 of 512``, ``about 30 min left``, and its line."""
    step, last = each.step, each.run.last
    line = phrase("at {}", step.line, lambda line: printable(line.words))
    silent = each.end - last.time if last is not None and step.end is None else 0.0
    if line and silent > _SILENT:  # something holds the GIL, or the process is stopped
        line += f" {duration_text(silent)} ago"
    found = answer.findings_of(each.run, step)
    return list(filter(None, (str(step.counts), endings.time_left(each.run, step), *found, line)))


# --- lines --------------------------------------------------------------------------------

_EVERY: Final = 30.0  # Seconds between two lines on how the run goes on


class PlainView:
    """Lines on what has changed since the last look."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], bool] = {}  # whether the step had ended
        self._next = 0.0

    def lines(self, recording: Recording) -> Iterator[str]:
        """Yields what is new."""
        looked, now = Looked(recording), recording.duration
        news = sorted(self._of_steps(looked), key=itemgetter(0))
        if not self._next:
            self._next = _EVERY
            news.insert(0, (0.0, looked.program))
        if recording.state != "running":
            news.append((now, f"{endings.ended_as(recording)} after {duration_text(now)}"))
        elif now >= self._next:
            self._next = now + _EVERY
            news.append((now, _now(looked)))
        for at, text in news:
            clock = time.localtime(recording.began_ns / 1e9 + at)
            yield f"{time.strftime('%H:%M:%S', clock)} {text}"

    def _of_steps(self, looked: Looked) -> Iterator[tuple[float, str]]:
        """Yields which steps began and ended since the last look, each with its time."""
        for each in looked.steps:
            step, key = each.step, (each.run.id, each.step.index)
            if key not in self._told:
                yield step.start, f"{looked.name(each)} began"
            if step.end is not None and not self._told.get(key, False):
                yield step.end, _ended(looked, each)
            self._told[key] = step.end is not None


def _ended(looked: Looked, each: PlacedStep) -> str:
    """Returns how a step ended: ``Calibration ended: took 8.75 s, peak 1.90 GB``."""
    step, peak = each.step, looked.peak(each)
    took = f"took {duration_text((step.end or 0.0) - step.start)}"
    if peak is not None:
        took += f", peak {size(peak)}"
    if step.error is None:
        return f"{looked.name(each)} ended: {took}"
    why = ": ".join(filter(None, (step.error, step.error_message)))
    return f"{looked.name(each)} failed: {took}{phrase(', {}', printable(why))}"


def _now(looked: Looked) -> str:
    running = [each for each in looked.steps if each.step.state == "running"]
    known = ((looked.name(at), *_progress(at), endings.exceeded(at.run, at.step)) for at in running)
    texts = (", ".join(filter(None, each)) for each in known)
    told = (*texts, endings.restart_text(looked.recording), f"memory {looked.memory().text}")
    return "; ".join(filter(None, told))


# --- a screen -----------------------------------------------------------------------------

_MARKS: Final[dict[State, str]] = {
    "running": "▶", "ended": "✓", "failed": "✗", "killed": "✗", "lost": "?",
}  # fmt: skip
_STYLES: Final = {"▶": "cyan", "✗": "bold red", "?": "bold yellow"}
"""Of a line that begins with the mark."""

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_CURVE_ROWS: Final = 6
_LOWEST: Final = 20  # Rows of a terminal without the curve
_NAME: Final = 13  # Characters of the name of what is used
_MOST_GPU_ROWS: Final = 8
_AXIS: Final = 9  # Characters beside the curve
_LIMIT: Final = " limit"
_LOG_ROWS: Final = 5
_FEWEST_STEPS: Final = 3


def screen(looked: Looked, width: int, height: int, log: Sequence[str] = ()) -> Group:
    """Returns what fills the terminal."""
    from rich.console import Group
    from rich.text import Text

    recording = looked.recording
    limits = [
        f"{looked.name(each)}: {text}"
        for each in looked.steps
        if each.step.end is None and (text := endings.exceeded(each.run, each.step))
    ]
    uses = [use for use in looked.usage() if use.now is not None or use.peak is not None]
    wide = max((len(use.name) + 1 for use in uses), default=0)
    below = [
        *(_curve(looked, width) if height >= _LOWEST else ()),
        *((f"{use.name:{max(_NAME, wide)}}{use.text}", "") for use in uses),
        *_activity(looked, width),
        *((line, "bold red") for line in limits),
        *((line, "") for line in filter(None, (endings.restart_text(recording),))),
        *((line, "") for line in endings.ending_lines(recording.ending)),
    ]
    if log:
        below += [("", ""), ("last lines of the output", "dim")]
        below += [(printable(each), "") for each in log[-_LOG_ROWS:]]
    took = duration_text(recording.duration)
    how = f"{_MARKS[recording.state]} {endings.ended_as(recording)}"
    head = f"{how}  {took}  {looked.program[:width]}"
    steps = _steps(looked, max(_FEWEST_STEPS, height - 6 - len(below)), width)
    lines = [(head, "bold"), ("", ""), *steps, ("", ""), *below]
    return Group(*(Text(*line, no_wrap=True, overflow="ellipsis") for line in lines))


def _steps(looked: Looked, rows: int, width: int) -> Iterator[tuple[str, str]]:
    """Yields the open steps, and as many of those that ended last as there is room for."""
    every = looked.steps
    if not every:
        yield "no step has begun", "dim"
        return
    order = sorted(
        range(len(every)),
        key=lambda at: (every[at].step.end is not None, every[at].step.error is None, -at),
    )
    shown = [every[at] for at in sorted(order[: rows - 1])]
    if len(shown) < len(every):
        yield f"{len(every) - len(shown):,} steps that ended are not shown", "dim"
    columns: tuple[Column[PlacedStep], ...] = (
        Column("STEP", value=lambda each: f"{_MARKS[each.step.state]} {looked.name(each)}"),
        Column("TIME", "s", lambda each: each.duration),
        Column("MEM PEAK", "By", looked.peak),
        Column("", value=lambda each: each.step.error or ", ".join(_progress(each))),
    )
    table = Table.of(columns, shown, row=lambda of, cells: Row(cells, of.depth), known_only=True)
    for line in terminal_text(Document((table,)), width).splitlines():
        yield line, _STYLES.get(line.lstrip()[:1], "")


def _curve(looked: Looked, width: int) -> Iterator[tuple[str, str]]:
    """Yields memory over time as rows of blocks, with the limit where it is near."""
    grid, limit = looked.grid, looked.memory().limit or 0.0
    values = _stretches(grid.values(series.MEMORY), max(10, width - _AXIS - len(_LIMIT)))
    highest = max(values, default=0.0)
    if not highest:
        return
    is_near = highest > limit / 2 > 0
    top = max(highest, limit) if is_near else highest
    labels = {_CURVE_ROWS: (size(top), _LIMIT if is_near else "")}
    for row in range(_CURVE_ROWS, 0, -1):
        filled = (value / top * _CURVE_ROWS - (row - 1) for value in values)
        blocks = "".join(_EIGHTHS[max(0, min(8, round(each * 8)))] for each in filled)
        label, limit_text = labels.get(row, ("", ""))
        yield f"{label:>{_AXIS - 1}} {blocks}{limit_text}", "cyan"
    length = grid.start + len(grid.buckets) * grid.every
    yield f"{'':{_AXIS}}0:00{clock_text(length):>{max(0, len(values) - 4)}}", "dim"


def _activity(looked: Looked, width: int) -> Iterator[tuple[str, str]]:
    """Yields what each GPU does over time, a row of blocks each: of many GPUs their utilization, of some of them."""
    grid, room = looked.grid, max(10, width - 2 * _NAME - _AXIS)
    known = [(gpu, name) for name in grid.levels if (gpu := series.gpu_activity(name)) is not None]
    if len(known) > _MOST_GPU_ROWS:
        known = [each for each in known if each[0][1] == GPU_UTILIZATION.curve][:_MOST_GPU_ROWS]
    for (index, of), name in known:
        unit, top = ("1", 1.0) if of == GPU_UTILIZATION.curve else ("W", grid.peak(name)[0] or 1.0)
        values = _stretches(grid.values(name, "last"), room)
        blocks = "".join(_EIGHTHS[max(0, min(8, round(8 * each / top)))] for each in values)
        text = number_text(grid.newest(name) or 0.0, unit)
        yield f"{f'GPU {index} {of}':{2 * _NAME}}{text:{_AXIS}}{blocks}", "cyan"


def _stretches(read: Values, most: int) -> list[float]:
    """Returns the highest value of each of so many stretches; one without a reading is as the one before."""
    values = [0.0]
    for at in range(count := min(len(read), most)):
        part = read[at * len(read) // count : (at + 1) * len(read) // count]
        values.append(max(filter(None, part), default=values[-1]))
    return values[1:]


# --- look after look ----------------------------------------------------------------------

_PAUSE: Final = 1.0  # Seconds between two looks
_SHARE: Final = 10  # A look that takes long is followed by a pause this many times as long
_LAST_ROWS: Final = 60
_TAIL: Final = 8192  # Bytes of the output that are read


class LiveView:
    """Shows a recording until it is over."""

    def __init__(self, path: Path, out: TextIO, *, once: bool = False) -> None:
        self._path, self._out, self._once = path, out, once
        self._ended = threading.Event()
        self._live: Live | None = None

    def show(self) -> None:
        """Shows it until it is over, until :meth:`end` or Ctrl-C."""
        with suppress(KeyboardInterrupt):  # whoever looks has seen enough
            if self._out.isatty() and os.environ.get("TERM") != "dumb":
                self._on_a_terminal()
                return
            view = PlainView()
            for recording in self._looks():
                for line in view.lines(recording):
                    print(line, file=self._out, flush=True)

    def end(self) -> None:
        """Has :meth:`show`, on another thread, look for the last time now."""
        self._ended.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves the screen as it was for a block, in which this process is stopped."""
        live = self._live
        if live is None or not live.is_started:
            yield
            return
        live.stop()
        try:
            yield
        finally:
            live.start()

    def _on_a_terminal(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._out)
        newest: Looked | None = None
        log: list[str] = []
        with Live(
            console=console, auto_refresh=False, screen=not self._once, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        ) as live:  # fmt: skip
            self._live = live
            with suppress(KeyboardInterrupt):
                for recording in self._looks():
                    newest, log = Looked(recording), last_lines(self._path / OUTPUT)
                    live.update(screen(newest, *console.size, log), refresh=True)
        if newest is not None:  # what stays when the screen is gone
            console.print(screen(newest, console.width, _LAST_ROWS, log))

    def _looks(self) -> Iterator[Recording]:
        while True:
            began = time.monotonic()
            is_last = self._once or self._ended.is_set()
            recording = read(self._path)
            yield recording
            if is_last or recording.state != "running":
                return
            self._ended.wait(max(_PAUSE, _SHARE * (time.monotonic() - began)))


def last_lines(path: Path) -> list[str]:
    """Returns the last lines of the program's output; none if it is not in the recording."""
    try:
        with open_regular(path) as file:
            length = file.seek(0, 2)
            file.seek(max(0, length - _TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    # A progress bar writes over its line: its last state counts.
    lines = [line.rpartition("\r")[2] for line in text.rstrip("\r\n").split("\n")]
    return lines if length <= _TAIL else lines[1:]
