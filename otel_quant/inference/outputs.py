"""How far outputs of a model are off from the first model's."""

from __future__ import annotations

from typing import Any, Final

from otel_quant.inference.arrays import Arrays
from otel_quant.inference.results import Accuracy, OutputError

PROBABILITIES: Final = frozenset({"Sigmoid", "Softmax"})
"""Operators whose results are probabilities."""


def compared_outputs(first: Arrays, other: Arrays) -> Accuracy:
    """Compares outputs, by their places if no name is the same."""
    if first.keys().isdisjoint(other):
        names = [*other, *list(first)[len(other) :]]
        first = dict(zip(names, first.values(), strict=False))
    problems = [] if first and other else ["one of the two returns no tensors"]
    errors: list[OutputError] = []
    for name in dict.fromkeys([*other, *first]):
        expected: Any = first.get(name)
        actual: Any = other.get(name)
        if expected is None or actual is None:
            problems.append(f"only one of the two has an output {name!r}")
        elif expected.shape != actual.shape:
            problems.append(f"output {name!r} is {list(actual.shape)}, not {list(expected.shape)}")
        elif actual.size:
            errors.append(_error(name, expected, actual))
            if errors[-1].max_abs is None:
                problems.append(f"output {name!r} has values that are not finite")
    return Accuracy(tuple(errors), (), next(iter(problems), ""))


def _error(name: str, expected: Any, actual: Any) -> OutputError:
    """Returns how far an output is off; nothing is known if a value is not finite."""
    import numpy as np

    is_complex = np.iscomplexobj(expected) or np.iscomplexobj(actual)
    kind = np.complex128 if is_complex else np.float64
    a, b = (each.astype(kind).ravel().view(np.float64) for each in (expected, actual))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return OutputError(name, None, None, None)
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    cosine = min(1.0, float(a @ b) / lengths) if lengths else None
    return OutputError(name, sqnr(a, b), cosine, float(np.abs(a - b).max()))


def sqnr(expected: Any, actual: Any) -> float | None:
    """Returns signal to noise of arrays of numbers in dB; None where they are equal or there is no signal."""
    import numpy as np

    a, b = expected.astype(np.float64), actual.astype(np.float64)
    noise, signal = float(((a - b) ** 2).sum()), float((a**2).sum())
    return 10 * float(np.log10(signal / noise)) if signal and noise else None
