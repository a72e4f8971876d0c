"""compressed-tensors alone: applying a configuration and compressing weights are steps."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("compressed_tensors")


def test_a_configuration_that_is_applied_is_a_step(program: Program, otlp: OtlpReceiver) -> None:
    program("compressed_tensors_all.py")

    [root] = otlp.spans_named("quantization")
    program.check_written(root)
    named = ("Model Preparation", "quantization.lifecycle.apply.apply_quantization_config")
    known = {
        semconv.BITS: 4, semconv.BLOCK_SIZE: 32, semconv.GRANULARITY: "group",
        semconv.SYMMETRIC: True, semconv.WEIGHT_TYPE: "int4", semconv.CONFIG_NAME: "QuantizationConfig",
    }  # fmt: skip
    step = steps_by("compressed-tensors", "compressed_tensors.")
    compressed = (
        "Freeze Model",
        "compressors.model_compressors.model_compressor.ModelCompressor.compress_model",
    )
    steps = [step(named, known), step(compressed, known)]
    assert steps_below(otlp, root) == [("applied", {}, steps)]
