"""AMD Quark: ONNX (static, dynamic, MatMulNBits) and PyTorch.

Quark marks most steps itself, for its own profiler, which is hooked. The table adds the
steps that Quark's profiler declares and never reports, and the entry points around them.
"""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.shared.library import (
    ENTRY_POINT,
    LAYER,
    MODEL_QUANTIZATION,
    SAMPLE,
    STEP,
    Hook,
    Library,
    Wrapper,
)
from otel_quant.schema.step_names import ProfileStep

_CONFIGURATION: Final = "otel_quant.capture.instruments.quark.configuration:"
_PROFILER: Final = "otel_quant.capture.instruments.quark.profiler:"
_NAMED: Final = Wrapper(_CONFIGURATION + "named", "names the configuration that it makes")
_PROFILE_SCOPE: Final = Wrapper(
    _PROFILER + "profile_scope", "each function that it decorates is a step"
)
_SCOPE: Final = Wrapper(_PROFILER + "scope", "a step, as named")
_ENTER: Final = Wrapper(_PROFILER + "enter_scope", "begins that step")
_EXIT: Final = Wrapper(_PROFILER + "exit_scope", "ends that step")
_INITIALIZE: Final = Wrapper(
    _PROFILER + "initialize", "begins the run; its metrics are in our local file too"
)
_CHECKPOINT: Final = Wrapper(_PROFILER + "checkpoint", "a checkpoint")
_CALIBRATION: Final = Wrapper(
    _PROFILER + "calibration",
    "each pass over the data is step **Calibration (Forward)**, each item one calibration sample",
)
_CACHED: Final = Wrapper(
    "otel_quant.capture.instruments.quark.calibration:cached_samples",
    "step **{step}**; the shapes of the first sample are those of the models' inputs",
)
_WATCH: Final = Wrapper(_PROFILER + "watch_cache_dir", "a cache directory to watch")

_OWN: Final = "quark.common.profiler.profiler"
_EXPORT: Final = "quark.torch.export.api"
_ONNX: Final = "quark.onnx.quantization"

LIBRARY: Final = Library(
    name="quark",
    distribution="amd-quark",
    versions_seen="0.13",
    built_on=frozenset({"onnxruntime", "torch", "torchao", "transformers"}),
    configuration=_CONFIGURATION + "attributes_of",
    nests=True,
    hooks=(
        # Steps that Quark marks itself.
        Hook(_OWN, "profile_scope", _PROFILE_SCOPE),
        Hook(_OWN, "GlobalProfiler.scope", _SCOPE),
        Hook(_OWN, "GlobalProfiler.__enter__", _ENTER),
        Hook(_OWN, "GlobalProfiler.__exit__", _EXIT),
        Hook(_OWN, "GlobalProfiler.__init__", _INITIALIZE),
        Hook(_OWN, "GlobalProfiler._checkpoint", _CHECKPOINT),
        Hook(_OWN, "GlobalProfiler.start_cache_dir_monitoring", _WATCH),
        # Steps that it declares and does not report.
        Hook("quark.onnx.algorithm.finetuning.fast_finetune", "fast_finetune", STEP, ProfileStep.FAST_FINETUNE, filled_in=True),
        Hook("quark.torch.quantization.api", "ModelQuantizer._calibrate_all_params", STEP, ProfileStep.CALIBRATION_WEIGHTS, filled_in=True),
        Hook(_EXPORT, "export_onnx", STEP, ProfileStep.EXPORT_ONNX, filled_in=True),
        Hook(_EXPORT, "export_safetensors", STEP, ProfileStep.EXPORT_HF_SAFETENSORS, filled_in=True),
        Hook(_EXPORT, "export_gguf", STEP, ProfileStep.EXPORT_GGUF, filled_in=True),
        Hook("quark.onnx.utils.model_utils", "check_onnx_model", STEP, ProfileStep.FLOAT_MODEL_VALIDATION, filled_in=True),
        Hook("quark.onnx.utils.model_utils", "run_onnx_model", STEP, ProfileStep.FLOAT_MODEL_VALIDATION, filled_in=True),
        # Reads all that the program's reader has, for minutes maybe, before the first step that Quark marks.
        Hook("quark.onnx.calibration.data_readers", "CachedDataReader.__init__", _CACHED, ProfileStep.DATASET_LOADING, filled_in=True),
        # Entry points, and the progress of calibration.
        Hook(f"{_ONNX}.api", "ModelQuantizer.quantize_model", ENTRY_POINT),
        Hook(f"{_ONNX}.quantize", "quantize_static", MODEL_QUANTIZATION),
        Hook(f"{_ONNX}.quantize", "quantize_dynamic", MODEL_QUANTIZATION),
        Hook("quark.torch.quantization.api", "ModelQuantizer.quantize_model", ENTRY_POINT),
        Hook("quark.torch.quantization.api", "ModelQuantizer.direct_quantize_checkpoint", ENTRY_POINT),
        Hook("quark.onnx.calibration.data_readers", "CachedDataReader.get_next", SAMPLE),
        Hook("quark.torch.quantization.api", "ModelQuantizer._do_calibration", _CALIBRATION),
        Hook("quark.onnx.algorithm.finetuning.torch_utils", "optimize_module", LAYER),
        # Names of configurations, which the configurations themselves do not have.
        Hook("quark.onnx.quantization.config.custom_config", "get_default_config", _NAMED, parameter="config_name"),
        Hook("quark.torch.quantization.config.template", "LLMTemplate.get_config", _NAMED, parameter="scheme"),
    ),
)  # fmt: skip
