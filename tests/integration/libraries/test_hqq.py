"""HQQ is one step, which counts the layers that it quantizes."""

from __future__ import annotations

import importlib.metadata

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.integration.libraries.conftest import Program, steps_below

pytest.importorskip("hqq")


def test_layers_are_counted_and_are_not_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("hqq_all.py")

    [root] = otlp.spans_named("quantization")
    attributes = {
        "code.function.name": "hqq.models.base.BaseHQQModel.quantize_model",
        "quant.bits": 4,
        "quant.block_size": 64,
        "quant.layer_count": 14,  # two layers of seven linear modules
        "quant.library.name": "hqq",
        "quant.library.version": importlib.metadata.version("hqq"),
    }
    assert steps_below(program, root) == [
        ("language model", {}, [("Model Quantization", attributes, [])])
    ]
