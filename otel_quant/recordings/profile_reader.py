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
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.base.files import is_held, open_regular
from otel_quant.format import event_file
from otel_quant.format.fields import PEAK_SOURCE, PROFILE_RUN, PROFILE_RUN_END, STATE, LeftOut
from otel_quant.recordings.events_reader import ReadRun
from otel_quant.recordings.model import Recording, State, number
from otel_quant.schema import semconv
from otel_quant.schema.dataclass import dataclass, field, replace
from otel_quant.schema.events import present
from otel_quant.schema.figures import RESOURCES, Figure, Part
from otel_quant.schema.readings import ALL_STEPS, AT_LEAST, ProfileStep

if TYPE_CHECKING:
    from otel_quant.schema.readings import AttributeValue

HEADER: Final = "# Quark Profiling Results\n"

Record = dict[str, object]
_NOTHING: Final[Mapping[str, Any]] = {}

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

_SCALES: Final = {
    key: figure.column.scale if figure.column is not None and figure.unit == "By" else 0
    for key, figure in COLUMNS.items()
}
"""What a column is multiplied by for bytes; 0 for one that is of something else."""

PEAKS: Final = {
    "peak_memory_mb": semconv.MEMORY_PEAK,
    "peak_gpu_memory_mb": semconv.GPU_MEMORY_PEAK,
}
"""Peaks of a step that has ended, and of a last reading."""

OF_RUN: Final = {
    **PROFILE_RUN, **PROFILE_RUN_END, "libraries": semconv.LIBRARIES,
    "calibration_method": semconv.CALIBRATION_METHOD,
    "calibration_samples": semconv.CALIBRATION_SAMPLE_COUNT,
    "calibration_items": semconv.CALIBRATION_ITEM_COUNT,
    "gpu_memory_limit_share": f"{semconv.GPU_MEMORY_PEAK}_ratio", "revision": semconv.VCS_REVISION,
}  # fmt: skip
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
_ENTRY: Final = re.compile(r'(- |  |)("(?:[^"\\]|\\.)*"|[A-Za-z_][^:"]*):(?: (.*))?')
_DEFINITION: Final = "# - "
# Comments that otel-quant adds below a record: peaks of the step that has ended, and what is known of
# the run since the step.
_COMMENT: Final = re.compile(r"  # (\w+): (.+)")
_SAMPLES: Final = "calibration_samples"
_OF_STEP: Final = frozenset({*PEAKS, PEAK_SOURCE, _SAMPLES})
_OF_RUN_SO_FAR: Final = frozenset({"libraries", "calibration_method", _SAMPLES})
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
            what = f"{path}: no line 'memory_usage:'; {event_file.EXPECTED}"
            raise event_file.NotARecordingError(what)
        found = "is empty" if not text.strip() else "ends before its first checkpoint"
        raise event_file.NotARecordingError(
            f"{path}: the file {found}; expected the records of a run, which writes the first as it begins"
        )
    reading = {} if profile.complete else _last_reading(path, profile)
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


def _last_reading(path: Path, profile: ProfileText) -> dict[str, Any]:
    """Returns what a run was doing and using shortly before it was killed: its state, as a folder has it.

    The files of a folder are told apart by the time of the run's first checkpoint, because a profile
    may have been renamed or copied since, and Quark's own has no id. Empty without one.
    """
    began, latest = (_number(profile.records[place], "timestamp") for place in (0, -1))
    for candidate in sorted(path.parent.glob(f"*{event_file.LAST_READING}")):
        state: dict[str, Any] = {}
        with suppress(event_file.NewerSchemaError):  # of another run, of another version
            state = STATE.take(event_file.mapping_in(candidate), LeftOut()) or {}
        if state.get("began", -1) / _SECOND == began:
            return state if state["time"] / _SECOND >= (latest or began) else {}
    return {}


# --- the text -----------------------------------------------------------------------------


@dataclass(slots=True)
class ProfileText:
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


