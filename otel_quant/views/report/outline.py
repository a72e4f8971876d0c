"""The outline of a chart as SVG: what a page without JavaScript, and a print, shows of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from otel_quant.recordings.model import State
from otel_quant.schema.units import clock_text, count_text, cut, digits_text, size
from otel_quant.views.report.bands import ROWS, ShownStep
from otel_quant.views.report.charts import Chart, Unit
from otel_quant.views.report.grid import Values

WIDTH: Final = 1000
HEIGHT: Final = 200
_POINTS: Final = 400
_PAUSE: Final = 2.0
"""Seconds: a busy machine delays a reading; only a longer pause is a gap."""

_NARROWEST: Final = 0.15
_MOST_BANDS: Final = 120
_MOST_BANDS_BESIDE: Final = 12
"""In each of the smaller charts, of which there may be some twenty."""

_LONGEST_LABEL: Final = 60


@dataclass(frozen=True, slots=True)
class OutlineBand:
    """The band of a step. Places are shares of the width, in percent."""

    name: str  # The step
    left: float  # Where it begins
    width: float  # How wide it is
    row: int  # Its row, from 0
    state: State  # How it stands


@dataclass(frozen=True, slots=True)
class Tick:
    """A value on an axis."""

    text: str  # The value with its unit
    place: float  # Where it is, in percent of the width, or of the height from the top


@dataclass(frozen=True, slots=True)
class Outline:
    """A chart as paths in a box of ``WIDTH`` by ``HEIGHT``."""

    area: str  # The main series down to the floor; empty if there is none
    line: str  # Its upper edge
    second: tuple[str, ...]  # The upper edges of the series beside it
    limit: float | None  # Height of the limit line in percent from the top; None if it is not drawn
    bands: tuple[OutlineBand, ...]  # The steps' bands
    rows: int  # Rows of bands
    x_ticks: tuple[Tick, ...]  # Times
    y_ticks: tuple[Tick, ...]  # Values


def outline_of(chart: Chart, steps: Sequence[ShownStep], until: float) -> Outline:
    """Returns the outline of a chart."""
    main = next((each for each in chart.series if each.style == "main"), None)
    top = chart.top
    line = "" if main is None else _path(chart, main.values, until, top)
    bands = tuple(_bands(steps, until, _MOST_BANDS if chart.is_large else _MOST_BANDS_BESIDE))
    limit = None
    if chart.limit is not None and chart.limit.value <= top:
        limit = 100 * (1 - chart.limit.value / top)
    return Outline(
        area=_closed(line),
        line=line,
        second=tuple(
            _path(chart, each.values, until, top) for each in chart.series if each.style == "second"
        ),
        limit=limit,
        bands=bands if chart.is_large else tuple(band for band in bands if band.row == 0),
        rows=max((band.row + 1 for band in bands), default=0) if chart.is_large else 0,
        x_ticks=tuple(Tick(clock_text(share * until), 100 * share) for share in _QUARTERS),
        y_ticks=tuple(
            Tick(value_text(value, chart.unit), 100 * (1 - value / top))
            for value in _round_values(top)
            if limit is None or 100 * (1 - value / top) - limit > _APART
        ),
    )


_QUARTERS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_TICKS: Final = 3
_APART: Final = 10
"""Percent of the height: a tick nearer to the limit would be written over it."""


def _round_values(top: float) -> Iterator[float]:
    """Yields up to three round values between 0 and the top of a scale."""
    step = top / (_TICKS + 1)
    power = 10.0 ** math.floor(math.log10(step))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step)
    value = step
    while value < 0.9 * top:
        yield value
        value += step


def value_text(value: float, unit: Unit) -> str:
    """Returns a value of a chart with its unit."""
    match unit:
        case "bytes":
            return size(value)
        case "bytes/s":
            return f"{size(value)}/s"
        case "cores":
            return f"{digits_text(value)} cores"
        case "samples":
            return count_text(value)


def _path(chart: Chart, values: Values, until: float, top: float) -> str:
    """Returns a polyline through the highest value of each stretch; a gap begins a new one."""
    times, every = chart.times, math.inf if chart.every is None else chart.every
    stretch = max(1, -(-len(values) // _POINTS))
    parts: list[str] = []
    before: float | None = None
    for first in range(0, len(values), stretch):
        found = [
            (value, time)
            for value, time in zip(
                values[first : first + stretch], times[first : first + stretch], strict=True
            )
            if value is not None
        ]
        if not found:
            continue
        value, time = max(found)
        is_new = before is None or time - before > max(_PAUSE, 2 * stretch * every)
        x, y = WIDTH * time / until if until else 0.0, HEIGHT * (1 - value / top)
        parts.append(f"{'M' if is_new else 'L'}{x:.0f} {y:.0f}")
        before = time
    return "".join(parts)


def _closed(line: str) -> str:
    """Returns the area between a line and the floor."""
    closed = ""
    for part in filter(None, line.split("M")):
        points = part.split("L")
        first, last = points[0].split()[0], points[-1].split()[0]
        closed += f"M{first} {HEIGHT}L{'L'.join(points)}L{last} {HEIGHT}Z"
    return closed


def _bands(steps: Sequence[ShownStep], until: float, most: int) -> Iterator[OutlineBand]:
    if not until:
        return
    widest = sorted(
        (step for step in steps if step.row < ROWS),
        key=lambda step: (step.state == "ended", -step.duration),
    )
    for each in sorted(widest[:most], key=lambda step: (step.row, step.step.start)):
        width = 100 * each.duration / until
        if width < _NARROWEST and each.state == "ended":
            continue
        left = 100 * each.step.start / until
        width = round(max(width, _NARROWEST), 2)
        yield OutlineBand(
            cut(each.step.name, _LONGEST_LABEL), round(left, 2), width, each.row, each.state
        )
