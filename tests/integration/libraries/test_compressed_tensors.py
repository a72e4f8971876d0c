"""compressed-tensors alone: a configuration that is applied is a step."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("compressed_tensors")


def test_a_configuration_that_is_applied_is_a_step(program: Program, otlp: OtlpReceiver) -> None:
    bits, group, symmetric, *scales = program("compressed_tensors_all.py").split()
    assert scales == ["64", "2"]  # two groups of 32 in each of 64 rows

    [root] = otlp.spans_named("quantization")
    named = ("Model Preparation", "quantization.lifecycle.apply.apply_quantization_config")
    known = {
        semconv.BITS: int(bits), semconv.BLOCK_SIZE: int(group), semconv.GRANULARITY: "group",
        semconv.SYMMETRIC: symmetric == "True", semconv.WEIGHT_TYPE: "int4", semconv.CONFIG_NAME: "QuantizationConfig",
    }  # fmt: skip
    step = steps_by("compressed-tensors", "compressed_tensors.")
    assert steps_below(otlp, root) == [("applied", {}, [step(named, known)])]
