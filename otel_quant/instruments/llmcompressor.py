"""vLLM's LLM Compressor: a recipe applied to a language model in one shot.

A pipeline takes the samples through the whole model, or through one part of it after
another, and the recipe's modifiers quantize as they pass.
"""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.steps import ProfileStep
from otel_quant.telemetry import semconv

_STEP: Final = "otel_quant.instruments.calls:step"
_OPERATION: Final = "otel_quant.instruments.calls:operation"
_CALLS: Final = "otel_quant.instruments.llmcompressor_calls:"

_ONESHOT: Final = "llmcompressor.entrypoints.oneshot"
_PIPELINES: Final = "llmcompressor.pipelines."

_LOADED: Final = (("model_args.model", semconv.INPUT_PATH),)
_FILES: Final = (
    ("model_stub", semconv.INPUT_PATH),
    ("save_directory", semconv.OUTPUT_PATH),
    ("scheme", semconv.CONFIG_NAME),
)

LLMCOMPRESSOR: Final = Library(
    name="llmcompressor",
    distribution="llmcompressor",
    covers=frozenset({"torch", "transformers", "auto-round"}),
    configuration=_CALLS + "configuration",
    hooks=(
        Hook(_ONESHOT, "oneshot", _OPERATION, reads=(("model", semconv.INPUT_PATH),)),
        Hook(_ONESHOT, "Oneshot.__call__", _OPERATION, reads=(("self.output_dir", semconv.OUTPUT_PATH),)),
        Hook("llmcompressor.entrypoints.utils", "initialize_model_from_path", _STEP, ProfileStep.MODEL_LOADING, reads=_LOADED),
        Hook("llmcompressor.datasets.utils", "get_processed_dataset", _STEP, ProfileStep.DATASET_LOADING),
        Hook("llmcompressor.core.session", "CompressionSession.initialize", _STEP, ProfileStep.MODEL_PREPARATION),
        Hook(_PIPELINES + "data_free.pipeline", "DataFreePipeline.__call__", _CALLS + "pipeline", ProfileStep.CALIBRATION_WEIGHTS),
        Hook(_PIPELINES + "basic.pipeline", "BasicPipeline.__call__", _CALLS + "counting_pipeline", ProfileStep.CALIBRATION, parameter="dataloader"),
        Hook(_PIPELINES + "sequential.pipeline", "SequentialPipeline.__call__", _CALLS + "pipeline", ProfileStep.CALIBRATION),
        Hook(_PIPELINES + "sequential.helpers", "trace_subgraphs", _CALLS + "parts"),
        Hook(_PIPELINES + "sequential.pipeline", "_get_batches", _CALLS + "batches"),
        Hook(_PIPELINES + "sequential.helpers", "Subgraph.submodules", "otel_quant.instruments.calls:layer"),
        Hook("llmcompressor.transformers.compression.compressed_tensors_utils", "modify_save_pretrained", _CALLS + "saving", ProfileStep.EXPORT_HF_SAFETENSORS),
        Hook("llmcompressor.entrypoints.model_free", "model_free_ptq", _STEP, ProfileStep.FILE_TO_FILE_QUANTIZATION, reads=_FILES),
    ),
)  # fmt: skip
