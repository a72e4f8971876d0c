"""vLLM's LLM Compressor: a recipe applied to a language model in one shot.

A pipeline takes the samples through the whole model, or through one part of it after
another, and the recipe's modifiers quantize as they pass.
"""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.shared.library import (
    ENTRY_POINT,
    LAYER,
    STEP,
    Hook,
    Library,
    Wrapper,
)
from otel_quant.schema import semconv
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.llmcompressor.calls:"
_PIPELINE: Final = Wrapper(
    _CALLS + "pipeline", "step **{step}**, described by the recipe's modifiers"
)
_COUNTING_PIPELINE: Final = Wrapper(
    _CALLS + "counting_pipeline",
    "step **{step}**, described by the recipe's modifiers; counts what its `{parameter}` yields",
)
_PARTS: Final = Wrapper(_CALLS + "parts", "notes how many parts of the model take the samples")
_BATCHES: Final = Wrapper(
    _CALLS + "batches",
    "each item that it yields to calibrate with is one calibration sample: every part of the model takes each anew",
)
_SAVING: Final = Wrapper(
    _CALLS + "saving", "the `save_pretrained` that it gives to a model is step **{step}**"
)

_ONESHOT: Final = "llmcompressor.entrypoints.oneshot"
_PIPELINES: Final = "llmcompressor.pipelines."

_LOADED: Final = (("model_args.model", semconv.INPUT_PATH),)
_FILES: Final = (
    ("model_stub", semconv.INPUT_PATH),
    ("save_directory", semconv.OUTPUT_PATH),
    ("scheme", semconv.CONFIG_NAME),
)

LIBRARY: Final = Library(
    name="llmcompressor",
    distribution="llmcompressor",
    versions_seen="0.14",
    built_on=frozenset({"torch", "transformers", "auto-round"}),
    configuration=_CALLS + "configuration",
    hooks=(
        Hook(_ONESHOT, "oneshot", ENTRY_POINT, sources=(("model", semconv.INPUT_PATH),)),
        Hook(_ONESHOT, "Oneshot.__call__", ENTRY_POINT, sources=(("self.output_dir", semconv.OUTPUT_PATH),)),
        Hook("llmcompressor.entrypoints.utils", "initialize_model_from_path", STEP, ProfileStep.MODEL_LOADING, sources=_LOADED),
        Hook("llmcompressor.datasets.utils", "get_processed_dataset", STEP, ProfileStep.DATASET_LOADING),
        Hook("llmcompressor.core.session", "CompressionSession.initialize", STEP, ProfileStep.MODEL_PREPARATION),
        Hook(_PIPELINES + "data_free.pipeline", "DataFreePipeline.__call__", _PIPELINE, ProfileStep.CALIBRATION_WEIGHTS),
        Hook(_PIPELINES + "basic.pipeline", "BasicPipeline.__call__", _COUNTING_PIPELINE, ProfileStep.CALIBRATION, parameter="dataloader"),
        Hook(_PIPELINES + "sequential.pipeline", "SequentialPipeline.__call__", _PIPELINE, ProfileStep.CALIBRATION),
        Hook(_PIPELINES + "sequential.helpers", "trace_subgraphs", _PARTS),
        Hook(_PIPELINES + "sequential.pipeline", "_get_batches", _BATCHES),
        Hook(_PIPELINES + "sequential.helpers", "Subgraph.submodules", LAYER),
        Hook("llmcompressor.transformers.compression.compressed_tensors_utils", "modify_save_pretrained", _SAVING, ProfileStep.EXPORT_HF_SAFETENSORS),
        Hook("llmcompressor.entrypoints.model_free", "model_free_ptq", STEP, ProfileStep.FILE_TO_FILE_QUANTIZATION, sources=_FILES),
    ),
)  # fmt: skip
