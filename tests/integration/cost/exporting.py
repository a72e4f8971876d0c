"""A model's file with a set of inputs, and torch's exporters."""

from __future__ import annotations

import warnings
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
    args: tuple[torch.Tensor, ...],
    path: Path,
    *,
    names: list[str],
    dynamic: dict[str, dict[int, str]] | None = None,
    dynamo: bool = False,
    opset: int = 17,
) -> Case:
    module.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if dynamo:
            shapes = None
            if dynamic:
                shapes = tuple(
                    dict.fromkeys(dynamic.get(name, {}), torch.export.Dim.DYNAMIC) for name in names
                )
            torch.onnx.export(
                module,
                args,
                str(path),
                input_names=names,
                dynamic_shapes=shapes,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        else:
            torch.onnx.export(
                module,
                args,
                str(path),
                input_names=names,
                dynamic_axes=dynamic,
                dynamo=False,
                opset_version=opset,
            )
    feeds = {name: value.numpy() for name, value in zip(names, args, strict=True)}
    given = {name: feeds[name].shape for name in (dynamic or {})}
    return Case(path, feeds, given)


def samples(*batches: dict[str, np.ndarray]) -> Any:
    """What onnxruntime's and Quark's quantizers read their calibration from."""
    from onnxruntime.quantization import CalibrationDataReader

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(batches)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._left, None)

    return Samples()
