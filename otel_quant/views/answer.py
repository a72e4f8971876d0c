"""The first lines on a recording: how it ended, its peak, where its time went, what would help."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import nlargest
from itertools import chain
from operator import attrgetter
from pathlib import PurePath
from typing import Final

from otel_quant.diagnosis import bounds, headline
from otel_quant.recordings import model, reader, summary
from otel_quant.recordings.continued import earlier_runs
from otel_quant.recordings.failures import (
    Failure,
    failure_of,
    failures,
    handled_last,
    has_exit_code,
    is_unfinished,
)
from otel_quant.recordings.outside import outside_at, outside_of
from otel_quant.recordings.outside import words_of as words_of_outside
from otel_quant.schema import semconv, units
from otel_quant.schema.code_lines import BETWEEN, Place
from otel_quant.schema.readings import ProfileStep
from otel_quant.views.document import Brief
from otel_quant.views.endings import (
    LONGEST,
    advice_of,
    cut_text,
    ended_as,
    ending_facts,
    ending_of,
    forecast_lines,
    is_within,
    joined_names,
    run_of_ending,
    why_ended,
)
from otel_quant.views.gpu_answer import gpu_sentences
from otel_quant.views.gpu_devices import growing_on_gpus, nearest_to_its_limit
from otel_quant.views.ranks import failed_by_another, job_sentences, ranks_in
from otel_quant.views.steps import ShownProcess, is_worker, memory_limit, process_name, subject_of
from otel_quant.views.text import listed, phrase, printable, shortened

BAD_STATES: Final = ("failed", "killed", "lost")
_LONGEST_LINE: Final = 60
_MOST_PATHS: Final = 3
_MOST_BOUNDS: Final = 5
_LONG: Final = 0.2
"""Share of the run's time from which on a step leaks rather than loads, and a wait is worth telling."""

_LEAST_WAIT: Final = 1.0  # Seconds
_LEAST_OUTSIDE: Final = 0.5  # Seconds
_LEAST_WRITTEN: Final = 1_000_000  # Bytes: a recording itself takes some hundred kB

_OWN: Final = 0.8
"""Share of its processors from which on a program uses them itself, and its threads wait for each other."""

_BESIDE: Final = 1.01
"""How often the time in which a step was open is that of all processes, from which on they ran beside each other."""

_SAME: Final = 0.98  # Share of a peak from which on a step's own is the same, and has its line
_AT_ONCE: Final = 1.0  # Seconds within which a peak was, so that its time is told
_MOST_CALLS: Final = 3
_SEVERAL: Final = 8  # Steps of a name from which on memory may be told to grow from one to the next
_A_PART: Final = 0.1  # Share of the time outside of steps from which on a function is named
_TO_TRY: Final = "To try"
_WORTH: Final = 0.05  # Share of the run's time from which on a step matters


def sentences(
    recording: model.Recording, subject: ShownProcess, *, is_below: bool = True
) -> Iterator[str]:
    """Yields the most important first, of which the first names a failed step unless it stands below how it ended."""
    return chain(*_answers(recording, subject, is_below=is_below).values())


def _answers(
    recording: model.Recording, subject: ShownProcess, *, is_below: bool
) -> dict[str, list[str]]:
    """Returns the sentences by what they are about, the most important first."""
    rows, outside = outside_of(recording), list(_outside(recording))
    is_most = sum(each.own for each in rows) > headline.MOST_TIME * recording.duration
    growing, waited = list(_growing(recording, subject)), list(_waited(recording))
    named = [bounds.OTHER_PROGRAMS] * bool(waited) + [bounds.MEMORY_GROWTH] * bool(growing)
    on_gpus = growing_on_gpus(recording, subject.steps)
    return {
        "error": failed_by_another(recording) or list(_error(recording, subject, is_below)),
        "threads": list(_dead_threads(recording)),
        "continued": list(_continued(recording)),
        "audit": [
            f"What was written is not as asked for: {path}: {text}."
            for path, text in _refused(recording)
        ],
        "calibration": list(_calibration(recording)),
        "ranks": [] if failures(recording) else list(job_sentences(ranks_in(recording))),
        "mostly outside": outside if is_most else [],
        "peak": list(_peak_sentence(recording, subject, summary.peak(recording))),
        "GPUs": [*gpu_sentences(recording, subject), *nearest_to_its_limit(recording), *on_gpus],
        "growing": growing,
        "time": list(_time(recording)),
        "outside": [] if is_most else outside,
        "waited": waited,
        "bounds": list(_bounds(recording, subject, named)),
        "written": list(_written(recording, subject)),
        "settled": list(_settled(recording)),
        "left in float": list(_left_in_float(recording)),
        "forecast": [f"{line}." for line in forecast_lines(recording)],
    }


