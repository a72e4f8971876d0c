"""AutoRound reports its steps, counts its samples and blocks, and works as before.

It seeds Python's generator for every model: this is also where spans would have each other's
identifiers if those were drawn from it.
"""

from __future__ import annotations

import re

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import layers_of, steps_below, steps_by
from tests.integration.libraries.conftest import Program, each

pytest.importorskip("auto_round.compressors.orchestrator")
pytest.importorskip("gguf")  # it exports with that, and does not ask for it

BASE = "compressors.base.BaseOrchestrator."
ORCHESTRATOR = "compressors.orchestrator.CompressionOrchestrator."
LOAD = ("Model Loading", "utils.model.llm_load_model")
PREPARE = ("Model Preparation", BASE + "post_init")
TUNE = ("Model Quantization", ORCHESTRATOR + "_quantize_data_driven")
ROUND = ("Model Quantization", ORCHESTRATOR + "_quantize_zero_shot")
CALIBRATE = ("Calibration", "calibration.llm.LLMCalibrator.calib")
READ = ("Dataset Loading", "calib_dataset.get_dataloader")
BLOCKS = ("Advanced Algorithms", ORCHESTRATOR + "_quantize_blocks")
SAVE = ("Export HF Safetensors", BASE + "save_quantized")
SAVE_GGUF = ("Export GGUF", BASE + "save_quantized")
FILE_TO_FILE = ("File-to-File Quantization", "compressors.model_free._ModelFreeCompressorCore.run")

FROM_TINY = {semconv.INPUT_PATH: "tiny"}
TO_OUT = {semconv.FORMAT: "auto_round", semconv.OUTPUT_PATH: "out"}
TO_GGUF = {semconv.FORMAT: "gguf:q4_0", semconv.OUTPUT_PATH: "outg"}
INT4 = {
    semconv.ALGORITHMS: ("SignRound",), semconv.BITS: 4, semconv.BLOCK_SIZE: 32,
    semconv.GRANULARITY: "group", semconv.SYMMETRIC: True, semconv.WEIGHT_TYPE: "int4",
}  # fmt: skip
# Embeddings are written in 8 bits.
NEAREST4 = {
    semconv.ALGORITHMS: ("RTN",), semconv.CONFIG_NAME: "gguf:q4_0", semconv.PARTS_BITS: (4, 8), semconv.BLOCK_SIZE: 32,
    semconv.GRANULARITY: "group", semconv.SYMMETRIC: True, semconv.WEIGHT_TYPE: "int4, int8",
}  # fmt: skip
NEAREST8 = {
    semconv.ACTIVATION_BITS: 8, semconv.GRANULARITY: "channel", semconv.SYMMETRIC: True,
    semconv.ACTIVATION_TYPE: "int8", semconv.ALGORITHMS: ("RTN",), semconv.BITS: 8,
    semconv.CONFIG_NAME: "INT8_W8A8", semconv.WEIGHT_TYPE: "int8",
}  # fmt: skip
# It has no format for it but one with rounded weights in float.
SAVED8 = {
    semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "int8", semconv.ALGORITHMS: ("RTN",), semconv.BITS: 32,
    semconv.CONFIG_NAME: "INT8_W8A8", semconv.WEIGHT_TYPE: "float32", semconv.FORMAT: "fake", semconv.OUTPUT_PATH: "out8",
}  # fmt: skip
SAMPLES = {
    semconv.CALIBRATION_ITEM_COUNT: 8,
    semconv.CALIBRATION_SAMPLE_COUNT: 8,
    semconv.CALIBRATION_SAMPLE_TOTAL: 8,
}
TWO_BLOCKS = {semconv.LAYER_COUNT: 2, semconv.LAYER_TOTAL: 2}


step = steps_by("auto-round", "auto_round.")


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    output = program("auto_round_all.py", HF_HUB_OFFLINE="1")

    [root] = otlp.spans_named("quantization")
    program.check_written(root, uncompared={"failing"})
    saved = {**INT4, **TO_OUT}
    scheme = {
        semconv.BITS: 4, semconv.BLOCK_SIZE: 32, semconv.CONFIG_NAME: "QuantizationScheme",
        semconv.GRANULARITY: "group", semconv.SYMMETRIC: True, semconv.WEIGHT_TYPE: "int4",
    }  # fmt: skip
    steps = {
        "tuned": [step(PREPARE, {}), step(TUNE, INT4, step(CALIBRATE, {**INT4, **SAMPLES}), step(BLOCKS, {**INT4, **TWO_BLOCKS}))],
        "saved": [
            step(LOAD, FROM_TINY),
            step(PREPARE, TO_OUT),
            step(TUNE, saved,
                 step(CALIBRATE, {**saved, **SAMPLES}, step(READ, saved)),
                 step(BLOCKS, {**saved, **TWO_BLOCKS})),
            step(SAVE, {**INT4, **TO_OUT, semconv.OUTPUT_PATH: "out/tiny-w4g32"}),
        ],
        "nearest": [step(PREPARE, {}), step(ROUND, {**NEAREST8, **TWO_BLOCKS}), step(SAVE, SAVED8)],
        "file_to_file": [step(FILE_TO_FILE, {**scheme, **FROM_TINY, **TO_OUT, semconv.OUTPUT_PATH: "out4", semconv.RESUME_PATH: str(program.cwd / "out4")})],
        "file_to_floats": [
            step(FILE_TO_FILE, {semconv.CONFIG_NAME: "QuantizationScheme", **FROM_TINY, semconv.FORMAT: "fake", semconv.OUTPUT_PATH: "outf",
                                semconv.BITS: 32, semconv.WEIGHT_TYPE: "float32", semconv.RESUME_PATH: str(program.cwd / "outf")}),
        ],
        "failing": [
            step(LOAD, FROM_TINY),
            step(PREPARE, TO_GGUF),
            step(ROUND, {**NEAREST4, **TO_GGUF, **TWO_BLOCKS}),
            step(SAVE_GGUF, {**NEAREST4, **TO_GGUF, semconv.OUTPUT_PATH: "outg/tiny-gguf",
                             "error.type": "NotImplementedError"}),
        ],
    }  # fmt: skip
    assert steps_below(otlp, root) == [(way, {}, within) for way, within in steps.items()]
    samples, nearest = each("Calibration", "sample", 8), each("Model Quantization", "layer", 2)
    tuned = [*samples, *each("Advanced Algorithms", "layer", 2)]
    assert program.progress() == [*tuned, *tuned, *nearest, *nearest]

    # Its log has the same losses with fewer digits, of the runs that are not watched too.
    logged = re.findall(r"loss iter 0: .* -> iter \d+: ([\d.e+-]+)", output + program.stderr)
    layers = [(f"model.layers.{number % 2}", "loss") for number in range(4)]
    found = layers_of(otlp)
    assert [(layer, measure) for layer, measure, _ in found] == layers
    assert [f"{loss:.3e}" for _, _, loss in found] == logged[:4]
