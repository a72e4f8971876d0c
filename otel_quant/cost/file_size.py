"""The size of a model on disk: its own file and those with its external data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
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
    folder = None if model.source.startswith("<") else Path(model.source).parent
    for i, (location, size) in enumerate(declared.items()):
        found = _external_size(folder, location) if i < _MAX_LOCATIONS else None
        total += found or size
    return total


def _external_size(folder: Path | None, location: str) -> int | None:
    if folder is None or not location:
        return None
    try:
        inside = (folder / location).resolve().is_relative_to(folder.resolve())
        return (folder / location).stat().st_size if inside else None
    except (OSError, ValueError):
        return None
