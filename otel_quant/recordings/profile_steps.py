"""Finds the steps of a profile and their nesting from its records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from otel_quant.recordings.quark_yaml import Record

State = Literal["ended", "open", "point"]

_OPENS: Final = " Start"
_CLOSES: Final = " End"


@dataclass(slots=True)
class Step:
    """A step, or a checkpoint that belongs to no step."""

    name: str  # The step's name
    depth: int  # Number of steps that were open when it opened
    first: int  # Position of its first record
    last: int  # Position of its last record; for an open step, the last record of the profile
    state: State  # Whether it has ended; ``point`` for a checkpoint that belongs to no step


def steps_of(records: Sequence[Record]) -> list[Step]:
    """Pairs the records of a profile."""
    steps: list[Step] = []
    still_open: list[Step] = []
    for position, record in enumerate(records):
        name = str(record.get("step", ""))
        if name in ("Start", "End"):
            continue
        if name.endswith(_OPENS):
            step = Step(
                name.removesuffix(_OPENS), len(still_open), position, len(records) - 1, "open"
            )
            still_open.append(step)
            steps.append(step)
            continue
        closed = name.removesuffix(_CLOSES) if name.endswith(_CLOSES) else None
        opened = next((step for step in reversed(still_open) if step.name == closed), None)
        if opened is None:
            steps.append(Step(name, len(still_open), position, position, "point"))
            continue
        opened.last, opened.state = position, "ended"
        still_open.remove(opened)
    return steps


def numbers(records: Sequence[Record], key: str) -> Iterator[float]:
    """Yields the numbers that records have under a key; an integer of more than 63 bits is none."""
    for record in records:
        value = record.get(key)
        if isinstance(value, float) or (type(value) is int and value.bit_length() < 64):
            yield value
