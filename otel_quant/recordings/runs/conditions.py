"""Conditions of a list of runs: ``calibration.method=MinMax``, ``memory.peak > 12 GiB``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from otel_quant.recordings.comparison.limits import UNITS
from otel_quant.recordings.runs.fields import TIME, Row, Value, is_known, name_of, text_of, unit_of

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
            "it says otherwise"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
