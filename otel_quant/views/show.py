"""Recordings and profiles as a document: how they ended, their steps, what made them, their models."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from otel_quant.recordings import summary
from otel_quant.recordings.model import STATES, LastReading, RecordedRun, Recording, number
from otel_quant.recordings.profile_reader import COLUMNS as PROFILE_COLUMNS
from otel_quant.recordings.profile_reader import OF_RUN, PEAKS
from otel_quant.schema import semconv
from otel_quant.schema.figures import MODEL_FIGURES
from otel_quant.schema.units import share_text, size
from otel_quant.views.cells import cell_text
from otel_quant.views.document import (
    Column,
    Document,
    Facts,
    Lines,
    Part,
    Quantity,
    Section,
    Table,
)
from otel_quant.views.ending import ending_lines, forecast_lines
from otel_quant.views.steps import (
    COLUMNS,
    ShownRun,
    StepRow,
    columns_of,
    message_of,
    run_table,
    status_of,
)
from otel_quant.views.text import listed

_LIMITS: Final[Mapping[str | None, str]] = {
    "cgroup": " (of the control group)",
    "physical": " (physical memory)",
}


def document(recordings: Mapping[str, Recording], most_steps: int | None = None) -> Document:
    """Returns recordings as a document, with so many steps of each run at most."""
    return Document(
        _parts(recordings, most_steps),
        title=", ".join(recordings),
        over="Quantization runs",
        sheet=lambda: _sheet(recordings),
        data=lambda: list(_data(recordings)),
    )


def _parts(recordings: Mapping[str, Recording], most_steps: int | None) -> Iterator[Part]:
    for name, recording in recordings.items():
        if recording.path.is_dir():
            yield from _summary_parts(recording)
        runs = titled_runs(name, recording)
        for title, run in runs.items():
            if len(recordings) > 1 or len(runs) > 1:
                yield Section(title, run_parts(recording, run, most_steps))
            else:
                yield from run_parts(recording, run, most_steps)


def titled_runs(name: str, recording: Recording) -> dict[str, RecordedRun]:
    """Returns the runs of a recording by a name that no two of them share."""
    if not recording.path.is_dir():
        return dict.fromkeys((name,), recording.runs[0])
    found: dict[str, RecordedRun] = {}
    for run in recording.runs:
        rank = f", rank {run.rank}" if run.rank is not None else ""
        title = f"{recording.path}: process {run.process}{rank}"
        found[title if title not in found else f"{title}, run {run.id}"] = run
    return found


def _summary_parts(recording: Recording) -> Iterator[Part]:
    """Yields how the whole stands, and how the launcher saw it end."""
    state = f"{STATES[recording.state].verb}, {recording.duration:,.1f} s"
    ending = recording.ending
    if ending is not None and ending.exit_code is not None:
        state += f", exit code {ending.exit_code}"
    peak = summary.peak(recording) if len(recording.runs) != 1 else None
    rows = [("recording", state)]
    if peak is not None:
        rows.append(("memory peak", _peak_text(peak.value, summary.limit(recording))))
    yield Facts(rows, str(recording.path))
    told = ending_lines(ending) if ending is not None else ()
    for lines in (told, forecast_lines(recording), recording.problems):
        if lines:
            yield Lines(tuple(lines))
    if not recording.runs:
        yield Lines(("no run: the program has opened no step",))


def run_parts(
    recording: Recording, run: RecordedRun, most_steps: int | None = None
) -> Iterator[Part]:
    """Yields the parts of one run."""
    shown = ShownRun(recording, run)
    if shown.rows:
        yield run_table(shown, most_steps)
    else:
        yield Lines(("no steps",))
    if facts := tuple(_facts(recording, run)):
        yield Facts(facts)
    if run.summary:
        yield Facts(tuple((key, _rounded(value)) for key, value in run.summary.items()))
    for cost in _with_ratios(list(map(model_data, run.models))):
        yield _cost_facts(cost)
    if run.end is None:
        yield Lines(tuple(_missing(recording, run)))
    elif is_truncated(recording, run):
        text = "truncated: all checkpoints are complete, but the text after them is not"
        yield Lines((text,))


def is_truncated(recording: Recording, run: RecordedRun) -> bool:
    """Whether a run has no end, or the file that it stands in."""
    return run.end is None or (bool(recording.problems) and not recording.path.is_dir())


def _rounded(value: object) -> str:
    return str(round(value, 4) if isinstance(value, float) else value)


# --- what made a run, and how it went -----------------------------------------------------


def run_data(recording: Recording, run: RecordedRun, peak: summary.Known | None) -> dict[str, Any]:
    """Returns what is known of a run with that peak of memory, by the keys of a profile."""
    known: dict[str, Any] = {**recording.origin, **run.attributes}
    known |= {semconv.RUN_ID: run.id, semconv.RUN_RANK: run.rank}
    found: dict[str, Any] = {}
    for key, name in OF_RUN.items():
        value = known.get(name)
        if isinstance(value, int | float) and key.endswith("_mb"):
            value = mebibytes(value)
        if value not in (None, ""):
            found[key] = list(value) if isinstance(value, tuple) else value
    if counted := [step for step in run.steps if step.samples]:
        items = [step.attributes.get(semconv.CALIBRATION_ITEM_COUNT) for step in counted]
        found["calibration_samples"] = sum(step.samples or 0 for step in counted)
        if all(isinstance(each, int) for each in items):
            found["calibration_items"] = sum(each for each in items if isinstance(each, int))
    limit = summary.limit(recording, run)
    if limit is not None:
        found["memory_limit_mb"] = mebibytes(limit.value)
        if limit.source is not None:
            found["memory_limit_source"] = limit.source
    if peak is not None:
        found["tree_peak_memory_mb"] = mebibytes(peak.value)
        found["tree_peak_memory_source"] = peak.source
        if limit is not None:
            found["memory_limit_share"] = round(peak.value / limit.value, 4)
    if run.end is not None:
        found["ended"] = f"with {run.error}" if run.error else "without an exception"
    return found


def _facts(recording: Recording, run: RecordedRun) -> Iterator[tuple[str, str]]:
    peak, limit = summary.peak_of_run(recording, run), summary.limit(recording, run)
    if peak is not None:
        is_least = peak.is_least or (run.end is None and peak.source not in ("launcher", "ending"))
        yield "memory peak", ("at least " if is_least else "") + _peak_text(peak.value, limit)
    if limit is not None:
        yield "memory limit", f"{size(limit.value)}{_LIMITS.get(limit.source, '')}"
    data = run_data(recording, run, peak)
    if isinstance(gpu_share := data.get("gpu_memory_limit_share"), int | float):
        yield "GPU memory peak", f"{share_text(gpu_share)} of the memory of the fullest GPU"
    for name, keys in _TEXTS.items():
        values = [_FORMS.get(key, "{}").format(listed(data[key])) for key in keys if key in data]
        if values:
            yield name, ", ".join(values)


def _peak_text(peak: float, limit: summary.Limit | None) -> str:
    of_limit = f", {share_text(peak / limit.value)} of the limit" if limit is not None else ""
    return f"{size(peak)}{of_limit}"


_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "GPUs": ("gpus",),
    "libraries": ("libraries",),
    "calibration": ("calibration_method", "calibration_samples", "calibration_items"),
    "ended": ("ended",),
    "command": ("command",),
    "host": ("host", "system"),
    "Python": ("python", "otel_quant"),
}
"""Name -> keys whose values are shown there."""

_FORMS: Final[Mapping[str, str]] = {
    "calibration_samples": "{} samples (batches)",
    "calibration_items": "{} items",
    "otel_quant": "otel-quant {}",
}


# --- models -------------------------------------------------------------------------------

_RATIO: Final = "_ratio"
_SIZES: Final = ("size", "weight_bytes")
_PRECISION: Final = "precision."
_MODEL: Final = {figure.name: figure for figure in MODEL_FIGURES if figure.heading}


def model_data(model: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the static cost of a model, by the keys of a profile."""
    known = {key: model[key] for key in ("role", "path") if key in model}
    error = {"error": model["error"]} if "error" in model else {}
    return {**known, **model.get("figures", {}), **error}


