"""How a program ended, in words: the cause with its evidence, what would help, what a restart loses; and what is to come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeGuard

from otel_quant.diagnosis import headline
from otel_quant.recordings import model
from otel_quant.recordings.continued import lost_by_restart
from otel_quant.recordings.failures import failure_of
from otel_quant.schema import semconv, units
from otel_quant.views.document import Facts, Lines, Part, Section
from otel_quant.views.steps import is_worker
from otel_quant.views.text import phrase, printable

LONGEST: Final = 300
_MOST: Final = 8
_LEAST_LOST: Final = 60.0  # Seconds of work from which on it matters that they are lost
_FULL: Final = 0.8  # Part of the machine's memory from which on it counts who else used it
_CERTAIN: Final[Mapping[str | None, str]] = {"known": "known from", "guessed": "guessed from"}
_OUT_OF_MEMORY: Final[Mapping[str | None, str]] = {"known": "", "guessed": ", probably"}

cut_text: Final = partial(units.cut, longest=LONGEST)
"""Cuts a text of a program, which may be of any length."""

_NO_ENDING: Final = model.Ending(time=0.0, exit_code=0)


def ending_of(recording: model.Recording) -> model.Ending:
    """Returns how the program ended; one of which nothing is known where the launcher has not seen it."""
    return recording.ending or _NO_ENDING


def is_within(recording: model.Recording) -> bool:
    """Whether another process than the program was killed or failed, not the only one that a shell has started."""
    is_other, run = ending_of(recording).process is not None, run_of_ending(recording)
    is_only = len({run.process for run in recording.runs}) < 2
    return is_other and not (is_only and (run is None or not is_worker(recording, run)))


def run_of_ending(recording: model.Recording) -> model.RecordedRun | None:
    """Returns the run of the process that was killed or failed, of another than the program itself."""
    process = (ending_of(recording).process or "").rstrip(")")
    of = (run for run in recording.runs if process.endswith(f"process {run.pid}"))
    return next(of, None)


def ended_as(recording: model.Recording) -> str:
    """Returns how the program ended: ``killed by SIGKILL``."""
    ending = ending_of(recording)
    words = {
        "killed": phrase("killed by {}", ending.signal),
        "failed": phrase("failed with exit code {}", ending.exit_code),
        "lost": model.STATES["lost"].verb,
    }
    return words.get(recording.state) or recording.state


def ending_lines(ending: model.Ending | None) -> list[str]:
    """Returns the lines on an ending; none for a program that ended well."""
    if not _is_worth_telling(ending):
        return []
    facts = [*ending_facts(ending), *(("would help", each) for each in advice_of(ending))]
    lines = [_headline(ending), *(f"  {name}: {text}" for name, text in facts)]
    return list(map(printable, lines))


def ending_parts(recording: model.Recording) -> Iterator[Part]:
    """Yields what is known of an ending beside the answer, and what would help."""
    ending, failure = recording.ending, failure_of(recording)
    if not _is_worth_telling(ending):
        return
    if failure is not None and failure.of.error_message is not None:
        ending = replace(ending, evidence=_beside(failure.of, ending.evidence or ""))
    if rows := [*ending_facts(ending)]:
        yield Facts(rows)
    if ending.advice:
        yield Section("What would help", (Lines(advice_of(ending), is_list=True),))


_BEGUN: Final = 200
"""Characters of an exception by which it is known again: what is longer is cut in different ways."""


def _beside(failed: model.RecordedRun | model.RecordedStep, evidence: str) -> str | None:
    """Returns what evidence has beside the exception, which the answer has; None for nothing."""
    whole = f"{failed.error}: {failed.error_message}"
    if evidence.startswith(whole):
        return evidence[len(whole) :].lstrip(".; ") or None
    # What is longer is cut in different ways.
    return None if evidence[:_BEGUN] == whole[:_BEGUN] else evidence or None


def advice_of(ending: model.Ending) -> list[str]:
    """Returns what would help, each with where that is known from."""
    return [f"{each.text} [{each.source}]" for each in ending.advice]


def _is_worth_telling(ending: model.Ending | None) -> TypeGuard[model.Ending]:
    """Returns whether there is more to report than an exit code."""
    return ending is not None and any(
        (ending.signal, ending.process, ending.open_steps, ending.error)
    )


def _headline(ending: model.Ending) -> str:
    """Returns what happened: ``the program was killed by SIGKILL: out of memory, in Calibration``."""
    cause = why_ended(ending) + phrase(", in {}", ending.where, cut_text)
    killed = phrase("was killed by {}", ending.signal)
    how = killed or f"ended with exit code {ending.exit_code}"
    failed = phrase("failed with {}", ending.error, cut_text)
    if ending.process is not None:
        by = phrase("was killed by {}", ending.process_signal) or failed or "died"
        return f"{cut_text(ending.process)} {by}{cause}; the program {how}"
    return f"the program {killed or failed or how}{cause}"


def why_ended(ending: model.Ending) -> str:
    """Returns the cause, to be put behind what happened; empty if it is not known."""
    if ending.out_of_memory in _OUT_OF_MEMORY:
        return f": out of memory{_OUT_OF_MEMORY[ending.out_of_memory]}"
    return phrase(": {}", ending.cause, cut_text)


def ending_facts(ending: model.Ending) -> Iterator[tuple[str, str]]:
    """Yields what is known beside that, each with its name, without the advice."""
    # Of a program that has failed by itself, the exception is named before.
    is_named = any((ending.cause, ending.error))
    is_known = any((is_named, ending.signal, ending.process, ending.out_of_memory))
    if ending.evidence is not None and is_known:
        otherwise = "because" if is_named else "evidence"
        yield _CERTAIN.get(ending.out_of_memory, otherwise), cut_text(ending.evidence)
    if ending.saved is not None:
        yield "on disk", f"{ending.saved}: the same command goes on from there"
    if ending.lost is not None and (ending.saved is not None or ending.lost >= _LEAST_LOST):
        yield "lost", f"a restart has to do up to {units.duration_text(ending.lost)} of work again"
    if len(ending.open_steps) > 1:
        yield "open steps", joined_names(ending.open_steps, units.WITHIN)
    if (ending.memory, ending.memory_limit) != (None, None):
        yield "memory", _memory(ending)
    if ending.processes:
        sizes = [
            f"{units.cut(each, headline.LONGEST_NAME)} {units.size(of)}"
            for each, of in ending.processes
        ]
        yield "largest", joined_names(sizes)


def restart_text(recording: model.Recording) -> str:
    """Returns what ending a program now would lose; empty of one that is over, or has only begun."""
    lost, saved = lost_by_restart(recording, recording.duration)
    is_worth = recording.state == "running" and (saved is not None or lost >= _LEAST_LOST)
    text = f"a restart would lose {units.duration_text(lost)}{phrase(': {}', saved)}"
    return text if is_worth else ""


def _memory(ending: model.Ending) -> str:
    text = "" if ending.memory is None else units.size(ending.memory)
    used, limit = ending.memory or 0, ending.memory_limit or 0
    source = ending.memory_limit_source or ""
    # Addresses are another measure than memory in use, and a GPU has its own.
    if limit and not source.startswith(("RLIMIT_AS", "gpu")):
        share = phrase("{} of ", used / limit, units.share_text)
        text += f", {share}the limit of {units.size(limit)}{phrase(' ({})', source)}"
    per_unit = phrase(", {} more with each sample", ending.memory_per_sample, units.size)
    per_unit += phrase(", {} more with each layer", ending.memory_per_layer, units.size)
    per_second = phrase(", {} more each second until the end", ending.memory_per_second, units.size)
    text += per_unit or per_second
    others = ending.memory_of_others or 0
    if source == "physical" and others > limit / 10 and used + others > _FULL * limit:
        text += f"; other programs of the machine used {units.size(others)}"
    return text.removeprefix(", ")


def joined_names(texts: Sequence[str], between: str = ", ") -> str:
    """Returns the first of some names as one text, and how many more there are."""
    more = phrase(" and {:,} more", len(texts[_MOST:]), int)
    return units.cut(f"{between.join(texts[:_MOST])}{more}", headline.LONGEST_MESSAGE)


_GROWTHS: Final = (
    ("memory", semconv.FORECAST_MEMORY, semconv.FORECAST_MEMORY_LIMIT),
    ("GPU memory", semconv.FORECAST_GPU_MEMORY, semconv.FORECAST_GPU_MEMORY_LIMIT),
)


def time_left(run: model.RecordedRun, step: model.RecordedStep) -> str:
    """Returns the time until the last sample or layer of a step that is open, or that it has stalled; empty if unknown."""
    left = model.number(model.forecast_of(run, step), semconv.FORECAST_TIME_LEFT)
    if step.state != "running" or left is None:
        return stalled(run, step)
    return stalled(run, step) or f"about {units.duration_text(left)} left"


def stalled(run: model.RecordedRun, step: model.RecordedStep) -> str:
    """Returns for how long an open step has stalled; empty if it has not."""
    seconds = model.number(model.forecast_of(run, step), semconv.FORECAST_STALLED)
    if step.state != "running" or seconds is None:
        return ""
    waits_for = step.line.waits_for if step.line is not None else ""
    return f"no progress for {units.duration_text(seconds)}{phrase(', waiting for {}', waits_for)}"


def exceeded(run: model.RecordedRun, step: model.RecordedStep) -> str:
    """Returns a step's forecast above the limit; empty if there is none."""
    attributes = model.forecast_of(run, step)
    for what, name, limit_name in _GROWTHS:
        at_end, limit = attributes.get(name), attributes.get(limit_name)
        if isinstance(at_end, int) and isinstance(limit, int) and at_end > limit:
            last = f"the last {step.counts.newest or 'sample'} (estimated)"
            return f"{what} would be {units.size(at_end)} after {last}; the limit is {units.size(limit)}"
    return ""


def forecast_lines(recording: model.Recording) -> list[str]:
    """Returns a line for each step whose forecast is above the limit, or that has time left."""
    steps = ((run, step) for run in recording.runs for step in run.steps)
    # A forecast is made of samples or layers; of an open step the last reading has it.
    named = [
        (step.name, ", ".join(filter(None, (time_left(run, step), exceeded(run, step)))))
        for run, step in steps
        if step.end is None or step.counts
    ]
    lines = [f"{name}: {text}" for name, text in named if text]
    return list(map(printable, filter(None, (*lines, restart_text(recording)))))
