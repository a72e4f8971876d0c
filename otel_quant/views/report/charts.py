"""Charts as data: what the page's script draws, and what the outline shows without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from otel_quant.schema.units import cut
from otel_quant.views.report.bands import ShownStep
from otel_quant.views.report.grid import Values

Unit = Literal["bytes", "bytes/s", "cores", "samples"]
Style = Literal["main", "second", "stacked", "lowest"]
"""How a series is drawn: the figure itself, one beside it, a share of it, the lower edge of it."""

Json: TypeAlias = dict[str, object]

_STEPS: Final[dict[Unit, float]] = {"bytes": 1000, "bytes/s": 1000, "cores": 0.01, "samples": 1}
"""What the numbers of the page are multiples of: whole numbers take less of the file."""

_LONGEST_LABEL: Final = 80


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a chart."""

    label: str  # Its name
    values: Values  # One value for each time of the chart; None where nothing was read
    style: Style = "main"  # How it is drawn


@dataclass(frozen=True, slots=True)
class Line:
    """A level that is drawn across a chart."""

    label: str  # What it is
    value: float  # Its value


@dataclass(frozen=True, slots=True)
class Mark:
    """A point with a label."""

    label: str  # What it is
    time: float  # Seconds since the recording began
    value: float  # Its value


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart over the time of a recording."""

    id: str  # Identifier in the page
    title: str  # What it shows
    unit: Unit  # Unit of its values
    times: Sequence[float]  # Seconds since the recording began, ascending
    series: tuple[Series, ...]  # Its series; stacked ones from the bottom
    limit: Line | None = None  # The limit in force
    mark: Mark | None = None  # Its highest value
    summary: str = ""  # What it shows in one sentence, for who cannot see it
    note: str = ""  # What has to be known to read it
    every: float | None = None  # Seconds of one bucket; None if the times are not evenly spaced
    is_large: bool = False  # Whether it is the page's main chart, with the names of the steps

    @property
    def top(self) -> float:
        """Highest value of the scale. It has the limit unless the curve would be flat below it."""
        highest = max(
            (value for series in self.series for value in series.values if value is not None),
            default=0.0,
        )
        stacked = [series.values for series in self.series if series.style == "stacked"]
        if stacked:
            rows = zip(*stacked, strict=True)
            highest = max(highest, *(sum(value or 0.0 for value in row) for row in rows))
        if self.mark is not None:
            highest = max(highest, self.mark.value)
        if self.limit is not None and highest >= _NEAR * self.limit.value:
            return 1.06 * max(highest, self.limit.value)
        return 1.12 * highest or 1.0


_NEAR: Final = 0.3
"""Share of the limit from which on it is drawn; below it the curve would be a line on the floor."""


def chart_data(chart: Chart) -> Json:
    """Returns a chart as the page's script reads it."""
    step = _STEPS[chart.unit]
    data: Json = {
        "id": chart.id,
        "unit": chart.unit,
        "step": step,
        "top": chart.top,
        "large": chart.is_large,
        "series": [
            {
                "label": series.label,
                "style": series.style,
                "values": [
                    None if value is None else round(value / step) for value in series.values
                ],
            }
            for series in chart.series
        ],
    }
    if chart.every is None or len(chart.times) == 0:
        data["times"] = [round(time, 3) for time in chart.times]
    else:
        data["start"], data["every"] = round(chart.times[0], 3), round(chart.every, 6)
        data["count"] = len(chart.times)
    if chart.limit is not None:
        data["limit"] = {"label": chart.limit.label, "value": chart.limit.value}
    if chart.mark is not None:
        data["mark"] = {
            "label": chart.mark.label,
            "time": round(chart.mark.time, 3),
            "value": chart.mark.value,
        }
    return data


def band_data(steps: Sequence[ShownStep]) -> list[list[object]]:
    """Returns the bands of steps: name, start, end, row, depth and state of each."""
    return [
        [
            cut(each.step.name, _LONGEST_LABEL),
            round(each.step.start, 3),
            round(each.end, 3),
            each.row,
            each.depth,
            each.state,
        ]
        for each in steps
    ]
