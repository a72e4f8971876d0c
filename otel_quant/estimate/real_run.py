"""A real quantization with random inputs: the program of a probe, in a process of its own.

Reads a request as JSON from standard input, and writes the largest resident memory of its process
to standard output; what the library prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run(request: dict[str, Any]) -> int:
    """Quantizes a model."""
    import numpy as np
    from onnxruntime.quantization import QuantFormat, QuantType
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    quantize, method = _found(request["library"], request["method"])

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = request["samples"]
            self._random = np.random.default_rng(0)

        def __len__(self) -> int:
            return int(request["samples"])

        def get_next(self) -> dict[str, Any] | None:
            if not self._left:
                return None
            self._left -= 1
            return {name: self._values(dtype, shape) for name, dtype, shape in request["inputs"]}

        def _values(self, dtype: str, shape: list[int]) -> Any:
            if dtype.startswith("float"):
                return (self._random.random(shape, dtype=np.float32) - 0.5).astype(dtype)
            return np.ones(shape, dtype)  # a token, and a mask that leaves something

    with tempfile.TemporaryDirectory() as folder:
        quantize(
            request["model"],
            str(Path(folder) / "quantized.onnx"),
            Samples(),
            calibrate_method=method,
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
        )
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/self/status has no VmHWM; a probe needs Linux")


def _found(library: str, name: str) -> tuple[Callable[..., None], Any]:
    """Returns a library's function, and the member of an enumeration that names the method."""
    from onnxruntime.quantization import CalibrationMethod, quantize_static

    if library == "onnxruntime":
        return quantize_static, CalibrationMethod[name]
    from quark.onnx import quantize_static as quantize_with_quark
    from quark.onnx.calibration.methods import LayerWiseMethod, PowerOfTwoMethod

    kinds = (CalibrationMethod, PowerOfTwoMethod, LayerWiseMethod)
    return quantize_with_quark, next(kind[name] for kind in kinds if name in kind.__members__)


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)
    peak = run(json.load(sys.stdin))
    os.write(answer, f"{peak}\n".encode())
