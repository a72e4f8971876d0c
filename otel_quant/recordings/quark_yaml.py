"""Reads a ``quark_profile.yaml``: ours or Quark's own, complete or truncated at any byte.

It is read line by line and not as YAML. Our file is valid YAML at every moment, but a copy may be
truncated, Quark's own file ends with the last buffer that was written, and Quark does not escape
quoted text. A last line without a line break is ignored, because it may be incomplete.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Final

HEADER: Final = "# Quark Profiling Results\n"

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

Record = dict[str, object]


class NotAProfileError(ValueError):
    """The text is not a profile, nor the beginning of one."""


@dataclass(slots=True)
class Profile:
    """What a file holds."""

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
    # What the run was doing and using after its last checkpoint, from the file that
    # :mod:`otel_quant.export.quark_yaml.last_reading` finds; None if there is none
    last_reading: Record | None = None
    # How the run stands, where that is known: ``running``, ``killed``, ``lost``, ..
    state: str | None = None


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
