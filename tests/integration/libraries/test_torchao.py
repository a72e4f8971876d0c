"""torchao reports its steps, and transformers one step for all the layers it quantizes."""

from __future__ import annotations

import importlib.metadata

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.integration.libraries.conftest import Program

pytest.importorskip("torchao")
pytest.importorskip("transformers")

IN_PLACE = "torchao.quantization.quant_api.quantize_"
PT2E = "torchao.quantization.pt2e.quantize_pt2e."
LOAD = "transformers.modeling_utils.PreTrainedModel.from_pretrained"

STEPS = {
    "in_place": [
        ("Model Quantization", "torchao", IN_PLACE, {"quant.config.name": "Int8WeightOnlyConfig"})
    ],
    "pt2e": [
        ("Model Preparation", "torchao", PT2E + "prepare_pt2e",
         {"quant.config.name": "X86InductorQuantizer"}),
        ("Model Quantization", "torchao", PT2E + "convert_pt2e", {}),
    ],
    "language_model": [
        ("Model Quantization", "transformers", LOAD,
         {"quant.config.name": "TorchAoConfig", "quant.input.path": "tiny",
          "quant.layer_count": 14}),  # two layers of seven linear modules
    ],
    "not_quantized": [],
    "failing": [
        ("Model Quantization", "torchao", IN_PLACE, {"error.type": "AssertionError"})
    ],
}  # fmt: skip
"""What the program does, and the steps: name, library, function, what else is known."""


def test_every_way_to_quantize_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("torchao_all.py")

    [root] = otlp.spans_named("quantization")
    assert {
        way.name: [program.stable_attributes(step) for step in otlp.children(way)]
        for way in otlp.children(root)
    } == {
        way: [
            {
                "code.function.name": function,
                "quant.library.name": library,
                "quant.library.version": importlib.metadata.version(library),
                "quant.step.kind": name,
                "quant.step.name": name,
                **known,
            }
            for name, library, function, known in steps
        ]
        for way, steps in STEPS.items()
    }  # fmt: skip
    steps = [step for way in otlp.children(root) for step in otlp.children(way)]
    assert [otlp.children(step) for step in steps] == [[]] * len(steps)
