"""Reads a ``quark_profile.yaml``, ours or Quark's own, as a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from otel_quant.export.quark_yaml.last_reading import last_reading_of
from otel_quant.export.recording.event_file import EXPECTED, NotARecordingError
from otel_quant.export.recording.held_file import is_held
from otel_quant.recordings.model import (
    LastReading,
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    Recording,
    State,
)
from otel_quant.recordings.profile_steps import Step, numbers, steps_of
from otel_quant.recordings.quark_yaml import NotAProfileError, Profile, Record, parse
from otel_quant.schema import semconv
from otel_quant.schema.series import CACHE_GROWTH
from otel_quant.schema.step_names import ALL_STEPS, ProfileStep

_MIB: Final = 1 << 20
_TIME: Final = "relative_time_secs"

_LEVELS: Final = {"cpu_memory_mb": "memory", "gpu_memory_mb": "gpu.memory"}
_PEAKS: Final = {"peak_memory_mb": "memory", "peak_gpu_memory_mb": "gpu.memory"}
_TOTALS: Final = {"disk_read_mb": "disk.read", "disk_write_mb": "disk.write"}
"""Columns in MiB, and the figures that they are."""

_OF_RUN: Final = {
    "command": semconv.PROCESS_COMMAND_LINE,
    "host": semconv.HOST_NAME,
    "system": semconv.OS_DESCRIPTION,
    "python": semconv.PYTHON_VERSION,
    "otel_quant": semconv.OTEL_QUANT_VERSION,
    "gpus": semconv.GPU_NAMES,
    "libraries": semconv.LIBRARIES,
}
"""Keys of the section ``run``, and the attributes of what made a run."""

_OF_SUMMARY: Final = {
    "peak_memory_mb": semconv.MEMORY_PROCESS_PEAK,
    "peak_gpu_memory_mb": semconv.GPU_MEMORY_PEAK,
    "total_disk_read_mb": semconv.DISK_READ,
    "total_disk_write_mb": semconv.DISK_WRITE,
    "peak_cache_dir_disk_usage_mb": CACHE_GROWTH,
}
"""Figures of the summary in MiB, and the attributes that they are."""

_RECORD: Final = "\n- step: "
_LAST_RECORD: Final = f'{_RECORD}"End"\n'


def read_profile(path: Path, *, in_brief: bool = False) -> Recording:
    """Reads a profile."""
    text = path.read_bytes().decode("utf-8", "replace")
    try:
        profile = parse(_ends_of(text) if in_brief else text)
    except NotAProfileError as error:
        raise NotARecordingError(f"{path}: {error}; {EXPECTED}") from error
    if not profile.records:
        raise NotARecordingError(
            f"{path}: the file ends before its first checkpoint; expected the records of a run"
        )
    profile.last_reading = last_reading_of(path, profile)
    began = _number(profile.records[0], "timestamp") or 0.0
    run = _run(path, profile)
    latest = [run.end, run.last.time if run.last else None, run.checkpoints[-1].time]
    return Recording(
        path=path,
        began_ns=round(began * 1e9),
        state=run.state,
        duration=max(time for time in latest if time is not None),
        origin=_origin(profile.run),
        runs=(run,),
        problems=() if profile.complete else ("the file has no end",),
    )


def _ends_of(text: str) -> str:
    """Returns the text of a run that has ended without what is between its first and last record."""
    second = text.find(_RECORD, text.find(_RECORD) + 1)
    last = text.rfind(_RECORD)
    return text[:second] + text[last:] if text.startswith(_LAST_RECORD, last) else text


def _origin(run: Record) -> dict[str, Any]:
    found = {name: run[key] for key, name in _OF_RUN.items() if run.get(key) is not None}
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
    }


def _run(path: Path, profile: Profile) -> RecordedRun:
    records, last = profile.records, profile.records[-1]
    error = last.get("error") if last.get("step") == "End" else None
    state: State = "failed" if error else "ended"
    if last.get("step") != "End":
        state = "running" if is_held(path) else "lost"
    found = [step for step in steps_of(records) if step.state != "point"]
    steps = tuple(
        _step(profile, found, index, state) for index, step in enumerate(found)
    )  # fmt: skip
    of_record = _steps_of_records(found)
    reading = profile.last_reading
    return RecordedRun(
        id=str(profile.run.get("id", "")),
        process=path.name,
        rank=_whole(profile.run.get("rank")),
        start=0.0,
        end=_number(last, _TIME) if last.get("step") == "End" else None,
        state=state,
        attributes=_run_attributes(profile),
        steps=steps,
        checkpoints=tuple(
            RecordedCheckpoint(
                name=str(record.get("step", "")),
                time=_number(record, _TIME) or 0.0,
                step=of_record.get(number),
                attributes=_figures(record, semconv.CHECKPOINT_PREFIX),
            )
            for number, record in enumerate(records)
        ),
        models=tuple(_model(cost) for cost in profile.costs),
        error=str(error) if error else None,
        error_message=_text(last.get("error_message")) if error else None,
        last=LastReading(
            time=_number(reading, _TIME) or 0.0,
            attributes=_last_attributes(reading),
            open_steps=tuple(step.index for step in steps if step.end is None),
        )
        if reading is not None
        else None,
    )


def _step(profile: Profile, found: Sequence[Step], index: int, state: State) -> RecordedStep:
    step, records = found[index], profile.records
    first, last = records[step.first], records[step.last]
    is_over = step.state == "ended"
    error = last.get("error") if is_over else None
    attributes: dict[str, Any] = {}
    for column, figure in _LEVELS.items():
        before, after = _bytes(first, column), _bytes(last, column) if is_over else None
        _put(attributes, f"quant.{figure}.start", before)
        _put(attributes, f"quant.{figure}.end", after)
        if before is not None and after is not None:
            attributes[f"quant.{figure}.delta"] = after - before
    for column, figure in _PEAKS.items():
        _put(attributes, f"quant.{figure}.peak", _bytes(last, column) if is_over else None)
    for column, figure in _TOTALS.items():
        before, after = _bytes(first, column), _bytes(last, column) if is_over else None
        if before is not None and after is not None:
            attributes[f"quant.{figure}"] = after - before
    samples, expected = _progress(profile, step, found)
    time = _number((profile.last_reading or {}), _TIME)
    step_state: State = state
    if is_over:
        step_state = "failed" if error else "ended"
    return RecordedStep(
        index=index,
        name=step.name,
        kind=step.name if step.name in ALL_STEPS else ProfileStep.USER_DEFINED,
        parent=_parent(found, index),
        start=_number(first, _TIME) or 0.0,
        end=_number(last, _TIME) if is_over else None,
        state=step_state,
        attributes=attributes,
        samples=samples,
        expected_samples=expected,
        progress=((time, samples),) if time is not None and samples is not None else (),
        error=str(error) if error else None,
        error_message=_text(last.get("error_message")) if error else None,
    )


def _progress(profile: Profile, step: Step, found: Sequence[Step]) -> tuple[int | None, int | None]:
    """Returns the samples of an open step, and how many it will consume, by the last reading."""
    reading = profile.last_reading
    listed = reading.get("open_steps") if reading is not None else None
    if step.state != "open" or not isinstance(listed, list):
        return None, None
    same = [each for each in listed if isinstance(each, dict) and each.get("step") == step.name]
    twins = [other for other in found if other.state == "open" and other.name == step.name]
    number = next(at for at, other in enumerate(twins) if other is step)
    if number >= len(same):
        return None, None
    return _whole(same[number].get("samples")), _whole(same[number].get("expected_samples"))


def _parent(found: Sequence[Step], index: int) -> int | None:
    depth = found[index].depth
    return next((at for at in range(index - 1, -1, -1) if found[at].depth == depth - 1), None)


def _steps_of_records(found: Sequence[Step]) -> dict[int, int]:
    places = {step.first: index for index, step in enumerate(found)}
    return places | {step.last: index for index, step in enumerate(found) if step.state == "ended"}


def _run_attributes(profile: Profile) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    _put(attributes, semconv.MEMORY_LIMIT, _bytes(profile.run, "memory_limit_mb"))
    _put(attributes, semconv.MEMORY_LIMIT_SOURCE, profile.run.get("memory_limit_source"))
    _put(attributes, semconv.MEMORY_PEAK, _bytes(profile.run, "tree_peak_memory_mb"))
    _put(attributes, semconv.MEMORY_PEAK_SOURCE, profile.run.get("tree_peak_memory_source"))
    _put(attributes, semconv.CALIBRATION_METHOD, profile.run.get("calibration_method"))
    for key, name in _OF_SUMMARY.items():
        _put(attributes, name, _bytes(profile.summary, key))
    return attributes


def _last_attributes(reading: Record) -> dict[str, Any]:
    attributes = _figures(reading, semconv.READING_PREFIX)
    _put(attributes, semconv.READING_ELAPSED, _number(reading, _TIME))
    _put(attributes, semconv.READING_MEMORY_PEAK, _bytes(reading, "peak_memory_mb"))
    _put(attributes, semconv.READING_MEMORY_LIMIT, _bytes(reading, "memory_limit_mb"))
    return attributes


def _figures(record: Record, prefix: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for column, figure in (*_LEVELS.items(), *_TOTALS.items()):
        _put(attributes, prefix + figure.replace(".", "_"), _bytes(record, column))
    return attributes


def _model(cost: Record) -> Mapping[str, Any]:
    known: Record = {key: cost[key] for key in ("role", "path", "error") if key in cost}
    return {**known, "figures": {key: cost[key] for key in cost if key not in known}}


def _put(attributes: dict[str, Any], name: str, value: object) -> None:
    if value is not None:
        attributes[name] = value


def _number(record: Record, key: str) -> float | None:
    return next(numbers((record,), key), None)


def _bytes(record: Record, key: str) -> int | None:
    value = _number(record, key)
    return None if value is None or value != value else round(value * _MIB)


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)
