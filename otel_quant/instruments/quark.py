"""AMD Quark: ONNX (static, dynamic, MatMulNBits) and PyTorch.

Most steps come from Quark's own marks, through its profiler. The table below adds what
its profiler declares and never reports, and the entry points around the steps.
"""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.steps import ProfileStep

_STEP: Final = "otel_quant.instruments.calls:step"
_OPERATION: Final = "otel_quant.instruments.calls:operation"
_QUANTIZATION: Final = "otel_quant.instruments.calls:quantization"
_SAMPLE: Final = "otel_quant.instruments.calls:sample"
_LAYER: Final = "otel_quant.instruments.calls:layer"
_CONFIGURATION: Final = "otel_quant.instruments.quark_configuration:"
_NAMED: Final = _CONFIGURATION + "named"
_PROFILER: Final = "otel_quant.instruments.quark_profiler:"

_OWN: Final = "quark.common.profiler.profiler"
_EXPORT: Final = "quark.torch.export.api"
_ONNX: Final = "quark.onnx.quantization"

QUARK: Final = Library(
    name="quark",
    distribution="amd-quark",
    covers=frozenset({"onnxruntime", "torch", "torchao", "transformers"}),
    configuration=_CONFIGURATION + "attributes_of",
    nests=True,
    hooks=(
        # Quark's own marks.
        Hook(_OWN, "profile_scope", _PROFILER + "profile_scope"),
        Hook(_OWN, "GlobalProfiler.scope", _PROFILER + "scope"),
        Hook(_OWN, "GlobalProfiler.__enter__", _PROFILER + "enter"),
        Hook(_OWN, "GlobalProfiler.__exit__", _PROFILER + "leave"),
        Hook(_OWN, "GlobalProfiler.__init__", _PROFILER + "make"),
        Hook(_OWN, "GlobalProfiler._checkpoint", _PROFILER + "checkpoint"),
        Hook(_OWN, "GlobalProfiler.start_cache_dir_monitoring", _PROFILER + "watch"),
        # Steps that it declares and does not report.
        Hook("quark.onnx.algorithm.finetuning.fast_finetune", "fast_finetune", _STEP, ProfileStep.FAST_FINETUNE, filled_in=True),
        Hook("quark.torch.quantization.api", "ModelQuantizer._calibrate_all_params", _STEP, ProfileStep.CALIBRATION_WEIGHTS, filled_in=True),
        Hook(_EXPORT, "export_onnx", _STEP, ProfileStep.EXPORT_ONNX, filled_in=True),
        Hook(_EXPORT, "export_safetensors", _STEP, ProfileStep.EXPORT_HF_SAFETENSORS, filled_in=True),
        Hook(_EXPORT, "export_gguf", _STEP, ProfileStep.EXPORT_GGUF, filled_in=True),
        Hook("quark.onnx.utils.model_utils", "check_onnx_model", _STEP, ProfileStep.FLOAT_MODEL_VALIDATION, filled_in=True),
        Hook("quark.onnx.utils.model_utils", "run_onnx_model", _STEP, ProfileStep.FLOAT_MODEL_VALIDATION, filled_in=True),
        # Takes all that the program's reader has before the first step of Quark's own: minutes, maybe.
        Hook("quark.onnx.calibration.data_readers", "CachedDataReader.__init__", _STEP, ProfileStep.DATASET_LOADING, filled_in=True),
        # Entry points, and the progress of calibration.
        Hook(f"{_ONNX}.api", "ModelQuantizer.quantize_model", _OPERATION),
        Hook(f"{_ONNX}.quantize", "quantize_static", _QUANTIZATION),
        Hook(f"{_ONNX}.quantize", "quantize_dynamic", _QUANTIZATION),
        Hook("quark.torch.quantization.api", "ModelQuantizer.quantize_model", _OPERATION),
        Hook("quark.torch.quantization.api", "ModelQuantizer.direct_quantize_checkpoint", _OPERATION),
        Hook("quark.onnx.calibration.data_readers", "CachedDataReader.get_next", _SAMPLE),
        Hook("quark.onnx.algorithm.finetuning.torch_utils", "optimize_module", _LAYER),
        # Names of configurations, which the configurations themselves do not know.
        Hook("quark.onnx.quantization.config.custom_config", "get_default_config", _NAMED, parameter="config_name"),
        Hook("quark.torch.quantization.config.template", "LLMTemplate.get_config", _NAMED, parameter="scheme"),
    ),
)  # fmt: skip
