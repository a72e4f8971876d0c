"""A recording as a document: the answer first, the evidence, what made it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from otel_quant.export.recording.layout import BENCH, INFERENCE
from otel_quant.recordings import summary
from otel_quant.recordings.comparison.facts import FACTS, script_of
from otel_quant.recordings.model import Recording
from otel_quant.recordings.steps import PlacedStep
from otel_quant.schema import semconv
from otel_quant.schema.units import (
    WITHIN,
    clock_text,
    counted,
    cut,
    duration_text,
    moment_text,
    share_text,
    size,
)
from otel_quant.views.charts import Chart
from otel_quant.views.curves import bands_of, charts_of
from otel_quant.views.document import (
    Cell,
    Charts,
    Document,
    Facts,
    Lines,
    Meters,
    Part,
    Quantity,
    Section,
)
from otel_quant.views.ending import (
    advice_of,
    ended_as,
    ending_facts,
    forecast_lines,
    headline,
    is_worth_telling,
)
from otel_quant.views.html import page_text
from otel_quant.views.report_tables import models_of, processes_of
from otel_quant.views.steps import (
    Subject,
    memory_limit,
    process_name,
    step_table,
    subject_of,
)
from otel_quant.views.text import listed

_MOST_PROBLEMS = 20


def render(recording: Recording) -> str:
    """Returns the report of a recording as a page."""
    return page_text(document(recording))


def document(recording: Recording) -> Document:
    """Returns the report of a recording."""
    subject = subject_of(recording)
    return Document(
        tuple(_parts(recording, subject)),
        title=_outcome(recording, subject),
        over=f"Quantization run {moment_text(recording.began_ns // 10**9)} UTC",
        is_bad=recording.state in ("failed", "killed", "lost"),
    )


def _parts(recording: Recording, subject: Subject) -> Iterator[Part]:
    charts = charts_of(recording, subject)
    processes, process_tables = processes_of(recording)
    sentences, meters = answer_of(recording, subject, charts)
    lines = Lines((*sentences, *([processes] if processes else [])))
    yield Section("Summary", (lines, meters), layout="answer")
    yield from _problems(recording)
    yield from _post_mortem(recording)
    yield Section("Over time", tuple(_curves(recording, subject, charts)))
    if subject.steps:
        yield Section("Steps", (step_table(recording, subject),))
    if process_tables:
        yield Section("Processes", process_tables)
    yield from models_of(recording)
    if any((recording.path / name).exists() for name in (INFERENCE, BENCH)):
        from otel_quant.views.inference import recorded_sections  # seldom needed, takes 10 ms

        yield from recorded_sections(recording.path)
    yield _origin(recording, subject)


def _problems(recording: Recording) -> Iterator[Part]:
    if recording.problems:
        yield Lines(("Parts of this recording could not be read:",))
        yield Lines(recording.problems, is_bad=True).first(_MOST_PROBLEMS)


def _post_mortem(recording: Recording) -> Iterator[Section]:
    """Yields what is known of a program that was killed, and what would help."""
    ending = recording.ending
    if ending is None or not is_worth_telling(ending):
        return
    parts: list[Part] = [
        Lines((f"{_capital(headline(ending))}.",)),
        Facts([(_capital(name), text) for name, text in ending_facts(ending)]),
    ]
    if ending.advice:
        advice = Lines(advice_of(ending), is_list=True)
        parts.append(Section("What would help", (advice,)))
    yield Section("Post-mortem", parts, id="post-mortem", layout="post-mortem")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _curves(recording: Recording, subject: Subject, charts: list[Chart]) -> Iterator[Part]:
    if not charts:
        yield Lines(("No curve was recorded.",))
        return
    if subject.why:
        yield Lines((f"The bands are the steps of {subject.name}.",))
    until = max((recording.duration, *(time for chart in charts for time in chart.times[-1:])))
    yield Charts(charts, bands_of(subject.steps), until)


_LONGEST_NAME: Final = 120
_LONGEST_MESSAGE: Final = 400
_MOST_PATHS: Final = 3


def answer_of(
    recording: Recording, subject: Subject, charts: Sequence[Chart]
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


def _program_of(recording: Recording) -> str:
    """Returns the name of the program, or of the recording where its command is not known."""
    command = recording.origin.get(semconv.PROCESS_COMMAND_LINE)
    program = script_of(str(command)) if command else None
    return cut(PurePath(program or recording.path).name or str(recording.path), _LONGEST_NAME)


def _outcome(recording: Recording, subject: Subject) -> str:
    """Returns how it ended, one sentence without its full stop."""
    program = _program_of(recording)
    length = duration_text(recording.duration).replace(" ", "\u00a0")  # on one line
    where = _where(recording, subject)
    if recording.state == "ended":
        return f"{program} finished in {length}"
    if recording.state == "running":
        doing = f": {where}" if where else ""
        return f"{program} had been running for {length} when this was made{doing}"
    how = f"{'was ' if recording.state == 'killed' else ''}{ended_as(recording)}"
    return f"{program} {how} after {length}{f' in {where}' if where else ''}"


def _where(recording: Recording, subject: Subject) -> str:
    """Returns what it was doing at the end, or which step failed."""
    if recording.ending is not None and recording.ending.where:
        return cut(recording.ending.where, _LONGEST_NAME)
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
    if step.samples is None or step.end is not None:
        return name
    total = "" if step.expected_samples is None else f" of {step.expected_samples:,}"
    return f"{name}, sample {step.samples:,}{total}"


def _error(subject: Subject) -> Iterator[str]:
    for run in subject.runs:
        if run.error is not None:
            yield f"{_error_text(run.error, run.error_message)}."
            return
    for each in subject.steps:
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
    near = f": {share_text(peak.value / limit)} of the limit of {size(limit)}" if limit else ""
    yield f"Memory{_whose(recording, peak)} peaked at {size(peak.value)}{where}{when}{near}."


def _whose(recording: Recording, peak: summary.Known) -> str:
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
    names, most = max(by_name.items(), key=lambda item: sum(each.own for each in item[1]))
    own, covered = sum(each.own for each in most), _covered(steps)
    share = own / covered if covered else 0.0
    times = f" ({len(most)} times)" if len(most) > 1 else ""
    all_of = f" of {duration_text(recording.duration)}" if recording.duration else ""
    yield (
        f"{counted(len(steps), 'step')} took {duration_text(covered)}{all_of}, "
        f"{'most of it' if share > 0.5 else 'the longest'} {_path(names)}{times}: "
        f"{duration_text(own)}, {share_text(share)} of it."
    )


def _covered(steps: Sequence[PlacedStep]) -> float:
    """Returns the seconds in which a step was open."""
    seconds, until = 0.0, -math.inf
    for each in sorted(steps, key=lambda step: step.step.start):
        seconds += max(0.0, each.end - max(each.step.start, until))
        until = max(until, each.end)
    return seconds


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


def _meters(
    recording: Recording, peak: summary.Known | None, charts: Sequence[Chart]
) -> Iterator[tuple[str, float, float | None]]:
    if peak is not None:
        yield f"Memory peak{_whose(recording, peak)}", peak.value, memory_limit(recording)
    for chart in charts:
        if chart.id.startswith("gpu-") and chart.mark is not None:
            limit = chart.limit.value if chart.limit is not None else None
            yield f"GPU {chart.id.removeprefix('gpu-')} peak", chart.mark.value, limit


_LONGEST: Final = 1_000
_MOST_OTHERS: Final = 60

_GROUPS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Program", ("process.command", "process.executable", "service.")),
    (
        "Machine",
        ("host.", "os.", "hw.", "quant.host.", "quant.memory.", "quant.gpu.", "container.", "k8s."),
    ),
    ("Versions", ("process.runtime.", "quant.otel_quant.", "quant.librar", "telemetry.")),
    ("Source and pipeline", ("vcs.", "quant.vcs.", "cicd.")),
    ("Quantization", ("quant.",)),
    ("Other", ("",)),
)
"""Title of a group and how the names of its attributes begin."""

_FACTS: Final = {fact.attribute: (fact.name, fact.unit) for fact in FACTS} | {
    semconv.MEMORY_LIMIT_SOURCE: ("limit by", ""),
    semconv.GPU_COUNT: ("number of GPUs", ""),
    semconv.GPU_MEMORY_LIMIT: ("memory of all GPUs", "By"),
    semconv.LIBRARIES: ("libraries", ""),
    "quant.input.size": ("size of it", "By"),
    "host.memory.size": ("memory", "By"),
    "vcs.repository.url.full": ("repository", ""),
}
"""Names for people, as a comparison has them, with their units; any other attribute is shown by its own."""


def _origin(recording: Recording, subject: Subject) -> Section:
    """Returns what made a recording, in groups; empty ones are left out."""
    facts = dict(recording.origin)
    for run in subject.runs:
        facts = {name: value for name, value in run.attributes.items() if name in _FACTS} | facts
    lists = []
    for title, beginnings in _GROUPS:
        # Named ones first, in the order of the table.
        names = sorted(
            (name for name in facts if name.startswith(beginnings)),
            key=lambda name: list(_FACTS).index(name) if name in _FACTS else len(_FACTS),
        )
        rows = [_fact(name, facts.pop(name)) for name in names]
        if (left_out := len(rows) - _MOST_OTHERS) > 0:
            rows[_MOST_OTHERS:] = [("", f"{left_out:,} more are left out")]
        lists.append(Facts(rows, title))
    lists.append(Facts([("folder or file", str(recording.path))], "Recording"))
    shown = [each for each in lists if each.rows]
    return Section("What made this run", (Section("", shown, layout="facts"),))


def _fact(name: str, value: object) -> tuple[str, Cell]:
    known, unit = _FACTS.get(name, (name, ""))
    if isinstance(value, bool):
        return known, "yes" if value else "no"
    if unit and isinstance(value, int | float):
        return known, Quantity(value, unit)
    return known, cut(listed(value), _LONGEST)
