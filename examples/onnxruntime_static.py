"""Quantizes a ResNet-50 to INT8 with onnxruntime. It knows nothing of OpenTelemetry.

Run it as ``otel-quant run -- python examples/onnxruntime_static.py``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, quantize_static
from resnet50 import write_resnet50


class RandomImages(CalibrationDataReader):
    """Gives random images of the model's input shape."""

    def __init__(self, count: int, size: int) -> None:
        random = np.random.default_rng(0)
        self._images = iter(
            [{"input": random.random((1, 3, size, size), dtype=np.float32)} for _ in range(count)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Returns the next image, None after the last."""
        return next(self._images, None)


def main() -> None:
    """Builds the float model, quantizes it and prints how much smaller it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=16, help="calibration images")
    methods = [method.name for method in CalibrationMethod]
    parser.add_argument("--method", choices=methods, default="MinMax", help="calibration method")
    parser.add_argument("--folder", type=Path, help="where the models go; a temporary one if unset")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        float_model = write_resnet50(folder / "resnet50.onnx")
        quantized_model = folder / "resnet50_int8.onnx"
        quantize_static(
            float_model,
            quantized_model,
            RandomImages(arguments.samples, 224),
            calibrate_method=CalibrationMethod[arguments.method],
        )
        before, after = float_model.stat().st_size, quantized_model.stat().st_size
        print(f"{before / 1e6:.1f} MB -> {after / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
