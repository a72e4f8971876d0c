"""Recordings as a table, Markdown, JSON or CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from otel_quant.recordings import summary
from otel_quant.recordings.model import RecordedRun, Recording
from otel_quant.views.former_document import as_markdown, as_text
from otel_quant.views.model_cost import with_ratios
from otel_quant.views.recording_document import (
    is_truncated,
    last_reading_data,
    model_data,
    parts_of,
    run_data,
    titled_runs,
)
from otel_quant.views.step_columns import COLUMNS, ShownRun, columns_of
from otel_quant.views.text import listed, printable


def report(
    recordings: Mapping[str, Recording],
    form: str,
    most_steps: int | None = None,
    width: int | None = None,
) -> str:
    """Renders recordings."""
    if form == "table":
        return as_text(parts_of(recordings, most_steps), width)
    if form == "markdown":
        return as_markdown(parts_of(recordings, most_steps))
    return _csv(recordings) if form == "csv" else _json(recordings)


def _json(recordings: Mapping[str, Recording]) -> str:
    documents: list[dict[str, Any]] = []
    for name, recording in recordings.items():
        whole = _whole(recording)
        runs = titled_runs(name, recording)
        documents += [_document(title, recording, run, whole) for title, run in runs.items()]
        if not runs:
            documents.append({"file": name, "recording": whole})
    return json.dumps(_finite(documents), indent=2, default=str) + "\n"


def _whole(recording: Recording) -> dict[str, Any]:
    """Returns how the whole stands."""
    limit = summary.limit(recording)
    figures = {
        "memory_peak": summary.value(recording, summary.MEMORY_PEAK),
        "memory_limit": None if limit is None else limit.value,
    }
    return {
        "path": str(recording.path),
        "state": recording.state,
        "duration_secs": recording.duration,
        **{key: value for key, value in figures.items() if value is not None},
        "problems": list(recording.problems),
        **({"ending": dataclasses.asdict(recording.ending)} if recording.ending else {}),
    }


def _document(
    title: str, recording: Recording, run: RecordedRun, whole: dict[str, Any]
) -> dict[str, Any]:
    last = run.last if run.end is None else None
    return {
        "file": title,
        "truncated": is_truncated(recording, run),
        "run": run_data(recording, run),
        "steps": list(_rows(ShownRun(recording, run))),
        "summary": run.summary,
        "onnx_model_cost": with_ratios(list(map(model_data, run.models))),
        **({"last_reading": last_reading_data(recording, run, last)} if last else {}),
        "state": run.state,
        "recording": whole,
    }


def _rows(shown: ShownRun) -> Iterator[dict[str, Any]]:
    columns = columns_of(shown)
    for at, row in enumerate(shown.rows):
        figures = {column.key: values[at] for column, values in columns}
        yield {"step": row.name, "depth": row.depth, **figures}


def _finite(value: object) -> object:
    """Replaces numbers that JSON does not have (NaN, infinity) by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def _csv(recordings: Mapping[str, Recording]) -> str:
    """Returns the steps as CSV; what is known of a run is on each of its steps."""
    rows: list[dict[str, object]] = []
    for name, recording in recordings.items():
        for title, run in titled_runs(name, recording).items():
            known = {f"run_{key}": listed(each) for key, each in run_data(recording, run).items()}
            for figures in _rows(ShownRun(recording, run)):
                row = {"file": title, **figures, **known}
                rows.append({key: printable(str(v)) for key, v in row.items() if v is not None})
    order = ["file", "step", "depth", *(column.key for column in COLUMNS), "status"]
    present = {key for row in rows for key in row}
    fields = [key for key in order if key in present]
    fields += [key for row in rows for key in row if key not in order]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(dict.fromkeys(fields)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
