"""Reads a ``quark_profile.yaml`` as a recording: ours or Quark's own, complete or truncated at any byte.

It is read line by line and not as YAML. Our file is valid YAML at every moment, but a copy may be
truncated, Quark's own file ends with the last buffer that was written, and Quark does not escape
quoted text. A last line without a line break is ignored, because it may be incomplete.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.base.files import is_held, open_regular
from otel_quant.format.event_file import (
    EXPECTED,
    LAST_READING,
    NewerSchemaError,
    NotARecordingError,
    mapping_in,
)
from otel_quant.format.fields import PROFILE_RUN, PROFILE_RUN_END, STATE, LeftOut
from otel_quant.recordings.events_reader import ReadRun
from otel_quant.recordings.model import Recording, State, number
from otel_quant.schema import semconv
from otel_quant.schema.events import present
from otel_quant.schema.figures import RESOURCES, Figure
from otel_quant.schema.readings import ALL_STEPS, ProfileStep

if TYPE_CHECKING:
    from otel_quant.schema.readings import AttributeValue

HEADER: Final = "# Quark Profiling Results\n"

Record = dict[str, object]

MIB: Final = 1 << 20
_SECOND: Final = 1_000_000_000  # an int: with 1e9, today's nanoseconds would be rounded twice
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
    **PROFILE_RUN,
    **PROFILE_RUN_END,
    "libraries": semconv.LIBRARIES,
    "calibration_method": semconv.CALIBRATION_METHOD,
    "calibration_samples": semconv.CALIBRATION_SAMPLE_COUNT,
    "calibration_items": semconv.CALIBRATION_ITEM_COUNT,
    "gpu_memory_limit_share": f"{semconv.GPU_MEMORY_PEAK}_ratio",
    "revision": semconv.VCS_REVISION,
}
"""Keys of the sections on the run, and the attributes that they are."""

_OF_SUMMARY: Final = {
    "peak_memory_mb": semconv.MEMORY_PROCESS_PEAK,
    "peak_gpu_memory_mb": semconv.GPU_MEMORY_PEAK,
    "total_disk_read_mb": semconv.DISK_READ,
    "total_disk_write_mb": semconv.DISK_WRITE,
    "peak_cache_dir_disk_usage_mb": semconv.CACHE_GROWTH,
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
# Comments that otel-quant adds below a record: peaks of the step that has ended, and what is known of
# the run since the step.
_COMMENT: Final = re.compile(r"  # (\w+): (.+)")
_SAMPLES: Final = "calibration_samples"
_FACTS: Final = frozenset({"libraries", "calibration_method", _SAMPLES})
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, object]] = {
    "true": True, "false": False, "null": None, "none": None, "~": None, ".nan": math.nan,
    "nan": math.nan, ".inf": math.inf, "inf": math.inf, "-.inf": -math.inf, "-inf": -math.inf,
}  # fmt: skip


def read_profile(path: Path, *, in_brief: bool = False) -> Recording:
    """Reads a profile, with the last reading that is beside one without an end."""
    with open_regular(path) as file:
        text = file.read().decode("utf-8", "replace")
    profile = parse(_ends_of(text) if in_brief else text)
    if not profile.records:
        if "memory_usage:" not in text and not HEADER.startswith(text[: len(HEADER)]):
            raise NotARecordingError(f"{path}: no line 'memory_usage:'; {EXPECTED}")
        found = "is empty" if not text.strip() else "ends before its first checkpoint"
        raise NotARecordingError(
            f"{path}: the file {found}; expected the records of a run, which writes the first as "
            "it begins"
        )
    reading = None if profile.complete else _last_reading(path, profile)
    return recording_of(profile, path, reading, "running" if is_held(path) else "lost")


def _ends_of(text: str) -> str:
    """Returns the text of a run that has ended without what is between its first and last record.

    A profile of Quark's own comes back complete: its end does not repeat what its checkpoints have seen.
    """
    if "\n  tree_peak_memory_mb: " not in text:
        return text
    second = text.find(_RECORD, text.find(_RECORD) + 1)
    last = text.rfind(_RECORD)
    return text[:second] + text[last:] if text.startswith(_LAST_RECORD, last) else text


def _last_reading(path: Path, profile: Profile) -> dict[str, Any] | None:
    """Returns what a run was doing and using shortly before it was killed: its state, as a folder has it.

    The files of a folder are told apart by the time of the run's first checkpoint, because a profile
    may have been renamed or copied since, and Quark's own has no id.
    """
    began, latest = (_number(profile.records[place], "timestamp") for place in (0, -1))
    for candidate in sorted(path.parent.glob(f"*{LAST_READING}")):
        try:
            state = STATE.take(mapping_in(candidate), LeftOut())
        except NewerSchemaError:  # of another run, of another version
            continue
        if state is not None and began is not None and state.get("began", 0) / _SECOND == began:
            return state if state["time"] / _SECOND >= (latest or began) else None
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
        return Profile(complete=False)
    profile = Profile(complete=not rest)
    sections = {
        "memory_usage": profile.records,
        "onnx_model_cost": profile.costs,
        "run": [profile.run],
        "run_end": [profile.run],
    }
    section: list[Record] | None = None
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            if (comment := _COMMENT.fullmatch(line)) is not None:
                name, value = comment.groups()
                if name in PEAKS and section:
                    section[-1][name] = _value(value)
                elif name in _FACTS:
                    profile.run[name] = _value(value)
                    if name == _SAMPLES and section:
                        section[-1][name] = _value(value)
            continue
        value = (entry["value"] or "").strip()
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
    records = profile.records
    ended = bool(records) and records[-1].get("step") == "End" and bool(profile.summary)
    # The definitions come after the summary.
    profile.complete &= ended and any(line.startswith(_DEFINITION) for line in lines)
    if not ended and len(records) > 1:
        # Every complete record has this key, so a record without it is truncated.
        always = [key for key in records[0] if all(key in record for record in records[:-1])]
        if always and always[-1] not in records[-1]:
            records.pop()
    return profile


def _value(text: str) -> object:
    """Reads a value: a string between quotes, a number, a word, or a nested collection."""
    if text[:1] in ('"', "{", "["):
        with suppress(ValueError, RecursionError):
            return json.loads(text, parse_constant=_refuse)
    if text.startswith('"'):  # Quark escapes nothing
        return text[1:-1] if len(text) > 1 and text.endswith('"') else text[1:]
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdecimal() and len(text) < 4000 else float(text)
    return _WORDS.get(text.lower(), text)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is a text in YAML")


# --- the events ---------------------------------------------------------------------------


def recording_of(
    profile: Profile,
    path: Path,
    reading: dict[str, Any] | None = None,
    state_of_open: State = "lost",
) -> Recording:
    """Returns a profile as a recording of one run: its records are the events of a folder."""
    last = (reading or {}).get("attributes", {})
    run_id = str(profile.run.get("id") or (reading or {}).get("run") or "")
    run = ReadRun(run_id, 0.0, path.name)
    attributes = _of_run(profile)
    for kind, event, at in _events(profile, attributes):
        run.take(kind, event, at)
    if reading is not None:
        # By their names: a strict profile lacks some steps, so that their numbers differ. There is room for the innermost.
        names, steps = last.get(semconv.READING_OPEN_STEPS, ()), reading.get("steps", ())
        numbers = {name: index for index, name in run.open_steps.items()}
        pairs = zip(reversed(names), reversed(steps), strict=False)
        known = [{**each, "index": numbers[name]} for name, each in pairs if name in numbers]
        run.state_known({**reading, "steps": known}, number(last, semconv.READING_ELAPSED) or 0.0)
    is_over = not run.is_open
    recorded = run.recorded(state_of_open)
    latest = recorded.checkpoints[-1].time
    return Recording(
        path=path,
        began_ns=round((_number(profile.records[0], "timestamp") or 0.0) * 1e9),
        state=recorded.state,
        duration=max(latest, recorded.last.time if recorded.last is not None else 0.0),
        origin={name: value for name, value in attributes.items() if name in semconv.ORIGIN},
        runs=(
            replace(recorded, pid=_whole(last.get(semconv.PROCESS_PID)), summary=profile.summary),
        ),
        problems=("the file has no end",) if is_over and not profile.complete else (),
    )


def _events(profile: Profile, attributes: Record) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Yields what has happened, with its time: the names of records show what opens and closes."""
    count = 0
    still_open: list[tuple[int, str, Record]] = []  # index, name and first record of each step
    if profile.costs:
        yield "models.costed", {"models": list(map(_model, profile.costs))}, 0.0
    known = {"rank": _whole(profile.run.get("rank")), "attributes": attributes}
    if not any(record.get("step") == "Start" for record in profile.records):
        yield "run.attributes", known, 0.0
    for record in profile.records:
        name, at = str(record.get("step", "")), _number(record, _TIME) or 0.0
        levels = _levels(record, semconv.CHECKPOINT_PREFIX)
        event: dict[str, Any] = {"checkpoint": levels, "custom": _custom(record)}
        stem = name.removesuffix(_CLOSES)
        closed = next((each for each in reversed(still_open) if each[1] == stem), None)
        innermost = still_open[-1][0] if still_open else None
        if name == "Start":
            kind = "run.started"
            event |= known
        elif name == "End":
            kind = "run.ended"
            event |= _error(record, profile.run)
        elif name.endswith(_OPENS):
            kind, stem = "step.started", name.removesuffix(_OPENS)
            event |= {"index": count, "name": stem, "parent": innermost}
            event["step_kind"] = stem if stem in ALL_STEPS else ProfileStep.USER_DEFINED
            still_open.append((count, stem, record))
            count += 1
        elif name.endswith(_CLOSES) and closed is not None:
            kind = "step.ended"
            event |= {"index": closed[0], **_error(record), "samples": _whole(record.get(_SAMPLES))}
            event["attributes"] = _of_step(closed[2], record)
            still_open.remove(closed)
        else:
            kind = "checkpoint"
            event |= {"name": name, "step": innermost}
        yield kind, event, at


