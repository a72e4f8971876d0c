"""Makes of paths and the user's shapes what is measured."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from otel_quant.cost import CostError, InputSpec
from otel_quant.inference.file_graph import FileGraph, contents_of
from otel_quant.inference.measure import Measured
from otel_quant.inference.options import Subject

_MOST_SAVED: Final = 1 << 30
"""Bytes of weights from which the graph that onnxruntime makes is not written to disk."""

_EVENTS: Final = 100_000
"""Events of kernels in a profile, at most."""

_RUNS: Final = 40


class UnreadableError(Exception):
    """A model that cannot be read, or that does not have the inputs that were given."""


def measured_model(
    path: str, inputs: Mapping[str, InputSpec], dims: Mapping[str, int], data: str | None
) -> Measured:
    """Reads a model's file."""
    given = dict(inputs) if data is None else {**_shapes_in(data), **inputs}
    try:
        file = FileGraph(path, given, dims)
    except CostError as error:
        raise UnreadableError(str(error)) from error
    weights, nodes = contents_of(file)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, value in file.bound.values.items():
        if value.shape is None or None in value.shape:
            raise UnreadableError(
                f"{path}: the shape of input {name!r} is not known; expected --input {name}=1x3x8x8 or "
                "the like"
            )
        shapes[name] = tuple(length or 0 for length in value.shape)
    return Measured(
        Subject(
            path,
            shapes,
            {name: each.data for name, each in inputs.items() if each.data is not None},
            file.limits(),
            tuple(each.option for each in file.bound.assumed) if data is None else (),
            data,
            weights <= _MOST_SAVED,
            min(_RUNS, _EVENTS // max(1, nodes)),
        ),
        file,
    )


def _shapes_in(path: str) -> dict[str, InputSpec]:
    """Returns the shapes of a file's arrays; what does not fit a model is said when it is fed."""
    import numpy as np

    try:
        with np.load(os.fspath(path), allow_pickle=False) as file:
            return {name: InputSpec(file[name].shape, if_fits=True) for name in file.files}
    except (OSError, ValueError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or "is not a file of numpy.savez"
        raise UnreadableError(
            f"{path}: {reason}; expected arrays by the names of inputs"
        ) from error
