"""The runs of a recording as profiles, so that `show` prints both alike."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from otel_quant.recordings.model import LastReading, RecordedRun, Recording
from otel_quant.recordings.quark_yaml import Profile, Record
from otel_quant.schema import semconv
from otel_quant.schema.series import MEMORY

_MIB: Final = 1 << 20

_FIGURES: Final = {
    "memory": "cpu_memory_mb",
    "gpu_memory": "gpu_memory_mb",
    "disk_read": "disk_read_mb",
    "disk_write": "disk_write_mb",
}
"""Figures of checkpoints and readings, and the columns that they are."""

_PEAKS: Final = {
    semconv.MEMORY_PEAK: "peak_memory_mb",
    semconv.GPU_MEMORY_PEAK: "peak_gpu_memory_mb",
}
_OF_RUN: Final = {
    semconv.PROCESS_COMMAND_LINE: "command",
    semconv.HOST_NAME: "host",
    semconv.OS_DESCRIPTION: "system",
    semconv.PYTHON_VERSION: "python",
    semconv.OTEL_QUANT_VERSION: "otel_quant",
    semconv.GPU_NAMES: "gpus",
    semconv.LIBRARIES: "libraries",
    semconv.CALIBRATION_METHOD: "calibration_method",
    semconv.MEMORY_LIMIT_SOURCE: "memory_limit_source",
    semconv.VCS_REVISION: "revision",
}


def profiles_of(recording: Recording) -> dict[str, Profile]:
    """Returns each run of a recording as a profile, by a name that no two of them share."""
    found: dict[str, Profile] = {}
    for run in recording.runs:
        rank = f", rank {run.rank}" if run.rank is not None else ""
        name = f"{recording.path}: process {run.process}{rank}"
        found[name if name not in found else f"{name}, run {run.id}"] = _profile(recording, run)
    return found


def _profile(recording: Recording, run: RecordedRun) -> Profile:
    steps = {step.index: step for step in run.steps}
    records: list[Record] = []
    for checkpoint in run.checkpoints:
        record: Record = {
            "step": checkpoint.name,
            "timestamp": recording.began_ns / 1e9 + checkpoint.time,
            "relative_time_secs": round(checkpoint.time - run.start, 6),
            **_columns(checkpoint.attributes, semconv.CHECKPOINT_PREFIX),
        }
        step = steps.get(checkpoint.step) if checkpoint.step is not None else None
        error, message = (
            (run.error, run.error_message) if checkpoint.name == "End" else (None, None)
        )
        if step is not None and checkpoint.name == f"{step.name} End":
            error, message = step.error, step.error_message
            record |= _in_mib(step.attributes, _PEAKS)
        record |= {
            name.removeprefix(semconv.CUSTOM_PREFIX): value
            for name, value in checkpoint.attributes.items()
            if name.startswith(semconv.CUSTOM_PREFIX)
        }
        record |= {
            key: text for key, text in (("error_message", message), ("error", error)) if text
        }
        records.append(record)
    return Profile(
        records=records,
        costs=[_cost(model) for model in run.models],
        run=_facts(recording, run),
        complete=run.end is not None,
        last_reading=_last_reading(recording, run, run.last)
        if run.last is not None and run.end is None
        else None,
        state=run.state,
    )


def _facts(recording: Recording, run: RecordedRun) -> Record:
    known = {**recording.origin, **run.attributes}
    facts: Record = {"id": run.id}
    if run.rank is not None:
        facts["rank"] = run.rank
    for name, key in _OF_RUN.items():
        if name in known:
            value = known[name]
            facts[key] = list(value) if isinstance(value, tuple) else value
    facts |= _in_mib(known, {semconv.MEMORY_LIMIT: "memory_limit_mb"})
    calibrations = [step for step in run.steps if step.samples]
    if calibrations:
        facts["calibration_samples"] = sum(step.samples or 0 for step in calibrations)
        items = [step.attributes.get(semconv.CALIBRATION_ITEM_COUNT) for step in calibrations]
        told = [count for count in items if isinstance(count, int)]
        if len(told) == len(items):
            facts["calibration_items"] = sum(told)
    seen = _seen_by_launcher(recording)
    if run.end is None and seen is not None and len(recording.runs) == 1:
        limit = known.get(semconv.MEMORY_LIMIT)
        facts |= {
            "tree_peak_memory_mb": round(seen / _MIB, 2),
            "tree_peak_memory_source": "sampled",
            **({"memory_limit_share": round(seen / limit, 4)} if isinstance(limit, int) else {}),
        }
    if run.end is not None:
        facts["ended"] = f"with {run.error}" if run.error else "without an exception"
        facts |= _in_mib(known, {semconv.MEMORY_PEAK: "tree_peak_memory_mb"})
        for name, key in (
            (semconv.MEMORY_PEAK_SOURCE, "tree_peak_memory_source"),
            (semconv.MEMORY_PEAK_RATIO, "memory_limit_share"),
        ):
            if name in known:
                facts[key] = known[name]
    return facts


def _seen_by_launcher(recording: Recording) -> float | None:
    """Returns the highest memory of the program that the launcher knows of, in bytes."""
    curve = recording.curves.get("launcher")
    buckets = curve.curve.buckets.values() if curve is not None else ()
    seen: list[float] = [each.levels[MEMORY].highest for each in buckets if MEMORY in each.levels]
    if recording.ending is not None and recording.ending.memory is not None:
        seen.append(recording.ending.memory)
    return max(seen, default=None)


def _last_reading(recording: Recording, run: RecordedRun, last: LastReading) -> Record:
    began = recording.began_ns / 1e9
    steps = [step for step in run.steps if step.index in last.open_steps]
    return {
        "timestamp": began + last.time,
        "relative_time_secs": round(last.time - run.start, 6),
        "age_secs": round(max(0.0, time.time() - began - last.time), 1),
        **_columns(last.attributes, semconv.READING_PREFIX),
        **_in_mib(
            last.attributes,
            {
                semconv.READING_MEMORY_PEAK: "peak_memory_mb",
                semconv.READING_MEMORY_LIMIT: "memory_limit_mb",
            },
        ),
        "open_steps": [
            {
                key: value
                for key, value in (
                    ("step", step.name),
                    ("samples", step.samples),
                    ("expected_samples", step.expected_samples),
                )
                if value is not None
            }
            for step in steps
        ],
    }


def _columns(attributes: Mapping[str, Any], prefix: str) -> Record:
    return _in_mib(attributes, {prefix + figure: column for figure, column in _FIGURES.items()})


def _in_mib(attributes: Mapping[str, Any], names: Mapping[str, str]) -> Record:
    return {
        column: round(attributes[name] / _MIB, 2)
        for name, column in names.items()
        if isinstance(attributes.get(name), int | float)
    }


def _cost(model: Mapping[str, Any]) -> Record:
    known = {key: model[key] for key in ("role", "path") if key in model}
    error = {"error": model["error"]} if "error" in model else {}
    return {**known, **model.get("figures", {}), **error}
