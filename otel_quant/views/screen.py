"""The live view in a terminal, drawn by rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from otel_quant.recordings.model import Recording, State
from otel_quant.recordings.steps import PlacedStep
from otel_quant.schema import series
from otel_quant.schema.units import clock_text, duration_text, size
from otel_quant.views.ending import ended_as, exceeded, time_left
from otel_quant.views.text import printable
from otel_quant.views.watch import (
    columns,
    curve_of,
    forecast,
    memory,
    name_text,
    others,
    program_text,
    samples_text,
    step_peaks,
    steps_of,
    usage_text,
)

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
_AXIS: Final = 9
"""Characters beside the curve."""
_BAR: Final = 20
_BESIDE_BAR: Final = 86
"""Characters of a row of steps without its bar: the bar is what is left out first."""
_LIMIT: Final = " limit"
_LOG_ROWS: Final = 5
_FEWEST_STEPS: Final = 3


def screen(
    recording: Recording, width: int, height: int, log: Sequence[str] = ()
) -> RenderableType:
    """Returns what fills the terminal."""
    log = log[-_LOG_ROWS:]
    curve = list(_curve(recording, width)) if height >= 20 else []
    use = list(_usage(recording))
    advice = list(_ending(recording))
    left = height - 4 - len(curve) - len(use) - len(advice) - (len(log) + 2 if log else 0)
    parts: list[RenderableType] = [_headline(recording), Text()]
    parts.append(_steps(recording, max(_FEWEST_STEPS, left), width))
    parts += [Text(), *curve, *use, *advice]
    if log:
        parts += [Text(), Text("last lines of the output", style="dim")]
        parts += [_cut(printable(line)) for line in log]
    return Group(*parts)


def _headline(recording: Recording) -> Text:
    mark, style = _MARKS[recording.state]
    text = Text.assemble(
        (f"{mark} {ended_as(recording)}", style),
        f"  {duration_text(recording.duration)}  ",
        (program_text(recording), "bold"),
    )
    text.truncate(10_000)
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _steps(recording: Recording, rows: int, width: int) -> RenderableType:
    lines = steps_of(recording)
    if not lines:
        return Text("no step has begun", style="dim")
    shown = _worth_most(lines, rows - 1)
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False, expand=False)
    peak_of, bar = step_peaks(recording), max(0, min(_BAR, width - _BESIDE_BAR))
    cells = [_cells(recording, line, peak_of(line), bar) for line in shown]
    names = min(max(24, width // 3), max(row[0].cell_len for row in cells))
    table.add_column(no_wrap=True, overflow="ellipsis", min_width=names, max_width=names)
    for width_of_figure in (12, 9):
        table.add_column(justify="right", no_wrap=True, min_width=width_of_figure)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*row)
    if len(shown) == len(lines):
        return table
    return Group(
        Text(f"{len(lines) - len(shown):,} steps that ended are not shown", style="dim"), table
    )


def _worth_most(lines: Sequence[PlacedStep], rows: int) -> list[PlacedStep]:
    """Returns the open steps, and as many of those that ended last as there is room for."""
    first = sorted(
        range(len(lines)),
        key=lambda at: (lines[at].step.end is not None, lines[at].step.error is None, -at),
    )
    return [lines[at] for at in sorted(first[: max(1, rows)])]


def _cells(
    recording: Recording, line: PlacedStep, peak: float | None, bar: int
) -> tuple[Text, ...]:
    step = line.step
    mark, style = _MARKS[step.state]
    return (
        Text.assemble("  " * line.depth, (mark, style), " ", name_text(recording, line)),
        Text(duration_text(line.duration)),
        Text(size(peak) if peak is not None else "", style="dim"),
        _progress(line, bar),
    )


def _progress(line: PlacedStep, bar: int) -> Text:
    step = line.step
    if line.step.end is not None:
        return Text(printable(step.error or ""), style="red")
    texts = [samples_text(step)]
    if step.state == "running":
        texts.append(time_left(forecast(line)))
    text = Text(", ".join(filter(None, texts)))
    if not step.expected_samples or step.samples is None or not bar:
        return text
    done = bar * min(step.samples, step.expected_samples) // step.expected_samples
    return Text.assemble(("━" * done, "cyan"), ("─" * (bar - done), "dim"), " ", text)


def _curve(recording: Recording, width: int) -> Iterator[Text]:
    """Yields memory over time as rows of blocks, the limit as a line where it is near."""
    curve = curve_of(recording)
    values = (
        columns(curve, series.MEMORY, max(10, width - _AXIS - len(_LIMIT)))
        if curve is not None
        else []
    )
    highest = max((value for value in values if value is not None), default=0)
    if curve is None or not highest:
        return
    limit = memory(recording).limit
    near = limit is not None and highest > limit / 2
    top = max(highest, limit) if near and limit is not None else highest
    for row in range(_CURVE_ROWS, 0, -1):
        blocks = "".join(_block(value, top, row) for value in values)
        label = f"{size(top):>{_AXIS - 1}} " if row == _CURVE_ROWS else " " * _AXIS
        is_limit = near and row == _CURVE_ROWS
        yield Text.assemble((label, "dim"), (blocks, "cyan"), (_LIMIT, "red") if is_limit else "")
    length = (max(curve.curve.buckets) + 1) * curve.curve.length / 1000
    end = clock_text(length)
    axis = f"{'':{_AXIS}}0:00{end:>{max(0, len(values) - 4)}}"
    yield Text(axis, style="dim")


def _block(value: float | None, top: float, row: int) -> str:
    filled = (value or 0) / top * _CURVE_ROWS - (row - 1)
    return _EIGHTHS[max(0, min(8, round(filled * 8)))]


def _usage(recording: Recording) -> Iterator[Text]:
    for use in (memory(recording), *others(recording)):
        if use.now is not None or use.peak is not None:
            yield Text.assemble((f"{use.name:13}", "bold"), usage_text(use))
    for line in steps_of(recording):
        text = exceeded(forecast(line)) if line.step.end is None else ""
        if text:
            yield Text(f"{name_text(recording, line)}: {text}", style="bold red")


def _ending(recording: Recording) -> Iterator[Text]:
    ending = recording.ending
    if ending is None or recording.state == "ended":
        return
    if ending.where:
        yield Text(f"was in {printable(ending.where)}", style="bold")
    if ending.evidence:
        yield Text(printable(ending.evidence))
    for advice in ending.advice[:3]:
        yield Text(f"- {advice.text}")


def _cut(line: str) -> Text:
    return Text(line, no_wrap=True, overflow="ellipsis")
