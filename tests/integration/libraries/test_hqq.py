"""HQQ is one step, which counts the layers that it quantizes."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("hqq")


def test_layers_are_counted_but_are_not_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("hqq_all.py")

    [root] = otlp.spans_named("quantization")
    program.check_written(root)
    quantize = ("Model Quantization", "hqq.models.base.BaseHQQModel.quantize_model")
    known = {
        semconv.BITS: 4,
        semconv.BLOCK_SIZE: 64,
        semconv.GRANULARITY: "group",
        semconv.LAYER_COUNT: 14,  # 2 x 7 modules
        semconv.LAYER_TOTAL: 14,
    }
    some = {
        **known, semconv.BITS: 8, semconv.BLOCK_SIZE: 32, semconv.LAYER_COUNT: 2, semconv.LAYER_TOTAL: 2,
    }  # fmt: skip
    several = {
        semconv.GRANULARITY: "group", semconv.PARTS_BITS: (2, 4), semconv.PARTS_BLOCK_SIZE: (16, 32),
        semconv.LAYER_COUNT: 2,
    }  # fmt: skip
    step = steps_by("hqq")
    assert steps_below(otlp, root) == [
        ("language model", {}, [step(quantize, known)]),
        ("one kind of layer", {}, [step(quantize, some)]),
        (
            "by hand",
            {},
            [step(("Model Quantization", "hqq.core.quantize.HQQLinear.quantize"), several)],
        ),
    ]
