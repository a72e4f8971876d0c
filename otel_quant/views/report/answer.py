"""The answer that a report begins with: how it ended, what peaked where, how long, what it wrote."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final

from otel_quant.recordings.attributes import number
from otel_quant.recordings.model import Recording
from otel_quant.schema import semconv, series
from otel_quant.schema.units import (
    WITHIN,
    clock_text,
    counted,
    cut,
    duration_text,
    share_text,
    size,
)
from otel_quant.views.forecast import forecast_lines
from otel_quant.views.report.attributes import CACHE_PEAK, READING_MEMORY, text
from otel_quant.views.report.bands import ShownStep, shown_steps, step_at
from otel_quant.views.report.charts import Chart
from otel_quant.views.report.grid import LAUNCHER
from otel_quant.views.report.subject import Subject, memory_limit, process_name

_LONGEST_NAME: Final = 120
_LONGEST_MESSAGE: Final = 400
_MOST_PATHS: Final = 3


@dataclass(frozen=True, slots=True)
class Meter:
    """A figure beside its limit."""

    name: str  # What it is
    value: str  # The figure with its unit
    of_limit: str = ""  # The limit and the share, in words; empty if the limit is not known
    share: float | None = None  # Share of the limit, 0 to 1; None if the limit is not known


@dataclass(frozen=True, slots=True)
class Answer:
    """What stands first."""

    outcome: str  # How it ended, one sentence without its full stop
    is_bad: bool  # Whether it did not end well
    sentences: tuple[str, ...]  # The rest, most important first
    meters: tuple[Meter, ...]  # Peaks beside their limits


@dataclass(frozen=True, slots=True)
class _MemoryPeak:
    """The highest memory that is known, and whose and where that was, as far as is known."""

    value: float
    step: str | None = None
    time: float | None = None
    process: str | None = None


def answer_of(recording: Recording, subject: Subject | None, charts: Sequence[Chart]) -> Answer:
    """Returns the answer."""
    peak = _memory_peak(recording, subject, charts)
    meters = list(_meters(recording, peak, charts))
    return Answer(
        outcome=_outcome(recording, subject),
        is_bad=recording.state in ("failed", "killed", "lost"),
        sentences=(
            *_error(subject),
            *_peak_sentence(recording, peak),
            *_time(recording, subject),
            *_written(recording, subject, charts),
            *(f"{line}." for line in forecast_lines(recording)),
        ),
        meters=tuple(meters),
    )


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


def _outcome(recording: Recording, subject: Subject | None) -> str:
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
            return f"{program} stopped without saying why after {length}{_during(where)}"


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


def _memory_peak(
    recording: Recording, subject: Subject | None, charts: Sequence[Chart]
) -> _MemoryPeak | None:
    """Returns the highest of all that is known: the curve, the steps' and the run's own figures."""
    steps = subject.steps if subject is not None else ()
    found = [
        _MemoryPeak(chart.mark.value, _path(step_at(steps, chart.mark.time)), chart.mark.time)
        for chart in charts
        if chart.is_large and chart.mark is not None
    ]
    several = len({run.process for run in recording.runs}) > 1
    for run in recording.runs:
        process = process_name(run) if several else None
        owned = [
            _MemoryPeak(value, _path(each), process=process)
            for each in reversed(
                shown_steps([run], recording.duration)
            )  # of equal ones the innermost
            if (value := number(each.step.attributes, semconv.MEMORY_PEAK)) is not None
        ]
        found += [max(owned, key=lambda each: each.value)] if owned else []
        last = run.last.attributes if run.last is not None else {}
        for value in (
            number(run.attributes, semconv.MEMORY_PEAK),
            number(last, semconv.READING_MEMORY_PEAK),
            number(last, READING_MEMORY),
        ):
            found += [_MemoryPeak(value, process=process)] if value is not None else []
        found += [
            _MemoryPeak(value, process=process)
            for each in run.checkpoints
            if (value := number(each.attributes, semconv.CHECKPOINT_MEMORY)) is not None
        ]
    if recording.ending is not None and recording.ending.memory is not None:
        found.append(_MemoryPeak(recording.ending.memory))
    # Of two that are equal as far as can be told, the one that says where it was.
    highest = max((each.value for each in found), default=0.0)
    near = [each for each in found if each.value >= _EQUAL * highest]
    if not near:
        return None
    best = max(near, key=lambda each: (each.step is not None, each.time is not None, each.value))
    return replace(best, value=highest)


_EQUAL: Final = 0.99
"""The curve and the kernel's mark differ by what was used between two samples."""


