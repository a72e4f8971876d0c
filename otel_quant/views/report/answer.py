"""The answer that a report begins with: how it ended, what peaked where, how long, what it wrote."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final

from otel_quant.recordings import summary
from otel_quant.recordings.model import Recording
from otel_quant.schema import semconv
from otel_quant.schema.units import (
    WITHIN,
    clock_text,
    counted,
    cut,
    duration_text,
    share_text,
    size,
)
from otel_quant.views.document import Meters
from otel_quant.views.forecast import forecast_lines
from otel_quant.views.report.attributes import text
from otel_quant.views.report.bands import ShownStep
from otel_quant.views.report.charts import Chart
from otel_quant.views.report.subject import Subject, memory_limit, process_name

_LONGEST_NAME: Final = 120
_LONGEST_MESSAGE: Final = 400
_MOST_PATHS: Final = 3


def answer_of(
    recording: Recording, subject: Subject | None, charts: Sequence[Chart]
) -> tuple[tuple[str, ...], Meters]:
    """Returns what stands first, the most important sentence first, and peaks beside their limits."""
    peak = summary.peak(recording)
    sentences = (
        *_error(subject),
        *_peak_sentence(recording, peak),
        *_time(recording, subject),
        *_written(recording, subject),
        *(f"{line}." for line in forecast_lines(recording)),
    )
    return sentences, Meters(tuple(_meters(recording, peak, charts)))


def program_of(recording: Recording) -> str:
    """Returns the name of the program, or of the recording where its command is not known."""
    for name in ("process.command_args", "process.command_line", "command"):
        command = recording.origin.get(name)
        words = command.split() if isinstance(command, str) else []
        if isinstance(command, list | tuple):
            words = list(map(str, command))
        scripts = [word for word in words if word.endswith((".py", ".sh"))]
        if words:
            return cut(PurePath((scripts or words)[0]).name, _LONGEST_NAME)
    return cut(recording.path.name or str(recording.path), _LONGEST_NAME)


def outcome_of(recording: Recording, subject: Subject | None) -> str:
    """Returns how it ended, one sentence without its full stop."""
    program, ending = program_of(recording), recording.ending
    length = duration_text(recording.duration).replace(" ", "\u00a0")  # on one line
    where = _where(recording, subject)
    match recording.state:
        case "ended":
            return f"{program} finished in {length}"
        case "running":
            doing = f": {where}" if where else ""
            return f"{program} had been running for {length} when this was made{doing}"
        case "killed":
            by = f" by {ending.signal}" if ending is not None and ending.signal else ""
            return f"{program} was killed{by} after {length}{_during(where)}"
        case "failed":
            code = ""
            if ending is not None and ending.exit_code:
                code = f" with exit code {ending.exit_code}"
            return f"{program} failed{code} after {length}{_during(where)}"
        case "lost":
            return f"{program} stopped without an end record after {length}{_during(where)}"


def _during(where: str) -> str:
    return f" in {where}" if where else ""


def _where(recording: Recording, subject: Subject | None) -> str:
    """Returns what it was doing at the end, or which step failed."""
    if recording.ending is not None and recording.ending.where:
        return cut(recording.ending.where, _LONGEST_NAME)
    steps = subject.steps if subject is not None else ()
    stopped = [each for each in steps if each.state != "ended"]
    # Innermost of those that are still open, before that the one that counts samples.
    last = max(
        stopped,
        key=lambda each: (
            each.step.end is None,
            each.step.samples is not None,
            each.depth,
            each.end,
        ),
        default=None,
    )
    if last is None:
        return ""
    name, step = cut(last.step.name, _LONGEST_NAME), last.step
    if step.samples is None or step.end is not None:
        return name
    total = "" if step.expected_samples is None else f" of {step.expected_samples:,}"
    return f"{name}, sample {step.samples:,}{total}"


def _error(subject: Subject | None) -> Iterator[str]:
    for run in subject.runs if subject is not None else ():
        if run.error is not None:
            yield f"{_error_text(run.error, run.error_message)}."
            return
    for each in subject.steps if subject is not None else ():
        if each.step.error is not None:
            error = _error_text(each.step.error, each.step.error_message)
            yield f"{cut(each.step.name, _LONGEST_NAME)} raised {error}."
            return


def _error_text(error: str, message: str | None) -> str:
    said = f": {cut(message, _LONGEST_MESSAGE)}" if message else ""
    return f"{cut(error, _LONGEST_NAME)}{said}"


def _path(names: Sequence[str]) -> str:
    """Returns the name of a step behind that of the one around it."""
    return WITHIN.join(cut(name, _LONGEST_NAME) for name in names[-2:])


def _peak_sentence(recording: Recording, peak: summary.Known | None) -> Iterator[str]:
    if peak is None:
        return
    names = tuple(name for name, _ in peak.path)
    where = f" in {_path(names)}" if names else ""
    when = f", {clock_text(peak.time)} after the start" if peak.time is not None else ""
    limit = memory_limit(recording)
    near = ""
    if limit:
        near = f": {share_text(peak.value / limit)} of the limit of {size(limit)}"
    yield f"Memory{_whose(recording, peak)} peaked at {size(peak.value)}{where}{when}{near}."


def _whose(recording: Recording, peak: summary.Known) -> str:
    """Returns which of several processes a peak is of; empty if it is of all of them."""
    if peak.run is None or peak.source in ("launcher", "ending"):
        return ""
    is_single = len({run.process for run in recording.runs}) == 1
    return "" if is_single else f" of {process_name(peak.run)}"


def _time(recording: Recording, subject: Subject | None) -> Iterator[str]:
    steps = subject.steps if subject is not None else ()
    if not steps:
        yield "No step was recorded."
        return
    most = max(steps, key=lambda each: each.own)
    within = duration_text(_covered(steps))
    all_of = f" of {duration_text(recording.duration)}" if recording.duration else ""
    yield (
        f"{counted(len(steps), 'step')} took {within}{all_of}, most of it "
        f"{_path(most.names)}: {duration_text(most.own)}."
    )


def _covered(steps: Sequence[ShownStep]) -> float:
    """Returns the seconds in which a step was open."""
    seconds, until = 0.0, -math.inf
    for each in sorted(steps, key=lambda step: step.step.start):
        seconds += max(0.0, each.end - max(each.step.start, until))
        until = max(until, each.end)
    return seconds


def _written(recording: Recording, subject: Subject | None) -> Iterator[str]:
    written = summary.value(recording, summary.DISK_WRITE)
    cache = summary.value(recording, summary.CACHE_PEAK)
    parts = [f"wrote {size(written)} to disk"] if written else []
    parts += [f"filled its cache directory with {size(cache)}"] if cache else []
    if parts:
        yield f"It {' and '.join(parts)}."
    steps = subject.steps if subject is not None else ()
    paths = dict.fromkeys(
        path
        for each in steps
        # The path is known before the model is written.
        if each.run.state == "ended" and (path := text(each.step.attributes, semconv.OUTPUT_PATH))
    )
    if paths:
        shown = ", ".join(cut(path, _LONGEST_NAME) for path in list(paths)[:_MOST_PATHS])
        more = (
            f" and {counted(len(paths) - _MOST_PATHS, 'more')}" if len(paths) > _MOST_PATHS else ""
        )
        yield f"Models written: {shown}{more}."


def _meters(
    recording: Recording, peak: summary.Known | None, charts: Sequence[Chart]
) -> Iterator[tuple[str, float, float | None]]:
    if peak is not None:
        yield f"Memory peak{_whose(recording, peak)}", peak.value, memory_limit(recording)
    for chart in charts:
        if chart.id.startswith("gpu-") and chart.mark is not None:
            limit = chart.limit.value if chart.limit is not None else None
            yield f"GPU {chart.id.removeprefix('gpu-')} peak", chart.mark.value, limit


def began_text(recording: Recording) -> str:
    """Returns when a recording began, in UTC."""
    return datetime.fromtimestamp(recording.began_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