def _error(record: Record, run: Record | None = None) -> dict[str, str | None]:
    """Returns the exception that a record has, or the section on the run's end."""
    error, ended = record.get("error"), str((run or {}).get("ended", ""))
    if not error and ended.startswith(_WITH):
        error = ended.removeprefix(_WITH)
    message = record.get("error_message")
    return {
        "error": str(error) if error else None,
        "error_message": None if message is None else str(message),
    }


_WITH: Final = "with "
"""Begins the text on an exception in the section on the end."""


def _of_step(first: Record, last: Record) -> dict[str, Any]:
    found: dict[str, Any] = {name: _number(last, key, MIB) for key, name in PEAKS.items()}
    for key, figure in COLUMNS.items():
        before, after = (_number(record, key, _scale(figure)) for record in (first, last))
        change = None if before is None or after is None else after - before
        known = {"start": before, "end": after, "delta": change}
        found |= {figure.attribute(part): known[part] for part in figure.parts if part in known}
    return dict(present(found))


def _of_run(profile: Profile) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: _number(profile.run, key, MIB)
        if key.endswith("_mb")
        else _attribute(profile.run, key)
        for key, name in OF_RUN.items()
    }
    of_summary = {name: _number(profile.summary, key, MIB) for key, name in _OF_SUMMARY.items()}
    return dict(present(found)) | present(of_summary)


