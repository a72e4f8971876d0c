"""What a list of runs can show: names, units, their values as texts, and conditions on them.

A name is an attribute name of the spans, without ``quant.``: ``calibration.method``. What stands
in :data:`LISTED` and in :data:`otel_quant.schema.catalog.QUANTITIES` is made of several of these.
"""

from __future__ import annotations

import math
import operator
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from otel_quant.recordings.summary import BY_NAME, DISK_WRITE, DURATION, MEMORY_PEAK, MEMORY_SEEN
from otel_quant.schema import catalog, semconv
from otel_quant.schema.units import BY_UNIT, UNITS, digits_text, moment_text

if TYPE_CHECKING:
    from otel_quant.schema.records import AttributeValue

Value: TypeAlias = "AttributeValue"

Row: TypeAlias = "dict[str, Value]"
"""What is known of one run, by name. Bytes, seconds; times as seconds since the epoch."""

MODEL: Final = "model"
METHOD: Final = semconv.CALIBRATION_METHOD.removeprefix(semconv.PREFIX)
LIBRARY: Final = semconv.LIBRARY_NAME.removeprefix(semconv.PREFIX)
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
    Field(MODEL, "MODEL", "", "name of the float model's file, its folder's name for `model.onnx`; for a model of torch its own name, or its class"),
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

NAMES: Final = tuple(field.name for field in LISTED)

FAILED: Final = "failed"
"""Runs of processes within it that did not end well, where the program did; shown beside the status."""

