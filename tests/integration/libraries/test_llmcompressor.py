"""LLM Compressor reports its steps, counts its samples and layers, and works as before."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("llmcompressor")

INITIALIZE = ("Model Preparation", "core.session.CompressionSession.initialize")
LOAD = ("Model Loading", "entrypoints.utils.initialize_model_from_path")
READ = ("Dataset Loading", "datasets.utils.get_processed_dataset")
DATA_FREE = ("Calibration (Weights)", "pipelines.data_free.pipeline.DataFreePipeline.__call__")
BASIC = ("Calibration", "pipelines.basic.pipeline.BasicPipeline.__call__")
SEQUENTIAL = ("Calibration", "pipelines.sequential.pipeline.SequentialPipeline.__call__")
FILE_TO_FILE = ("File-to-File Quantization", "entrypoints.model_free.model_free_ptq")

W8A16 = {
    "quant.algorithms": ("QuantizationModifier",),
    "quant.bits": 8,
    "quant.block_size": 128,
    "quant.config.name": "W8A16",
    "quant.granularity": "group",
    "quant.symmetric": True,
    "quant.input.path": "tiny",
    "quant.weight.type": "int8",
}
W4A16 = {
    "quant.algorithms": ("GPTQModifier",),
    "quant.bits": 4,
    "quant.block_size": 128,
    "quant.config.name": "W4A16",
    "quant.granularity": "group",
    "quant.symmetric": True,
    "quant.weight.type": "int4",
}
W8A8 = {
    "quant.activation.bits": 8,
    "quant.granularity": "channel",
    "quant.symmetric": True,
    "quant.activation.type": "int8",
    "quant.algorithms": ("QuantizationModifier",),
    "quant.bits": 8,
    "quant.config.name": "W8A8",
    "quant.per_channel": True,
    "quant.weight.type": "int8",
}
SMOOTHED = {
    **W8A8,
    "quant.algorithms": ("SmoothQuantModifier", "QuantizationModifier"),
    "quant.output.path": "out",
}
FP8 = {
    "quant.activation.bits": 8,
    "quant.granularity": "tensor",
    "quant.symmetric": True,
    "quant.activation.type": "float8",
    "quant.algorithms": ("QuantizationModifier",),
    "quant.bits": 8,
    "quant.calibration.method": "static_minmax",
    "quant.config.name": "FP8",
    "quant.per_channel": False,
    "quant.weight.type": "float8",
}
TO_OUT = {"quant.output.path": "out"}


def counted(samples: int) -> dict[str, Any]:
    return {"quant.calibration.sample_count": samples, "quant.calibration.sample_total": samples}


def counted_in_parts(samples: int, parts: int) -> dict[str, Any]:
    """Returns the attributes of a loop in which every part of the model takes all samples."""
    return {**counted(samples * parts), "quant.layer_count": parts}


step = steps_by("llmcompressor", "llmcompressor.")


def export(known: dict[str, Any]) -> Any:
    function = "transformers.modeling_utils.PreTrainedModel.save_pretrained"
    return step(("Export HF Safetensors", ""), {"code.function.name": function, **known})


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("llmcompressor_all.py", HF_HUB_OFFLINE="1")

    [root] = otlp.spans_named("quantization")
    steps = {
        "without_data": [step(LOAD, W8A16), step(INITIALIZE, W8A16), step(DATA_FREE, W8A16)],
        "gptq": [
            step(READ, W4A16),
            step(INITIALIZE, W4A16),
            step(SEQUENTIAL, {**W4A16, **counted_in_parts(3, parts=3)}),
        ],
        "in_turn": [
            step(INITIALIZE, SMOOTHED),
            step(SEQUENTIAL, {**SMOOTHED, "quant.algorithms": ("SmoothQuantModifier",),
                              **counted_in_parts(5, parts=3)}),
            step(DATA_FREE, {**SMOOTHED, "quant.algorithms": ("QuantizationModifier",)}),
            export(SMOOTHED),
        ],
        "all_at_once": [
            step(INITIALIZE, FP8),
            step(BASIC, {**FP8, **counted(5), "quant.calibration.item_count": 5}),
            export(TO_OUT),
            export(TO_OUT),
        ],
        "by_its_class": [
            step(INITIALIZE, TO_OUT),
            step(DATA_FREE, {"quant.algorithms": ("QuantizationModifier",), "quant.bits": 8,
                             "quant.granularity": "tensor", "quant.per_channel": False,
                             "quant.symmetric": True, "quant.weight.type": "int8", **TO_OUT}),
            export(TO_OUT),
        ],
        "file_to_file": [
            step(FILE_TO_FILE, {"quant.config.name": "FP8_DYNAMIC", "quant.input.path": "tiny",
                                **TO_OUT}),
        ],
        "failing": [step(INITIALIZE, W8A8), step(BASIC, {**W8A8, "error.type": "KeyError"})],
    }  # fmt: skip
    assert steps_below(otlp, root) == [(way, {}, within) for way, within in steps.items()]
