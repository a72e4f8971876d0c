"""The tensors within what a PyTorch model takes or returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def arrays_in(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields the tensors within a value as arrays of numpy, each with the way to it."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from arrays_in(each, f"{name}.{key}")
    elif isinstance(value, tuple | list):
        for place, each in enumerate(value):
            yield from arrays_in(each, f"{name}.{place}")
    elif hasattr(value, "dtype") and hasattr(value, "shape"):
        yield name, as_array(value)


def as_array(tensor: Any) -> Any:
    """Returns a tensor of torch, or an array, as an array of numpy.

    What is quantized is dequantized, and a type that numpy does not have becomes float32.
    """
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
