"""GPTQModel reports its steps, and counts layers and the samples that it captures the inputs of the first with."""

from __future__ import annotations

import csv

import pytest

from otel_quant import audit
from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import layers_of, steps_below, steps_by
from tests.integration.libraries.conftest import Program, check_seen, each

pytest.importorskip("gptqmodel")


def test_a_language_model_is_quantized_in_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("gptqmodel_all.py")

    [root] = otlp.spans_named("quantization")
    program.check_written(root)
    step = steps_by("gptqmodel", "gptqmodel.")
    capture = "looper.stage_inputs_capture.StageInputsCapture.cache_inputs"
    samples = {
        semconv.CALIBRATION_ITEM_COUNT: 8,
        semconv.CALIBRATION_SAMPLE_COUNT: 4,
        semconv.CALIBRATION_SAMPLE_TOTAL: 4,
    }
    known = {
        semconv.ALGORITHMS: ("gptq",), semconv.BITS: 4, semconv.BLOCK_SIZE: 32,
        semconv.CONFIG_NAME: "GPTQConfig", semconv.GRANULARITY: "group", semconv.SYMMETRIC: True,
    }  # fmt: skip
    layers = {semconv.LAYER_COUNT: 2, semconv.LAYER_TOTAL: 2}
    steps = [
        step(("Model Loading", "models.auto.GPTQModel.from_pretrained"), {semconv.INPUT_PATH: "tiny"}),
        step(
            ("Model Quantization", "models.base.BaseQModel.quantize"),
            {**known, **layers},
            step(("Dataset Loading", "models.base.BaseQModel.prepare_dataset"), known),
            step(("Calibration", capture), {**known, **samples}),
        ),
        step(("Export HF Safetensors", "models.base.BaseQModel.save"), {**known, semconv.OUTPUT_PATH: "made"}),
    ]  # fmt: skip
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
    assert audit(program.cwd / "made").answer.startswith("as configured: 14 of 14 layers int4, ")


@pytest.mark.parametrize("way", ["gptq", "awq"])
def test_what_calibration_has_not_seen_is_found(program: Program, way: str) -> None:
    check_seen(program, "gptqmodel", way, script="seen_llm.py")