def parse(text: str) -> ProfileText:
    """Reads a profile."""
    *lines, rest = text.split("\n")
    if "memory_usage:" not in lines:
        return ProfileText(complete=False)
    profile = ProfileText()
    sections = {
        "memory_usage": profile.records, "onnx_model_cost": profile.costs, "run": [profile.run],
        "run_end": [profile.run],
    }  # fmt: skip
    # Of the section that is being read: one that is not known is thrown away
    records: list[Record] = []
    for line in lines:
        if (entry := _ENTRY.fullmatch(line)) is not None:
            indent, key, value = entry.groups("")
            name, value = str(_value(key)), value.strip()
            if indent == "- ":
                records.append({})
            if indent:
                _newest(records)[name] = _value(value)
            elif value:
                records, profile.summary[name] = [], _value(value)
            else:
                records = sections.get(name, [])
        elif (comment := _COMMENT.fullmatch(line)) is not None:
            name, known = comment[1], _value(comment[2])
            if name in _OF_STEP:
                _newest(records)[name] = known
            if name in _OF_RUN_SO_FAR:
                profile.run[name] = known
    has_end = _newest(profile.records).get("step") == "End" and bool(profile.summary)
    # The definitions come after the summary.
    has_definitions = any(line.startswith(_DEFINITION) for line in lines)
    profile.complete = has_end and has_definitions and not rest
    if not has_end and len(profile.records) > 1:
        _drop_truncated(profile.records)
    return profile


def _newest(records: list[Record]) -> Record:
    """Returns the record that is being read; before the first, one that is thrown away."""
    return records[-1] if records else {}


def _drop_truncated(records: list[Record]) -> None:
    """Removes the last record if it is truncated: it lacks the last key that every complete one has."""
    *complete, last = records
    shared = set(complete[0]).intersection(*complete)
    always = [key for key in complete[0] if key in shared]
    if not last.keys() >= {*always[-1:]}:
        records.pop()


def _value(text: str) -> object:
    """Reads a value: a string between quotes, a number, a word, or a nested collection."""
    if text[:1] in ('"', "{", "["):
        with suppress(ValueError, RecursionError):
            return json.loads(text, parse_constant=_refuse)
    if text.startswith('"'):  # Quark escapes nothing
        return text[1:].removesuffix('"')
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdecimal() and len(text) < 4000 else float(text)
    return _WORDS.get(text.lower(), text)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is a text in YAML")


# --- the events ---------------------------------------------------------------------------


def recording_of(
    profile: ProfileText,
    path: Path,
    reading: Mapping[str, Any] = _NOTHING,
    state_of_open: State = "lost",
) -> Recording:
    """Returns a profile as a recording of one run: its records are the events of a folder."""
    last = reading.get("attributes", {})
    read_at = number(last, semconv.READING_ELAPSED) or 0.0
    run = ReadRun(str(profile.run.get("id") or reading.get("run", "")), 0.0, path.name)
    attributes = _of_run(profile)
    for kind, event, at in _events(profile, attributes):
        run.take(kind, event, at)
    # By their names: a strict profile lacks some steps, so that their numbers differ. There is room for the innermost.
    names, steps = last.get(semconv.READING_OPEN_STEPS, ()), reading.get("steps", ())
    numbers = run.open_steps
    pairs = zip(reversed(names), reversed(steps), strict=False)
    known = [{**each, "index": numbers[name]} for name, each in pairs if name in numbers]
    run.state_known({**reading, "steps": known}, read_at)
    recorded = run.recorded(state_of_open)
    is_cut = not run.is_open and not profile.complete
    return Recording(
        path=path,
        began_ns=round((_number(profile.records[0], "timestamp") or 0.0) * 1e9),
        state=recorded.state,
        duration=max(recorded.checkpoints[-1].time, read_at),
        origin={name: value for name, value in attributes.items() if name in semconv.ORIGIN},
        runs=(
            replace(recorded, pid=_whole(last.get(semconv.PROCESS_PID)), summary=profile.summary),
        ),
        problems=("the file has no end",) if is_cut else (),
    )


