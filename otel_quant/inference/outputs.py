"""Outputs of models as arrays of numpy, and how far they are off from the first model's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from otel_quant.inference.results import Accuracy, OutputError, TensorError

_NUMBERS: Final = frozenset("fiubc")
"""Kinds of types of numpy that are compared."""

Arrays: TypeAlias = Mapping[str, Any]
"""Arrays of numpy by the names of inputs or outputs; None for what is no array of numbers."""


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what mappings and sequences hold at any depth, each with the way to it."""
    held: Iterable[tuple[object, Any]]
    if isinstance(value, Mapping):
        held = value.items()
    elif isinstance(value, tuple | list):
        held = enumerate(value)
    else:
        yield name, value
        return
    for key, each in held:
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


def save_arrays(values: Sequence[Any], path: str) -> None:
    """Saves the arrays of numbers among outputs, each by its place: ``a0``, ``a1`` and so on."""
    import numpy as np

    kinds = [getattr(getattr(each, "dtype", None), "kind", "") for each in values]
    np.savez(path, **{f"a{i}": values[i] for i, kind in enumerate(kinds) if kind in _NUMBERS})


def saved_arrays(names: Sequence[str], path: Path) -> Arrays:
    """Returns the outputs that the process of a model has saved as ``a0``, ``a1`` and so on."""
    import numpy as np

    with np.load(path) as file:
        return {name: file.get(f"a{i}") for i, name in enumerate(names)}


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
        if misfit := _misfit(name, expected, actual):
            problems.append(misfit)
        elif actual.size:
            errors.append(_error(name, expected, actual))
            if errors[-1].max_abs is None:
                problems.append(f"output {name!r} has values that are not finite")
    return Accuracy(tuple(errors), (), next(iter(problems), ""))


def _misfit(name: str, expected: Any, actual: Any) -> str:
    """Returns why two outputs cannot be compared; empty if they can."""
    if expected is None or actual is None:
        return f"only one of the two has an output {name!r}"
    if expected.shape != actual.shape:
        return f"output {name!r} is {list(actual.shape)}, not {list(expected.shape)}"
    return ""


def _error(name: str, expected: Any, actual: Any) -> OutputError:
    """Returns how far an output is off; nothing is known if a value is not finite."""
    import numpy as np

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
    worst_first = sorted(
        found.items(), key=lambda item: item[1].get("all", item[1].get("own", 0.0))
    )
    return tuple(
        TensorError(name, each.get("own"), each.get("all"), nodes.get(name, ""))
        for name, each in worst_first
    )
