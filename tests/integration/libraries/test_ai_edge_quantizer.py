"""AI Edge Quantizer reports calibration, quantization and validation, described by the recipe."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program, each

pytest.importorskip("ai_edge_quantizer")

SAMPLES = {
    semconv.CALIBRATION_SAMPLE_COUNT: 3,
    semconv.CALIBRATION_SAMPLE_TOTAL: 3,
    semconv.CALIBRATION_ITEM_COUNT: 3,
}
STATIC = {
    semconv.BITS: 8, semconv.WEIGHT_TYPE: "int8", semconv.ACTIVATION_BITS: 8,
    semconv.ACTIVATION_TYPE: "int8", semconv.GRANULARITY: "channel", semconv.SYMMETRIC: True,
    semconv.INPUT_PATH: "float.tflite",
}  # fmt: skip
ALONE = {
    semconv.BITS: 4, semconv.WEIGHT_TYPE: "int4", semconv.GRANULARITY: "block",
    semconv.BLOCK_SIZE: 32, semconv.SYMMETRIC: True, semconv.INPUT_PATH: "float.tflite",
    semconv.OUTPUT_PATH: "alone.tflite",
}  # fmt: skip


def test_a_recipe_describes_the_steps_and_only_what_needs_samples_is_calibrated(
    program: Program, otlp: OtlpReceiver
) -> None:
    program("ai_edge_quantizer_all.py")

    [root] = otlp.spans_named("quantization")
    program.check_written(root)
    step = steps_by("ai-edge-quantizer", "ai_edge_quantizer.")
    calibrate = ("Calibration", "quantizer.Quantizer.calibrate")
    quantize = ("Model Quantization", "quantizer.Quantizer.quantize")
    validate = ("Model Evaluation", "quantizer.Quantizer.validate")
    to_file = {semconv.OUTPUT_PATH: "static.tflite"}
    static = [
        step(calibrate, {**STATIC, **SAMPLES}), step(quantize, {**STATIC, **to_file}), step(validate, STATIC),
    ]  # fmt: skip
    ways = [("static", {}, static), ("weights alone", {}, [step(quantize, ALONE)])]
    assert steps_below(otlp, root) == ways
    assert program.progress() == each("Calibration", "sample", 3)
