"""A quantization with AMD Quark that takes some seconds: the program that is measured.

Run by the other benchmarks, in processes of its own. It knows nothing of OpenTelemetry,
and prints the seconds that quantizing took, without the imports before it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))


def write_model(path: Path, name: str) -> int:
    """Writes `resnet50` or `small`, its blocks with half the width; returns the size of its input image."""
    from resnet50 import STAGES, write_resnet50

    if name == "resnet50":
        write_resnet50(path)
        return 224
    halved = [(blocks, width // 2) for blocks, width in STAGES]
    write_resnet50(path, size=96, width=32, stages=halved)
    return 96


def quantize(model: Path, target: Path, size: int, samples: int) -> float:
    """Quantizes a model to INT8; returns the seconds that it took."""
    import numpy as np
    from onnxruntime.quantization.calibrate import CalibrationDataReader
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    class Images(CalibrationDataReader):
        def __init__(self) -> None:
            random = np.random.default_rng(0)
            self._images = iter(
                [
                    {"input": random.random((1, 3, size, size), dtype=np.float32)}
                    for _ in range(samples)
                ]
            )

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._images, None)

    began = time.perf_counter()
    quantizer = ModelQuantizer(Config(global_quant_config=get_default_config("S8S8_AAWS")))
    quantizer.quantize_model(str(model), str(target), Images())
    return time.perf_counter() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("size", type=int)
    parser.add_argument("samples", type=int)
    given = parser.parse_args()
    print(f"quantized in {quantize(given.model, given.target, given.size, given.samples):.3f} s")
