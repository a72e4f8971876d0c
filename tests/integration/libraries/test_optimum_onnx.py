"""optimum-onnx drives onnxruntime's steps, which carry what it was asked for."""

from __future__ import annotations

import importlib.metadata

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.integration.libraries.conftest import Program, steps_below

pytest.importorskip("optimum.onnxruntime")

MODULE = "onnxruntime.quantization."


def test_steps_are_from_onnxruntime_and_arguments_from_optimum(
    program: Program, otlp: OtlpReceiver
) -> None:
    program("optimum_onnx_all.py")

    [root] = otlp.spans_named("quantization")
    common = {
        "quant.input.path": "float.onnx",
        "quant.library.name": "onnxruntime",
        "quant.library.version": importlib.metadata.version("onnxruntime"),
    }
    calibration = {
        **common,
        "code.function.name": MODULE + "calibrate.HistogramCalibrater.collect_data",
        "quant.calibration.method": "Percentile",
        "quant.calibration.sample_count": 5,
    }
    static = {
        **common,
        "quant.activation.type": "QUInt8",
        "quant.format": "QDQ",
        "quant.per_channel": False,
        "quant.weight.type": "QInt8",
    }
    dynamic = {
        **common,
        "quant.activation.type": "QUInt8",
        "quant.format": "QOperator",
        "quant.per_channel": True,
        "quant.weight.type": "QUInt8",
    }
    save = MODULE + "onnx_model.ONNXModel.save_model_to_file"
    reported = steps_below(program, root)
    assert [entry for entry in reported if entry[0] != "model cost"] == [
        (
            "static",
            {},
            [
                ("Calibration", calibration, []),
                (
                    "Quantization (Static)",
                    {
                        **static,
                        "code.function.name": MODULE + "qdq_quantizer.QDQQuantizer.quantize_model",
                    },
                    [],
                ),
                (
                    "Post-process",
                    {
                        **static,
                        "code.function.name": save,
                        "quant.output.path": "static/float_quantized.onnx",
                    },
                    [],
                ),
            ],
        ),
        (
            "dynamic",
            {},
            [
                (
                    "Quantization (Dynamic)",
                    {
                        **dynamic,
                        "code.function.name": (
                            MODULE + "onnx_quantizer.ONNXQuantizer.quantize_model"
                        ),
                    },
                    [],
                ),
                (
                    "Post-process",
                    {
                        **dynamic,
                        "code.function.name": save,
                        "quant.output.path": "dynamic/float.onnx",
                    },
                    [],
                ),
            ],
        ),
    ]
    assert [entry[1] for entry in reported if entry[0] == "model cost"] == [
        "float.onnx", "static/float_quantized.onnx", "float.onnx", "dynamic/float.onnx"
    ]  # fmt: skip
    # What ``fit`` has seen is known to ``quantize``, which is another call.
    for span in otlp.spans_named("model cost"):
        role = span.attributes["quant.model.role"]
        assert span.attributes[f"quant.model.{role}.input_shapes"] == ("x=1x64",)
