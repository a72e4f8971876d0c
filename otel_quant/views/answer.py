"""The first lines on a recording: how it ended, its peak, where its time went, what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from otel_quant.diagnosis.bounds import (
    CALIBRATION_DATA,
    COMPILING,
    IMPORTING,
    MEMORY_GROWTH,
    OTHER_PROGRAMS,
    remedy_of,
    words_of,
)
from otel_quant.recordings import summary
from otel_quant.recordings.model import (
    STATES,
    Attributes,
    Ending,
    PlacedStep,
    RecordedRun,
    RecordedStep,
    Recording,
    covered,
    forecast_of,
    number,
    script_of,
    steps_in,
)
from otel_quant.recordings.reader import by_line, of_step, stacks_in
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
from otel_quant.views.document import Facts, Lines, Part, Section
from otel_quant.views.steps import Subject, memory_limit, process_name
from otel_quant.views.text import listed, printable

_LONGEST_NAME: Final = 120
_LONGEST_LINE: Final = 60
_LONGEST_MESSAGE: Final = 400
_MOST_PATHS: Final = 3
_MOST_BOUNDS: Final = 5
_MOST_GROWING: Final = 10
_LONG: Final = 0.2
"""Share of the run's time from which on a step leaks rather than loads, and a wait is worth telling."""

_LEAST_WAIT: Final = 1.0
"""Seconds."""

_OWN: Final = 0.8
"""Share of its processors from which on a program uses them itself, and its threads wait for each other."""

_WORTH: Final = 0.05
"""Share of the run's time from which on a step matters."""


def sentences(recording: Recording, subject: Subject) -> Iterator[str]:
    """Yields the sentences that follow how it ended, the most important first."""
    yield from _error(recording, subject)
    yield from _peak_sentence(recording, subject, summary.peak(recording))
    growing = list(_growing(recording, subject))
    yield from growing
    yield from _time(recording, subject)
    waited = list(_waited(recording))
    yield from waited
    yield from _bounds(
        recording, subject, [OTHER_PROGRAMS] * bool(waited) + [MEMORY_GROWTH] * bool(growing)
    )
    yield from _written(recording, subject)
    yield from (f"{line}." for line in forecast_lines(recording))


def _program_of(recording: Recording, attributes: Attributes) -> str:
    """Returns the name of a program, or of the recording where its command is not known."""
    command = attributes.get(semconv.PROCESS_COMMAND_LINE)
    program = script_of(str(command)) if command else None
    if program and program.startswith("-c "):
        program = f"{str(command).split()[0]} -c"
    return cut(PurePath(program or recording.path).name or str(recording.path), _LONGEST_NAME)


def outcome(recording: Recording, subject: Subject) -> str:
    """Returns how it ended, one sentence without its full stop."""
    program = _program_of(recording, recording.origin)
    length = duration_text(recording.duration)
    where = _where(recording, subject)
    if recording.state == "ended":
        failed = sum(run.is_broken for run in recording.runs)
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
    cause = _why(recording.ending) if recording.ending is not None else ""
    return f"{program} {how} after {length}{f' in {where}' if where else ''}{cause}"


def _where(recording: Recording, subject: Subject) -> str:
    """Returns what it was doing at the end, or which step failed."""
    if recording.ending is not None and recording.ending.where:
        return cut(recording.ending.where, _LONGEST_NAME + _LONGEST_LINE)
    # Innermost of those that are still open, before that the one that counts samples or layers.
    # A child may have been killed alone.
    last = max(
        [each for each in subject.steps if each.step.state != "ended"]
        or [each for each in steps_in(recording) if each.step.end is None],
        key=lambda each: (each.step.end is None, bool(each.step.counts), each.depth, each.end),
        default=None,
    )
    if last is None:
        return ""
    name, step = cut(last.step.name, _LONGEST_NAME), last.step
    if step.counts and step.end is None:
        name = f"{name}, {step.counts}"
    return name if step.line is None else f"{name}, at {step.line.short}"


