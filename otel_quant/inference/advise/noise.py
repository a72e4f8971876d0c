"""Which quantized result or weight the noise of a model's outputs comes from, in the process of the model.

The error that each part makes in a run is added to the model in floats again, with a sign of its own in each of 128
runs. Where the signs of two parts are told apart, what an output has of each is too: with fewer parts than runs
exactly, as far as noise adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

import numpy as np

from otel_quant.inference.advise.quantized_parts import AT, ERROR

_RUNS: Final = 128


def noise_of_parts(errors: Any, floats: Any, first: Any, feeds: Mapping[str, Any]) -> Any:
    """Returns the power of the noise of each part by that of the outputs' signal, and of what no part makes.

    The sessions are of the model with errors as outputs, of the one with errors as inputs, and of the float model.
    """
    names = [each.name for each in floats.get_inputs() if each.name.startswith(ERROR)]
    of = [name.removeprefix(ERROR).partition(AT)[0] for name in names]
    parts = {part: number for number, part in enumerate(dict.fromkeys(of))}
    made, expected = errors.run(names, feeds), first.run(None, feeds)

    def run(signs: Any) -> Any:
        given = zip(names, of, made, strict=True)  # with one number, a product is no array
        fed = {name: np.asarray(signs[parts[part]] * error) for name, part, error in given}
        found = zip(floats.run(None, {**feeds, **fed}), expected, strict=True)
        return np.concatenate([(a - b).ravel() / (np.linalg.norm(b) or 1) for a, b in found])

    signs = _signs(len(parts))
    without = run(0 * signs[0])
    runs = np.stack([run(row) - without for row in signs])
    power = ((signs.T @ runs / _RUNS) ** 2).sum(1)
    if len(parts) >= _RUNS:  # what the others leave is chance
        power = ((power - (runs**2).sum() / _RUNS**2) / (1 - 1 / _RUNS)).clip(min=0)
    noise = dict(zip(parts, power.tolist(), strict=True))
    return {"parts": noise, "rest": float((without**2).sum())}


def _signs(count: int) -> Any:
    """Returns a column of signs for each part, by chance or, where there are fewer than runs, at right angles."""
    random = np.random.default_rng(0)
    if count >= _RUNS:
        return random.choice([-1.0, 1.0], (_RUNS, count)).astype(np.float32)
    square = reduce(np.kron, [np.array([[1, 1], [1, -1]], np.float32)] * (_RUNS.bit_length() - 1))
    return square[:, 1 + random.permutation(_RUNS - 1)[:count]]
