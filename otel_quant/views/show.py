"""Recordings and profiles as a document: how they ended, their steps, what made them, their models."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeAlias

from otel_quant.recordings import summary
from otel_quant.recordings.model import STATES, LastReading, RecordedRun, Recording, number
from otel_quant.recordings.profile_reader import COLUMNS as PROFILE_COLUMNS
from otel_quant.recordings.profile_reader import OF_RUN, PEAKS
from otel_quant.schema import semconv
from otel_quant.schema.figures import MODEL_FIGURES
from otel_quant.schema.units import duration_text, share_text, size
from otel_quant.views.document import (
    Cell,
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
        runs = _titled_runs(name, recording)
        for title, run in runs.items():
            if len(recordings) > 1 or len(runs) > 1:
                yield Section(title, run_parts(recording, run, most_steps))
            else:
                yield from run_parts(recording, run, most_steps)


def _titled_runs(name: str, recording: Recording) -> dict[str, RecordedRun]:
    """Returns the runs of a recording by a name that no two of them share."""
    if not recording.path.is_dir():
        return {name: recording.runs[0]}
    found: dict[str, RecordedRun] = {}
    for run in recording.runs:
        rank = f", rank {run.rank}" if run.rank is not None else ""
        title = f"{recording.path}: process {run.process}{rank}"
        found[title if title not in found else f"{title}, run {run.id}"] = run
    return found


def _summary_parts(recording: Recording) -> Iterator[Part]:
    """Yields how the whole stands, and how the launcher saw it end."""
    state = f"{STATES[recording.state].verb}, {recording.duration:,.1f} s"
    if recording.ending is not None and recording.ending.exit_code is not None:
        state += f", exit code {recording.ending.exit_code}"
    rows = [("recording", state)]
    peak = summary.peak(recording) if len(recording.runs) != 1 else None
    if peak is not None:
        rows.append(("memory peak", _peak_text(peak.value, summary.limit(recording))))
    yield Facts(rows, str(recording.path))
    told = ending_lines(recording.ending)
    for lines in (told, forecast_lines(recording), recording.problems):
        if lines:
            yield Lines(lines)
    if not recording.runs:
        yield Lines(("no run: the program has opened no step",))


def run_parts(
    recording: Recording, run: RecordedRun, most_steps: int | None = None
) -> Iterator[Part]:
    """Yields the parts of one run."""
    table = run_table(recording, run, most_steps)
    yield table if table.rows else Lines(("no steps",))
    if facts := list(_facts(recording, run)):
        yield Facts(facts)
    if run.summary:
        rounded = {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in run.summary.items()
        }
        yield Facts([(key, str(value)) for key, value in rounded.items()])
    yield from map(_cost_facts, _costs(run))
    if run.end is None:
        yield Lines(list(_missing(recording, run)))
    elif _is_truncated(recording, run):
        text = "truncated: all checkpoints are complete, but the text after them is not"
        yield Lines((text,))


def _is_truncated(recording: Recording, run: RecordedRun) -> bool:
    """Whether a run has no end, or the file that it stands in."""
    return run.end is None or (bool(recording.problems) and not recording.path.is_dir())


# --- what made a run, and how it went -----------------------------------------------------

_LIMITS: Final = {"cgroup": " (of the control group)", "physical": " (physical memory)"}

_TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "GPUs": {"gpus": "{}"},
    "libraries": {"libraries": "{}"},
    "calibration": {
        "calibration_method": "{}",
        "calibration_samples": "{} samples (batches)",
        "calibration_items": "{} items",
    },
    "ended": {"ended": "{}"},
    "command": {"command": "{}"},
    "host": {"host": "{}", "system": "{}"},
    "Python": {"python": "{}", "otel_quant": "otel-quant {}"},
}
"""Name -> keys whose values are shown there, each with how it is said."""


def _run_data(recording: Recording, run: RecordedRun, peak: summary.Known | None) -> dict[str, Any]:
    """Returns what is known of a run with that peak of memory, by the keys of a profile."""
    known: dict[str, Any] = {**recording.origin, **run.attributes}
    known |= {semconv.RUN_ID: run.id, semconv.RUN_RANK: run.rank}
    found: dict[str, Any] = {}
    for key, name in OF_RUN.items():
        value = known.get(name)
        if isinstance(value, int | float) and key.endswith("_mb"):
            value = _mebibytes(value)
        if value not in (None, ""):
            found[key] = list(value) if isinstance(value, tuple) else value
    if counted := [step for step in run.steps if step.samples]:
        found["calibration_samples"] = sum(step.samples or 0 for step in counted)
        items = [step.attributes.get(semconv.CALIBRATION_ITEM_COUNT) for step in counted]
        if all(isinstance(each, int) for each in items):
            found["calibration_items"] = sum(each for each in items if isinstance(each, int))
    limit = summary.limit(recording, run)
    if limit is not None:
        found["memory_limit_mb"] = _mebibytes(limit.value)
        if limit.source is not None:
            found["memory_limit_source"] = limit.source
    if peak is not None:
        found["tree_peak_memory_mb"] = _mebibytes(peak.value)
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
        yield "memory limit", f"{size(limit.value)}{_LIMITS.get(limit.source or '', '')}"
    data = _run_data(recording, run, peak)
    if isinstance(gpu_share := data.get("gpu_memory_limit_share"), int | float):
        yield "GPU memory peak", f"{share_text(gpu_share)} of the memory of the fullest GPU"
    for name, forms in _TEXTS.items():
        values = [form.format(listed(data[key])) for key, form in forms.items() if key in data]
        if values:
            yield name, ", ".join(values)


def _peak_text(peak: float, limit: summary.Limit | None) -> str:
    of_limit = f", {share_text(peak / limit.value)} of the limit" if limit is not None else ""
    return f"{size(peak)}{of_limit}"


# --- models -------------------------------------------------------------------------------

_RATIOS: Final = {"size": "size_ratio", "weight_bytes": "weight_bytes_ratio"}
_PRECISION: Final = "precision."
_FIGURES: Final = {figure.name: figure for figure in MODEL_FIGURES if figure.heading}


def _costs(run: RecordedRun) -> Iterator[dict[str, Any]]:
    """Yields models by the keys of a profile, with the ratio of sizes to those of the float model."""
    before: dict[str, Any] = {}
    for model in run.models:
        cost = {key: model[key] for key in ("role", "path") if key in model}
        cost |= model.get("figures", {})
        cost |= {"error": model["error"]} if "error" in model else {}
        if cost.get("role") == "float":
            before = cost
        elif cost.get("role") == "quantized":
            for key, ratio in _RATIOS.items():
                now, then = cost.get(key), before.get(key)
                if isinstance(now, int) and isinstance(then, int) and 0 < then < 1 << 64 > now:
                    cost[ratio] = round(now / then, 4)
        yield cost


def _cost_facts(cost: Mapping[str, Any]) -> Facts:
    """Returns the cost of one model, with one row for each figure."""
    rows: list[tuple[str, Cell]] = []
    for key, value in cost.items():
        if key in ("role", *_RATIOS.values()) or isinstance(value, dict):
            continue
        figure, name, unit = _FIGURES.get(key), key, ""
        if figure is not None:
            name, unit = figure.heading, figure.unit
        elif key.startswith(_PRECISION):
            name, unit = f"contractions in {key.removeprefix(_PRECISION)}", "1"
        ratio = cost.get(_RATIOS.get(key, ""))
        more = f", {share_text(ratio)} of the float model's" if isinstance(ratio, float) else ""
        if isinstance(value, int | float):
            digits = 2 if unit == "1" else None
            rows.append((name, Quantity(value, unit, after=more, digits=digits)))
        else:
            rows.append((name, f"{listed(value)}{more}"))
    return Facts(rows, f"model cost: {cost.get('role') or cost.get('path') or 'model'}")


# --- what is missing ----------------------------------------------------------------------

_DAY: Final = 86_400.0
_OF_READING: Final = {
    semconv.READING_MEMORY_PEAK: "peak",
    f"{semconv.READING_PREFIX}gpu_memory_peak": "peak on GPUs",
    semconv.READING_MEMORY_LIMIT: "limit",
}


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
        read = [*_figures(run.last.attributes, semconv.READING_PREFIX)]
        read += [
            f"{words} {size(value)}"
            for name, words in _OF_READING.items()
            if (value := number(run.last.attributes, name)) is not None
        ]
        text = ", ".join((f"{run.last.time - run.start:.2f} s", *read))
        age = _age(recording, run.last)
        ago = f"{age / _DAY:.0f} days" if age >= 2 * _DAY else duration_text(age)
        yield f"  last reading:    {ago} ago ({text})"


def _figures(attributes: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, words in (("memory", ""), ("gpu_memory", " on GPUs")):
        if (value := number(attributes, prefix + name)) is not None:
            yield f"{size(value)}{words}"


def _open_steps(run: RecordedRun) -> Iterator[str]:
    for step in run.steps:
        if step.end is None:
            total = f" of {step.expected_samples}" if step.expected_samples is not None else ""
            yield step.name + (f" ({step.samples}{total} samples)" if step.samples else "")


def _age(recording: Recording, last: LastReading) -> float:
    """Returns how old a reading is, in seconds."""
    return max(0.0, time.time() - recording.began_ns / 1e9 - last.time)


# --- for programs -------------------------------------------------------------------------

_OF_LAST_READING: Final = {
    **{
        key: f"{semconv.READING_PREFIX}{figure.checkpoint}"
        for key, figure in PROFILE_COLUMNS.items()
        if figure.checkpoint
    },
    **{
        key: f"{semconv.READING_PREFIX}{name}_peak"
        for key, name in zip(PEAKS, ("memory", "gpu_memory"), strict=True)
    },
    "memory_limit_mb": semconv.READING_MEMORY_LIMIT,
}
"""Attributes of a last reading, by the keys of the file that stands beside a profile."""


def _mebibytes(value: float) -> float:
    """Returns bytes in MiB, with the digits that a profile has."""
    return round(value / (1 << 20), 2)


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _data(recordings: Mapping[str, Recording]) -> Iterator[dict[str, Any]]:
    for name, recording in recordings.items():
        limit = summary.limit(recording)
        whole = {
            "path": str(recording.path),
            "state": recording.state,
            "duration_secs": recording.duration,
            **_known(
                memory_peak=summary.value(recording, summary.MEMORY_PEAK),
                memory_limit=None if limit is None else limit.value,
            ),
            "problems": list(recording.problems),
            **({"ending": dataclasses.asdict(recording.ending)} if recording.ending else {}),
        }
        runs = _titled_runs(name, recording)
        for title, run in runs.items():
            last = run.last if run.end is None else None
            yield {
                "file": title,
                "truncated": _is_truncated(recording, run),
                "run": _run_data(recording, run, summary.peak_of_run(recording, run)),
                "steps": _rows(ShownRun(recording, run)),
                "summary": run.summary,
                "onnx_model_cost": list(_costs(run)),
                **({"last_reading": _last_reading(recording, run, last)} if last else {}),
                "state": run.state,
                "recording": whole,
            }
        if not runs:
            yield {"file": name, "recording": whole}


def _last_reading(recording: Recording, run: RecordedRun, last: LastReading) -> dict[str, Any]:
    began = recording.began_ns / 1e9
    figures = {
        key: _mebibytes(value)
        for key, name in _OF_LAST_READING.items()
        if (value := number(last.attributes, name)) is not None
    }
    return {
        "schema": 1,
        "run_id": run.id,
        "pid": run.pid,
        "run_started": began + run.start,
        "timestamp": began + last.time,
        "relative_time_secs": round(last.time - run.start, 6),
        **figures,
        "open_steps": [
            _known(step=step.name, samples=step.samples, expected_samples=step.expected_samples)
            for step in run.steps
            if step.index in last.open_steps
        ],
        "age_secs": round(_age(recording, last), 1),
    }


_Field: TypeAlias = Callable[[StepRow], Any]


def _fields(run: ShownRun) -> dict[str, _Field]:
    """Returns what programs get of each row, by name: figures as Quark's file has them, sizes in MiB."""
    fields: dict[str, _Field] = {"step": lambda row: row.name, "depth": lambda row: row.depth}
    for column in columns_of(run):
        assert column.value is not None
        fields[column.name] = _in_mebibytes(column.value) if column.unit == "By" else column.value
    for name, text_of in (("error_message", message_of), ("status", status_of)):
        if any(text_of(row) is not None for row in run.rows):
            fields[name] = text_of
    return fields


