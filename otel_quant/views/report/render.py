"""A recording as a document: the answer first, the evidence, what made it."""

from __future__ import annotations

from collections.abc import Iterator

from otel_quant.recordings.model import Recording
from otel_quant.views.document import Charts, Document, Facts, Lines, Part, Section
from otel_quant.views.ending import ending_facts, headline, is_worth_telling
from otel_quant.views.html import page_text
from otel_quant.views.inference import recorded_sections
from otel_quant.views.report.answer import answer_of, began_text, outcome_of
from otel_quant.views.report.bands import most_telling
from otel_quant.views.report.charts import Chart
from otel_quant.views.report.models import models_of
from otel_quant.views.report.origin import origin_of
from otel_quant.views.report.processes import processes_of
from otel_quant.views.report.resource_charts import charts_of
from otel_quant.views.report.subject import Subject, subject_of
from otel_quant.views.steps import step_table

_MOST_PROBLEMS = 20


def render(recording: Recording) -> str:
    """Returns the report of a recording as a page."""
    return page_text(document(recording))


def document(recording: Recording) -> Document:
    """Returns the report of a recording."""
    subject = subject_of(recording)
    return Document(
        tuple(_parts(recording, subject)),
        title=outcome_of(recording, subject),
        over=f"Quantization run {began_text(recording)}",
        is_bad=recording.state in ("failed", "killed", "lost"),
    )


def _parts(recording: Recording, subject: Subject | None) -> Iterator[Part]:
    charts = charts_of(recording, subject)
    processes, process_tables = processes_of(recording)
    sentences, meters = answer_of(recording, subject, charts)
    lines = Lines((*sentences, *([processes] if processes else [])))
    yield Section("Summary", (lines, meters), layout="answer")
    yield from _problems(recording)
    yield from _post_mortem(recording)
    yield Section("Over time", tuple(_curves(recording, subject, charts)))
    if subject is not None and subject.steps:
        yield Section("Steps", (step_table(recording, subject),))
    if process_tables:
        yield Section("Processes", process_tables)
    yield from models_of(recording)
    yield from recorded_sections(recording.path)
    yield origin_of(recording, subject)


def _problems(recording: Recording) -> Iterator[Part]:
    if recording.problems:
        more = len(recording.problems) - _MOST_PROBLEMS
        rest = [f"and {more} more"] if more > 0 else []
        yield Lines(("Parts of this recording could not be read:",))
        yield Lines((*recording.problems[:_MOST_PROBLEMS], *rest), is_bad=True)


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
        advice = [f"{each.text} [{each.source}]" for each in ending.advice]
        parts.append(Section("What would help", (Lines(advice, is_list=True),)))
    yield Section("Post-mortem", parts, id="post-mortem", layout="post-mortem")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _curves(recording: Recording, subject: Subject | None, charts: list[Chart]) -> Iterator[Part]:
    if not charts:
        yield Lines(("No curve was recorded.",))
        return
    if subject is not None and subject.why:
        yield Lines((f"The bands are the steps of {subject.name}.",))
    until = max((recording.duration, *(time for chart in charts for time in chart.times[-1:])))
    bands = most_telling(subject.steps) if subject is not None else []
    yield Charts(charts, bands, until)