_TELLING: Final = (
    "ranks", "left in float", "mostly outside", "bounds", "forecast", "waited", "outside", "peak", "time", "continued",
)  # fmt: skip
"""What a brief answer tells first, beside errors and what the program itself could do otherwise."""


def brief(recording: model.Recording) -> Brief:
    """Returns the answer that a program can act on: of the same sentences."""
    subject, ending = subject_of(recording), ending_of(recording)
    by_kind = _answers(recording, subject, is_below=True)
    to_try = (each for each in by_kind["bounds"] if _TO_TRY in each)
    to_change = [*by_kind["calibration"], *by_kind["growing"], *to_try]
    wrong = [*by_kind["error"], *by_kind["threads"], *by_kind["audit"]]
    telling = [*wrong, *to_change, *chain(*map(by_kind.__getitem__, _TELLING))]
    how = f"{outcome(recording, subject)}."
    if recording.state == "ended":
        verdict, evidence = telling[0], [*telling[1:], how]
        is_certain = bounds.PROBABLY not in verdict
    else:
        is_certain = ending.out_of_memory != "guessed"
        known = " ".join(wrong)  # which may have the evidence already
        facts = (f"{name}: {text}" for name, text in ending_facts(ending) if text not in known)
        verdict, evidence = how, [*wrong, *to_change, *facts, *telling]
    then = list(_next(recording, is_changed=bool(to_change)))
    return Brief(verdict, list(dict.fromkeys(evidence)), is_certain, advice_of(ending), then)


def _next(recording: model.Recording, *, is_changed: bool) -> Iterator[Sequence[str]]:
    """Yields commands to go on with; none where the program itself is to be changed first."""
    paths: dict[str, str] = {}
    for run in recording.runs:
        paths |= {str(each.get("role")): str(each.get("path")) for each in run.models}
    yield from (("audit", path) for path, _ in _refused(recording))
    if "float" not in paths or is_changed:
        return
    if ending_of(recording).out_of_memory is not None:
        yield "estimate", paths["float"], "--fit", "--like", recording.place
    elif recording.state == "ended" and "quantized" in paths:
        yield "inference", paths["float"], paths["quantized"]


def _program_of(recording: model.Recording, attributes: model.Attributes) -> str:
    """Returns the name of a program, or of the recording where its command is not known."""
    command = str(attributes.get(semconv.PROCESS_COMMAND_LINE, ""))
    program = model.script_of(command) or str(recording.path)
    if program.startswith("-c "):
        program = f"{command.split()[0]} -c"
    program = program.removeprefix("-m ")  # whose name is the module's
    return units.cut(PurePath(program).name or program, headline.LONGEST_NAME)


def outcome(recording: model.Recording, subject: ShownProcess) -> str:
    """Returns how it ended, one sentence without its full stop."""
    program = _program_of(recording, recording.origin)
    length, where = units.duration_text(recording.duration), _where(recording, subject)
    if recording.state == "ended":
        broken = sum(run.is_broken for run in recording.runs)
        runs = partial(units.counted, thing="run")
        but = phrase(", but {} within it did not end well", broken, runs)
        return f"{program} finished in {length}{but}"
    if recording.state == "running":
        return f"{program} had been running for {length} when this was made{phrase(': {}', where)}"
    place = phrase(" in {}", not is_within(recording) and where)
    if recording.state == "lost" and not recording.path.is_dir():
        # Quark's profiler, which may still be running, holds no lock on its file.
        return f"{program} has no end record (killed, or still running); last seen after {length}{place}"
    was = "was " if recording.state == "killed" else ""
    is_whole = recording.state == "lost" and recording.launcher is not None
    why = _with_launcher(recording) if is_whole else why_ended(ending_of(recording))
    return f"{program} {was}{ended_as(recording)} after {length}{place}{why}"


