"""A recording as a document: the answer first, the evidence, what made it."""

from __future__ import annotations

from collections.abc import Iterator

from otel_quant.recordings.model import Recording
from otel_quant.views.document import Charts, Document, Facts, Lines, Part, Section
from otel_quant.views.ending import ending_facts, headline, is_worth_telling
from otel_quant.views.inference import recorded_sections
from otel_quant.views.report.answer import answer_of, began_text
from otel_quant.views.report.bands import most_telling
from otel_quant.views.report.models import models_of
from otel_quant.views.report.origin import origin_of
from otel_quant.views.report.processes import processes_of
from otel_quant.views.report.resource_charts import charts_of
from otel_quant.views.report.step_table import step_table
from otel_quant.views.report.subject import Subject, subject_of

_MOST_PROBLEMS = 20


def document(recording: Recording) -> Document:
    """Returns the report of a recording."""
    subject = subject_of(recording)
    outcome, is_bad = outcome_of(recording, subject)
    return Document(
        tuple(_parts(recording, subject)),
        title=outcome,
        over=f"Quantization run {began_text(recording)}",
        is_bad=is_bad,
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
