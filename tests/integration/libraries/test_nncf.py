"""NNCF reports its steps and counts the samples that it calibrates with."""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.integration.libraries.conftest import Program, steps_below

nncf = pytest.importorskip("nncf")


def test_quantization_and_compression_report_their_steps(
    program: Program, otlp: OtlpReceiver
) -> None:
    program("nncf_all.py")

    [root] = otlp.spans_named("quantization")
    common = {"quant.library.name": "nncf", "quant.library.version": nncf.__version__}
    module = "nncf.quantization."
    calibration = {
        **common,
        "code.function.name": module + "algorithms.pipeline.collect_statistics",
        "quant.calibration.item_count": 3,
        "quant.calibration.sample_count": 3,
    }
    quantization = {
        **common,
        "code.function.name": module + "quantize_model.quantize",
        "quant.config.name": "MIXED",
    }
    compression = {
        **common,
        "code.function.name": module + "quantize_model.compress_weights",
        "quant.config.name": "INT8_SYM",
    }
    assert steps_below(program, root) == [
        ("onnx", {}, [("Model Quantization", quantization, [("Calibration", calibration, [])])]),
        ("weights", {}, [("Model Quantization", compression, [])]),
    ]