def _with_launcher(recording: model.Recording) -> str:
    """Returns why a program's launcher has not seen its end either."""
    if kills := recording.killed_too:
        processes = units.counted(kills, "process")
        return f"; otel-quant run was killed too, and since the start the kernel has killed {processes} of its control group because memory was full"
    return "; otel-quant run was killed too, as when the kernel kills a whole container or the machine stops"


def _where(recording: model.Recording, subject: ShownProcess) -> str:
    """Returns what it was doing at the end, or which step failed."""
    if where := ending_of(recording).where:
        return shortened(where, headline.LONGEST_NAME + _LONGEST_LINE)
    if recording.state == "failed" or recording.ending is not None:
        failure = failure_of(recording)
        steps = failure.steps if failure is not None and recording.ending is None else ()
        return units.cut(steps[-1].name, headline.LONGEST_NAME) if steps else ""
    # Innermost of those that are still open, before that the one that counts samples or layers.
    # A child may have been killed alone.
    unended = [each for each in subject.steps if each.step.end is None]
    unended = unended or [each for each in model.steps_in(recording) if each.step.end is None]
    if not unended:
        return ""
    step = max(unended, key=lambda each: (bool(each.step.counts), each.depth, each.end)).step
    line = phrase(", at {}", step.line, attrgetter("words"))
    return f"{units.cut(step.name, headline.LONGEST_NAME)}{phrase(', {}', step.counts)}{line}"


def _error(recording: model.Recording, subject: ShownProcess, is_below: bool) -> Iterator[str]:
    """Yields which exception ended a program, and what had failed before that it may have survived."""
    has_ended = recording.state == "ended"
    every = failures(recording)
    first = (every[0] if every else None) if has_ended else failure_of(recording)
    ending, run = ending_of(recording), run_of_ending(recording)
    is_of_another = is_within(recording)
    at = phrase("In {}, ", is_of_another and _where(recording, subject))
    is_killed = ending.process_signal not in (None, "SIGTERM")  # by which a pool ends its workers
    if (is_of_another or is_killed) and (first is None or (is_killed and first.run is not run)):
        of = ending.process if run is None else process_name(recording, run)
        yield f"{at}{of} {f'was killed by {ending.process_signal}' if is_killed else 'died'}."
        is_below, at = False, ""
    if first is not None:
        step = [] if is_below else first.steps[-1:]
        raised = "".join(f"{cut_text(each.name)} raised " for each in step)
        text = f"{raised or _failed(recording, first.run)}{_error_text(first.of)}."
        yield f"{at if first.run is run else ''}{text}"
    failed = [each.step for each in subject.steps if each.step.error is not None]
    yield from _survived(failed, has_ended_well=first is None and has_ended)
    if not has_ended:
        yield from _before(recording, every, first)


def _dead_threads(recording: model.Recording) -> Iterator[str]:
    """Yields which threads an exception has ended, but for those of which a step tells it."""
    steps = [each.step for each in model.steps_in(recording) if each.step.error is not None]
    for run in recording.runs:
        text = str({**run.last_read, **run.attributes}.get(semconv.RUN_DEAD_THREAD, ""))
        if text and not any(f"{each.error}: {each.error_message}" in text for each in steps):
            yield f"{text}." if text.startswith("Thread-") else f"Thread {text}."


def _before(
    recording: model.Recording, every: Sequence[Failure], first: Failure | None
) -> Iterator[str]:
    """Yields what failed before a program did: a process, or a step of one that does not tell why it failed."""
    until = recording.duration if first is None else first.time
    own, told = recording.launcher, run_of_ending(recording)
    known = [
        (_failed(recording, each.run), each.of, each.time)
        for each in every
        if each.time < until and each.run.parent_pid != own and each.of.error != _INTERRUPT
        if each.run is not told
    ]
    if first is None and recording.state == "failed":
        last = [steps[-1] for run in recording.runs if (steps := handled_last(run))]
        known += [(f"{cut_text(step.name)} raised ", step, step.end or 0.0) for step in last[-1:]]
    for name, of, time in known[:1]:
        yield f"Before that, {name}{_error_text(of)}, {units.moment_of(time)} after the start."


