"""Neural Compressor reports its steps, whichever way it is used, and works as before."""

from __future__ import annotations

import re
from typing import Any

import pytest

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

MLP = {"quant.layer_count": 2}
LLAMA = {"quant.layer_count": 14}  # two layers of seven linear modules
INT8 = {
    "quant.activation.bits": 8, "quant.activation.type": "uint8", "quant.bits": 8,
    "quant.calibration.method": "minmax", "quant.config.name": "INT8StaticQuantConfig",
    "quant.granularity": "channel", "quant.weight.type": "int8",
}  # fmt: skip
ENTROPY = {**INT8, "quant.calibration.method": "kl"}
DYNAMIC = {
    "quant.activation.bits": 8, "quant.activation.type": "uint8", "quant.bits": 8,
    "quant.config.name": "DynamicQuantConfig", "quant.granularity": "tensor",
    "quant.weight.type": "int8",
}  # fmt: skip
FAILED = {"error.type": "KeyError"}


def in_blocks(name: str, bits: int = 4) -> dict[str, Any]:
    return {
        "quant.bits": bits,
        "quant.block_size": 32,
        "quant.config.name": name,
        "quant.granularity": "group",
        "quant.symmetric": True,
        "quant.weight.type": f"int{bits}",
    }


step = steps_by("neural-compressor")


def passes(items: int) -> dict[str, Any]:
    """Returns the attributes of three forward passes of a prepared model."""
    return {"quant.calibration.item_count": items, "quant.calibration.sample_count": 3}


def calibration(function: str, known: dict[str, Any]) -> Any:
    return step(("Calibration", f"__main__.{function}"), known)


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("neural_compressor_all.py", HF_HUB_OFFLINE="1")

    [root] = otlp.spans_named("quantization")
    nearest = in_blocks("RTNConfig")
    hqq = in_blocks("HQQConfig")
    del hqq["quant.symmetric"]  # it has no such setting
    static = step(QUANTIZE, INT8, calibration("calibrate", {**INT8, **passes(12)}))
    steps = {
        "nearest": [step(PREPARE, nearest), step(CONVERT, {**nearest, **MLP})],
        "nearest_per_channel": [
            step(QUANTIZE, {"quant.bits": 8, "quant.config.name": "RTNConfig",
                            "quant.granularity": "channel", "quant.symmetric": True,
                            "quant.weight.type": "int8", **MLP}),
        ],
        "gptq": [
            step(QUANTIZE, {**in_blocks("GPTQConfig"), **LLAMA},
                 calibration("read", {**in_blocks("GPTQConfig"), **passes(3)})),
        ],
        "awq": [
            step(QUANTIZE, {**in_blocks("AWQConfig"), **LLAMA},
                 calibration("read", {**in_blocks("AWQConfig"), **passes(3)})),
        ],
        "hqq": [step(QUANTIZE, {**hqq, **MLP})],
        "microscaling": [
            step(QUANTIZE, {"quant.activation.bits": 8, "quant.activation.type": "int8", "quant.bits": 8,
                            "quant.block_size": 32, "quant.granularity": "group", "quant.config.name": "MXQuantConfig", "quant.weight.type": "int8"}),
        ],
        "static": [static],
        "static_in_parts": [
            step(PREPARE, INT8),
            step(("Calibration", ""), {**INT8, **passes(12)}),
            step(CONVERT, INT8),
        ],
        "dynamic": [step(PREPARE, DYNAMIC), step(CONVERT, DYNAMIC)],
        "composed": [
            step(QUANTIZE, {"quant.bits": 4, "quant.block_size": 32, "quant.granularity": "group", **MLP}),
        ],
        "tuned": [
            step(TUNE, {},
                 step(EVALUATE, {}),
                 step(QUANTIZE, {**nearest, **MLP}),
                 step(EVALUATE, {}),
                 step(QUANTIZE, {**in_blocks("RTNConfig", bits=6), **MLP}),
                 step(EVALUATE, {})),
        ],
        "saved": [
            step(QUANTIZE, {**nearest, **MLP}),
            step(SAVE, {"quant.output.path": "saved"}),
            step(SAVE_WEIGHTS, {"quant.output.path": "saved"}),
            static,
            step(SAVE_EXPORTED, {"quant.output.path": "exported"}),
        ],
        "failing": [
            step(QUANTIZE, {**ENTROPY, **FAILED},
                 calibration("failing.<locals>.no_data", {**ENTROPY, **FAILED})),
        ],
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
