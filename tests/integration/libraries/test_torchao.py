"""torchao reports its steps, and transformers one step for all the layers it quantizes."""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("torchao")
pytest.importorskip("transformers")

step = steps_by("torchao", "torchao.quantization.")

IN_PLACE = ("Model Quantization", "quant_api.quantize_")
PREPARE = ("Model Preparation", "pt2e.quantize_pt2e.prepare_pt2e")
LOAD = ("Model Quantization", "transformers.modeling_utils.PreTrainedModel.from_pretrained")


def test_every_way_to_quantize_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("torchao_all.py")

    [root] = otlp.spans_named("quantization")
    language_model = {
        "quant.config.name": "TorchAoConfig",
        "quant.input.path": "tiny",
        "quant.layer_count": 14,  # two layers of seven linear modules
    }
    steps = {
        "in_place": [step(IN_PLACE, {"quant.config.name": "Int8WeightOnlyConfig"})],
        "pt2e": [
            step(PREPARE, {"quant.config.name": "X86InductorQuantizer"}),
            step(("Model Quantization", "pt2e.quantize_pt2e.convert_pt2e"), {}),
        ],
        "language_model": [steps_by("transformers")(LOAD, language_model)],
        "not_quantized": [],
        "failing": [step(IN_PLACE, {"error.type": "AssertionError"})],
    }
    assert steps_below(otlp, root) == [(way, {}, within) for way, within in steps.items()]