def _survived(failed: Sequence[model.RecordedStep], *, has_ended_well: bool) -> Iterator[str]:
    """Yields which steps of a program that ended well were left by an exception, and which were still open when it ended."""
    around = {(each.parent, each.error) for each in failed}  # which the same exception has left
    ended = [each for each in failed if not is_unfinished(each)]
    raised = [each for each in ended if (each.index, each.error) not in around]
    more = phrase(" and {} more", len(raised) - 1, int)
    for each in raised[:1] if has_ended_well else ():
        yield f"{cut_text(each.name)} raised {_error_text(each)}; the program survived it{more}."
    if still_open := [cut_text(each.name) for each in failed if is_unfinished(each)]:
        yield f"Not ended when the program did: {joined_names(still_open)}."


_INTERRUPT: Final = "KeyboardInterrupt"  # Of Ctrl-C, which every process has


def _failed(recording: model.Recording, run: model.RecordedRun) -> str:
    """Returns which run failed; empty for the program itself, whose name is in the line above."""
    is_own = recording.launcher is not None and run.parent_pid == recording.launcher
    is_single = len(recording.runs) == 1 and not has_exit_code(run.error)
    is_single &= run.state != "killed" and not is_worker(recording, run)
    if (is_own or is_single) and recording.state == "failed":
        return ""
    how = "was killed by" if run.state == "killed" else "failed with"
    return f"{process_name(recording, run)} {how} "


def _error_text(failed: model.RecordedRun | model.RecordedStep) -> str:
    line = failed.attributes.get(semconv.ERROR_LINE)
    return headline.error_text(str(failed.error), failed.error_message, line)


def _peak_sentence(
    recording: model.Recording, subject: ShownProcess, peak: summary.KnownValue | None
) -> Iterator[str]:
    if peak is not None:
        where, when = peak_place(recording, peak)
        own = peak.step and model.number(peak.step.attributes, semconv.MEMORY_PEAK)
        if peak.step is not None and own and own >= _SAME * peak.value:
            line = peak.step.attributes.get(semconv.MEMORY_PEAK_LINE)
            where += phrase(", seen at {}", line, listed)
        limit, what = memory_limit(recording), f"Memory{whose(recording, peak)}"
        yield headline.peak_sentence(
            peak.value, where + when, limit, what=what, is_least=peak.is_least
        )


def peak_place(recording: model.Recording, peak: summary.KnownValue) -> tuple[str, str]:
    """Returns in which step or row a peak was, and when; empty what is not known."""
    where, when = phrase(" in {}", [name for name, _ in peak.path], headline.names_text), ""
    if peak.time is not None:
        if peak.time - (peak.time if peak.since is None else peak.since) < _AT_ONCE:
            when = f", {units.moment_of(peak.time)} after the start"
        # A mark that the kernel told at the end may have risen at any time: a row has it, or none.
        least = 0.0 if peak.since is None else peak.value
        where = where or phrase(" {}", outside_at(recording, peak.time, least), words_of_outside)
    return where, when


def _growing(recording: model.Recording, subject: ShownProcess) -> Iterator[str]:
    """Yields the sentence on memory that goes on growing within a step: of several in the innermost."""
    # To load a model takes memory too, and ends soon; so do modules.
    least = _LONG * recording.duration
    known = [
        (each, grown)
        for each in subject.steps
        if (each.step.end is None or each.duration > least)
        and _bound(each) not in (bounds.IMPORTING, bounds.COMPILING)
        and (grown := summary.growing(recording, each))
    ]
    if not known:
        yield from _growing_from_step_to_step(recording, subject)
        return
    most = max(grown for _, grown in known)
    each, grown = max(known, key=lambda it: (it[1] > most / 2, it[0].depth))
    samples = each.step.samples
    per_sample = ending_of(recording).memory_per_sample or (samples and grown / samples)
    each_one = "with each sample" if per_sample else "a second"
    by = f"{units.size(per_sample or grown / each.duration)} {each_one}"
    seen = reader.grown_of(recording, each.step)
    is_known = each.step.end is not None and bool(reader.lines_of(recording, each.step))
    if (seen is not None and seen.is_loaded) or (
        is_known and (0 if seen is None else seen.bytes) < grown / 2
    ):
        return  # what was loaded; or child processes, of which no lines are known
    text = f"Memory kept growing in {headline.names_text(each.names)}, by {by}, {units.size(grown)} in all"
    if seen is not None:
        text += f", {units.share_text(seen.share)} of it at {seen.spot.words}"
    remedy = _to_try(recording, bounds.MEMORY_GROWTH, each)
    yield f"{text}: {'' if remedy else 'a leak, or '}data that is kept.{remedy}"