def _error(recording: Recording, subject: Subject) -> Iterator[str]:
    run = next((run for run in (*subject.runs, *recording.runs) if run.error is not None), None)
    step = next((each.step for each in subject.steps if each.step.error is not None), None)
    is_single = len(recording.runs) == 1
    # The line above names the step of a run that has an ending.
    if run is not None and (
        step is None or (is_single and run.error_message and recording.ending is not None)
    ):
        who = _program_of(recording, run.attributes)
        has_ended = recording.state == "ended"  # then it is none of the program itself
        if run.rank is not None or (has_ended and who == _program_of(recording, recording.origin)):
            who = process_name(run)
        how = "was killed by" if run.state == "killed" else "failed with"
        # Of a program that failed itself, the line above has its name.
        is_named = not is_single or has_ended
        yield f"{f'{who} {how} ' if is_named else ''}{_error_text(run.error or '', run.error_message)}."
    elif step is not None:
        text = _error_text(step.error or "", step.error_message)
        yield f"{cut(step.name, _LONGEST_NAME)} raised {text}."


def _error_text(error: str, message: str | None) -> str:
    text = f": {cut(message, _LONGEST_MESSAGE)}" if message else ""
    return f"{cut(error, _LONGEST_NAME)}{text}".rstrip(".")


def _path(names: Sequence[str]) -> str:
    """Returns the name of a step behind the name of the step around it."""
    return WITHIN.join(cut(name, _LONGEST_NAME) for name in names[-2:])


def _peak_sentence(
    recording: Recording, subject: Subject, peak: summary.KnownValue | None
) -> Iterator[str]:
    if peak is None:
        return
    names = tuple(name for name, _ in peak.path)
    where = f" in {_path(names)}" if names else ""
    starts = [each.step.start for each in subject.steps]
    if not names and peak.time is not None and starts and peak.time < min(starts):
        where = " before the first step"
    when = f", {clock_text(peak.time)} after the start" if peak.time is not None else ""
    limit = memory_limit(recording)
    near = f": {share_text(peak.value / limit)} of the limit of {size(limit)}" if limit else ""
    verb = "reached at least" if peak.is_least else "peaked at"
    yield f"Memory{whose(recording, peak)} {verb} {size(peak.value)}{where}{when}{near}."


def _growing(recording: Recording, subject: Subject) -> Iterator[str]:
    """Yields the sentence on memory that goes on growing within a step: of several in the innermost."""
    # To load a model takes memory too, and ends soon; so do modules.
    least = _LONG * recording.duration
    steps = [
        each
        for each in subject.steps
        if (each.step.end is None or each.duration > least)
        and each.step.attributes.get(semconv.STEP_BOUND_BY) not in (IMPORTING, COMPILING)
    ]
    longest = sorted(steps, key=lambda each: -each.duration)[:_MOST_GROWING]
    found = [(each, summary.growing(recording, each)) for each in longest]
    known = [(each, grown) for each, grown in found if grown is not None]
    if not known:
        return
    most = max(grown.grown for _, grown in known)
    each, grown = max(known, key=lambda item: (item[1].grown > most / 2, item[0].depth))
    by = f"{size(grown.per_second)} a second"
    if grown.per_sample is not None:
        by = f"{size(grown.per_sample)} with each sample ({by})"
    text = f"Memory kept growing in {_path(each.names)}, by {by}, {size(grown.grown)} in all"
    lines = by_line(of_step(stacks_in(recording), each.step.name))
    seen = sum(amounts.grown for amounts in lines.values())
    if seen:
        place = max(lines, key=lambda place: lines[place].grown)
        text += f", {share_text(lines[place].grown / seen)} of it at {place.short}"
    ending, limit = recording.ending, memory_limit(recording)
    if limit and grown.left is not None and (ending is None or ending.exit_code == 0):
        text += f"; the limit of {size(limit)} would be reached {duration_text(grown.left)} later"
    yield f"{text}: a leak, or data that is kept.{_to_try(MEMORY_GROWTH, each)}"


def whose(recording: Recording, peak: summary.KnownValue) -> str:
    """Returns which of several processes a peak is of; empty if it is of all of them."""
    if peak.run is None or peak.source in ("launcher", "ending"):
        return ""
    is_single = len({run.process for run in recording.runs}) == 1
    return "" if is_single else f" of {process_name(peak.run)}"


def _time(recording: Recording, subject: Subject) -> Iterator[str]:
    steps = subject.steps
    if not steps:
        if not steps_in(recording):
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


