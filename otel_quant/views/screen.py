"""The live view in a terminal, drawn by rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from otel_quant.recordings.model import PlacedStep, State
from otel_quant.schema import series
from otel_quant.schema.units import clock_text, duration_text, size
from otel_quant.views.ending import ended_as, ending_lines, exceeded
from otel_quant.views.text import printable
from otel_quant.views.watch import Looked, columns, progress

_MARKS: Final[dict[State, tuple[str, str]]] = {
    "running": ("▶", "bold cyan"),
    "ended": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "killed": ("✗", "bold red"),
    "lost": ("?", "bold yellow"),
}
"""How a state is marked, and in which style."""

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_CURVE_ROWS: Final = 6
_LOWEST: Final = 20
"""Rows of a terminal without the curve."""
_AXIS: Final = 9
"""Characters beside the curve."""
_BAR: Final = 20
_BESIDE_BAR: Final = 86
"""Characters of a row of steps without its bar: the bar is what is left out first."""
_LIMIT: Final = " limit"
_LOG_ROWS: Final = 5
_FEWEST_STEPS: Final = 3


def screen(looked: Looked, width: int, height: int, log: Sequence[str] = ()) -> RenderableType:
    """Returns what fills the terminal."""
    below = [*(_curve(looked, width) if height >= _LOWEST else ()), *_usage(looked)]
    below += map(Text, ending_lines(looked.recording.ending))
    if log:
        below += [Text(), Text("last lines of the output", style="dim")]
        below += [_line(printable(each)) for each in log[-_LOG_ROWS:]]
    recording, steps = looked.recording, _steps(looked, height - 4 - len(below), width)
    mark, style = _MARKS[recording.state]
    head = _line(
        (f"{mark} {ended_as(recording)}", style),
        f"  {duration_text(recording.duration)}  ",
        (looked.program[:10_000], "bold"),
    )
    return Group(head, Text(), *steps, Text(), *below)


def _line(*parts: str | tuple[str, str]) -> Text:
    """Returns a line that is cut where the terminal ends."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _steps(looked: Looked, rows: int, width: int) -> Iterator[RenderableType]:
    """Yields the open steps, and as many of those that ended last as there is room for."""
    every = looked.steps
    if not every:
        yield Text("no step has begun", style="dim")
        return
    order = sorted(
        range(len(every)),
        key=lambda at: (every[at].step.end is not None, every[at].step.error is None, -at),
    )
    shown = [every[at] for at in sorted(order[: max(_FEWEST_STEPS, rows) - 1])]
    if len(shown) < len(every):
        text = f"{len(every) - len(shown):,} steps that ended are not shown"
        yield Text(text, style="dim")
    bar = max(0, min(_BAR, width - _BESIDE_BAR))
    cells = [_cells(looked, each, bar) for each in shown]
    names = min(max(24, width // 3), max(row[0].cell_len for row in cells))
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis", min_width=names, max_width=names)
    for width_of_figure in (12, 9):
        table.add_column(justify="right", no_wrap=True, min_width=width_of_figure)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*row)
    yield table


def _cells(looked: Looked, each: PlacedStep, bar: int) -> tuple[Text, ...]:
    step, peak = each.step, looked.peak(each)
    name = Text.assemble("  " * each.depth, _MARKS[step.state], " ", looked.name(each))
    if step.end is not None:
        state = Text(printable(step.error or ""), style="red")
    else:
        state = Text(", ".join(progress(each)))
        if step.expected_samples and step.samples is not None and bar:
            done = bar * min(step.samples, step.expected_samples) // step.expected_samples
            state = Text.assemble(("━" * done, "cyan"), ("─" * (bar - done), "dim"), " ", state)
    shown = "" if peak is None else size(peak)
    return name, Text(duration_text(each.duration)), Text(shown, style="dim"), state


def _curve(looked: Looked, width: int) -> Iterator[Text]:
    """Yields memory over time as rows of blocks, the limit as a line where it is near."""
    curve = looked.curve
    count = max(10, width - _AXIS - len(_LIMIT))
    values = columns(curve, series.MEMORY, count) if curve is not None else []
    highest, limit = max(values, default=0.0), looked.memory().limit or 0.0
    if curve is None or not highest:
        return
    is_near = highest > limit / 2 > 0
    top = max(highest, limit) if is_near else highest
    for row in range(_CURVE_ROWS, 0, -1):
        is_top = row == _CURVE_ROWS
        filled = (value / top * _CURVE_ROWS - (row - 1) for value in values)
        blocks = "".join(_EIGHTHS[max(0, min(8, round(each * 8)))] for each in filled)
        label = f"{size(top) if is_top else '':>{_AXIS - 1}} "
        yield _line((label, "dim"), (blocks, "cyan"), (_LIMIT if is_top and is_near else "", "red"))
    length = (max(curve.curve.buckets) + 1) * curve.curve.length / 1000
    axis = f"{'':{_AXIS}}0:00{clock_text(length):>{max(0, len(values) - 4)}}"
    yield Text(axis, style="dim")


def _usage(looked: Looked) -> Iterator[Text]:
    for use in looked.usage():
        if use.now is not None or use.peak is not None:
            yield Text.assemble((f"{use.name:13}", "bold"), use.text)
    for each in looked.steps:
        if each.step.end is None and (text := exceeded(each.run, each.step)):
            yield Text(f"{looked.name(each)}: {text}", style="bold red")