def _growing_from_step_to_step(recording: model.Recording, subject: ShownProcess) -> Iterator[str]:
    """Yields the same of steps of a name one after another, each of which is too short to tell: of several names the one with most time."""
    alike: dict[tuple[int, tuple[str, ...]], list[model.PlacedStep]] = defaultdict(list)
    for each in subject.steps:
        alike[id(each.run), reader.kind_of(each.names)].append(each)
    for (_, kind), steps in sorted(alike.items(), key=lambda it: -sum(one.own for one in it[1])):
        bare, count = replace(steps[0].step, attributes={}), len(steps)
        whole = replace(steps[0], step=bare, end=max(each.end for each in steps))
        is_long = count >= _SEVERAL and whole.duration > _LONG * recording.duration
        if is_long and (grown := summary.growing(recording, whole)):
            names = kind if len({each.names for each in steps}) > 1 else steps[0].names
            yield f"Memory kept growing over {headline.names_text(names)} ({count:,} times), by {units.size(grown / count)} with each, {units.size(grown)} in all: a leak, or data that is kept."
            return


def whose(recording: model.Recording, peak: summary.KnownValue) -> str:
    """Returns which of several processes a peak is of."""
    is_only = len({run.process for run in recording.runs}) < 2
    if is_only and not any(is_worker(recording, run) for run in recording.runs):
        return ""
    is_own = peak.source not in ("launcher", "ending")
    if is_own and peak.run and (peak.step is None or peak.step in peak.run.steps):
        return f" of {process_name(recording, peak.run)}"
    return " of all processes"


def _time(recording: model.Recording) -> Iterator[str]:
    """Yields how long the steps of all processes took, and those of one name that took longest."""
    steps, whole = model.steps_in(recording), recording.duration
    if not steps:
        why = recording.ending.why_no_step if recording.ending is not None else None
        yield f"No step was recorded{phrase(': {}', why, cut_text)}."
        return
    by_process: dict[str, list[model.PlacedStep]] = defaultdict(list)
    by_kind: dict[tuple[str, ...], dict[str, list[model.PlacedStep]]] = {}
    for each in steps:
        by_process[each.run.process].append(each)
        by_one = by_kind.setdefault(reader.kind_of(each.names[-2:]), defaultdict(list))
        by_one[each.run.process].append(each)
    total = model.covered(steps, whole)
    # Of processes beside each other the times do not add up to that of the run.
    seconds = sum(model.covered(own, whole) for own in by_process.values())
    is_beside = seconds > _BESIDE * total
    times = {}
    for kind, by_one in by_kind.items():
        own = [_time_of(each, whole) for each in by_one.values()]
        names_of = {each.names[-2:] for alike in by_one.values() for each in alike}
        names = kind if len(names_of) > 1 else names_of.pop()
        times[names] = max(own) if is_beside else sum(own), sum(map(len, by_one.values()))
    beside = len(by_process) if is_beside else 1
    yield headline.time_sentence(times, total, whole, processes=beside)
    last = max(steps, key=attrgetter("end"))
    if last.end - whole > _LEAST_OUTSIDE:
        late = units.duration_text(last.end - whole)
        yield f"{headline.names_text(last.names)} went on for {late} after the program had ended."


def _time_of(steps: Sequence[model.PlacedStep], whole: float) -> float:
    """Returns the seconds that steps of one process took, without those within them; of threads beside each other once."""
    own = sum(max(0.0, each.own - max(0.0, each.end - whole)) for each in steps)
    return min(own, model.covered(steps, whole))


def _outside(recording: model.Recording) -> Iterator[str]:
    """Yields where a good part of the run's time went without a step, the longest first."""
    whole = units.duration_text(recording.duration)
    for each in sorted(outside_of(recording), key=attrgetter("own"), reverse=True):
        calls = _calls(recording, each)
        # Python's start, of which no line is known, is nothing that can be helped.
        least = _LEAST_OUTSIDE if model.steps_in(recording) else math.inf
        if each.own >= _LONG * recording.duration and (calls or each.own >= least):
            part = f"{units.part_text(each.own, whole)} of {whole}"
            passed = f"{part} passed {words_of_outside(each)}"
            yield f"{passed}{phrase(': {}', calls)}."


