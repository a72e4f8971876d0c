"""A real quantization with AMD Quark, small and quick; it knows nothing of OpenTelemetry.

    opentelemetry-instrument python quark_run.py {good,failed,killed} [--model narrow|wide]
        [--preset XINT8]

`failed` gives the calibration an image of the wrong size, `killed` so many that there is
time to kill it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.calibrate import CalibrationDataReader
from quark.onnx import ModelQuantizer
from quark.onnx.quantization.config import Config, get_default_config

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


def write_model(path: Path, channels: int) -> None:
    """Writes three convolutions and a classifier."""
    random = np.random.default_rng(0)
    nodes, weights, last, width = [], [], "input", 3
    for index in range(3):
        weights.append(
            numpy_helper.from_array(
                random.standard_normal((channels, width, 3, 3)).astype(np.float32), f"w{index}"
            )
        )
        nodes.append(
            helper.make_node(
                "Conv", [last, f"w{index}"], [f"c{index}"], f"conv{index}", pads=[1] * 4
            )
        )
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"], f"relu{index}"))
        last, width = f"r{index}", channels
    weights.append(
        numpy_helper.from_array(random.standard_normal((channels, 10)).astype(np.float32), "w")
    )
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["p"], "pool"))
    nodes.append(helper.make_node("Flatten", ["p"], ["f"], "flatten"))
    nodes.append(helper.make_node("MatMul", ["f", "w"], ["output"], "classify"))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 10])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)


def main() -> None:
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
