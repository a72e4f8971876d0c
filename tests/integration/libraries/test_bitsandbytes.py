"""bitsandbytes reports a step for each model that it quantizes on its way to a device, and for a weight alone."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("bitsandbytes")

MOVED4 = ("Model Quantization", "bitsandbytes.nn.modules.Params4bit._quantize")
MOVED8 = ("Model Quantization", "bitsandbytes.nn.modules.Int8Params._quantize")
QUANTIZE = ("Model Quantization", "bitsandbytes.functional.quantize_4bit")
LOAD = ("Model Quantization", "transformers.modeling_utils.PreTrainedModel.from_pretrained")
GROUP = {semconv.BLOCK_SIZE: 64, semconv.GRANULARITY: "group"}
NF4 = {semconv.BITS: 4, semconv.WEIGHT_TYPE: "nf4"}
FP4 = {semconv.BITS: 4, semconv.WEIGHT_TYPE: "fp4"}
INT8 = {semconv.BITS: 8, semconv.WEIGHT_TYPE: "int8"}
NF3 = {semconv.BITS: 3, semconv.WEIGHT_TYPE: "nf3"}


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("bitsandbytes_all.py")

    [root] = otlp.spans_named("quantization")
    program.check_written(root, uncompared={"failing"})
    step, loading = steps_by("bitsandbytes"), steps_by("transformers")
    two, loaded = {semconv.LAYER_COUNT: 2, semconv.LAYER_TOTAL: 2}, {
        semconv.CONFIG_NAME: "BitsAndBytesConfig",
        semconv.INPUT_PATH: "tiny",
        semconv.LAYER_COUNT: 14,  # two layers of seven linear modules
        semconv.LAYER_TOTAL: 14,
    }  # fmt: skip
    failed = {semconv.LAYER_COUNT: 1, semconv.LAYER_TOTAL: 2, "error.type": "ValueError"}
    of_both = {
        semconv.WEIGHT_TYPE: "nf4, int8", semconv.PARTS_BITS: (4, 8), semconv.PARTS_BLOCK_SIZE: (64,),
    }  # fmt: skip
    steps = {
        "four_bits": [step(MOVED4, {**NF4, **GROUP, **two})],
        "eight_bits": [step(MOVED8, {**INT8, **two})],
        "several": [step(MOVED4, {**two, **of_both})],
        "one_weight": [
            step(QUANTIZE, {**FP4, **GROUP, semconv.BLOCK_SIZE: 128, semconv.LAYER_COUNT: 1})
        ],
        "loaded_in_4_bits": [loading(LOAD, {**NF4, **loaded})],
        "loaded_in_8_bits": [loading(LOAD, {**INT8, **loaded})],
        "nothing": [],
        "failing": [step(MOVED4, {**NF3, **GROUP, **failed})],
    }
    assert steps_below(otlp, root) == [(way, {}, within) for way, within in steps.items()]
