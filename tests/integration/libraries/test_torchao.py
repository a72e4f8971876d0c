"""torchao reports its steps, and transformers one step for all the layers it quantizes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

if not (find_spec("torchao") and find_spec("transformers")):  # to import them takes seconds
    pytest.skip("torchao or transformers is not installed", allow_module_level=True)

step = steps_by("torchao", "torchao.quantization.")

IN_PLACE = ("Model Quantization", "quant_api.quantize_")
PREPARE = ("Model Preparation", "pt2e.quantize_pt2e.prepare_pt2e")
LOAD = ("Model Quantization", "transformers.modeling_utils.PreTrainedModel.from_pretrained")


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("torchao_all.py")

    [root] = otlp.spans_named("quantization")
    int8 = {"quant.bits": 8, "quant.granularity": "row", "quant.weight.type": "int8"}
    language_model = {
        **int8,
        "quant.algorithms": ("torchao",),
        "quant.config.name": "TorchAoConfig(Int8WeightOnlyConfig)",
        "quant.input.path": "tiny",
        "quant.layer_count": 14,  # two layers of seven linear modules
    }
    activations = {"quant.activation.bits": 8, "quant.activation.type": "int8"}
    smooth = {
        **int8, **activations,
        "quant.config.name": "SmoothQuantConfig(Int8DynamicActivationInt8WeightConfig)",
    }  # fmt: skip
    in_groups = {
        **activations, "quant.bits": 4, "quant.block_size": 32,
        "quant.config.name": "QATConfig(Int8DynamicActivationIntxWeightConfig)",
        "quant.granularity": "group", "quant.symmetric": True, "quant.weight.type": "int4",
    }  # fmt: skip
    x86 = {
        "quant.activation.bits": 8, "quant.activation.type": "uint8", "quant.bits": 8,
        "quant.calibration.method": "HistogramObserver",
        "quant.config.name": "X86InductorQuantizer", "quant.granularity": "channel",
        "quant.symmetric": True, "quant.weight.type": "int8",
    }  # fmt: skip

    def passes(known: dict[str, Any], count: int) -> Any:
        counts = {
            "quant.calibration.item_count": 2 * count,
            "quant.calibration.sample_count": count,
        }
        return step(("Calibration", ""), {**known, **counts})

    steps = {
        "in_place": [step(IN_PLACE, {**int8, "quant.config.name": "Int8WeightOnlyConfig"})],
        "static_in_place": [
            step(("Model Preparation", "quant_api.quantize_"), smooth),
            passes(smooth, 3),
            step(IN_PLACE, smooth),
        ],
        "in_groups": [step(IN_PLACE, in_groups), step(IN_PLACE, in_groups)],
        "pt2e": [
            step(PREPARE, x86),
            passes(x86, 1),
            step(("Model Quantization", "pt2e.quantize_pt2e.convert_pt2e"), x86),
        ],
        "language_model": [steps_by("transformers")(LOAD, language_model)],
        "not_quantized": [],
        "failing": [step(IN_PLACE, {"error.type": "AssertionError"})],
    }
    assert steps_below(otlp, root) == [(way, {}, within) for way, within in steps.items()]