def _path(step: ShownStep | None) -> str | None:
    """Returns the name of a step behind that of the one around it."""
    return (
        None if step is None else WITHIN.join(cut(name, _LONGEST_NAME) for name in step.path[-2:])
    )


def _peak_sentence(recording: Recording, peak: _MemoryPeak | None) -> Iterator[str]:
    if peak is None:
        return
    where = f" in {peak.step}" if peak.step is not None else ""
    when = f", {clock_text(peak.time)} after the start" if peak.time is not None else ""
    limit = memory_limit(recording)
    near = ""
    if limit:
        near = f": {share_text(peak.value / limit)} of the limit of {size(limit)}"
    whose = f" of {peak.process}" if peak.process is not None else ""
    yield f"Memory{whose} peaked at {size(peak.value)}{where}{when}{near}."


def _time(recording: Recording, subject: Subject | None) -> Iterator[str]:
    steps = subject.steps if subject is not None else ()
    if not steps:
        yield "No step was recorded."
        return
    own = _own_seconds(steps)
    most = max(range(len(steps)), key=lambda at: own[at])
    within = duration_text(_covered(steps))
    all_of = f" of {duration_text(recording.duration)}" if recording.duration else ""
    yield (
        f"{counted(len(steps), 'step')} took {within}{all_of}, most of it "
        f"{_path(steps[most])}: {duration_text(own[most])}."
    )


def _covered(steps: Sequence[ShownStep]) -> float:
    """Returns the seconds in which a step was open."""
    seconds, until = 0.0, -math.inf
    for each in sorted(steps, key=lambda step: step.step.start):
        seconds += max(0.0, each.end - max(each.step.start, until))
        until = max(until, each.end)
    return seconds


def _own_seconds(steps: Sequence[ShownStep]) -> list[float]:
    """Returns the seconds of each step that no step within it had."""
    places = {(id(each.run), each.step.index): at for at, each in enumerate(steps)}
    own = [each.duration for each in steps]
    for each in steps:
        above = places.get((id(each.run), -1 if each.step.parent is None else each.step.parent))
        if above is not None:
            own[above] -= each.duration
    return own


def _written(
    recording: Recording, subject: Subject | None, charts: Sequence[Chart]
) -> Iterator[str]:
    written = sum(_total(recording, semconv.DISK_WRITE, series.DISK_WRITE))
    caches = [value for run in recording.runs if (value := number(run.attributes, CACHE_PEAK))]
    caches += [chart.mark.value for chart in charts if chart.id == "cache" and chart.mark]
    parts = [f"wrote {size(written)} to disk"] if written else []
    parts += [f"filled its cache directory with {size(max(caches))}"] if caches else []
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


def _total(recording: Recording, attribute: str, name: str) -> Iterator[float]:
    """Yields what is known of a total: of the whole program, else of each of its processes."""
    curves = recording.curves
    if LAUNCHER not in curves:
        yield from (v for run in recording.runs if (v := number(run.attributes, attribute)))
        return
    buckets = curves[LAUNCHER].curve.buckets.values()
    yield from [max((bucket.totals.get(name, 0) for bucket in buckets), default=0)]


def _meters(
    recording: Recording, peak: _MemoryPeak | None, charts: Sequence[Chart]
) -> Iterator[Meter]:
    if peak is not None:
        whose = f" of {peak.process}" if peak.process is not None else ""
        yield _meter(f"Memory peak{whose}", peak.value, memory_limit(recording))
    for chart in charts:
        if chart.id.startswith("gpu-") and chart.mark is not None:
            limit = chart.limit.value if chart.limit is not None else None
            yield _meter(f"GPU {chart.id.removeprefix('gpu-')} peak", chart.mark.value, limit)


def _meter(name: str, value: float, limit: float | None) -> Meter:
    if not limit:
        return Meter(name, size(value), "limit not known")
    share = value / limit
    return Meter(name, size(value), f"{share_text(share)} of {size(limit)}", share)


def began_text(recording: Recording) -> str:
    """Returns when a recording began, in UTC."""
    return datetime.fromtimestamp(recording.began_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
