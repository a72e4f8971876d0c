"""Reads a ``quark_profile.yaml`` as a recording: ours or Quark's own, complete or truncated at any byte.

It is read line by line and not as YAML. Our file is valid YAML at every moment, but a copy may be
truncated, Quark's own file ends with the last buffer that was written, and Quark does not escape
quoted text. A last line without a line break is ignored, because it may be incomplete.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from otel_quant.base.files import is_held
from otel_quant.export.quark_yaml.request import LAST_READING
from otel_quant.export.recording.event_file import EXPECTED, NotARecordingError
from otel_quant.recordings.model import (
    LastReading,
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    Recording,
    State,
)
from otel_quant.schema import semconv
from otel_quant.schema.figures import RESOURCES, Figure
from otel_quant.schema.records import AttributeValue, Phase
from otel_quant.schema.series import CACHE_GROWTH
from otel_quant.schema.step_names import ALL_STEPS, ProfileStep

HEADER: Final = "# Quark Profiling Results\n"

Record = dict[str, object]

MIB: Final = 1 << 20
_TIME: Final = "relative_time_secs"

COLUMNS: Final[Mapping[str, Figure]] = {
    figure.column.key: figure
    for resource in RESOURCES
    for figure in resource.figures
    if figure.column is not None
}
"""The figure of each column of a checkpoint."""

PEAKS: Final = {
    "peak_memory_mb": semconv.MEMORY_PEAK,
    "peak_gpu_memory_mb": semconv.GPU_MEMORY_PEAK,
}
"""Peaks of a step that has ended, and of a last reading."""

OF_RUN: Final = {
    "id": semconv.RUN_ID,
    "rank": semconv.RUN_RANK,
    "command": semconv.PROCESS_COMMAND_LINE,
    "host": semconv.HOST_NAME,
    "system": semconv.OS_DESCRIPTION,
    "python": semconv.PYTHON_VERSION,
    "otel_quant": semconv.OTEL_QUANT_VERSION,
    "gpus": semconv.GPU_NAMES,
    "libraries": semconv.LIBRARIES,
    "calibration_method": semconv.CALIBRATION_METHOD,
    "calibration_samples": semconv.CALIBRATION_SAMPLE_COUNT,
    "calibration_items": semconv.CALIBRATION_ITEM_COUNT,
    "memory_limit_mb": semconv.MEMORY_LIMIT,
    "memory_limit_source": semconv.MEMORY_LIMIT_SOURCE,
    "tree_peak_memory_mb": semconv.MEMORY_PEAK,
    "tree_peak_memory_source": semconv.MEMORY_PEAK_SOURCE,
    "gpu_memory_limit_share": "quant.gpu.memory.peak_ratio",
    "revision": semconv.VCS_REVISION,
}
"""Keys of the sections on the run, and the attributes that they are."""

_OF_SUMMARY: Final = {
    "peak_memory_mb": semconv.MEMORY_PROCESS_PEAK,
    "peak_gpu_memory_mb": semconv.GPU_MEMORY_PEAK,
    "total_disk_read_mb": semconv.DISK_READ,
    "total_disk_write_mb": semconv.DISK_WRITE,
    "peak_cache_dir_disk_usage_mb": CACHE_GROWTH,
}
"""Figures of the summary in MiB, and the attributes that they are."""

_OPENS: Final = " Start"
_CLOSES: Final = " End"
_RECORD: Final = "\n- step: "
_LAST_RECORD: Final = f'{_RECORD}"End"\n'
_ENTRY: Final = re.compile(
    r'(?P<indent>- |  |)(?P<key>"(?:[^"\\]|\\.)*"|[A-Za-z_][^:"]*):(?: (?P<value>.*))?'
)
_DEFINITION: Final = "# - "
# Comments that otel-quant adds below a record: peaks of the step that has ended, and what the step
# says of the run.
_PEAK: Final = re.compile(r"  # (peak_memory_mb|peak_gpu_memory_mb): ([0-9]+\.[0-9]{2})")
_FACT: Final = re.compile(r"  # (libraries|calibration_method|calibration_samples): (.+)")
_SIMPLE_STRING: Final = re.compile(r'"([^"\\]*)"')
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, object]] = {
    "true": True, "false": False, "null": None, "none": None, "~": None, ".nan": math.nan,
    "nan": math.nan, ".inf": math.inf, "inf": math.inf, "-.inf": -math.inf, "-inf": -math.inf,
}  # fmt: skip
_MAX_BROKEN_LINES: Final = 100


class NotAProfileError(NotARecordingError):
    """The text is not a profile, nor the beginning of one."""


def read_profile(path: Path, *, in_brief: bool = False) -> Recording:
    """Reads a profile, with the last reading that is beside one without an end."""
    text = path.read_bytes().decode("utf-8", "replace")
    try:
        profile = parse(_ends_of(text) if in_brief else text)
    except NotAProfileError as error:
        raise NotARecordingError(f"{path}: {error}; {EXPECTED}") from error
    if not profile.records:
        found = "is empty" if not text.strip() else "ends before its first checkpoint"
        raise NotARecordingError(
            f"{path}: the file {found}; expected the records of a run, which writes the first as "
            "it begins"
        )
    reading = None if profile.complete else _last_reading(path, profile.records)
    return recording_of(profile, path, reading, "running" if is_held(path) else "lost")


def _ends_of(text: str) -> str:
    """Returns the text of a run that has ended without what is between its first and last record.

    All of Quark's own, which does not say at its end what its checkpoints have seen.
    """
    if "\n  tree_peak_memory_mb: " not in text:
        return text
    second = text.find(_RECORD, text.find(_RECORD) + 1)
    last = text.rfind(_RECORD)
    return text[:second] + text[last:] if text.startswith(_LAST_RECORD, last) else text


def _last_reading(path: Path, records: list[Record]) -> Record | None:
    """Returns what a run was doing and using shortly before it was killed.

    The files of a folder are told apart by the time of the run's first checkpoint, because a profile
    may have been renamed or copied since.
    """
    began, latest = records[0].get("timestamp"), records[-1].get("timestamp")
    for candidate in sorted(path.parent.glob(f"*{LAST_READING}")):
        try:
            record = json.loads(candidate.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if not isinstance(record, dict) or record.get("run_started") != began:
            continue
        taken = record.get("timestamp")
        if isinstance(taken, float) and isinstance(latest, float) and taken >= latest:
            return record
        return None
    return None


# --- the text -----------------------------------------------------------------------------


@dataclass(slots=True)
class Profile:
    """The sections of a file, as they stand there."""

    # The checkpoints that are complete, in order
    records: list[Record] = field(default_factory=list)
    summary: Record = field(default_factory=dict)  # The figures of the run, by key
    # Static cost of the models, one mapping for each
    costs: list[Record] = field(default_factory=list)
    # What made the run and how it went; of a run that has no End, what was known so far
    run: Record = field(default_factory=dict)
    # Whether the file has its End record, summary and definitions. False for a run that still
    # runs or was killed.
    complete: bool = True


def parse(text: str) -> Profile:
    """Reads a profile."""
    body, line_break, rest = text.rpartition("\n")
    lines = body.split("\n") if line_break else []
    if "memory_usage:" not in lines:
        if not HEADER.startswith(text[: len(HEADER)]):
            raise NotAProfileError("no line 'memory_usage:'")
        return Profile(complete=False)
    profile = Profile(complete=not rest)
    sections = {
        "memory_usage": profile.records,
        "onnx_model_cost": profile.costs,
        "run": [profile.run],
        "run_end": [profile.run],
    }
    definitions: list[str] = []
    section: list[Record] | None = None
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        if not line.strip() or line.startswith("#"):
            if line.startswith(_DEFINITION):
                definitions.append(line.removeprefix(_DEFINITION))
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            peak = _PEAK.fullmatch(line)
            if peak is not None and section:
                section[-1][peak[1]] = float(peak[2])
            if (fact := _FACT.fullmatch(line)) is not None:
                profile.run[fact[1]] = _value(fact[2])
            continue
        value = (entry["value"] or "").strip()
        if value.startswith('"') and not (len(value) > 1 and value.endswith('"')):
            # Quark does not escape a line break in a name.
            value, position = _join_lines(value, lines, position)
        key = str(_value(entry["key"]))
        if not entry["indent"]:
            section = sections.get(key) if not value else None
            if value:
                profile.summary[key] = _value(value)
        elif section is not None:
            if entry["indent"] == "- ":
                section.append({})
            if section:
                section[-1][key] = _value(value)
    _check_the_end(profile, definitions)
    return profile


def _check_the_end(profile: Profile, definitions: list[str]) -> None:
    """Drops the last record if it is incomplete, and sets ``profile.complete``."""
    records = profile.records
    ended = bool(records) and records[-1].get("step") == "End" and bool(profile.summary)
    if not ended and len(records) > 1:
        # Every complete record has this key, so a record without it is truncated.
        always = [key for key in records[0] if all(key in record for record in records[:-1])]
        if always and always[-1] not in records[-1]:
            records.pop()
    expected = {*profile.summary, *(key for record in records[:1] for key in record)} - {
        "error", "error_message",
    }  # fmt: skip
    profile.complete = (
        profile.complete
        and ended
        and all(any(line.startswith(f"{key}: ") for line in definitions) for key in expected)
    )


def _join_lines(value: str, lines: list[str], position: int) -> tuple[str, int]:
    """Joins the lines of a quoted value; returns it with the number of the next line."""
    for end in range(position, min(position + _MAX_BROKEN_LINES, len(lines))):
        if lines[end].endswith('"'):
            return "\n".join((value, *lines[position : end + 1])), end + 1
    return value, position


def _value(text: str) -> object:
    """Reads a value: a string between quotes, a number, a word, or a nested collection."""
    if simple := _SIMPLE_STRING.fullmatch(text):
        return simple[1]
    if text.startswith('"'):
        if (value := _from_yaml(text)) is not None:
            return value
        return text[1:-1] if len(text) > 1 and text.endswith('"') else text[1:]
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdecimal() and len(text) < 4000 else float(text)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    # An alias could make a short text as large as the memory.
    if text[:1] in ("{", "[") and not re.search("[&*]", text):
        value = _from_yaml(text)
        return text if value is None else value
    return text


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is a text in YAML")


def _from_yaml(text: str) -> object:
    """Reads a quoted string or a collection; returns None if it is not valid YAML."""
    try:
        return json.loads(text, parse_constant=_refuse)  # most are, and this takes a hundredth
    except (ValueError, RecursionError):
        pass
    import yaml  # only here: it is slow to load, and few values need it

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


# --- the records --------------------------------------------------------------------------


def recording_of(
    profile: Profile, path: Path, reading: Record | None = None, state_of_open: State = "lost"
) -> Recording:
    """Returns a profile as a recording of one run."""
    records, last = profile.records, profile.records[-1]
    is_over = last.get("step") == "End"
    error = _error_of(profile) if is_over else None
    state: State = "failed" if error else "ended" if is_over else state_of_open
    steps, checkpoints = _Steps(profile, reading, state).read()
    attributes = _of_run(profile)
    newest = None
    if reading is not None:
        newest = LastReading(
            time=_number(reading, _TIME) or 0.0,
            attributes=_of_reading(reading),
            open_steps=tuple(step.index for step in steps if step.end is None),
        )
    run = RecordedRun(
        id=str(profile.run.get("id") or (reading or {}).get("run_id") or ""),
        process=path.name,
        pid=_whole(reading.get("pid")) if reading is not None else None,
        rank=_whole(profile.run.get("rank")),
        start=0.0,
        end=checkpoints[-1].time if is_over else None,
        state=state,
        attributes=attributes,
        steps=tuple(steps),
        checkpoints=tuple(checkpoints),
        models=tuple(_model(cost) for cost in profile.costs),
        summary=profile.summary,
        error=error,
        error_message=_text(last.get("error_message")) if error else None,
        last=newest,
    )
    return Recording(
        path=path,
        began_ns=round((_number(records[0], "timestamp") or 0.0) * 1e9),
        state=state,
        duration=max(checkpoints[-1].time, newest.time if newest is not None else 0.0),
        origin={name: value for name, value in attributes.items() if name in semconv.ORIGIN},
        runs=(run,),
        problems=("the file has no end",) if is_over and not profile.complete else (),
    )


def _error_of(profile: Profile) -> str | None:
    error, ended = profile.records[-1].get("error"), str(profile.run.get("ended", ""))
    return str(error) if error else ended.removeprefix(_WITH) if ended.startswith(_WITH) else None


_WITH: Final = "with "
"""Begins what the section on the end says of an exception."""


class _Steps:
    """Finds the steps of a profile: their records, and which is within which."""

    def __init__(self, profile: Profile, reading: Record | None, state_of_open: State) -> None:
        self._records, self._reading, self._state = profile.records, reading, state_of_open
        self._first: list[Record] = []
        self._names: list[str] = []
        self._parents: list[int | None] = []
        self._last: dict[int, Record] = {}
        self._open: list[int] = []

    def read(self) -> tuple[list[RecordedStep], list[RecordedCheckpoint]]:
        """Returns the steps by index, and all checkpoints in order."""
        checkpoints = [self._checkpoint(record) for record in self._records]
        return [self._step(index) for index in range(len(self._first))], checkpoints

    def _checkpoint(self, record: Record) -> RecordedCheckpoint:
        name = str(record.get("step", ""))
        phase: Phase = "point"
        step = self._open[-1] if self._open else None
        if name in ("Start", "End"):
            phase, step = ("start" if name == "Start" else "end"), None
        elif name.endswith(_OPENS):
            phase, step = "start", len(self._first)
            self._names.append(name.removesuffix(_OPENS))
            self._parents.append(self._open[-1] if self._open else None)
            self._first.append(record)
            self._open.append(step)
        elif name.endswith(_CLOSES):
            opened = name.removesuffix(_CLOSES)
            closed = next((at for at in reversed(self._open) if self._names[at] == opened), None)
            if closed is not None:
                phase, step = "end", closed
                self._last[closed] = record
                self._open.remove(closed)
        return RecordedCheckpoint(
            name=name,
            time=_number(record, _TIME) or 0.0,
            step=step,
            phase=phase,
            attributes={**_levels(record, semconv.CHECKPOINT_PREFIX), **_custom(record)},
        )

    def _step(self, index: int) -> RecordedStep:
        name, first, last = self._names[index], self._first[index], self._last.get(index)
        error = last.get("error") if last is not None else None
        state = self._state if last is None else "failed" if error else "ended"
        samples, expected = (None, None) if last is not None else self._progress(index)
        time_of_reading = _number(self._reading or {}, _TIME)
        return RecordedStep(
            index=index,
            name=name,
            kind=name if name in ALL_STEPS else ProfileStep.USER_DEFINED,
            parent=self._parents[index],
            start=_number(first, _TIME) or 0.0,
            end=None if last is None else _number(last, _TIME) or 0.0,
            state=state,
            attributes=_of_step(first, last),
            samples=samples,
            expected_samples=expected,
            progress=((time_of_reading, samples),) if samples and time_of_reading else (),
            error=str(error) if error else None,
            error_message=_text(last.get("error_message")) if last is not None else None,
        )

    def _progress(self, index: int) -> tuple[int | None, int | None]:
        """Returns the samples of an open step, and how many it will consume, by the last reading."""
        listed = self._reading.get("open_steps") if self._reading is not None else None
        name = self._names[index]
        same = [
            each
            for each in (listed if isinstance(listed, list) else ())
            if isinstance(each, dict) and each.get("step") == name
        ]
        number = [at for at in self._open if self._names[at] == name].index(index)
        if number >= len(same):
            return None, None
        return _whole(same[number].get("samples")), _whole(same[number].get("expected_samples"))


def _of_step(first: Record, last: Record | None) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for column, figure in COLUMNS.items():
        before = _amount(first, column, figure)
        after = None if last is None else _amount(last, column, figure)
        change = None if before is None or after is None else after - before
        known = {"start": before, "end": after, "delta": change}
        for part in figure.parts:
            if known.get(part) is not None:
                attributes[figure.attribute(part)] = known[part]
    for column, name in PEAKS.items():
        _put(attributes, name, _bytes(last or {}, column))
    return attributes


def _of_run(profile: Profile) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for key, name in OF_RUN.items():
        known = _bytes(profile.run, key) if key.endswith("_mb") else _attribute(profile.run, key)
        _put(attributes, name, known)
    for key, name in _OF_SUMMARY.items():
        _put(attributes, name, _bytes(profile.summary, key))
    for cost in profile.costs:
        for key, value in cost.items():
            if key not in _OF_MODEL and isinstance(value, int | float):
                attributes[f"quant.model.{cost.get('role')}.{key}"] = value
    return attributes


def _of_reading(reading: Record) -> dict[str, Any]:
    attributes = {**_levels(reading, semconv.READING_PREFIX)}
    _put(attributes, semconv.RUN_ID, _attribute(reading, "run_id"))
    _put(attributes, semconv.READING_ELAPSED, _number(reading, _TIME))
    _put(attributes, semconv.READING_MEMORY_PEAK, _bytes(reading, "peak_memory_mb"))
    _put(attributes, _READING_GPU_PEAK, _bytes(reading, "peak_gpu_memory_mb"))
    _put(attributes, semconv.READING_MEMORY_LIMIT, _bytes(reading, "memory_limit_mb"))
    return attributes


_READING_GPU_PEAK: Final = "quant.reading.gpu_memory_peak"


def _levels(record: Record, prefix: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for column, figure in COLUMNS.items():
        if figure.checkpoint:
            _put(attributes, prefix + figure.checkpoint, _amount(record, column, figure))
    return attributes


_OF_CHECKPOINT: Final = frozenset(
    {"step", "timestamp", _TIME, "error", "error_message", *COLUMNS, *PEAKS}
)


def _custom(record: Record) -> dict[str, Any]:
    """Returns the values of the program's own metrics, which may be anything."""
    return {
        semconv.CUSTOM_PREFIX + key: value
        for key, value in record.items()
        if key not in _OF_CHECKPOINT
    }


