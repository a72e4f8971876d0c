"""A user's script: every way of quantizing an ONNX model with AMD Quark. Knows only Quark.

Arguments: folder of the float models, folder for the quantized ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import quick_import  # noqa: F401  # before Quark
from onnxruntime.quantization.calibrate import CalibrationDataReader
from quark.onnx import (
    AdaRoundConfig,
    CalibrationMethod,
    ExtendedQuantFormat,
    Int8Spec,
    ModelQuantizer,
    QConfig,
    QLayerConfig,
    QuantType,
    XInt8Spec,
    quantize_dynamic,
    quantize_static,
)
from quark.onnx.quantization.config import Config, get_default_config


class Reader(CalibrationDataReader):
    """Gives a model's input so many times, the same numbers in every process."""

    def __init__(self, model: Path, count: int) -> None:
        value = onnx.load(model).graph.input[0]
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        random = np.random.default_rng(0)
        self._feeds = iter(
            [{value.name: random.standard_normal(shape, dtype=np.float32)} for _ in range(count)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def main(models: Path, out: Path) -> None:
    conv, matmul = models / "conv.onnx", models / "matmul.onnx"

    # 1. The function, with everything spelt out.
    quantize_static(
        conv,
        out / "static.onnx",
        Reader(conv, 3),
        quant_format=ExtendedQuantFormat.QDQ,
        calibrate_method=CalibrationMethod.Percentile,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    # 2. Dynamic.
    quantize_dynamic(str(matmul), str(out / "dynamic.onnx"), weight_type=QuantType.QUInt8)
    # 3. A preset, and a model in memory in and out.
    preset = ModelQuantizer(Config(global_quant_config=get_default_config("XINT8")))
    quantized = preset.quantize_model(onnx.load(conv), None, Reader(conv, 4))
    onnx.save(quantized, out / "preset.onnx")
    # 4. A configuration with AdaRound.
    adaround = QConfig(
        global_config=QLayerConfig(activation=XInt8Spec(), weight=XInt8Spec()),
        algo_config=[AdaRoundConfig(num_iterations=5, batch_size=1, data_size=2)],
    )
    ModelQuantizer(adaround).quantize_model(str(conv), str(out / "adaround.onnx"), Reader(conv, 2))
    # 5. Weights only, 4 bits.
    nbits = QConfig(
        global_config=QLayerConfig(activation=Int8Spec(), weight=Int8Spec()),
        UseMatMulNBits=True,
        MatMulNBitsParams={"GroupSize": 32, "Symmetric": True, "Bits": 4, "AccuracyLevel": 1},
    )
    ModelQuantizer(nbits).quantize_model(str(matmul), str(out / "nbits.onnx"), Reader(matmul, 1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
