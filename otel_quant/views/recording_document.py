"""A recording as parts: how it ended, its steps, what made it, its models, what is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from otel_quant.recordings import summary
from otel_quant.recordings.model import LastReading, RecordedRun, Recording, State, number
from otel_quant.recordings.profile_reader import COLUMNS as PROFILE_COLUMNS
from otel_quant.recordings.profile_reader import OF_RUN, PEAKS
from otel_quant.schema import semconv
from otel_quant.views.ending import ending_lines
from otel_quant.views.forecast import forecast_lines
from otel_quant.views.former_document import Facts, Lines, Part, Table
from otel_quant.views.model_cost import cost_facts, with_ratios
from otel_quant.views.step_columns import MESSAGE, STATUS, ShownRun, columns_of, mebibytes
from otel_quant.views.text import listed, shortened

_STATES: Final[Mapping[State, str]] = {
    "running": "is running",
    "ended": "has ended",
    "failed": "has failed",
    "killed": "was killed",
    "lost": "is gone without having said why",
}

_SEEN: Final = "(SEEN is the highest at the checkpoints, not between them)"
_SEEN_AND_READ: Final = "(SEEN is the highest at the checkpoints and in the last reading)"
_WHY: Final[Mapping[State, str]] = {
    "ended": "it is still running, or it was killed",
    "running": "it is still running",
    "killed": "it was killed",
    "failed": "the program failed",
    "lost": "its process is gone without having said why",
}
_WHY_OF_FILE: Final = {**_WHY, "lost": "it is still running, or it was killed"}
"""Quark's profiler, which is still running, holds no lock on its file."""

_LONGEST_STATUS: Final = 72
_SPARE: Final = ("MEM START", "GPU START", "MEM END", "GPU END", "START", "READ", "OF LIMIT")
"""Columns that a narrow terminal does without."""

_LIMITS: Final[Mapping[str | None, str]] = {
    "cgroup": " (of the control group)",
    "physical": " (physical memory)",
}


def parts_of(recordings: Mapping[str, Recording], most_steps: int | None = None) -> Iterator[Part]:
    """Yields the parts that are printed of recordings."""
    for name, recording in recordings.items():
        if recording.path.is_dir():
            yield from _summary_parts(recording)
        runs = titled_runs(name, recording)
        for title, run in runs.items():
            if len(recordings) > 1 or len(runs) > 1:
                yield Lines((title,))
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
    state = f"{_STATES[recording.state]}, {recording.duration:,.1f} s"
    ending = recording.ending
    if ending is not None and ending.exit_code is not None:
        state += f", exit code {ending.exit_code}"
    peak = summary.peak(recording) if len(recording.runs) != 1 else None
    rows = [("recording", state)]
    if peak is not None:
        rows.append(("memory peak", _peak_text(peak.value, summary.limit(recording))))
    yield Facts(tuple(rows), str(recording.path))
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
        table, left_out = _steps_table(shown, most_steps)
        yield table
        if left_out:
            yield Lines((f"(shorter steps that are left out: {left_out:,})",))
        if any(heading.endswith(" SEEN") for heading in table.header):
            yield Lines((_SEEN_AND_READ if run.last and run.end is None else _SEEN,))
    else:
        yield Lines(("no steps",))
    if facts := tuple(_facts(recording, run)):
        yield Facts(facts)
    if run.summary:
        yield Facts(tuple((key, _rounded(value)) for key, value in run.summary.items()))
    for cost in with_ratios(list(map(model_data, run.models))):
        yield cost_facts(cost)
    if run.end is None:
        yield Lines(tuple(_missing(recording, run)))
    elif is_truncated(recording, run):
        text = "truncated: all checkpoints are complete, but the text after them is not"
        yield Lines((text,))


def is_truncated(recording: Recording, run: RecordedRun) -> bool:
    """Whether a run has no end, or the file that it stands in."""
    return run.end is None or (bool(recording.problems) and not recording.path.is_dir())


