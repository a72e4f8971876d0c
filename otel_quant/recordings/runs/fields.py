"""What a list of runs can show: names, units, and their values as texts.

A name is that of an attribute of the spans, without ``quant.``: ``calibration.method``. What stands
in :data:`LISTED` and in :data:`otel_quant.recordings.comparison.figures.FIGURES` is made of several of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from otel_quant.recordings.comparison.figures import (
    BY_NAME,
    DISK_WRITE,
    DURATION,
    MEMORY_PEAK,
    MEMORY_SEEN,
)
from otel_quant.schema import catalog, semconv
from otel_quant.schema.records import AttributeValue
from otel_quant.schema.units import BY_UNIT, digits_text, moment_text

Value: TypeAlias = AttributeValue

Row: TypeAlias = dict[str, Value]
"""What is known of one run, by name. Bytes, seconds; times as seconds since the epoch."""

MODEL: Final = "model"
METHOD: Final = semconv.CALIBRATION_METHOD.removeprefix(semconv.PREFIX)
CONFIG: Final = semconv.CONFIG_NAME.removeprefix(semconv.PREFIX)
STATUS: Final = "status"
MODEL_SIZE: Final = "model.size"
ACTIVATION_SIZE: Final = "model.activation_size"
WHEN: Final = "when"
PATH: Final = "path"

TIME: Final = "time"
"""The unit of a moment."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the list."""

    name: str  # Its name in filters and in JSON
    heading: str  # Its heading
    unit: str  # UCUM unit, or :data:`TIME`; empty for a text
    brief: str  # What it is


LISTED: Final = (
    Field(MODEL, "MODEL", "", "name of the float model's file; of `model.onnx` that of its folder"),
    Field(METHOD, "METHOD", "", "calibration method"),
    Field(CONFIG, "CONFIG", "", "name of the configuration"),
    Field(STATUS, "STATUS", "", "`ended`, `failed`, `killed`, `lost` or `running`"),
    Field(MODEL_SIZE, "SIZE", "By", "size of the float model, external data included"),
    Field(ACTIVATION_SIZE, "ACTIVATIONS", "By", "outputs of all nodes of the float model, for one sample"),
    *(
        Field(name, heading, BY_NAME[name].unit, BY_NAME[name].brief)
        for name, heading in ((DURATION, "TIME"), (MEMORY_PEAK, "PEAK"), (DISK_WRITE, "WRITTEN"))
    ),
    Field(WHEN, "WHEN", TIME, "when it began, in UTC"),
    Field(PATH, "PATH", "", "the recording or the profile"),
)  # fmt: skip
"""The columns of the list, in order: texts first."""

TEXTS: Final = 4
"""Columns at the beginning that are texts."""

NAMES: Final = tuple(field.name for field in LISTED)

_ATTRIBUTES: Final = {
    attribute.name.replace("<role>", role): attribute.unit
    for attribute in catalog.ATTRIBUTES
    for role in ("float", "quantized")
}
_UNITS: Final = {
    **_ATTRIBUTES,
    **{figure.name: figure.unit for figure in BY_NAME.values()},
    **{field.name: field.unit for field in LISTED},
}
_OF_RUN: Final = {attribute.name for attribute in catalog.attributes_on("run")}
_OF_RUNS: Final = ("model.", "custom.")
_NOT_BRIEF: Final = frozenset(
    {semconv.CALIBRATION_SAMPLE_RATE.removeprefix(semconv.PREFIX), MEMORY_SEEN}
)

_BAD: Final = frozenset({"killed", "lost", "running"})


def name_of(text: str) -> str:
    """Returns the name that a user means: ``quant.`` may stand before it."""
    return text.strip().removeprefix(semconv.PREFIX)


def attribute_of(name: str) -> str:
    """Returns the attribute that a name is, if it is one."""
    return name if name in _ATTRIBUTES else semconv.PREFIX + name


def is_known(name: str) -> bool:
    """Returns whether a run may have a value of that name."""
    return name in _UNITS or semconv.PREFIX + name in _UNITS


def unit_of(name: str) -> str:
    """Returns the unit of a name's values; empty for texts, numbers of things and unknown names."""
    return _UNITS.get(name) or _UNITS.get(semconv.PREFIX + name, "")


def is_brief(names: Iterable[str]) -> bool:
    """Returns whether runs have all of these names without their steps."""
    return all(
        name in NAMES
        or (name in BY_NAME and name not in _NOT_BRIEF)
        or attribute_of(name) in _OF_RUN
        or name.startswith(_OF_RUNS)
        for name in names
    )


def is_least(row: Row) -> bool:
    """Returns whether the true peaks of a run may be higher: nothing has seen its end."""
    return row[STATUS] in _BAD


def text_of(value: Value | None, unit: str) -> str:
    """Returns a value as a person reads it; an empty text for none."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) or not math.isfinite(value):
        return str(value)
    if unit == TIME:
        return moment_text(value, "minutes")
    if unit in BY_UNIT:
        return BY_UNIT[unit](value)
    return f"{value:,}" if isinstance(value, int) else digits_text(value)
