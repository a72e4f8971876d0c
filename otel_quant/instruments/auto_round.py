"""Intel's AutoRound: rounding that is learned, one block of a model after another.

The samples go through the model once, for what reaches each block; the blocks are then
tuned on that.
"""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.steps import ProfileStep
from otel_quant.telemetry import semconv

_STEP: Final = "otel_quant.instruments.calls:step"
_LAYER: Final = "otel_quant.instruments.calls:layer"
_CALLS: Final = "otel_quant.instruments.auto_round_calls:"

_BASE: Final = "auto_round.compressors.base"
_ORCHESTRATOR: Final = "auto_round.compressors.orchestrator"

_FORMAT: Final = (("format", semconv.FORMAT),)
_LOADED: Final = (("pretrained_model_name_or_path", semconv.INPUT_PATH),)
_FILES: Final = (
    ("self.model_name_or_path", semconv.INPUT_PATH),
    ("self.output_dir", semconv.OUTPUT_PATH),
    ("self.scheme_input", semconv.CONFIG_NAME),
    ("self.format", semconv.FORMAT),
)

AUTO_ROUND: Final = Library(
    name="auto-round",
    distribution="auto-round",
    covers=frozenset({"torch", "transformers"}),
    nests=True,
    hooks=(
        Hook(_BASE, "BaseOrchestrator.quantize_and_save", "otel_quant.instruments.calls:operation", reads=_FORMAT),
        Hook("auto_round.utils.model", "llm_load_model", _STEP, ProfileStep.MODEL_LOADING, reads=_LOADED),
        Hook(_BASE, "BaseOrchestrator.post_init", _CALLS + "preparing", ProfileStep.MODEL_PREPARATION),
        Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_data_driven", _CALLS + "described", ProfileStep.MODEL_QUANTIZATION),
        Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_zero_shot", _CALLS + "described", ProfileStep.MODEL_QUANTIZATION),
        Hook("auto_round.calibration.llm", "LLMCalibrator.calib", _CALLS + "calibrating", ProfileStep.CALIBRATION),
        Hook("auto_round.calib_dataset", "get_dataloader", _CALLS + "reading", ProfileStep.DATASET_LOADING),
        Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_blocks", _STEP, ProfileStep.ADVANCED_ALGORITHMS),
        Hook("auto_round.algorithms.composer", "AlgorithmComposer.compress_block", _LAYER),
        Hook(_BASE, "BaseOrchestrator.save_quantized", _CALLS + "exporting", ProfileStep.EXPORT_HF_SAFETENSORS, reads=_FORMAT),
        Hook("auto_round.compressors.model_free", "_ModelFreeCompressorCore.run", _STEP, ProfileStep.FILE_TO_FILE_QUANTIZATION, reads=_FILES),
    ),
)  # fmt: skip