def _in_mebibytes(of: _Field) -> _Field:
    return lambda row: None if (value := of(row)) is None else _mebibytes(value)


def _rows(run: ShownRun) -> Iterator[dict[str, Any]]:
    fields = _fields(run)

    def of_row(row: StepRow) -> dict[str, Any]:
        return {name: of(row) for name, of in fields.items()}

    return map(of_row, run.rows)


def _sheet(recordings: Mapping[str, Recording]) -> Table:
    """Returns the steps; what is known of a run is on each of its steps."""
    runs: list[tuple[ShownRun, dict[str, _Field], dict[str, str]]] = []
    for name, recording in recordings.items():
        for title, run in _titled_runs(name, recording).items():
            if (shown := ShownRun(recording, run)).rows:
                data = _run_data(recording, run, summary.peak_of_run(recording, run))
                known = {f"run_{key}": listed(each) for key, each in data.items()}
                runs.append((shown, _fields(shown), {"file": title, **known}))
    order = dict.fromkeys(("file", "step", "depth", *(column.key for column in COLUMNS)))
    present = dict.fromkeys(chain(*((*fields, *known) for _, fields, known in runs)))
    names = [name for name in order | present if name in present]
    rows = (
        [fields[name](row) if name in fields else known.get(name) for name in names]
        for shown, fields, known in runs
        for row in shown.rows
    )
    return Table([Column[Any](name) for name in names], rows, is_exact=True)