_OF_MODEL: Final = ("role", "path", "error")


def _model(cost: Record) -> Mapping[str, Any]:
    known: Record = {key: cost[key] for key in _OF_MODEL if key in cost}
    return {**known, "figures": {key: cost[key] for key in cost if key not in known}}


def _put(attributes: dict[str, Any], name: str, value: object) -> None:
    if value is not None:
        attributes[name] = value


def _attribute(record: Record, key: str) -> AttributeValue | None:
    value = record.get(key)
    if isinstance(value, list):
        return tuple(map(str, value))
    if isinstance(value, dict):
        return str(value)
    if isinstance(value, str | bool):
        return value
    return _number(record, key)


def _number(record: Record, key: str) -> float | None:
    """Returns a number; None for what is none, for infinity, and for more than 63 bits."""
    value = record.get(key)
    if type(value) is int:
        return value if value.bit_length() < 64 else None
    return value if isinstance(value, float) and math.isfinite(value) else None


def _bytes(record: Record, key: str) -> int | None:
    value = _number(record, key)
    return None if value is None else round(value * MIB)


def _amount(record: Record, key: str, figure: Figure) -> float | None:
    value = _number(record, key)
    if value is None or figure.column is None:
        return None
    return round(value * figure.column.scale) if figure.unit == "By" else value


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)
