"""What a recording says of the whole: how it stands, and how the launcher saw it end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_quant.recordings.model import Recording
from otel_quant.views.ending import ending_lines
from otel_quant.views.forecast import forecast_lines
from otel_quant.views.former_document import Facts, Lines, Part

_STATES: Final[Mapping[str, str]] = {
    "running": "is running",
    "ended": "has ended",
    "failed": "has failed",
    "killed": "was killed",
    "lost": "is gone without having said why",
}


def summary_parts(recording: Recording) -> Iterator[Part]:
    """Yields what is printed of a recording before its runs."""
    state = f"{_STATES[recording.state]}, {recording.duration:,.1f} s"
    ending = recording.ending
    if ending is not None and ending.exit_code is not None:
        state += f", exit code {ending.exit_code}"
    yield Facts((("recording", state),), str(recording.path))
    told = ending_lines(ending) if ending is not None else ()
    if told:
        yield Lines(tuple(told))
    forecast = forecast_lines(recording)
    if forecast:
        yield Lines(tuple(forecast))
    if recording.problems:
        yield Lines(recording.problems)
    if not recording.runs:
        yield Lines(("no run: the program has opened no step",))


def summary_data(recording: Recording) -> dict[str, Any]:
    """Returns the same for programs."""
    return {
        "path": str(recording.path),
        "state": recording.state,
        "duration_secs": recording.duration,
        "problems": list(recording.problems),
        **({"ending": dataclasses.asdict(recording.ending)} if recording.ending else {}),
    }
