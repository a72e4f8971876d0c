"""NNCF reports its steps and counts the samples that it calibrates with."""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("nncf")


def test_quantization_and_compression_report_their_steps(
    program: Program, otlp: OtlpReceiver
) -> None:
    program("nncf_all.py")

    [root] = otlp.spans_named("quantization")
    step = steps_by("nncf", "nncf.quantization.")
    quantize = ("Model Quantization", "quantize_model.quantize")
    compress = ("Model Quantization", "quantize_model.compress_weights")
    weights = {"quant.bits": 8, "quant.weight.type": "int8"}
    types = {**weights, "quant.activation.bits": 8, "quant.activation.type": "int8"}
    samples = {"quant.calibration.item_count": 3, "quant.calibration.sample_count": 3}
    calibration = step(
        ("Calibration", "algorithms.pipeline.collect_statistics"), {**types, **samples}
    )
    mixed = {
        **types,
        "quant.backend": "ANY",
        "quant.config.name": "MIXED",
        "quant.config.samples": 3,
    }
    symmetric = {
        **weights,
        "quant.config.name": "INT8_SYM",
        "quant.config.samples": 128,
        "quant.symmetric": True,
    }
    assert steps_below(otlp, root) == [
        ("onnx", {}, [step(quantize, mixed, calibration)]),
        ("weights", {}, [step(compress, symmetric)]),
    ]
