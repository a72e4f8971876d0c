"""The error of each tensor, by onnxruntime's own debugger of quantized models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class _Once:
    """A reader of calibration data that has one sample."""

    def __init__(self, feeds: Mapping[str, Any]) -> None:
        self._left = [dict(feeds)]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._left)


def layer_errors(
    first: str, quantized: str, feeds: Mapping[str, Any], folder: Path
) -> dict[str, dict[str, float]]:
    """Returns SQNR in dB by the name of the tensor: of its own quantization, and of all before it."""
    import numpy as np
    from onnxruntime.quantization import qdq_loss_debug as debug

    made = []
    for i, path in enumerate((first, quantized)):
        with_outputs = folder / f"outputs{i}.onnx"
        debug.modify_model_output_intermediate_tensors(
            path, with_outputs, save_as_external_data=True
        )
        made.append(debug.collect_activations(str(with_outputs), _Once(feeds)))
    matched = debug.create_activation_matching(made[1], made[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = debug.compute_activation_error(matched)
    return {
        name: {
            "own": float(found["qdq_err"]),
            **({"all": float(found["xmodel_err"])} if "xmodel_err" in found else {}),
        }
        for name, found in errors.items()
    }
