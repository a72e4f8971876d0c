"""What the programs must have reported: written out, not derived from the code under test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from otel_quant.schema import semconv
from tests.fixtures.figures import named

USAGE: Final[dict[str, type]] = {
    semconv.MEMORY_START: int, semconv.MEMORY_END: int, semconv.MEMORY_DELTA: int,
    semconv.MEMORY_PEAK: int, semconv.MEMORY_PEAK_SOURCE: str, semconv.MEMORY_PEAK_RATIO: float,
    semconv.DISK_READ: int, semconv.DISK_WRITE: int, named("quant.disk.read_chars"): int,
    named("quant.disk.write_chars"): int, semconv.CPU_USER: float, semconv.CPU_SYSTEM: float,
    semconv.MAJOR_FAULTS: int, semconv.CPU_WAIT: float,
}  # fmt: skip
"""What every step and the run have measured, on Linux and without a GPU."""

Known = dict[str, Any]
"""Attributes that a step must have."""

CACHING = ("Model Caching", "onnx.utils.model_utils.cache_onnx_model_and_infer_shapes")
CHECKING = ("Float Model Validation", "onnx.utils.model_utils.check_onnx_model")
RUNNING = ("Float Model Validation", "onnx.utils.model_utils.run_onnx_model")
LOADING = ("Dataset Loading", "onnx.calibration.data_readers.CachedDataReader.__init__")
PRE_PROCESS = ("Pre-process", "onnx.preprocess.preproc.apply_pre_process")
CALIBRATION = ("Calibration", "onnx.calibration.interface.run_calibration")
STATIC = ("Quantization (Static)", "onnx.quantizers.interface.run_static_quantization")
DYNAMIC = ("Quantization (Dynamic)", "onnx.quantizers.interface.run_dynamic_quantization")
NBITS = ("Quantization (MatMulNBits)", "onnx.quantizers.interface.run_matmul_nbits_quantization")
POST_PROCESS = ("Post-process", "onnx.postprocess.postproc.apply_post_process")
FAST_FINETUNE = ("Fast Finetune", "onnx.algorithm.finetuning.fast_finetune.fast_finetune")

TORCH = "torch.quantization.api.ModelQuantizer."
QUANTIZATION = ("Model Quantization", TORCH + "quantize_model")
PREPARATION = ("Model Preparation", TORCH + "_prepare_model")
ALGORITHMS = ("Advanced Algorithms", TORCH + "_apply_advanced_quant_algo")
CALIBRATION_OF_TORCH = ("Calibration", TORCH + "_do_calibration")
WEIGHTS = ("Calibration (Weights)", TORCH + "_calibrate_all_params")
FORWARD = ("Calibration (Forward)", "")
FREEZE = ("Freeze Model", TORCH + "freeze")
EXPORT_ONNX = ("Export ONNX", "torch.export.api.export_onnx")
EXPORT_SAFETENSORS = ("Export HF Safetensors", "torch.export.api.export_safetensors")
FILE_TO_FILE = (
    "File-to-File Quantization",
    "torch.quantization.file2file_quantization.quantize_model_per_safetensor",
)


def _counted(samples: int, items: int) -> Known:
    return {
        semconv.CALIBRATION_ITEM_COUNT: items,
        semconv.CALIBRATION_SAMPLE_COUNT: samples,
        semconv.CALIBRATION_SAMPLE_TOTAL: samples,
    }


def _described(calibration: str, activation: str, *algorithms: str) -> Known:
    return {
        semconv.FORMAT: "QDQ", semconv.CALIBRATION_METHOD: calibration,
        semconv.ACTIVATION_TYPE: activation, semconv.ACTIVATION_BITS: 8,
        semconv.WEIGHT_TYPE: "QInt8", semconv.BITS: 8, semconv.GRANULARITY: "tensor",
        semconv.PER_CHANNEL: False, semconv.ALGORITHMS: algorithms,
    }  # fmt: skip


def onnx_steps(step: Callable[..., Any], models: str, out: str) -> list[Any]:
    """Returns what is below the run of ``programs/onnx_all.py``, given its arguments."""

    def paths(model: str, made: str) -> tuple[str, str]:
        return f"{models}/{model}.onnx", f"{out}/{made}.onnx"

    def given(model: str, made: str) -> Known:
        read, written = paths(model, made)
        return {semconv.INPUT_PATH: read, semconv.OUTPUT_PATH: written}

    def static(known: Known, samples: int, *of_post_process: Any) -> list[Any]:
        before = (CACHING, CHECKING, LOADING, PRE_PROCESS, CACHING, RUNNING)
        return [
            *(step(each, known) for each in before),
            step(CALIBRATION, {**known, **_counted(samples, samples)}),
            step(STATIC, known),
            step(POST_PROCESS, known, *of_post_process),
        ]

    def costs(*models: str | None) -> list[Any]:
        return [("model cost", model) for model in models]

    explicit = {
        **given("conv", "static"), **_described("Percentile", "QUInt8", "cle"),
        semconv.GRANULARITY: "channel", semconv.PER_CHANNEL: True,
    }  # fmt: skip
    dynamic = {
        **given("matmul", "dynamic"), semconv.WEIGHT_TYPE: "QUInt8", semconv.BITS: 8,
        semconv.GRANULARITY: "tensor", semconv.PER_CHANNEL: False,
    }  # fmt: skip
    preset = {
        **_described("MinMSE", "QUInt8", "cle"),
        semconv.ACTIVATION_SYMMETRIC: True,
        semconv.CONFIG_NAME: "XINT8",
    }
    adaround = {
        **given("conv", "adaround"), **_described("MinMSE", "QInt8", "adaround"),
        semconv.SYMMETRIC: True, semconv.ACTIVATION_SYMMETRIC: True,
    }  # fmt: skip
    nbits = {
        **given("matmul", "nbits"), **_described("Percentile", "QInt8"),
        semconv.WEIGHT_TYPE: "QInt4", semconv.BITS: 4, semconv.BLOCK_SIZE: 32, semconv.GRANULARITY: "group", semconv.SYMMETRIC: True, semconv.ACTIVATION_SYMMETRIC: True,
    }  # fmt: skip
    of_nbits = (CACHING, CHECKING, LOADING, PRE_PROCESS, CACHING, NBITS, POST_PROCESS)
    return [
        *static(explicit, 3),
        *costs(*paths("conv", "static")),
        step(CACHING, dynamic),
        step(DYNAMIC, {**dynamic, semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "QUInt8"}),
        *costs(*paths("matmul", "dynamic")),
        *static(preset, 4),
        *costs(None, None),
        *static(adaround, 2, step(FAST_FINETUNE, {**adaround, semconv.LAYER_COUNT: 3, semconv.LAYER_TOTAL: 3})),
        *costs(*paths("conv", "adaround")),
        *(step(each, nbits) for each in of_nbits),
        *costs(*paths("matmul", "nbits")),
    ]  # fmt: skip


def torch_steps(step: Callable[..., Any], checkpoint: str, out: str) -> list[Any]:
    """Returns what is below the run of ``programs/torch_all.py``, given its arguments."""
    weights = {
        semconv.BITS: 8, semconv.GRANULARITY: "channel", semconv.SYMMETRIC: True,
        semconv.WEIGHT_TYPE: "int8",
    }  # fmt: skip
    both = {
        **weights, semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "int8",
        semconv.CALIBRATION_METHOD: "PerTensorMinMaxObserver",
    }  # fmt: skip

    def quantization(known: Known, calibration: Any) -> Any:
        prepared = step(PREPARATION, known), step(ALGORITHMS, known)
        return step(QUANTIZATION, known, *prepared, calibration)

    calibrated = {**both, **_counted(3, items=6)}  # two in each
    parts = step(WEIGHTS, both), step(FORWARD, both)
    files = {**weights, semconv.INPUT_PATH: checkpoint, semconv.OUTPUT_PATH: f"{out}/files"}
    return [
        quantization(both, step(CALIBRATION_OF_TORCH, calibrated, *parts)),
        step(FREEZE, both),
        step(EXPORT_ONNX, {**both, semconv.OUTPUT_PATH: f"{out}/onnx"}),
        quantization(weights, step(CALIBRATION_OF_TORCH, weights, step(WEIGHTS, weights))),
        step(FREEZE, weights),
        step(EXPORT_SAFETENSORS, {**weights, semconv.OUTPUT_PATH: f"{out}/safetensors"}),
        step(FILE_TO_FILE, files),
    ]


def checkpoints_of(steps: Iterable[Any]) -> list[tuple[str, int | None]]:
    """Returns the names of the checkpoints, each with the index of its step."""
    indexes = itertools.count()

    def within(steps: Iterable[Any]) -> Iterator[tuple[str, int | None]]:
        for name, _, *inner in steps:
            if name != "model cost":
                index = next(indexes)
                yield f"{name} Start", index
                yield from within(*inner)
                yield f"{name} End", index

    return [("Start", None), *within(steps), ("End", None)]
