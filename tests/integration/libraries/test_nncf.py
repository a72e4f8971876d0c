"""NNCF reports its steps and counts the samples that it calibrates with, and layers."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program, each

pytest.importorskip("nncf")


def test_quantization_and_compression_report_their_steps(
    program: Program, otlp: OtlpReceiver
) -> None:
    program("nncf_all.py")

    [root] = otlp.spans_named("quantization")
    program.check_written(root, "Calibration")
    step = steps_by("nncf", "nncf.quantization.")
    quantize = ("Model Quantization", "quantize_model.quantize")
    compress = ("Model Quantization", "quantize_model.compress_weights")
    weights = {semconv.BITS: 8, semconv.WEIGHT_TYPE: "int8"}
    samples = {
        semconv.CALIBRATION_ITEM_COUNT: 3,
        semconv.CALIBRATION_SAMPLE_COUNT: 3,
        semconv.CALIBRATION_SAMPLE_TOTAL: 3,
    }
    layers = {semconv.LAYER_COUNT: 2, semconv.LAYER_TOTAL: 2}
    # What is known while it calibrates, of the activations alone
    before = {
        semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "int8", semconv.BACKEND: "ANY",
        semconv.CONFIG_NAME: "MIXED", semconv.CONFIG_SAMPLES: 3,
    }  # fmt: skip
    asked = {**before, **weights}
    collected = ("Calibration", "algorithms.pipeline.collect_statistics")
    calibration = step(collected, {**before, **samples})
    # What the written models have: two weights each.
    written = {semconv.WEIGHT_COUNT: 2, semconv.SYMMETRIC: True}
    mixed = {**asked, **written, semconv.GRANULARITY: "channel"}
    symmetric = {
        **weights, **written, semconv.CONFIG_NAME: "INT8_SYM", semconv.GRANULARITY: "channel",
    }  # fmt: skip
    int4 = {semconv.BITS: 4, semconv.WEIGHT_TYPE: "int4"}
    asked_by_data = {
        semconv.ALGORITHMS: ("scale_estimation",), semconv.CONFIG_NAME: "INT4_SYM", semconv.CONFIG_SAMPLES: 3,
    }  # fmt: skip
    by_data = {
        **int4, **asked_by_data, semconv.BLOCK_SIZE: 16, semconv.GRANULARITY: "group",
        semconv.SYMMETRIC: True,
    }  # fmt: skip
    collect = "algorithms.weight_compression.algorithm.WeightCompression._collect_statistics"
    assert steps_below(otlp, root) == [
        ("onnx", {}, [step(quantize, mixed, calibration)]),
        ("weights", {}, [step(compress, {**symmetric, **layers})]),
        (
            "weights by data",
            {},
            [
                step(
                    compress,
                    {**by_data, **layers, **written},
                    step(("Calibration", collect), {**asked_by_data, **samples}),
                )
            ],
        ),
    ]
    three, two = each("Calibration", "sample", 3), each("Model Quantization", "layer", 2)
    # Of the last one the scales are estimated first, and then the weights compressed.
    assert program.progress() == [*three, *two, *three, *two, *two]
