"""bitsandbytes reports a step for each model that it quantizes on its way to a device, and for a weight alone."""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("bitsandbytes")

MOVED = ("Model Quantization", "")
QUANTIZE = ("Model Quantization", "bitsandbytes.functional.quantize_4bit")
LOAD = ("Model Quantization", "transformers.modeling_utils.PreTrainedModel.from_pretrained")
GROUP = {"quant.block_size": 64, "quant.granularity": "group"}
NF4 = {"quant.bits": 4, "quant.weight.type": "nf4"}
FP4 = {"quant.bits": 4, "quant.weight.type": "fp4"}
INT8 = {"quant.bits": 8, "quant.weight.type": "int8"}
NF3 = {"quant.bits": 3, "quant.weight.type": "nf3"}


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("bitsandbytes_all.py")

    [root] = otlp.spans_named("quantization")
    step, loading = steps_by("bitsandbytes"), steps_by("transformers")
    two, loaded = {"quant.layer_count": 2}, {
        "quant.algorithms": ("bitsandbytes",),
        "quant.config.name": "BitsAndBytesConfig",
        "quant.input.path": "tiny",
        "quant.layer_count": 14,  # two layers of seven linear modules
    }  # fmt: skip
    failed = {"quant.layer_count": 1, "error.type": "ValueError"}
    steps = {
        "four_bits": [step(MOVED, {**NF4, **GROUP, **two})],
        "eight_bits": [step(MOVED, {**INT8, **two})],
        "one_weight": [step(QUANTIZE, {**FP4, **GROUP, "quant.block_size": 128})],
        "loaded_in_4_bits": [loading(LOAD, {**NF4, **loaded})],
        "loaded_in_8_bits": [loading(LOAD, {**INT8, **loaded})],
        "nothing": [],
        "failing": [step(MOVED, {**NF3, **GROUP, **failed})],
    }
    assert steps_below(otlp, root) == [(way, {}, within) for way, within in steps.items()]
