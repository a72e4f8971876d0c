"""What is said of a recording first: how it ended, its peak, where its time went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from otel_quant.recordings import summary
from otel_quant.recordings.model import PlacedStep, Recording, covered, script_of
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
from otel_quant.views.ending import ended_as, forecast_lines, why
from otel_quant.views.steps import Subject, memory_limit, process_name
from otel_quant.views.text import listed

_LONGEST_NAME: Final = 120
_LONGEST_LINE: Final = 60
_LONGEST_MESSAGE: Final = 400
_MOST_PATHS: Final = 3


def sentences(recording: Recording, subject: Subject) -> Iterator[str]:
    """Yields what is to be said after how it ended, the most important sentence first."""
    yield from _error(subject)
    yield from _peak_sentence(recording, summary.peak(recording))
    yield from _time(recording, subject)
    yield from _written(recording, subject)
    yield from (f"{line}." for line in forecast_lines(recording))


def _program_of(recording: Recording) -> str:
    """Returns the name of the program, or of the recording where its command is not known."""
    command = recording.origin.get(semconv.PROCESS_COMMAND_LINE)
    program = script_of(str(command)) if command else None
    if program and program.startswith("-c "):
        return "python -c"
    return cut(PurePath(program or recording.path).name or str(recording.path), _LONGEST_NAME)


def outcome(recording: Recording, subject: Subject) -> str:
    """Returns how it ended, one sentence without its full stop."""
    program = _program_of(recording)
    length = duration_text(recording.duration).replace(" ", "\u00a0")  # on one line
    where = _where(recording, subject)
    if recording.state == "ended":
        failed = sum(run.state in ("failed", "killed", "lost") for run in recording.runs)
        but = f", but {counted(failed, 'run')} within it did not end well" if failed else ""
        return f"{program} finished in {length}{but}"
    if recording.state == "running":
        doing = f": {where}" if where else ""
        return f"{program} had been running for {length} when this was made{doing}"
    if recording.state == "lost" and not recording.path.is_dir():
        # Quark's profiler, which may still be running, holds no lock on its file.
        seen = f"last seen after {length}{f' in {where}' if where else ''}"
        return f"{program} has no end record (killed, or still running); {seen}"
    how = f"{'was ' if recording.state == 'killed' else ''}{ended_as(recording)}"
    cause = why(recording.ending) if recording.ending is not None else ""
    return f"{program} {how} after {length}{f' in {where}' if where else ''}{cause}"


def _where(recording: Recording, subject: Subject) -> str:
    """Returns what it was doing at the end, or which step failed."""
    if recording.ending is not None and recording.ending.where:
        return cut(recording.ending.where, _LONGEST_NAME + _LONGEST_LINE)
    # Innermost of those that are still open, before that the one that counts samples.
    last = max(
        (each for each in subject.steps if each.step.state != "ended"),
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
    if step.samples is not None and step.end is None:
        total = "" if step.expected_samples is None else f" of {step.expected_samples:,}"
        name = f"{name}, sample {step.samples:,}{total}"
    return name if step.line is None else f"{name}, at {step.line.short}"


def _error(subject: Subject) -> Iterator[str]:
    errors = ((run.error, run.error_message) for run in subject.runs if run.error is not None)
    error, message = next(errors, (None, None))
    step = next((each.step for each in subject.steps if each.step.error is not None), None)
    if error is not None and (message or step is None):
        yield f"{_error_text(error, message)}."
    elif step is not None:
        text = _error_text(step.error or "", step.error_message)
        yield f"{cut(step.name, _LONGEST_NAME)} raised {text}."


def _error_text(error: str, message: str | None) -> str:
    said = f": {cut(message, _LONGEST_MESSAGE)}" if message else ""
    return f"{cut(error, _LONGEST_NAME)}{said}".rstrip(".")


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
    near = f": {share_text(peak.value / limit)} of the limit of {size(limit)}" if limit else ""
    verb = "reached at least" if peak.is_least else "peaked at"
    yield f"Memory{whose(recording, peak)} {verb} {size(peak.value)}{where}{when}{near}."


def whose(recording: Recording, peak: summary.Known) -> str:
    """Returns which of several processes a peak is of; empty if it is of all of them."""
    if peak.run is None or peak.source in ("launcher", "ending"):
        return ""
    is_single = len({run.process for run in recording.runs}) == 1
    return "" if is_single else f" of {process_name(peak.run)}"


def _time(recording: Recording, subject: Subject) -> Iterator[str]:
    steps = subject.steps
    if not steps:
        yield "No step was recorded."
        return
    by_name: dict[tuple[str, ...], list[PlacedStep]] = {}
    for each in steps:
        by_name.setdefault(each.names[-2:], []).append(each)
    whole = f" of {duration_text(recording.duration)}" if recording.duration else ""
    if len(steps) == 1:
        yield f"{_path(steps[0].names)} took {duration_text(steps[0].duration)}{whole}."
        return
    names, most = max(by_name.items(), key=lambda item: sum(each.own for each in item[1]))
    own, all_steps = sum(each.own for each in most), covered(steps)
    share = own / all_steps if all_steps else 0.0
    times = f" ({len(most)} times)" if len(most) > 1 else ""
    yield (
        f"{counted(len(steps), 'step')} took {duration_text(all_steps)}{whole}, "
        f"{'most of it' if share > 0.5 else 'the longest'} {_path(names)}{times}: "
        f"{duration_text(own)}, {share_text(share)} of it."
    )


def _written(recording: Recording, subject: Subject) -> Iterator[str]:
    written = summary.value(recording, summary.DISK_WRITE)
    cache = summary.value(recording, summary.CACHE_PEAK)
    parts = [f"wrote {size(written)} to disk"] if written else []
    parts += [f"filled its cache directory with {size(cache)}"] if cache else []
    if parts:
        yield f"It {' and '.join(parts)}."
    paths = dict.fromkeys(
        path
        for each in subject.steps
        # The path is known before the model is written.
        if each.run.state == "ended"
        and (path := listed(each.step.attributes.get(semconv.OUTPUT_PATH, "")))
    )
    if paths:
        shown = ", ".join(cut(path, _LONGEST_NAME) for path in list(paths)[:_MOST_PATHS])
        more = len(paths) - _MOST_PATHS
        yield f"Models written: {shown}{f' and {more:,} more' if more > 0 else ''}."
