"""Intel's AutoRound: rounding that is learned, one block of a model after another.

The samples go through the model once, for what reaches each block; the blocks are then
tuned on that.
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

_CALLS: Final = "otel_quant.capture.instruments.auto_round.calls:"
_PREPARING: Final = Wrapper(
    _CALLS + "preparing", "step **{step}**, the first time for each compressor"
)
_DESCRIBED: Final = Wrapper(_CALLS + "described", "step **{step}**, described by its compressor")
_CALIBRATING: Final = Wrapper(
    _CALLS + "calibrating",
    "step **{step}**; counts what its data set yields, if that is not a name",
)
_READING: Final = Wrapper(
    _CALLS + "reading", "step **{step}**; what the loader it returns yields is counted"
)
_EXPORTING: Final = Wrapper(
    _CALLS + "exporting", f"step **{{step}}**, or **{ProfileStep.EXPORT_GGUF}**"
)

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

LIBRARY: Final = Library(
    name="auto-round",
    distribution="auto-round",
    versions_seen="0.16",
    built_on=frozenset({"torch", "transformers"}),
    nests=True,
    hooks=(
        Hook(_BASE, "BaseOrchestrator.quantize_and_save", ENTRY_POINT, sources=_FORMAT),
        Hook("auto_round.utils.model", "llm_load_model", STEP, ProfileStep.MODEL_LOADING, sources=_LOADED),
        Hook(_BASE, "BaseOrchestrator.post_init", _PREPARING, ProfileStep.MODEL_PREPARATION),
        Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_data_driven", _DESCRIBED, ProfileStep.MODEL_QUANTIZATION),
        Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_zero_shot", _DESCRIBED, ProfileStep.MODEL_QUANTIZATION),
        Hook("auto_round.calibration.llm", "LLMCalibrator.calib", _CALIBRATING, ProfileStep.CALIBRATION),
        Hook("auto_round.calib_dataset", "get_dataloader", _READING, ProfileStep.DATASET_LOADING),
        Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_blocks", STEP, ProfileStep.ADVANCED_ALGORITHMS),
        Hook("auto_round.algorithms.composer", "AlgorithmComposer.compress_block", LAYER),
        Hook(_BASE, "BaseOrchestrator.save_quantized", _EXPORTING, ProfileStep.EXPORT_HF_SAFETENSORS, sources=_FORMAT),
        Hook("auto_round.compressors.model_free", "_ModelFreeCompressorCore.run", STEP, ProfileStep.FILE_TO_FILE_QUANTIZATION, sources=_FILES),
    ),
)  # fmt: skip
