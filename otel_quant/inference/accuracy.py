"""What a model takes and returns as arrays, and how far its outputs are off from the first one's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from otel_quant.inference.results import Accuracy, OutputError, TensorError


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


Arrays: TypeAlias = Mapping[str, Any]
"""Arrays of numpy by the names of inputs or outputs; None for what is no array of numbers."""


def saved_arrays(names: Sequence[str], path: Path) -> Arrays:
    """Returns the outputs that the process of a model has saved as ``a0``, ``a1`` and so on."""
    import numpy as np

    with np.load(path) as file:
        return {name: file.get(f"a{i}") for i, name in enumerate(names)}


def compared_outputs(first: Arrays, other: Arrays) -> Accuracy:
    """Compares outputs, by their places if no name is the same."""
    import numpy as np

    found: list[OutputError] = []
    problems = [] if first and other else ["one of the two returns no tensors"]
    if not any(name in first for name in other):
        names = [*other, *list(first)[len(other) :]]
        first = dict(zip(names, first.values(), strict=False))
    for name in dict.fromkeys([*other, *first]):
        a, b = first.get(name), other.get(name)
        if a is None or b is None:
            problems.append(f"only one of the two has an output {name!r}")
        elif a.shape != b.shape:
            problems.append(f"output {name!r} is {list(b.shape)}, not {list(a.shape)}")
        elif a.size:
            found.append(_error(name, a, b, np))
            if found[-1].max_abs is None:
                problems.append(f"output {name!r} has values that are not finite")
    return Accuracy(tuple(found), (), problems[0] if problems else "")


def _error(name: str, expected: Any, actual: Any, np: Any) -> OutputError:
    is_complex = np.iscomplexobj(expected) or np.iscomplexobj(actual)
    kind = np.complex128 if is_complex else np.float64
    a, b = (each.astype(kind).ravel().view(np.float64) for each in (expected, actual))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return OutputError(name, None, None, None)
    noise, signal = float(((a - b) ** 2).sum()), float((a**2).sum())
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return OutputError(
        name,
        10 * float(np.log10(signal / noise)) if signal and noise else None,
        min(1.0, float(a @ b) / lengths) if lengths else None,
        float(np.abs(a - b).max()),
    )


def tensor_errors(
    found: Mapping[str, Mapping[str, float]], nodes: Mapping[str, str]
) -> tuple[TensorError, ...]:
    """Returns what the debugger has found with the nodes that make the tensors, the worst first."""
    errors = [
        TensorError(name, each.get("own"), each.get("all"), nodes.get(name, ""))
        for name, each in found.items()
    ]
    return tuple(
        sorted(errors, key=lambda each: (each.own if each.all is None else each.all) or 0.0)
    )
