"""A real quantization with AMD Quark, small and quick; it knows nothing of OpenTelemetry.

    opentelemetry-instrument python quark_run.py {good,failed,killed} [--model narrow|wide]
        [--preset XINT8]

`failed` gives the calibration an image of the wrong size, `killed` so many that there is
time to kill it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx.parser
from onnx import numpy_helper
from onnxruntime.quantization.calibrate import CalibrationDataReader

SIZE = 16
CHANNELS = {"narrow": 8, "wide": 32}


class Images(CalibrationDataReader):
    """Gives random images."""

    def __init__(self, count: int, spoiled: int | None = None) -> None:
        self._count = count
        self._spoiled = spoiled
        self._given = 0

    def get_next(self) -> dict[str, np.ndarray] | None:
        if self._given == self._count:
            return None
        self._given += 1
        random = np.random.default_rng(self._given)
        channels = 1 if self._given == self._spoiled else 3
        return {"input": random.random((1, channels, SIZE, SIZE), dtype=np.float32)}


MODEL = """
    <ir_version: 8, opset_import: ["" : 17]>
    small (float[1, 3, 16, 16] input) => (float[1, 10] output) {
      [conv0] c0 = Conv <pads = [1, 1, 1, 1]> (input, w0)
      [relu0] r0 = Relu (c0)
      [conv1] c1 = Conv <pads = [1, 1, 1, 1]> (r0, w1)
      [relu1] r1 = Relu (c1)
      [conv2] c2 = Conv <pads = [1, 1, 1, 1]> (r1, w2)
      [relu2] r2 = Relu (c2)
      [pool] p = GlobalAveragePool (r2)
      [flatten] f = Flatten (p)
      [classify] output = MatMul (f, w)
    }
"""
"""Three convolutions and a classifier."""


def write_model(path: Path, channels: int) -> None:
    """Writes the model with random weights."""
    random = np.random.default_rng(0)
    shapes = {"w0": (channels, 3, 3, 3), "w": (channels, 10)}
    shapes |= dict.fromkeys(("w1", "w2"), (channels, channels, 3, 3))
    model = onnx.parser.parse_model(MODEL)
    for name, shape in shapes.items():
        weights = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    onnx.save(model, path)


def main() -> None:
    sys.modules["torchao"] = None  # type: ignore[assignment]  # Quark loads it: 2 s of CPU time
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    parser = argparse.ArgumentParser()
    parser.add_argument("outcome", choices=["good", "failed", "killed"])
    parser.add_argument("--model", choices=sorted(CHANNELS), default="narrow")
    parser.add_argument("--preset", default="XINT8")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / f"{arguments.model}.onnx"
        write_model(plain, CHANNELS[arguments.model])
        quantizer = ModelQuantizer(Config(global_quant_config=get_default_config(arguments.preset)))
        quantizer.quantize_model(
            str(plain),
            str(Path(folder) / f"{arguments.model}_int8.onnx"),
            Images(
                20_000 if arguments.outcome == "killed" else 8,
                spoiled=3 if arguments.outcome == "failed" else None,
            ),
        )


if __name__ == "__main__":
    main()
