"""What a weight of a quantized model is, and notes of them for the test that compares them with the steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Weights(NamedTuple):
    """How one weight was quantized."""

    type: str
    bits: int
    granularity: str  # What has a scale of its own
    block_size: int | None
    symmetric: bool | None  # Whether no zero point is another than 0; None if they are no integers


def note_weights(found: Sequence[Weights], way: str) -> None:
    """Writes down what weights are, which were quantized in some way."""
    with Path("written.jsonl").open("a") as file:
        file.write(json.dumps([way, [each._asdict() for each in found]]) + "\n")


def groups(count: int, rows: int, scales: int) -> tuple[str, int | None]:
    """Returns the granularity and the size of a block, by how many scales so many values in rows have."""
    if scales in (1, rows):
        return ("tensor" if scales == 1 else "channel"), None
    return "group", count // scales
