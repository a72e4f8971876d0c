"""CTranslate2 reports a conversion that quantizes."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("ctranslate2")


def test_a_conversion_that_quantizes_is_a_step(program: Program, otlp: OtlpReceiver) -> None:
    # What the written model computes in, and that it is smaller than the one in float.
    assert program("ctranslate2_all.py").splitlines()[-1] == "int8_float32 True"

    [root] = otlp.spans_named("quantization")
    program.check_written(root)
    known = {semconv.BITS: 8, semconv.WEIGHT_TYPE: "int8", semconv.OUTPUT_PATH: "int8"}
    named = ("Model Quantization", "ctranslate2.converters.converter.Converter.convert")
    step = steps_by("ctranslate2")
    assert steps_below(otlp, root) == [
        ("int8", {}, [step(named, known)]),
        ("not quantized", {}, []),
    ]
