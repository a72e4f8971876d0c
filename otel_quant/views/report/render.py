"""A recording as an HTML page."""

from __future__ import annotations

from otel_quant.recordings.model import Recording
from otel_quant.version import VERSION
from otel_quant.views.html import parts_for_page
from otel_quant.views.inference import recorded_sections
from otel_quant.views.report.answer import answer_of, began_text, program_of
from otel_quant.views.report.bands import most_telling
from otel_quant.views.report.charts import band_data, chart_data
from otel_quant.views.report.models import models_of
from otel_quant.views.report.origin import origin_of
from otel_quant.views.report.outline import outline_of
from otel_quant.views.report.page import page
from otel_quant.views.report.post_mortem import post_mortem_of
from otel_quant.views.report.processes import processes_of
from otel_quant.views.report.resource_charts import charts_of
from otel_quant.views.report.step_table import step_table
from otel_quant.views.report.subject import subject_of

_MOST_PROBLEMS = 20


def render(recording: Recording) -> str:
    """Returns the report of a recording: one HTML page that needs no network."""
    subject = subject_of(recording)
    charts = charts_of(recording, subject)
    bands = most_telling(subject.steps) if subject is not None else []
    until = max((recording.duration, *(time for chart in charts for time in chart.times[-1:])))
    processes, process_tables = processes_of(recording)
    return page(
        "report.html.j2",
        version=VERSION,
        program=program_of(recording),
        path=str(recording.path),
        began=began_text(recording),
        answer=answer_of(recording, subject, charts),
        post_mortem=post_mortem_of(recording),
        processes=processes,
        process_tables=process_tables,
        charts=[(chart, outline_of(chart, bands, until)) for chart in charts],
        bands_of=subject.name if subject is not None and subject.why else "",
        steps=step_table(recording, subject) if subject is not None and subject.steps else None,
        models=models_of(recording),
        measured=parts_for_page(recorded_sections(recording.path)),
        origin=origin_of(recording, subject),
        problems=recording.problems[:_MOST_PROBLEMS],
        more_problems=max(0, len(recording.problems) - _MOST_PROBLEMS),
        data={
            "until": until,
            "bands": band_data(bands),
            "charts": [chart_data(chart) for chart in charts],
        },
    )
