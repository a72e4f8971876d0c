"""Arrays of numpy of what models take and return, saved by the process of a model for its parent.

The process of a model imports this, so it imports nothing of ours: that would be in its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Arrays: TypeAlias = Mapping[str, Any]
"""Arrays of numpy by the names of inputs or outputs; None for what is no array of numbers."""


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what mappings and sequences hold at any depth, each with the way to it."""
    if not isinstance(value, Mapping | tuple | list):
        yield name, value
        return
    for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from leaves(each, f"{name}.{key}")


def arrays_in(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields the tensors within a value as arrays of numpy, each with the way to it."""
    for way, each in leaves(value, name):
        if hasattr(each, "dtype") and hasattr(each, "shape"):
            yield way, as_array(each)


def as_array(tensor: Any) -> Any:
    """Returns an array of numpy: dequantized, and float32 where numpy does not have the type."""
    import numpy as np

    if not hasattr(tensor, "detach"):
        return np.asarray(tensor)
    import torch

    plain = tensor.detach()
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.is_floating_point() and plain.dtype not in (torch.float16, torch.float64):
        plain = plain.float()
    return plain.numpy(force=True)


def save_arrays(values: Sequence[Any], path: str, kinds: str) -> None:
    """Saves the arrays of numpy's kinds among outputs, each by its place: ``a0``, ``a1`` and so on."""
    import numpy as np

    saved = {f"a{i}": each for i, each in enumerate(values) if isinstance(each, np.ndarray)}
    kept: dict[str, Any] = {key: each for key, each in saved.items() if each.dtype.kind in kinds}
    np.savez(path, **kept)


def saved_arrays(names: Sequence[str], path: Path) -> Arrays:
    """Returns the outputs that the process of a model has saved as ``a0``, ``a1`` and so on."""
    import numpy as np

    with np.load(path) as file:
        return {name: file.get(f"a{i}") for i, name in enumerate(names)}
