"""A user's script: quantizes an ONNX model with one calibration method of AMD Quark. Knows only Quark.

Arguments: the float model, the method, the quantized model.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization.calibrate import CalibrationDataReader, CalibrationMethod
from quark.onnx import PowerOfTwoMethod, QuantType, quantize_static
from quark.onnx.calibration import LayerWiseMethod

METHODS = {
    method.name: method
    for method in (
        CalibrationMethod.MinMax,
        CalibrationMethod.Percentile,
        CalibrationMethod.Entropy,
        PowerOfTwoMethod.MinMSE,
        LayerWiseMethod.LayerWisePercentile,
    )
}


class Reader(CalibrationDataReader):
    """Gives a model's input four times."""

    def __init__(self, model: Path) -> None:
        value = onnx.load(model).graph.input[0]
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        random = np.random.default_rng(0)
        self._feeds = iter(
            [{value.name: random.standard_normal(shape, dtype=np.float32)} for _ in range(4)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def main(model: Path, method: str, out: Path) -> None:
    quantize_static(
        model,
        out,
        Reader(model),
        calibrate_method=METHODS[method],
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
