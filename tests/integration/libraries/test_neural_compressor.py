"""Neural Compressor reports its steps, whichever way it is used, and works as before."""

from __future__ import annotations

import re
from typing import Any

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import layers_of, steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("neural_compressor.torch")

LIBRARY = "neural_compressor.torch."
PREPARE = ("Model Preparation", LIBRARY + "quantization.quantize.prepare")
CONVERT = ("Model Quantization", LIBRARY + "quantization.quantize.convert")
QUANTIZE = ("Model Quantization", LIBRARY + "quantization.quantize.quantize")
EVALUATE = (
    "Model Evaluation",
    "neural_compressor.common.base_tuning.EvaluationFuncWrapper.evaluate",
)
TUNE = ("Advanced Algorithms", LIBRARY + "quantization.autotune.autotune")
SAVE = ("Post-process", LIBRARY + "quantization.save_load_entry.save")
SAVE_WEIGHTS = ("Post-process", LIBRARY + "algorithms.weight_only.save_load.save")
SAVE_EXPORTED = ("Post-process", LIBRARY + "algorithms.pt2e_quant.save_load.save")

MLP = {semconv.LAYER_COUNT: 2}
LLAMA = {semconv.LAYER_COUNT: 14}  # two layers of seven linear modules
INT8 = {
    semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "uint8", semconv.BITS: 8,
    semconv.CALIBRATION_METHOD: "minmax", semconv.CONFIG_NAME: "INT8StaticQuantConfig",
    semconv.GRANULARITY: "channel", semconv.WEIGHT_TYPE: "int8",
}  # fmt: skip
ENTROPY = {**INT8, semconv.CALIBRATION_METHOD: "kl"}
DYNAMIC = {
    semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "uint8", semconv.BITS: 8,
    semconv.CONFIG_NAME: "DynamicQuantConfig", semconv.GRANULARITY: "tensor",
    semconv.WEIGHT_TYPE: "int8",
}  # fmt: skip
FAILED = {"error.type": "KeyError"}


def in_blocks(name: str, bits: int = 4) -> dict[str, Any]:
    return {
        semconv.BITS: bits, semconv.BLOCK_SIZE: 32, semconv.CONFIG_NAME: name,
        semconv.GRANULARITY: "group", semconv.SYMMETRIC: True, semconv.WEIGHT_TYPE: f"int{bits}",
    }  # fmt: skip


step = steps_by("neural-compressor")


def passes(items: int) -> dict[str, Any]:
    """Returns the attributes of three forward passes of a prepared model."""
    return {semconv.CALIBRATION_ITEM_COUNT: items, semconv.CALIBRATION_SAMPLE_COUNT: 3}


def calibration(function: str, known: dict[str, Any]) -> Any:
    return step(("Calibration", f"__main__.{function}"), known)


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("neural_compressor_all.py", HF_HUB_OFFLINE="1")

    [root] = otlp.spans_named("quantization")
    program.check_written(root, uncompared={"failing"})
    nearest = in_blocks("RTNConfig")
    hqq = in_blocks("HQQConfig")
    del hqq[semconv.SYMMETRIC]  # it has no such setting
    static = step(QUANTIZE, INT8, calibration("calibrate", {**INT8, **passes(12)}))
    steps = {
        "nearest": [step(PREPARE, nearest), step(CONVERT, {**nearest, **MLP})],
        "nearest_per_channel": [
            step(QUANTIZE, {semconv.BITS: 8, semconv.CONFIG_NAME: "RTNConfig",
                            semconv.GRANULARITY: "channel", semconv.SYMMETRIC: True,
                            semconv.WEIGHT_TYPE: "int8", **MLP}),
        ],
        "gptq": [step(QUANTIZE, {**in_blocks("GPTQConfig"), **LLAMA}, calibration("read", {**in_blocks("GPTQConfig"), **passes(3)}))],
        "awq": [step(QUANTIZE, {**in_blocks("AWQConfig"), **LLAMA}, calibration("read", {**in_blocks("AWQConfig"), **passes(3)}))],
        "hqq": [step(QUANTIZE, {**hqq, **MLP})],
        "microscaling": [
            step(QUANTIZE, {semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "int8", semconv.BITS: 8,
                            semconv.BLOCK_SIZE: 32, semconv.GRANULARITY: "group", semconv.CONFIG_NAME: "MXQuantConfig", semconv.WEIGHT_TYPE: "int8"}),
        ],
        "static": [static],
        "static_in_parts": [step(PREPARE, INT8), step(("Calibration", ""), {**INT8, **passes(12)}), step(CONVERT, INT8)],
        "dynamic": [step(PREPARE, DYNAMIC), step(CONVERT, DYNAMIC)],
        "composed": [step(QUANTIZE, {semconv.BITS: 4, semconv.BLOCK_SIZE: 32, semconv.GRANULARITY: "group", **MLP})],
        "tuned": [
            step(TUNE, {},
                 step(EVALUATE, {}),
                 step(QUANTIZE, {**nearest, **MLP}),
                 step(EVALUATE, nearest),
                 step(QUANTIZE, {**in_blocks("RTNConfig", bits=6), **MLP}),
                 step(EVALUATE, in_blocks("RTNConfig", bits=6))),
        ],
        "saved": [
            step(QUANTIZE, {**nearest, **MLP}),
            step(SAVE, {**nearest, semconv.OUTPUT_PATH: "saved"}),
            step(SAVE_WEIGHTS, {**nearest, semconv.OUTPUT_PATH: "saved"}),
            static,
            step(SAVE_EXPORTED, {**INT8, semconv.OUTPUT_PATH: "exported"}),
        ],
        "failing": [step(QUANTIZE, {**ENTROPY, **FAILED}, calibration("failing.<locals>.no_data", {**ENTROPY, **FAILED}))],
    }  # fmt: skip
    assert steps_below(otlp, root) == [(way, {}, within) for way, within in steps.items()]
    scores = [("trial 1", "trial_result", 0.5), ("trial 2", "trial_result", 0.999)]
    assert layers_of(otlp) == scores

    # Its log lines name a caller, by a number of frames.
    lines = re.findall(r"\[(\w+\.py):\d+\] (\w+) started", program.stderr)
    assert {file for file, _ in lines} == {"autotune.py", "logger.py", "neural_compressor_all.py"}
    assert {what for file, what in lines if file == "neural_compressor_all.py"} == {
        "Conversion", "Preparation", "Quantization", "Saving",
    }  # fmt: skip
