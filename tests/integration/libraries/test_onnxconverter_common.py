"""Conversions to float16 are steps, whichever library has the function, and each is one."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("onnxconverter_common")

HALF = {semconv.BITS: 16, semconv.WEIGHT_TYPE: "float16"}


def test_every_conversion_to_float16_is_one_step(program: Program, otlp: OtlpReceiver) -> None:
    program("onnxconverter_common_all.py")

    [root] = otlp.spans_named("quantization")
    program.check_written(root)
    step, given = steps_by("onnxconverter-common"), {**HALF, semconv.INPUT_PATH: "float.onnx"}
    functions = {
        "in_memory": ("float16.convert_float_to_float16", HALF),
        "from_a_file": ("float16.convert_float_to_float16_model_path", given),
        "mixed": ("auto_mixed_precision.auto_convert_mixed_precision", HALF),
        "mixed_file": (
            "auto_mixed_precision_model_path.auto_convert_mixed_precision_model_path",
            {**given, semconv.OUTPUT_PATH: "./out.onnx"},
        ),
    }
    steps = {
        way: step(("Model Quantization", f"onnxconverter_common.{function}"), known)
        for way, (function, known) in functions.items()
    }
    function = "onnxruntime.transformers.float16.convert_float_to_float16"
    steps["by_onnxruntime"] = steps_by("onnxruntime")(("Model Quantization", function), HALF)
    assert steps_below(otlp, root) == [(way, {}, [each]) for way, each in steps.items()]
