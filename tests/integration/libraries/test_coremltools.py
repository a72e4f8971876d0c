"""Core ML Tools reports a step for each compression, with what the model then has."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("coremltools")


def test_weights_are_quantized_in_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("coremltools_all.py")

    [root] = otlp.spans_named("quantization")
    program.check_written(root)
    step, name = steps_by("coremltools", "coremltools.optimize."), "Model Quantization"
    of_model = "coreml._post_training_quantization."
    blocks = {
        semconv.BITS: 4, semconv.BLOCK_SIZE: 32, semconv.GRANULARITY: "block", semconv.SYMMETRIC: True,
    }  # fmt: skip
    config = {semconv.CONFIG_NAME: "OptimizationConfig"}
    table = {semconv.GRANULARITY: "tensor"}
    of_torch = {
        **blocks,
        semconv.WEIGHT_TYPE: "int4",
        semconv.CONFIG_NAME: "PostTrainingQuantizerConfig",
    }
    palette = {**table, semconv.BITS: 2, semconv.CONFIG_NAME: "PostTrainingPalettizerConfig"}
    module = "torch.palettization.post_training_palettization.PostTrainingPalettizer.compress"
    assert steps_below(otlp, root) == [
        ("linear", {}, [step((name, of_model + "linear_quantize_weights"), {**blocks, **config})]),
        (
            "palettized",
            {},
            [step((name, of_model + "palettize_weights"), {**table, **config, semconv.BITS: 4})],
        ),
        (
            "a table for 16 channels",
            {},
            [
                step(
                    (name, of_model + "palettize_weights"),
                    {**config, semconv.GRANULARITY: "grouped_channel", semconv.BITS: 4},
                )
            ],
        ),
        (
            "torch",
            {},
            [
                step(
                    (
                        name,
                        "torch.quantization.post_training_quantization.PostTrainingQuantizer.compress",
                    ),
                    of_torch,
                )
            ],
        ),
        ("torch palettized", {}, [step((name, module), palette)]),
    ]
