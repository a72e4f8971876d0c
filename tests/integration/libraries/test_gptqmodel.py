"""GPTQModel reports its steps, and counts layers and the samples that it captures the inputs of the first with."""

from __future__ import annotations

import csv

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import layers_of, steps_below, steps_by
from tests.integration.libraries.conftest import Program, each

pytest.importorskip("gptqmodel")


def test_a_language_model_is_quantized_in_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("gptqmodel_all.py")

    [root] = otlp.spans_named("quantization")
    step = steps_by("gptqmodel", "gptqmodel.")
    capture = "looper.stage_inputs_capture.StageInputsCapture.cache_inputs"
    samples = {
        "quant.calibration.item_count": 8,
        "quant.calibration.sample_count": 4,
        "quant.calibration.sample_total": 4,
    }
    known = {
        "quant.algorithms": ("gptq",), "quant.bits": 4, "quant.block_size": 32,
        "quant.config.name": "GPTQConfig", "quant.granularity": "group", "quant.layer_count": 2,
        "quant.layer_total": 2, "quant.symmetric": True,
    }  # fmt: skip
    steps = [
        step(
            ("Model Loading", "models.auto.GPTQModel.from_pretrained"), {"quant.input.path": "tiny"}
        ),
        step(
            ("Model Quantization", "models.base.BaseQModel.quantize"),
            known,
            step(("Dataset Loading", "models.base.BaseQModel.prepare_dataset"), {}),
            step(("Calibration", capture), samples),
        ),
        step(
            ("Export HF Safetensors", "models.base.BaseQModel.save"), {"quant.output.path": "made"}
        ),
    ]
    assert steps_below(otlp, root) == [("language model", {}, steps)]
    samples_then_layers = [
        *each("Calibration", "sample", 4),
        *each("Model Quantization", "layer", 2),
    ]
    assert program.progress() == samples_then_layers

    rows = csv.DictReader((program.cwd / "made" / "quant_log.csv").read_text().splitlines())
    losses = [(f"{row['layer']}.{row['module']}", "loss", float(row["loss"])) for row in rows]
    assert len(losses) == 14
    assert layers_of(otlp) == losses
