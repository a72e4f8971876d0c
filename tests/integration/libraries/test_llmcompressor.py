"""LLM Compressor reports its steps, counts its samples and layers, and works as before."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import layers_of, steps_below, steps_by
from tests.integration.libraries.conftest import Program, check_seen, each

pytest.importorskip("llmcompressor")

INITIALIZE = ("Model Preparation", "core.session.CompressionSession.initialize")
LOAD = ("Model Loading", "entrypoints.utils.initialize_model_from_path")
READ = ("Dataset Loading", "datasets.utils.get_processed_dataset")
DATA_FREE = ("Calibration (Weights)", "pipelines.data_free.pipeline.DataFreePipeline.__call__")
BASIC = ("Calibration", "pipelines.basic.pipeline.BasicPipeline.__call__")
SEQUENTIAL = ("Calibration", "pipelines.sequential.pipeline.SequentialPipeline.__call__")
FILE_TO_FILE = ("File-to-File Quantization", "entrypoints.model_free.model_free_ptq")

W8A16 = {
    semconv.ALGORITHMS: ("QuantizationModifier",), semconv.BITS: 8, semconv.BLOCK_SIZE: 128,
    semconv.CONFIG_NAME: "W8A16", semconv.GRANULARITY: "group", semconv.SYMMETRIC: True,
    semconv.INPUT_PATH: "tiny", semconv.WEIGHT_TYPE: "int8",
}  # fmt: skip
W4A16 = {
    semconv.ALGORITHMS: ("GPTQModifier",), semconv.BITS: 4, semconv.BLOCK_SIZE: 128,
    semconv.CONFIG_NAME: "W4A16", semconv.GRANULARITY: "group", semconv.SYMMETRIC: True,
    semconv.WEIGHT_TYPE: "int4",
}  # fmt: skip
W8A8 = {
    semconv.ACTIVATION_BITS: 8, semconv.GRANULARITY: "channel", semconv.SYMMETRIC: True,
    semconv.ACTIVATION_TYPE: "int8", semconv.ALGORITHMS: ("QuantizationModifier",), semconv.BITS: 8,
    semconv.CONFIG_NAME: "W8A8", semconv.WEIGHT_TYPE: "int8",
}  # fmt: skip
SMOOTHED = {
    **W8A8,
    semconv.ALGORITHMS: ("SmoothQuantModifier", "QuantizationModifier"),
    semconv.OUTPUT_PATH: "out",
}
FP8 = {
    semconv.ACTIVATION_BITS: 8, semconv.GRANULARITY: "tensor", semconv.SYMMETRIC: True,
    semconv.ACTIVATION_TYPE: "float8", semconv.ALGORITHMS: ("QuantizationModifier",),
    semconv.BITS: 8, semconv.CALIBRATION_METHOD: "static_minmax", semconv.CONFIG_NAME: "FP8",
    semconv.WEIGHT_TYPE: "float8",
}  # fmt: skip
RECIPE = {
    semconv.ALGORITHMS: ("QuantizationModifier",), semconv.BITS: 8, semconv.GRANULARITY: "tensor",
    semconv.SYMMETRIC: True, semconv.WEIGHT_TYPE: "int8",
}  # fmt: skip
DYNAMIC = {
    semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "float8", semconv.BITS: 8, semconv.CONFIG_NAME: "FP8_DYNAMIC",
    semconv.GRANULARITY: "channel", semconv.SYMMETRIC: True, semconv.WEIGHT_TYPE: "float8",
}  # fmt: skip
TO_OUT = {semconv.OUTPUT_PATH: "out"}


def counted(samples: int) -> dict[str, Any]:
    return {semconv.CALIBRATION_SAMPLE_COUNT: samples, semconv.CALIBRATION_SAMPLE_TOTAL: samples}


def counted_in_parts(samples: int, parts: int) -> dict[str, Any]:
    """Returns the attributes of a loop in which every part of the model takes all samples."""
    # Once to calibrate a part, once more through what it is quantized to
    passes = 2 * samples * parts
    layers = {semconv.LAYER_COUNT: parts, semconv.LAYER_TOTAL: parts}
    passed = {semconv.PASS_COUNT: passes, semconv.PASS_TOTAL: passes}
    return {**counted(samples), semconv.CALIBRATION_ITEM_COUNT: samples, **layers, **passed}


def in_parts(samples: int, parts: int) -> list[str]:
    """Returns the progress of such a loop: each part, and within it all passes; in the first, before its passes, samples."""
    taken = each("Calibration", "sample", samples)
    passes = each("Calibration", "pass", 2 * samples * parts)
    found = []
    for number, layer in enumerate(each("Calibration", "layer", parts)):
        found.append(layer)
        for index in range(2 * samples):
            found += taken[index : index + 1] if number == 0 else []
            found.append(passes[2 * samples * number + index])
    return found


step = steps_by("llmcompressor", "llmcompressor.")


def export(known: dict[str, Any]) -> Any:
    function = "transformers.modeling_utils.PreTrainedModel.save_pretrained"
    return step(("Export HF Safetensors", ""), {"code.function.name": function, **known})


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    variables = {"HF_HUB_OFFLINE": "1", "LLM_COMPRESSOR_LOG_LEVEL": "DEBUG"}
    output = program("llmcompressor_all.py", **variables)

    [root] = otlp.spans_named("quantization")
    program.check_written(root, uncompared={"failing"})
    steps = {
        "without_data": [step(LOAD, W8A16), step(INITIALIZE, W8A16), step(DATA_FREE, W8A16)],
        "gptq": [step(READ, W4A16), step(INITIALIZE, W4A16), step(SEQUENTIAL, {**W4A16, **counted_in_parts(3, parts=3)})],
        "awq": [
            step(INITIALIZE, {**W4A16, semconv.ALGORITHMS: ("AWQModifier", "QuantizationModifier")}),
            step(SEQUENTIAL, {**W4A16, semconv.ALGORITHMS: ("AWQModifier",),
                              **counted_in_parts(5, parts=3)}),
            step(DATA_FREE, {**W4A16, semconv.ALGORITHMS: ("QuantizationModifier",)}),
        ],
        "in_turn": [
            step(INITIALIZE, SMOOTHED),
            step(SEQUENTIAL, {**SMOOTHED, semconv.ALGORITHMS: ("SmoothQuantModifier",),
                              **counted_in_parts(5, parts=3)}),
            step(DATA_FREE, {**SMOOTHED, semconv.ALGORITHMS: ("QuantizationModifier",)}),
            export(SMOOTHED),
        ],
        "all_at_once": [
            step(INITIALIZE, FP8),
            step(BASIC, {**FP8, **counted(5), semconv.CALIBRATION_ITEM_COUNT: 5}),
            export({**FP8, **TO_OUT}),
            export({**FP8, **TO_OUT}),
        ],
        "by_its_class": [
            step(INITIALIZE, TO_OUT),
            step(DATA_FREE, {**RECIPE, **TO_OUT}),
            export({**RECIPE, **TO_OUT}),
        ],
        "file_to_file": [step(FILE_TO_FILE, {**DYNAMIC, semconv.INPUT_PATH: "tiny", **TO_OUT})],
        "failing": [step(INITIALIZE, W8A8), step(BASIC, {**W8A8, "error.type": "KeyError"})],
    }  # fmt: skip
    assert steps_below(otlp, root) == [(way, {}, within) for way, within in steps.items()]
    in_turn = in_parts(5, parts=3)
    whole = [*in_parts(3, parts=3), *in_turn, *in_turn, *each("Calibration", "sample", 5)]
    assert program.progress() == whole

    # Its log has two digits of GPTQ's errors, and three of AWQ's.
    errors = json.loads((program.cwd / "errors.json").read_text())
    best = re.findall(r"AWQ grid search for (\S+): .* best error = ([\d.e+-]+)", output)
    layers = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj"
    names = [f"model.layers.{number}.{layer}" for number in (0, 1) for layer in layers.split()]
    gptq, awq = layers_of(otlp)[:14], layers_of(otlp)[14:]
    assert gptq == [(name, "error", error) for name, error in zip(names, errors[:14], strict=True)]
    assert len(awq) >= 4
    assert [(layer, measure, f"{error:.3e}") for layer, measure, error in awq] == [
        (layer, "best_error", error) for layer, error in best[: len(awq)]
    ]


@pytest.mark.parametrize("way", ["fp8", "gptq", "awq"])
def test_what_calibration_has_not_seen_is_found(program: Program, way: str) -> None:
    check_seen(program, "llmcompressor", way, script="seen_llm.py")