def _levels(record: Record, prefix: str) -> dict[str, Any]:
    levels = {
        prefix + figure.checkpoint: _number(record, key, _scale(figure))
        for key, figure in COLUMNS.items()
        if figure.checkpoint
    }
    return dict(present(levels))


def _scale(figure: Figure) -> int:
    return figure.column.scale if figure.column is not None and figure.unit == "By" else 0


_OF_CHECKPOINT: Final = frozenset(
    {"step", "timestamp", _TIME, "error", "error_message", _SAMPLES, *COLUMNS, *PEAKS}
)


def _custom(record: Record) -> Record:
    """Returns the values of the program's own metrics, which may be anything."""
    return {key: _plain(value) for key, value in record.items() if key not in _OF_CHECKPOINT}


def _model(cost: Record) -> Mapping[str, Any]:
    texts = {key: cost[key] for key in _TEXTS if type(cost.get(key)) is str}
    return {**texts, "figures": {key: cost[key] for key in cost if key not in _TEXTS}}


_TEXTS: Final = ("role", "path", "error")
"""What is known of a model beside its figures."""


def _attribute(record: Record, key: str) -> AttributeValue | None:
    value = _plain(record.get(key))
    if isinstance(value, tuple):
        return tuple(map(str, value))
    return value if isinstance(value, str | bool) else _number(record, key)


def _plain(value: Any) -> Any:
    """Returns a value as a cell of a table may have it: a mapping is its text."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return str(value) if isinstance(value, dict) else value


def _number(record: Record, key: str, scale: int = 0) -> float | None:
    """Returns a number; None for what is none, for infinity, and for more than 63 bits."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1 << 63:
        return None
    return round(value * scale) if scale else value


def _whole(value: object) -> int | None:
    return value if type(value) is int and abs(value) < 1 << 63 else None
