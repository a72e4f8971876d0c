"""How far the outputs of a model are off from the first one's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from otel_quant.inference.results import Accuracy, OutputError, TensorError

Saved: TypeAlias = Path | BinaryIO
"""A file that the process of a model has saved."""


def compared(first: tuple[Sequence[str], Saved], other: tuple[Sequence[str], Saved]) -> Accuracy:
    """Compares outputs, by their places if no name is the same.

    Args:
        first: Names of the outputs of the first model, and their file.
        other: Those of another.
    """
    import numpy as np

    with np.load(first[1]) as expected, np.load(other[1]) as actual:
        return compared_arrays(_named(first[0], expected), _named(other[0], actual))


def _named(names: Sequence[str], arrays: Any) -> Mapping[str, Any]:
    return {name: arrays.get(f"a{i}") for i, name in enumerate(names)}


def compared_arrays(first: Mapping[str, Any], other: Mapping[str, Any]) -> Accuracy:
    """Compares outputs, by their places if no name is the same.

    Args:
        first: Arrays of the first model by name; None for what is no array of numbers.
        other: Those of another.
    """
    import numpy as np

    found: list[OutputError] = []
    problem = ""
    by_name = any(name in first for name in other)
    by_place = dict(zip(other, first.values(), strict=False))
    for name, b in other.items():
        a = first.get(name) if by_name else by_place.get(name)
        if a is None or b is None:
            problem = problem or f"the first model has no output {name!r} of numbers"
        elif a.shape != b.shape:
            problem = f"output {name!r} is {list(b.shape)}, the first model's {list(a.shape)}"
        else:
            found.append(_error(name, a, b, np))
    return Accuracy(tuple(found), (), problem)


def _error(name: str, expected: Any, actual: Any, np: Any) -> OutputError:
    a, b = expected.astype(np.float64).ravel(), actual.astype(np.float64).ravel()
    if not a.size or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return OutputError(name, None, None, None)
    noise, signal = float(((a - b) ** 2).sum()), float((a**2).sum())
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return OutputError(
        name,
        10 * float(np.log10(signal / noise)) if signal and noise else None,
        min(1.0, float(a @ b) / lengths) if lengths else None,
        float(np.abs(a - b).max()),
    )


def tensor_errors(found: Mapping[str, Mapping[str, float]]) -> tuple[TensorError, ...]:
    """Returns what the debugger has found, the worst first."""
    errors = [TensorError(name, each.get("own"), each.get("all")) for name, each in found.items()]
    return tuple(sorted(errors, key=_decibels))


def _decibels(error: TensorError) -> float:
    known = error.own if error.all is None else error.all
    return 0.0 if known is None else known
