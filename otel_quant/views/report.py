"""A recording as a document: the answer first, the evidence, what made it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from otel_quant.export.recording.layout import BENCH, INFERENCE
from otel_quant.recordings import summary
from otel_quant.recordings.comparison.facts import FACTS
from otel_quant.recordings.model import Recording
from otel_quant.recordings.stacks import stacks_in
from otel_quant.schema import semconv
from otel_quant.schema.units import (
    cut,
    moment_text,
)
from otel_quant.views.answer import outcome, sentences, whose
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
    ending_facts,
    headline,
    is_worth_telling,
)
from otel_quant.views.html import page_text
from otel_quant.views.report_tables import models_of, processes_of
from otel_quant.views.stacks import page_parts
from otel_quant.views.steps import (
    Subject,
    memory_limit,
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
        title=outcome(recording, subject),
        over=f"Quantization run {moment_text(recording.began_ns // 10**9)} UTC",
        is_bad=recording.state in ("failed", "killed", "lost"),
    )


def _parts(recording: Recording, subject: Subject) -> Iterator[Part]:
    charts = charts_of(recording, subject)
    processes, process_tables = processes_of(recording)
    lines = Lines((*sentences(recording, subject), *([processes] if processes else [])))
    meters = Meters(tuple(_meters(recording, charts)))
    yield Section("Summary", (lines, meters), layout="answer")
    yield from _problems(recording)
    yield from _post_mortem(recording)
    yield Section("Over time", tuple(_curves(recording, subject, charts)))
    if subject.steps:
        caption = f"Steps of {subject.name}, {subject.why}" if subject.why else "Steps"
        table = step_table(recording, subject.runs, caption=caption, with_rates=True)
        yield Section("Steps", (table,))
    if stacks := stacks_in(recording):
        yield Section(
            "Python lines",
            page_parts(stacks),
        )
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


def _meters(
    recording: Recording, charts: Sequence[Chart]
) -> Iterator[tuple[str, float, float | None]]:
    peak = summary.peak(recording)
    if peak is not None:
        yield f"Memory peak{whose(recording, peak)}", peak.value, memory_limit(recording)
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
