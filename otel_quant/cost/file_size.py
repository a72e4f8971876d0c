"""The size of a model on disk: its own file and those with its external data."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from typing import Final

from otel_quant.cost.structure import Model
from otel_quant.cost.values import Value

_MAX_LOCATIONS: Final = 10_000
"""External files that are asked for their size; beyond that, what the model declares counts."""


def file_bytes(model: Model, weights: Iterable[Value]) -> int:
    """Returns the bytes of a model's file and of the files its tensors lie in.

    External files are only asked for their size, and only within the model's folder; one
    that is missing counts as many bytes as the model declares.
    """
    declared: dict[str, int] = {}
    for value in weights:
        if value.weight is None or value.weight.external is None:
            continue
        place = value.weight.external
        end = place.offset + value.weight.stored
        declared[place.location] = max(declared.get(place.location, 0), end)
    total = model.size
    folder = None if model.source.startswith("<") else os.path.dirname(model.source)  # noqa: PTH120  # pathlib takes 2 ms to import
    for i, (location, size) in enumerate(declared.items()):
        found = _external_size(folder, location) if i < _MAX_LOCATIONS else None
        total += found or size
    return total


def _external_size(folder: str | None, location: str) -> int | None:
    if folder is None or not location:
        return None
    try:
        from pathlib import Path  # takes 2 ms to import

        place = Path(folder, location)
        inside = place.resolve().is_relative_to(Path(folder).resolve())
        return place.stat().st_size if inside else None
    except (OSError, ValueError):
        return None
