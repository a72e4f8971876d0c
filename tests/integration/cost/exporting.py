"""A model's file with a set of inputs, and torch's exporters."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn


@dataclass(frozen=True)
class Case:
    """A model's file and one set of inputs for it."""

    path: Path
    feeds: dict[str, np.ndarray]
    given: dict[str, tuple[int, ...]] = field(default_factory=dict)


def export(
    module: nn.Module,
    inputs: Mapping[str, torch.Tensor],
    path: Path,
    *,
    dynamic: Mapping[str, Mapping[int, Any]] | None = None,
    dynamo: bool = False,
) -> Case:
    """Exports a network; ``dynamic`` has the name of each open length by input and axis, for dynamo also its `Dim`."""
    how: dict[str, Any] = {"dynamic_axes": dynamic, "opset_version": 17}
    if dynamo:
        unnamed = torch.export.Dim.DYNAMIC
        shapes = tuple(
            {axis: unnamed if isinstance(each, str) else each for axis, each in axes.items()}
            for axes in ((dynamic or {}).get(name, {}) for name in inputs)
        )
        how = {"external_data": False, "verbose": False}
        how["dynamic_shapes"] = shapes if dynamic else None
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), tuple(inputs.values()), str(path), input_names=list(inputs),
            dynamo=dynamo, **how,
        )  # fmt: skip
    feeds = {name: value.numpy() for name, value in inputs.items()}
    return Case(path, feeds, {name: feeds[name].shape for name in dynamic or {}})


def samples(*batches: dict[str, np.ndarray]) -> Any:
    """What onnxruntime's and Quark's quantizers read their calibration from."""
    from onnxruntime.quantization import CalibrationDataReader

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(batches)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._left, None)

    return Samples()
