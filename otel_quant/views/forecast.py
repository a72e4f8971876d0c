"""What the forecast says of a step, in words: the live view, `show` and the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_quant.recordings.model import RecordedRun, RecordedStep, Recording
from otel_quant.schema import semconv
from otel_quant.schema.units import duration_text, size
from otel_quant.views.text import printable

_GROWTHS: Final = (
    ("memory", semconv.FORECAST_MEMORY, semconv.FORECAST_MEMORY_LIMIT),
    ("GPU memory", semconv.FORECAST_GPU_MEMORY, semconv.FORECAST_GPU_MEMORY_LIMIT),
)


def forecast_of(run: RecordedRun, step: RecordedStep) -> Mapping[str, Any]:
    """Returns the attributes of a step's forecast: the newest of one that is open, else the warning."""
    last = run.last
    if step.end is None and last is not None and last.open_steps[-1:] == (step.index,):
        return last.attributes
    return step.attributes


def time_left(attributes: Mapping[str, Any]) -> str:
    """Returns the time until the last sample; empty if it is not known."""
    left = attributes.get(semconv.FORECAST_TIME_LEFT)
    return f"about {duration_text(left)} left" if isinstance(left, int | float) else ""


def exceeded(attributes: Mapping[str, Any]) -> str:
    """Returns a forecast above the limit; empty if there is none."""
    for what, name, of_limit in _GROWTHS:
        at_end, limit = attributes.get(name), attributes.get(of_limit)
        if isinstance(at_end, int) and isinstance(limit, int) and at_end > limit:
            return (
                f"{what} would be {size(at_end)} after the last sample (estimated); "
                f"the limit is {size(limit)}"
            )
    return ""


def forecast_lines(recording: Recording) -> list[str]:
    """Returns a line for each step whose forecast is above the limit, or that has time left."""
    lines: list[str] = []
    for run in recording.runs:
        for step in run.steps:
            attributes = forecast_of(run, step)
            left = time_left(attributes) if step.state == "running" else ""
            said = ", ".join(filter(None, (left, exceeded(attributes))))
            if said:
                lines.append(printable(f"{step.name}: {said}"))
    return lines