_ATTRIBUTES: Final = {
    attribute.name.replace("<role>", role): attribute.unit
    for attribute in catalog.ATTRIBUTES
    for role in ("float", "quantized")
}
_UNITS: Final = {
    **_ATTRIBUTES,
    **{figure.name: figure.unit for figure in BY_NAME.values()},
    **{field.name: field.unit for field in LISTED},
    FAILED: "",
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
        name in (*NAMES, FAILED)
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


# --- conditions: ``calibration.method=MinMax``, ``memory.peak > 12 GiB`` --------------------

_CONDITION: Final = re.compile(r"\s*(.+?)\s*(!=|<=|>=|=|<|>)\s*(.*?)\s*", re.DOTALL)
_QUANTITY: Final = re.compile(r"([-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z%]*)")

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class ConditionError(ValueError):
    """A condition that cannot be understood, or cannot hold of what it is about."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition."""

    text: str  # As it was written
    name: str  # What it is about
    comparison: str  # ``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``
    value: str  # What is compared with, as it was written
    number: float | None  # The same as a number, in the unit of the name; None if it is none

    def holds(self, row: Row) -> bool:
        """Returns whether a run fulfils it; one that lacks the value fulfils only ``!=``."""
        found = row.get(self.name)
        if found is None:
            return self.comparison == "!="
        compare = _COMPARISONS[self.comparison]
        if isinstance(found, int | float) and not isinstance(found, bool):
            if self.number is None:
                raise ConditionError(
                    f"{self.text}: {self.value!r} is no number; {self.name} is one, such as "
                    f"{text_of(found, unit_of(self.name))}"
                )
            return compare(found, self.number)
        if self.comparison not in ("=", "!="):
            raise ConditionError(
                f"{self.text}: {self.name} is a text, such as {text_of(found, '')}; expected "
                f"{self.name}=... or {self.name}!=..."
            )
        if isinstance(found, tuple):
            return (self.value in found) == (self.comparison == "=")
        return compare(text_of(found, ""), self.value)


def parse(text: str) -> Condition:
    """Reads a condition."""
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise ConditionError(
            f"--where {text}: is no condition; expected NAME=VALUE, with =, !=, <, <=, > or >=: "
            "calibration.method=MinMax, 'memory.peak>12 GiB'"
        )
    name, comparison, value = name_of(parts[1]), parts[2], parts[3]
    where = f"--where {text}"
    return Condition(where, name, comparison, value, _number(where, name, value))


def select(rows: Sequence[Row], conditions: Sequence[Condition]) -> list[Row]:
    """Returns the runs of which all conditions hold."""
    for condition in conditions:
        require_name(rows, condition.name, condition.text)
    return [row for row in rows if all(condition.holds(row) for condition in conditions)]


def require_name(rows: Sequence[Row], name: str, text: str) -> None:
    """Makes sure that runs may have a value of a name."""
    if rows and not is_known(name) and not any(name in row for row in rows):
        raise ConditionError(
            f"{text}: no run has {name!r}; expected a column of the list (model, status, "
            "memory.peak, ...) or an attribute of docs/telemetry.md without `quant.`"
        )


def _number(text: str, name: str, value: str) -> float | None:
    unit = unit_of(name)
    if unit == TIME:
        return _moment(text, value)
    parts = _QUANTITY.fullmatch(value)
    if parts is None:
        return None
    units = {"": 1.0, **UNITS.get(unit, {})}
    if parts[2] not in units:
        if not unit:
            return None  # a text that begins with a digit
        raise ConditionError(
            f"{text}: {parts[2]!r} is no unit of {name}; expected one of "
            f"{', '.join(filter(None, units)) or 'none'}"
        )
    return float(parts[1]) * units[parts[2]]


def _moment(text: str, value: Value) -> float:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise ConditionError(
            f"{text}: {value!r} is no date; expected 2026-11-22 or 2026-11-22T06:59, in UTC unless "
            "it has an offset"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# --- pivots -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """What the runs of one cell come to."""

    median: float  # Median of their figures
    runs: int  # How many they are


@dataclass(frozen=True, slots=True)
class PivotRow:
    """A row."""

    name: str  # What its runs have in common, as a text; empty for those that have no such value
    # Figures of the model, as many as ``Pivot.beside``; None for what is not known
    beside: tuple[Value | None, ...]
    cells: tuple[Cell | None, ...]  # As many as there are columns; None where there is no run


@dataclass(frozen=True, slots=True)
class Pivot:
    """A table of runs."""

    of_rows: str  # The name whose values are the rows
    of_columns: str  # The name whose values are the columns
    value: str  # The name of the figure in the cells
    beside: tuple[str, ...]  # Names of the figures beside the rows
    columns: tuple[str, ...]  # The values that are the columns, as texts
    rows: tuple[PivotRow, ...]  # The rows
    left_out: int  # Runs that are not in it, because they have not ended well or lack the figure


def pivot(
    runs: Sequence[Row], of_rows: str, of_columns: str, value: str, *, any_status: bool = False
) -> Pivot:
    """Makes a table of runs; runs with several libraries have a row for each."""
    beside = (MODEL_SIZE, ACTIVATION_SIZE) if of_rows == MODEL else ()
    if LIBRARY not in (of_rows, of_columns) and len({run.get(LIBRARY) for run in runs}) > 1:
        beside = (LIBRARY, *beside)
    found: dict[tuple[str, tuple[Value | None, ...]], dict[str, list[float]]] = {}
    counted = 0
    for run in runs:
        figure = run.get(value)
        if figure is None or not (any_status or run[STATUS] == "ended"):
            continue
        if isinstance(figure, bool | str | tuple):
            raise ConditionError(
                f"--value {value}: {text_of(figure, '')!r} is no figure; expected a name such as "
                "memory.peak or duration"
            )
        counted += 1
        row = text_of(run.get(of_rows), ""), tuple(run.get(name) for name in beside)
        column = text_of(run.get(of_columns), "")
        found.setdefault(row, {}).setdefault(column, []).append(figure)
    columns = tuple(sorted({column for cells in found.values() for column in cells}))
    return Pivot(
        of_rows=of_rows,
        of_columns=of_columns,
        value=value,
        beside=beside,
        columns=columns,
        rows=tuple(
            PivotRow(name, known, tuple(_cell(cells.get(column)) for column in columns))
            for (name, known), cells in sorted(found.items(), key=lambda item: str(item[0]))
        ),
        left_out=len(runs) - counted,
    )


def _cell(figures: list[float] | None) -> Cell | None:
    return Cell(statistics.median(figures), len(figures)) if figures else None
