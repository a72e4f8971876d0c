"""NNCF reports its steps and counts the samples that it calibrates with, and layers."""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program, each

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
    samples = {
        "quant.calibration.item_count": 3,
        "quant.calibration.sample_count": 3,
        "quant.calibration.sample_total": 3,
    }
    layers = {"quant.layer_count": 2, "quant.layer_total": 2}
    calibration = step(
        ("Calibration", "algorithms.pipeline.collect_statistics"), {**types, **samples}
    )
    mixed = {
        **types, "quant.backend": "ANY", "quant.config.name": "MIXED", "quant.config.samples": 3,
    }  # fmt: skip
    symmetric = {
        **weights,
        "quant.config.name": "INT8_SYM",
        "quant.config.samples": 128,
        "quant.symmetric": True,
    }
    int4 = {"quant.bits": 4, "quant.weight.type": "int4"}
    grouped = {**int4, "quant.algorithms": ("scale_estimation",), "quant.symmetric": True}
    by_data = {
        **grouped, **layers, "quant.block_size": 16, "quant.config.name": "INT4_SYM",
        "quant.config.samples": 3, "quant.granularity": "group",
    }  # fmt: skip
    collect = "algorithms.weight_compression.algorithm.WeightCompression._collect_statistics"
    assert steps_below(otlp, root) == [
        ("onnx", {}, [step(quantize, mixed, calibration)]),
        ("weights", {}, [step(compress, {**symmetric, **layers})]),
        (
            "weights by data",
            {},
            [step(compress, by_data, step(("Calibration", collect), {**grouped, **samples}))],
        ),
    ]
    three, two = each("Calibration", "sample", 3), each("Model Quantization", "layer", 2)
    # Of the last one the scales are estimated first, and then the weights compressed.
    assert program.progress() == [*three, *two, *three, *two, *two]