def _waited(recording: Recording) -> Iterator[str]:
    """Yields the machine's part in a run that lasted long."""
    name = summary.BY_NAME[summary.CPU_WAIT].attributes[0]
    every = [number(run.attributes, name) for run in recording.runs]  # of a shell's child, its own
    waited = max(filter(None, (summary.value(recording, summary.CPU_WAIT), *every)), default=0.0)
    used, cpus = summary.value(recording, summary.CPU_TIME), summary.processors(recording)
    is_own = used and cpus and used >= _OWN * cpus * recording.duration
    if not is_own and waited >= max(_LEAST_WAIT, _LONG * recording.duration):
        whole = duration_text(recording.duration)
        yield f"For {duration_text(waited)} of {whole} its main thread waited for a processor: a busy machine."


def _bounds(recording: Recording, subject: Subject, named: Sequence[str]) -> Iterator[str]:
    """Yields what bounds the steps that matter, longest first, and what to try; not what was named already."""
    peak = summary.peak(recording)
    known = [
        each
        for each in subject.steps
        if each.step.attributes.get(semconv.STEP_BOUND_BY) not in (None, *named)
        and (
            each.own >= _WORTH * recording.duration or (peak is not None and each.step is peak.step)
        )
    ]
    for each in sorted(known, key=lambda each: -each.own)[:_MOST_BOUNDS]:
        bound = str(each.step.attributes[semconv.STEP_BOUND_BY])
        evidence = each.step.attributes.get(semconv.STEP_BOUND_EVIDENCE, "")
        text = f"{words_of(bound)}: {cut(listed(evidence), _LONGEST_MESSAGE)}"
        yield f"{_path(each.names)}: {text}.{_to_try(bound, each)}"


def _to_try(bound: str, each: PlacedStep) -> str:
    """Returns what to try against what bounds a step, as another sentence; empty if nothing is known."""
    if bound == CALIBRATION_DATA and not each.step.samples:
        return ""  # to load beside the calibration helps where they are one step
    remedy = remedy_of(bound, str(each.step.attributes.get(semconv.CALIBRATION_METHOD, "")))
    return f" To try: {remedy}." if remedy else ""


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


# --- how it ended -------------------------------------------------------------------------

_LONGEST: Final = 300
_MOST: Final = 8

_FULL: Final = 0.8
"""Part of the machine's memory from which on it counts who else used it."""

_CERTAIN: Final = {"known": "known from", "guessed": "guessed from"}


def ended_as(recording: Recording) -> str:
    """Returns how the program ended: ``killed by SIGKILL``."""
    ending = recording.ending
    if recording.state == "killed" and ending is not None and ending.signal:
        return f"killed by {ending.signal}"
    if recording.state == "failed" and ending is not None and ending.exit_code:
        return f"failed with exit code {ending.exit_code}"
    return STATES["lost"].verb if recording.state == "lost" else recording.state


def ending_lines(ending: Ending | None) -> list[str]:
    """Returns the lines on an ending; none for a program that ended well."""
    if ending is None or not _is_worth_telling(ending):
        return []
    facts = [*ending_facts(ending), *(("would help", each) for each in _advice(ending))]
    lines = [_headline(ending), *(f"  {name}: {text}" for name, text in facts)]
    return list(map(printable, lines))


def ending_parts(ending: Ending | None) -> Iterator[Part]:
    """Yields what is known of an ending beside the answer, and what would help."""
    if ending is None or not _is_worth_telling(ending):
        return
    died = [("process", _headline(ending))] if ending.process is not None else []
    if rows := [*died, *ending_facts(ending)]:
        yield Facts(rows)
    if ending.advice:
        yield Section("What would help", (Lines(_advice(ending), is_list=True),))


def _advice(ending: Ending) -> list[str]:
    return [f"{each.text} [{each.source}]" for each in ending.advice]


def _is_worth_telling(ending: Ending) -> bool:
    """Returns whether there is more to report than an exit code."""
    return bool(ending.signal or ending.process or ending.open_steps or ending.error)


def _headline(ending: Ending) -> str:
    """Returns what happened: ``the program was killed by SIGKILL: out of memory, in Calibration``."""
    cause = _why(ending)
    if ending.where is not None:
        cause += f", in {cut(ending.where, _LONGEST)}"
    if ending.signal is not None:
        how = f"was killed by {ending.signal}"
    else:
        how = f"ended with exit code {ending.exit_code}"
    if ending.process is not None:
        by = f" was killed by {ending.process_signal}" if ending.process_signal else " died"
        return f"{cut(ending.process, _LONGEST)}{by}{cause}; the program {how}"
    if ending.signal is None and ending.error is not None:
        how = f"failed with {cut(ending.error, _LONGEST)}"
    return f"the program {how}{cause}"


