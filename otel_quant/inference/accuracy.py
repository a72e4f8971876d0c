"""How far the outputs of a model are off from the first one's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from otel_quant.inference.results import Accuracy, OutputError, TensorError

Saved: TypeAlias = Path | BinaryIO
"""A file that the process of a model has saved."""


def compared(first: tuple[Sequence[str], Saved], other: tuple[Sequence[str], Saved]) -> Accuracy:
    """Compares outputs, by their places if no name is the same."""
    import numpy as np

    with np.load(first[1]) as expected, np.load(other[1]) as actual:
        return compared_arrays(_named(first[0], expected), _named(other[0], actual))


def _named(names: Sequence[str], arrays: Any) -> Mapping[str, Any]:
    return {name: arrays.get(f"a{i}") for i, name in enumerate(names)}


def compared_arrays(first: Mapping[str, Any], other: Mapping[str, Any]) -> Accuracy:
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


def tensor_errors(found: Mapping[str, Mapping[str, float]]) -> tuple[TensorError, ...]:
    """Returns what the debugger has found, the worst first."""
    errors = [TensorError(name, each.get("own"), each.get("all")) for name, each in found.items()]
    return tuple(sorted(errors, key=_decibels))


def _decibels(error: TensorError) -> float:
    known = error.own if error.all is None else error.all
    return 0.0 if known is None else known