def _events(
    profile: ProfileText, attributes: Record
) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Yields what has happened, with its time: the names of records show what opens and closes.

    Case 1: the run's own ``Start`` or ``End``. Case 2: ``NAME Start``. Case 3: ``NAME End``, and a
    step of that name is open. Case 4: any other, a checkpoint.
    """
    if profile.costs:
        yield "models.costed", {"models": list(map(_model, profile.costs))}, 0.0
    known: dict[str, Any] = {"rank": _whole(profile.run.get("rank")), "attributes": attributes}
    ended = str(profile.run.get("ended", ""))
    error = ended.removeprefix(_WITH) if ended.startswith(_WITH) else None
    of_run = {"Start": ("run.started", known), "End": ("run.ended", dict[str, Any](error=error))}
    if all(record.get("step") != "Start" for record in profile.records):
        yield "run.attributes", known, 0.0
    numbers = count()
    still_open: list[tuple[int, str, Record]] = []  # index, name and first record of each step
    for record in profile.records:
        name = str(record.get("step", ""))
        innermost = still_open[-1][0] if still_open else None
        closed = [step for step in still_open if step[1] + _CLOSES == name]
        custom = {key: _plain(it) for key, it in record.items() if key not in _OF_CHECKPOINT}
        event: dict[str, Any] = {"checkpoint": _levels(record), "custom": custom}
        if name in of_run:  # Case 1
            kind, fields = of_run[name]
            event |= {**fields, **_error(record)}
        elif name.endswith(_OPENS):  # Case 2
            kind, index, label = "step.started", next(numbers), name.removesuffix(_OPENS)
            event |= {"index": index, "name": label, "parent": innermost}
            event["step_kind"] = label if label in ALL_STEPS else ProfileStep.USER_DEFINED
            still_open.append((index, label, record))
        elif closed:  # Case 3
            kind, (index, _, first) = "step.ended", closed[-1]
            event |= {"index": index, "attributes": _of_step(first, record), **_error(record)}
            event["samples"] = _whole(record.get(_SAMPLES)) or 0
            still_open.remove(closed[-1])
        else:  # Case 4
            kind = "checkpoint"
            event |= {"name": name, "step": innermost}
        yield kind, event, _number(record, _TIME) or 0.0


def _error(record: Record) -> dict[str, str]:
    """Returns the exception that a record has."""
    return {name: str(record[name]) for name in _ERROR if record.get(name) not in (None, "")}


_ERROR: Final = ("error", "error_message")
_WITH: Final = "with "  # Begins the text on an exception in the section on the end


def _of_step(first: Record, last: Record) -> dict[str, Any]:
    """Returns the attributes of a step by its first and its last record."""
    before, after = _figures(first), _figures(last)
    parts: Mapping[Part, Mapping[str, float]] = {
        "start": before,
        "end": after,
        "delta": {key: after[key] - before[key] for key in before.keys() & after.keys()},
    }
    peaks: Record = {name: _number(last, key, MIB) for key, name in PEAKS.items()}
    if last.get(PEAK_SOURCE) == AT_LEAST:
        peaks[semconv.MEMORY_PEAK_SOURCE] = AT_LEAST
    return present(peaks) | {
        figure.attribute(part): parts[part][key]
        for key, figure in COLUMNS.items()
        for part in figure.parts
        if key in parts.get(part, ())
    }


def _of_run(profile: ProfileText) -> dict[str, Any]:
    """Returns the attributes of the run, of which the summary has some in the end."""
    found: dict[str, Any] = {
        name: _number(profile.run, key, MIB)
        if key.endswith("_mb")
        else _attribute(profile.run, key)
        for key, name in OF_RUN.items()
    }
    of_summary = {name: _number(profile.summary, key, MIB) for key, name in _OF_SUMMARY.items()}
    return present(found) | present(of_summary)


def _figures(record: Record) -> dict[str, float]:
    """Returns the figures of a record by their keys, sizes in bytes."""
    return present({key: _number(record, key, scale) for key, scale in _SCALES.items()})


def _levels(record: Record) -> dict[str, Any]:
    """Returns the figures of a record by the attributes of checkpoints."""
    return {
        semconv.CHECKPOINT_PREFIX + COLUMNS[key].checkpoint: value
        for key, value in _figures(record).items()
        if COLUMNS[key].checkpoint
    }


_OF_CHECKPOINT: Final = frozenset(
    {"step", "timestamp", _TIME, *_ERROR, _SAMPLES, *COLUMNS, *PEAKS, PEAK_SOURCE}
)


def _model(cost: Record) -> Mapping[str, Any]:
    texts = {key: cost[key] for key in _TEXTS if type(cost.get(key)) is str}
    return {**texts, "figures": {key: cost[key] for key in cost if key not in _TEXTS}}


_TEXTS: Final = ("role", "path", "error")  # What is known of a model beside its figures


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