def _with_ratios(costs: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Returns costs, each quantized model with the ratio of its sizes to those of its float model."""
    found: list[dict[str, object]] = []
    before: Mapping[str, object] = {}
    for cost in costs:
        entry = dict(cost)
        if cost.get("role") == "float":
            before = cost
        elif cost.get("role") == "quantized":
            for key in _SIZES:
                now, then = cost.get(key), before.get(key)
                if isinstance(now, int) and isinstance(then, int) and 0 < then < 1 << 64 > now:
                    entry[key + _RATIO] = round(now / then, 4)
        found.append(entry)
    return found


def _cost_facts(cost: Mapping[str, object]) -> Facts:
    """Returns the cost of one model, with one row for each figure."""
    heading = cost.get("role") or cost.get("path") or "model"
    hidden = {"role", *(key + _RATIO for key in _SIZES)}
    rows = []
    for key, value in cost.items():
        if key in hidden or isinstance(value, dict):
            continue
        figure, name = _MODEL.get(key), key
        unit = figure.unit if figure is not None else ""
        if figure is not None:
            name = figure.heading
        elif key.startswith(_PRECISION):
            name, unit = f"contractions in {key.removeprefix(_PRECISION)}", "1"
        ratio = cost.get(key + _RATIO)
        text = listed(value)
        if isinstance(value, int | float):
            text = cell_text(Quantity(value, unit, digits=2 if unit == "1" else None))
        if isinstance(ratio, float):
            text = f"{text}, {share_text(ratio)} of the float model's"
        rows.append((name, text))
    return Facts(rows, f"model cost: {heading}")


# --- what is missing ----------------------------------------------------------------------


def _missing(recording: Recording, run: RecordedRun) -> Iterator[str]:
    """Yields what a run without an end lacks, its open steps and its last figures."""
    is_lost = run.state == "lost" and not recording.path.is_dir()
    # Quark's profiler, which is still running, holds no lock on its file.
    unknown = is_lost or run.state == "ended"
    why = "is still running, or was killed" if unknown else STATES[run.state].verb
    yield f"truncated: the run has no End: it {why}"
    yield f"  open steps:      {' > '.join(_open_steps(run)) or 'none'}"
    if run.checkpoints:
        last = run.checkpoints[-1]
        figures = _figures(last.attributes, semconv.CHECKPOINT_PREFIX)
        text = ", ".join((f"{last.time - run.start:.2f} s", *figures))
        yield f"  last checkpoint: {last.name} ({text})"
    if run.last is not None:
        reading = last_reading_data(recording, run, run.last)
        read = [*_figures(run.last.attributes, semconv.READING_PREFIX)]
        read += [
            f"{words} {size(value)}"
            for name, words in _OF_READING.items()
            if (value := number(run.last.attributes, name)) is not None
        ]
        text = ", ".join((f"{run.last.time - run.start:.2f} s", *read))
        yield f"  last reading:    {_shown_age(reading['age_secs'])} ago ({text})"


_OF_READING: Final = {
    semconv.READING_MEMORY_PEAK: "peak",
    f"{semconv.READING_PREFIX}gpu_memory_peak": "peak on GPUs",
    semconv.READING_MEMORY_LIMIT: "limit",
}


def _figures(attributes: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, words in (("memory", ""), ("gpu_memory", " on GPUs")):
        if (value := number(attributes, prefix + name)) is not None:
            yield f"{size(value)}{words}"


def _open_steps(run: RecordedRun) -> Iterator[str]:
    for step in run.steps:
        if step.end is None:
            total = f" of {step.expected_samples}" if step.expected_samples is not None else ""
            yield step.name + (f" ({step.samples}{total} samples)" if step.samples else "")


def last_reading_data(recording: Recording, run: RecordedRun, last: LastReading) -> dict[str, Any]:
    """Returns a last reading by the keys of the file that stands beside a profile."""
    began = recording.began_ns / 1e9
    found: dict[str, Any] = {"schema": 1, "run_id": run.id, "pid": run.pid}
    found |= {
        "run_started": began + run.start,
        "timestamp": began + last.time,
        "relative_time_secs": round(last.time - run.start, 6),
    }
    figures = {
        key: f"{semconv.READING_PREFIX}{figure.checkpoint}"
        for key, figure in PROFILE_COLUMNS.items()
        if figure.checkpoint
    }
    figures |= {key: f"quant.reading.{name}_peak" for key, name in _PEAKS_READ.items()}
    figures["memory_limit_mb"] = semconv.READING_MEMORY_LIMIT
    for key, name in figures.items():
        if (value := number(last.attributes, name)) is not None:
            found[key] = mebibytes(value)
    found["open_steps"] = [
        {
            key: value
            for key, value in (
                ("step", step.name),
                ("samples", step.samples),
                ("expected_samples", step.expected_samples),
            )
            if value is not None
        }
        for step in run.steps
        if step.index in last.open_steps
    ]
    return {**found, "age_secs": round(max(0.0, time.time() - began - last.time), 1)}


_PEAKS_READ: Final = dict(zip(PEAKS, ("memory", "gpu_memory"), strict=True))

_SPANS: Final = ((86_400, "days"), (3_600, "h"), (60, "min"))


def _shown_age(seconds: float) -> str:
    for length, unit in _SPANS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


# --- for programs -------------------------------------------------------------------------


def mebibytes(value: float) -> float:
    """Returns bytes in MiB, with the digits that a profile has."""
    return round(value / (1 << 20), 2)


def _data(recordings: Mapping[str, Recording]) -> Iterator[dict[str, Any]]:
    for name, recording in recordings.items():
        whole = _whole(recording)
        runs = titled_runs(name, recording)
        for title, run in runs.items():
            yield _run_document(title, recording, run, whole)
        if not runs:
            yield {"file": name, "recording": whole}


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


def _run_document(
    title: str, recording: Recording, run: RecordedRun, whole: dict[str, Any]
) -> dict[str, Any]:
    last = run.last if run.end is None else None
    return {
        "file": title,
        "truncated": is_truncated(recording, run),
        "run": run_data(recording, run, summary.peak_of_run(recording, run)),
        "steps": list(_rows(ShownRun(recording, run))),
        "summary": run.summary,
        "onnx_model_cost": _with_ratios(list(map(model_data, run.models))),
        **({"last_reading": last_reading_data(recording, run, last)} if last else {}),
        "state": run.state,
        "recording": whole,
    }


def _rows(run: ShownRun) -> Iterator[dict[str, Any]]:
    columns = [(column.name, _plain(column, values)) for column, values in columns_of(run)]
    for name, text_of in (("error_message", message_of), ("status", status_of)):
        texts = list(map(text_of, run.rows))
        columns += [(name, texts)] if any(text is not None for text in texts) else []
    for at, row in enumerate(run.rows):
        yield {
            "step": row.name,
            "depth": row.depth,
            **{name: values[at] for name, values in columns},
        }


def _plain(column: Column[StepRow], values: list[Any]) -> list[Any]:
    """Returns figures as Quark's file has them: sizes in MiB."""
    if column.unit != "By":
        return values
    return [None if value is None else mebibytes(value) for value in values]


def _sheet(recordings: Mapping[str, Recording]) -> Table:
    """Returns the steps; what is known of a run is on each of its steps."""
    rows: list[dict[str, Any]] = []
    for name, recording in recordings.items():
        for title, run in titled_runs(name, recording).items():
            known = run_data(recording, run, summary.peak_of_run(recording, run))
            known = {f"run_{key}": listed(each) for key, each in known.items()}
            for figures in _rows(ShownRun(recording, run)):
                rows.append({"file": title, **figures, **known})
    order = ["file", "step", "depth", *(column.key for column in COLUMNS), "status"]
    present = {key for row in rows for key, value in row.items() if value is not None}
    names = [key for key in order if key in present]
    names += [key for row in rows for key in row if key not in order and key in present]
    columns = [Column[Any](name) for name in dict.fromkeys(names)]
    return Table(
        columns, [[row.get(each.heading) for each in columns] for row in rows], is_verbatim=True
    )