def _why(ending: Ending) -> str:
    """Returns the cause, to be put behind what happened; empty if it is not known."""
    if ending.out_of_memory is not None:
        return f": out of memory{', probably' if ending.out_of_memory == 'guessed' else ''}"
    return f": {cut(ending.cause, _LONGEST)}" if ending.cause is not None else ""


def ending_facts(ending: Ending) -> Iterator[tuple[str, str]]:
    """Yields what is known beside that, each with its name, without the advice."""
    # Of a program that has failed by itself, the exception is named before.
    is_known = (
        ending.signal or ending.process or ending.cause or ending.out_of_memory or ending.error
    )
    if ending.evidence is not None and is_known:
        otherwise = "because" if ending.cause or ending.error else "evidence"
        yield _CERTAIN.get(ending.out_of_memory or "", otherwise), cut(ending.evidence, _LONGEST)
    if len(ending.open_steps) > 1:
        yield "open steps", _listed(ending.open_steps, WITHIN)
    if ending.memory is not None or ending.memory_limit is not None:
        yield "memory", _memory(ending)
    if ending.processes:
        sizes = [f"{cut(each, _LONGEST_NAME)} {size(of)}" for each, of in ending.processes]
        yield "largest", _listed(sizes)


def _memory(ending: Ending) -> str:
    text = size(ending.memory) if ending.memory is not None else "unknown"
    # Addresses are another measure than memory in use.
    if ending.memory_limit and ending.memory_limit_source != "RLIMIT_AS":
        source = f" ({ending.memory_limit_source})" if ending.memory_limit_source else ""
        share = f"{share_text(ending.memory / ending.memory_limit)} of " if ending.memory else ""
        text += f", {share}the limit of {size(ending.memory_limit)}{source}"
    for amount, each in (
        (ending.memory_per_sample, "with each sample"),
        (ending.memory_per_layer, "with each layer"),
        (ending.memory_per_second, "each second until the end"),
    ):
        text += f", {size(amount)} more {each}" if amount else ""
    others, limit = ending.memory_of_others or 0, ending.memory_limit or 0
    is_full = (ending.memory or 0) + others > _FULL * limit
    if ending.memory_limit_source == "physical" and others > limit / 10 and is_full:
        text += f"; other programs of the machine used {size(others)}"
    return text


def _listed(texts: Sequence[str], between: str = ", ") -> str:
    more = len(texts) - _MOST
    shown = between.join(texts[:_MOST])
    return cut(f"{shown} and {more:,} more" if more > 0 else shown, _LONGEST_MESSAGE)


_GROWTHS: Final = (
    ("memory", semconv.FORECAST_MEMORY, semconv.FORECAST_MEMORY_LIMIT),
    ("GPU memory", semconv.FORECAST_GPU_MEMORY, semconv.FORECAST_GPU_MEMORY_LIMIT),
)


def time_left(run: RecordedRun, step: RecordedStep) -> str:
    """Returns the time until the last sample or layer of a step that is open, or that it has stalled; empty if unknown."""
    forecast = forecast_of(run, step)
    stalled = number(forecast, semconv.FORECAST_STALLED)
    left = number(forecast, semconv.FORECAST_TIME_LEFT)
    if step.state != "running" or (left is None and stalled is None):
        return ""
    if stalled is not None:
        return f"no progress for {duration_text(stalled)}"
    return f"about {duration_text(left or 0)} left"


def exceeded(run: RecordedRun, step: RecordedStep) -> str:
    """Returns a step's forecast above the limit; empty if there is none."""
    attributes = forecast_of(run, step)
    for what, name, of_limit in _GROWTHS:
        at_end, limit = attributes.get(name), attributes.get(of_limit)
        if isinstance(at_end, int) and isinstance(limit, int) and at_end > limit:
            return (
                f"{what} would be {size(at_end)} after the last {step.counts.newest or 'sample'} (estimated); "
                f"the limit is {size(limit)}"
            )
    return ""


def forecast_lines(recording: Recording) -> list[str]:
    """Returns a line for each step whose forecast is above the limit, or that has time left."""
    # A forecast is made of samples or layers; of an open step the last reading has it.
    steps = [
        (run, step)
        for run in recording.runs
        for step in run.steps
        if step.end is None or step.counts
    ]
    named = ((each[1].name, [*filter(None, (time_left(*each), exceeded(*each)))]) for each in steps)
    return [printable(f"{name}: {', '.join(texts)}") for name, texts in named if texts]
