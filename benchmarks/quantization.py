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


def write_model(path: Path) -> None:
    """Writes a ResNet with the blocks of ResNet-50 and half its width."""
    from resnet50 import STAGES, write_resnet50

    write_resnet50(
        path, size=96, width=32, stages=[(blocks, width // 2) for blocks, width in STAGES]
    )


def quantize(model: Path, target: Path, samples: int) -> float:
    """Quantizes a model to INT8.

    Returns:
        Seconds that it took.
    """
    import numpy as np
    from onnxruntime.quantization.calibrate import CalibrationDataReader
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    class Images(CalibrationDataReader):
        def __init__(self) -> None:
            random = np.random.default_rng(0)
            self._images = iter(
                [{"input": random.random((1, 3, 96, 96), dtype=np.float32)} for _ in range(samples)]
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
    parser.add_argument("--samples", type=int, default=16)
    arguments = parser.parse_args()
    print(f"quantized in {quantize(arguments.model, arguments.target, arguments.samples):.3f} s")
