"""Intel's AutoRound: rounding that is learned, one block of a model after another.

The samples go through the model once, for what reaches each block; the blocks are then
tuned on that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.hooks import (
    ENTRY_POINT,
    LAYER,
    STEP,
    Hook,
    Library,
    Wrapper,
)
from otel_quant.capture.instruments.shared.samples import CountedLoader
from otel_quant.capture.instruments.shared.steps import (
    as_library_step,
    as_operation,
    attributes_of,
    step,
)
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.auto_round:"
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


def preparing(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes a step of the call that prepares; each further one returns at once."""
    as_one_step = step(function, hook, library)

    @wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "_post_init_done", False):
            return function(self, *args, **kwargs)
        return as_one_step(self, *args, **kwargs)

    return wrapper


def described(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step; its compressor describes it and the steps within."""
    return as_operation(step(function, hook, library), library, _of_compressor)


def calibrating(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step that counts what its data set yields, if that is not a name."""
    as_one_step = step(function, hook, library)

    @wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = getattr(self, "dataset", None)
        if given is None or isinstance(given, str):
            return as_one_step(self, *args, **kwargs)
        self.dataset = CountedLoader(given)
        try:
            return as_one_step(self, *args, **kwargs)
        finally:
            self.dataset = given

    return wrapper


def reading(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step; what the loader that it returns yields is counted."""
    as_one_step = step(function, hook, library)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return CountedLoader(as_one_step(*args, **kwargs))

    return wrapper


def exporting(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step, named by the kind of file that it writes."""
    as_safetensors = step(function, hook, library)
    as_gguf = as_library_step(function, ProfileStep.EXPORT_GGUF, library, sources=hook.sources)

    @wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        writes_gguf = False
        with FAULTS.kept_in(f"arguments of {hook.target}"):
            formats = getattr(self, "formats", None) or kwargs.get("format") or ()
            names = (
                [formats] if isinstance(formats, str) else [each.output_format for each in formats]
            )
            writes_gguf = any("gguf" in str(name) for name in names)
        return (as_gguf if writes_gguf else as_safetensors)(self, *args, **kwargs)

    return wrapper


def _of_compressor(compressor: Any, /, *_: object, **__: object) -> Mapping[str, AttributeValue]:
    sources = (("of.scheme", semconv.CONFIG_NAME), ("of.bits", semconv.BITS))
    found = attributes_of({"of": compressor}, False, sources)
    found[semconv.WEIGHT_TYPE] = f"{compressor.data_type}{compressor.bits}"
    if compressor.act_bits < 16:
        found[semconv.ACTIVATION_TYPE] = f"{compressor.act_data_type}{compressor.act_bits}"
    group = compressor.group_size
    if isinstance(group, int) and group > 0:
        found[semconv.BLOCK_SIZE] = group
    elif group in (-1, 0):  # else a shape
        found[semconv.PER_CHANNEL] = group == -1
    found[semconv.ALGORITHMS] = (type(compressor.quantize_config).__name__.removesuffix("Config"),)
    return found
