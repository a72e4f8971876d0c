"""How many items a batch of a calibration has, where its tensors tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_MOST_PARTS: Final = 64
"""A longer list has data in it, not the inputs of a model."""


def items_in(batch: object) -> int | None:
    """Returns the first dimension of a batch's tensors.

    Only shapes are looked at. They come from arrays of any library, alone, in a mapping (as readers
    of ONNX Runtime return them) or in a list or tuple (as data loaders of torch do).
    """
    parts = batch if isinstance(batch, list | tuple) else (batch,)
    if len(parts) > _MOST_PARTS:
        return None
    shapes = [shape for part in parts for shape in _shapes_in(part)]
    if len(parts) > 1 and len(shapes) > 1 and len({len(shape) for shape in shapes}) == 1:
        return None
    sizes = {shape[0] for shape in shapes}
    size = sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) else None


def _shapes_in(part: object) -> list[tuple[object, ...]]:
    values = part.values() if isinstance(part, Mapping) else (part,)
    shapes = (getattr(value, "shape", None) for value in values)
    return [shape for shape in shapes if isinstance(shape, tuple) and shape]
