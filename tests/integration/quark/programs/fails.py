"""A user's script whose calibration data has a second sample of the wrong shape.

Arguments: folder of the float models, folder for the output.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from onnxruntime.quantization.calibrate import CalibrationDataReader
from quark.onnx import quantize_static


class Reader(CalibrationDataReader):
    def __init__(self) -> None:
        self._feeds = iter([np.zeros((1, 3, 8, 8), np.float32), np.zeros((1, 5), np.float32)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        array = next(self._feeds, None)
        return None if array is None else {"x": array}


if __name__ == "__main__":
    quantize_static(
        str(Path(sys.argv[1]) / "conv.onnx"), str(Path(sys.argv[2]) / "never.onnx"), Reader()
    )
