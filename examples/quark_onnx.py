"""Quantizes a ResNet-50 to INT8 with AMD Quark. It knows nothing of OpenTelemetry.

Run it as ``opentelemetry-instrument python examples/quark_onnx.py``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from onnxruntime_static import RandomImages
from quark.onnx import ModelQuantizer
from quark.onnx.quantization.config import Config, get_default_config
from resnet50 import write_resnet50


def main() -> None:
    """Builds the float model, quantizes it and prints how much smaller it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8, help="calibration images")
    parser.add_argument("--config", default="XINT8", help="name of a Quark configuration")
    parser.add_argument("--folder", type=Path, help="where the models go; a temporary one if unset")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        float_model = write_resnet50(folder / "resnet50.onnx")
        quantized_model = folder / "resnet50_int8.onnx"

        config = Config(global_quant_config=get_default_config(arguments.config))
        quantizer = ModelQuantizer(config)
        quantizer.quantize_model(
            str(float_model), str(quantized_model), RandomImages(arguments.samples, 224)
        )

        # For `--data` of otel-quant: one that calibration has seen
        np.savez(folder / "image.npz", **(RandomImages(1, 224).get_next() or {}))
        before, after = float_model.stat().st_size, quantized_model.stat().st_size
        print(f"{before / 1e6:.1f} MB -> {after / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