def _calls(recording: model.Recording, row: model.PlacedStep) -> str:
    """Returns in which functions of the program most of a row's time was seen, each at the line with the most."""
    found: dict[tuple[str, str, int], list[tuple[int, Place]]] = {}
    stacks = reader.of_step(reader.stacks_in(recording), row.step.name)
    if sum(each.seen.time for each in stacks) < 1e9:  # shares of lines are chance
        return ""
    for place, seen in reader.by_call(stacks).items():
        line = place.line if place.function == "<module>" else 0  # which is not one function
        found.setdefault((place.file, place.function, line), []).append((seen.time, place))
    # Of many short times samples see a part.
    part = row.own / sum(each.seen.time for each in stacks) if row.step.index == BETWEEN else 1e-9
    times = [(sum(time for time, _ in seen) * part, max(seen)[1]) for seen in found.values()]
    most = nlargest(_MOST_CALLS, (each for each in times if each[0] >= _A_PART * row.own))
    return ", ".join(
        f"{units.cut(place.short, headline.LONGEST_NAME)} {units.duration_text(time)}"
        for time, place in most
    )


def _waited(recording: model.Recording) -> Iterator[str]:
    """Yields the machine's part in a run that lasted long."""
    name = summary.BY_NAME[summary.CPU_WAIT].attributes[0]
    # Of a shell's child, its own
    every = [model.number(run.attributes, name) for run in recording.runs]
    waited = max(filter(None, (summary.value(recording, summary.CPU_WAIT), *every)), default=0.0)
    used, cpus = summary.value(recording, summary.CPU_TIME), summary.processors(recording)
    is_own = used and cpus and used >= _OWN * cpus * recording.duration
    if not is_own and waited >= max(_LEAST_WAIT, _LONG * recording.duration):
        whole = units.duration_text(recording.duration)
        yield f"For {units.duration_text(waited)} of {whole} its main thread waited for a processor: a busy machine."


def _bounds(
    recording: model.Recording, subject: ShownProcess, named: Sequence[str]
) -> Iterator[str]:
    """Yields what bounds the steps that matter, longest first, and what to try; not what was named already."""
    peak = summary.peak(recording)
    at_peak, least = peak and peak.step, _WORTH * recording.duration
    rows = ((reader.with_bound(recording, row), 1) for row in outside_of(recording))
    groups = [each for each in reader.alike(recording, subject.steps, least) if _bound(each[0])]
    told = {(id(each.run), reader.kind_of(each.names)) for each, _ in groups}
    every = ((each, (id(each.run), reader.kind_of(each.names))) for each in subject.steps)
    steps = ((each, 1) for each, kind in every if kind not in told)
    known = [
        (each, often)
        for each, often in (*steps, *rows, *groups)
        if _bound(each) not in ("", *named) and (each.own >= least or each.step is at_peak)
    ]
    # Of several of a name with the same verdict the longest one.
    same = defaultdict(list)
    for each, often in sorted(known, key=lambda it: -it[0].own):
        same[id(each.run), reader.kind_of(each.names), _bound(each)].append((each, often))
    for (each, often), *others in list(same.values())[:_MOST_BOUNDS]:
        bound = _bound(each)
        evidence = listed(each.step.attributes.get(semconv.STEP_BOUND_EVIDENCE, ""))
        if evidence and evidence in (ending_of(recording).evidence or ""):
            continue  # it is why the program has ended
        text = f"{bounds.words_of(bound)}: {units.cut(evidence, headline.LONGEST_MESSAGE)}"
        is_outside, names = bool(each.step.spans), headline.names_text(each.names)
        name = words_of_outside(each).capitalize() if is_outside else names
        times = f" ({often:,} times)" if often > 1 else ""
        times += phrase(" (and {:,} like it)", len(others), int)
        yield f"{name}{times}: {text}.{_to_try(recording, bound, each)}"


def _bound(each: model.PlacedStep) -> str:
    return str(each.step.attributes.get(semconv.STEP_BOUND_BY, ""))