def _steps_table(shown: ShownRun, most: int | None) -> tuple[Table, int]:
    """Returns the table, and how many rows are left out."""
    every = [(column, values) for column, values in columns_of(shown) if column is not STATUS]
    keys = {column.key for column, _ in every if column.heading}
    columns = [
        (column, values)
        for column, values in every
        if column.heading and column.unless not in keys and column is not MESSAGE
    ]
    kept = _most_telling(shown, most)
    table = Table(
        ("STEP", *(column.heading for column, _ in columns), STATUS.heading),
        ("", *(column.unit for column, _ in columns), STATUS.unit),
        tuple(
            (
                "  " * shown.rows[at].depth + shown.rows[at].name,
                *(column.shown(values[at]) for column, values in columns),
                _status_cell(shown, at),
            )
            for at in kept
        ),
        spare=_SPARE,
    )
    return table, len(shown.rows) - len(kept)


def _most_telling(shown: ShownRun, most: int | None) -> Sequence[int]:
    """Returns which rows are shown: those that did not end well, then the longest."""
    rows = shown.rows
    if most is None or len(rows) <= most:
        return range(len(rows))

    def rank(at: int) -> tuple[bool, float]:
        step = rows[at].step
        if step is None:
            return True, 0.0
        return step.state == "ended", step.start - (step.end or step.start)

    return sorted(sorted(range(len(rows)), key=rank)[:most])


def _status_cell(shown: ShownRun, at: int) -> str:
    row = shown.rows[at]
    status, message = STATUS.value(shown, row), MESSAGE.value(shown, row)
    return shortened(f"{status}: {message}" if message else status, _LONGEST_STATUS)


def _rounded(value: object) -> str:
    return str(round(value, 4) if isinstance(value, float) else value)


# --- what made a run, and how it went -----------------------------------------------------


def run_data(recording: Recording, run: RecordedRun) -> dict[str, Any]:
    """Returns what is known of a run, by the keys of a profile."""
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
    limit, peak = summary.limit(recording, run), summary.peak_of_run(recording, run)
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


def model_data(model: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the static cost of a model, by the keys of a profile."""
    known = {key: model[key] for key in ("role", "path") if key in model}
    error = {"error": model["error"]} if "error" in model else {}
    return {**known, **model.get("figures", {}), **error}


def _facts(recording: Recording, run: RecordedRun) -> Iterator[tuple[str, str]]:
    peak, limit = summary.peak_of_run(recording, run), summary.limit(recording, run)
    if peak is not None:
        is_least = peak.is_least or (run.end is None and peak.source not in ("launcher", "ending"))
        yield "memory peak", ("at least " if is_least else "") + _peak_text(peak.value, limit)
    if limit is not None:
        yield "memory limit", f"{mebibytes(limit.value):,.1f} MiB{_LIMITS.get(limit.source, '')}"
    data = run_data(recording, run)
    if isinstance(gpu_share := data.get("gpu_memory_limit_share"), int | float):
        yield "GPU memory peak", f"{100 * gpu_share:.1f} % of the memory of the fullest GPU"
    for name, keys in _TEXTS.items():
        values = [_FORMS.get(key, "{}").format(listed(data[key])) for key in keys if key in data]
        if values:
            yield name, ", ".join(values)


def _peak_text(peak: float, limit: summary.Limit | None) -> str:
    of_limit = f", {100 * peak / limit.value:.1f} % of the limit" if limit is not None else ""
    return f"{mebibytes(peak):,.1f} MiB{of_limit}"


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


# --- what is missing ----------------------------------------------------------------------


def _missing(recording: Recording, run: RecordedRun) -> Iterator[str]:
    """Yields what a run without an end lacks, its open steps and its last figures."""
    why = _WHY if recording.path.is_dir() else _WHY_OF_FILE
    yield f"truncated: the run has no End: {why[run.state]}"
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
            f"{words} {reading[key]:.2f} MiB"
            for key, words in _OF_READING.items()
            if key in reading
        ]
        text = ", ".join((f"{run.last.time - run.start:.2f} s", *read))
        yield f"  last reading:    {_shown_age(reading['age_secs'])} ago ({text})"


_OF_READING: Final = {
    "peak_memory_mb": "peak",
    "peak_gpu_memory_mb": "peak on GPUs",
    "memory_limit_mb": "limit",
}


def _figures(attributes: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, words in (("memory", ""), ("gpu_memory", " on GPUs")):
        if (value := number(attributes, prefix + name)) is not None:
            yield f"{mebibytes(value):.2f} MiB{words}"


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