def _to_try(recording: model.Recording, bound: str, each: model.PlacedStep) -> str:
    """Returns what to try against what bounds a step, as another sentence; empty if nothing is known."""
    if bound == bounds.CALIBRATION_DATA and not each.step.samples:
        return ""  # to load beside the calibration helps where they are one step
    method = str(each.step.attributes.get(semconv.CALIBRATION_METHOD, ""))
    stacks = reader.lines_of(recording, each.step)
    evidence = str(each.step.attributes.get(semconv.STEP_BOUND_EVIDENCE, ""))
    function, grew = model.function_of(each.step), summary.growing(recording, each) or math.inf
    remedy = bounds.remedy_of(bound, stacks, function, method, evidence, grew)
    return phrase(f" {_TO_TRY}: {{}}.", remedy)


def _written(recording: model.Recording, subject: ShownProcess) -> Iterator[str]:
    total = summary.value(recording, summary.DISK_WRITE) or 0
    written = phrase("wrote {} to disk", total >= _LEAST_WRITTEN and total, units.size)
    cache = summary.value(recording, summary.CACHE_PEAK)
    filled = phrase("filled its cache directory with {}", cache, units.size)
    if did := " and ".join(filter(None, (written, filled))):
        yield f"It {did}."
    # The path is known before the model is written: of steps that lead to one, the last tells.
    ended = [each for each in subject.steps if each.run.state == "ended"]
    last = {
        listed(each.step.attributes.get(semconv.OUTPUT_PATH, "")): each.step
        for each in sorted(ended, key=attrgetter("end"))
    }
    # A calibration writes none: the program has exited in it.
    names = (
        name
        for name, step in last.items()
        if name and step.error is None and step.kind != ProfileStep.CALIBRATION
    )
    if paths := [units.cut(name, headline.LONGEST_NAME) for name in names]:
        shown, more = ", ".join(paths[:_MOST_PATHS]), len(paths[_MOST_PATHS:])
        yield f"Models written: {shown}{phrase(' and {:,} more', more, int)}."


def _continued(recording: model.Recording) -> Iterator[str]:
    """Yields which run it has gone on from, and how long they took in all."""
    if before := earlier_runs(recording):
        first, whole = before[0], sum(each.duration for each in (recording, *before))
        was = "was " if first.state == "killed" else ""
        ended = f"{was}{ended_as(first)} after {units.duration_text(first.duration)}"
        yield f"It continues {first.place}, which {ended}: they took {units.duration_text(whole)} in all."


def _calibration(recording: model.Recording) -> Iterator[str]:
    """Yields what is wrong with what calibrations have seen."""
    for each in model.steps_in(recording):
        so_far = "" if each.step.end is not None else ", so far"
        for text in findings_of(each.run, each.step):
            yield f"{cut_text(each.step.name)}{so_far}: {text}."


def _settled(recording: model.Recording) -> Iterator[str]:
    """Yields where fewer samples would have given the same ranges."""
    for each in model.steps_in(recording):
        if settled := each.step.attributes.get(semconv.CALIBRATION_SETTLED):
            of = f"sample {settled:,} of {each.step.samples or 0:,}"
            yield f"{cut_text(each.step.name)}: no range grew after {of}, so fewer would do."


def findings_of(run: model.RecordedRun, step: model.RecordedStep) -> list[str]:
    """Returns what is wrong with the data of a calibration, so far if the step is open."""
    found = model.forecast_of(run, step).get(semconv.CALIBRATION_FINDINGS, ())
    return [printable(str(each)) for each in found]


def _refused(recording: model.Recording) -> Iterator[tuple[str, str]]:
    """Yields the models that were written last in a place and did not pass an audit, with its answer."""
    models = (each for run in recording.runs for each in run.models)
    last = {each["path"]: each["figures"] for each in models if each.get("path")}
    for path, figures in last.items():
        if model.number(figures, "audit.problem_count"):
            yield str(path), units.cut(str(figures.get("audit.answer")), LONGEST)


def _left_in_float(recording: model.Recording) -> Iterator[str]:
    """Yields which contractions of the models that were written stay in float, and why."""
    models = (model for run in recording.runs for model in run.models)
    left = ((model.get("path"), model["figures"].get("left_in_float")) for model in models)
    for path, text in dict.fromkeys(each for each in left if each[1]):
        of = phrase("Of {} ", path and units.cut(PurePath(str(path)).name, headline.LONGEST_NAME))
        yield f"{of}{units.cut(str(text), LONGEST)}."
