"""The tables of the libraries: what is hooked, and what a call becomes.

Lines are as long as a hook needs: a table is read by columns. Most libraries are nothing else; functions that
a hook names beside the common ones are in a module beside this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_quant.capture.instruments.configuration import agreed
from otel_quant.capture.instruments.hooks import (
    ALL,
    BAR,
    COUNT_PASSES,
    END_CALIBRATION,
    ENTRY_POINT,
    LAYER,
    LAYERS,
    NOTE_FAKE,
    NOTE_MODULES,
    NOTE_WEIGHTS,
    OBSERVED,
    OBSERVERS,
    OF_CALIBRATOR,
    RETURNED,
    STEP,
    WATCH,
    Hook,
    Library,
)
from otel_quant.schema import semconv
from otel_quant.schema.readings import AttributeValue, ProfileStep

_MODELS: Final = "steps:models_of"
LIBRARIES: Final[dict[str, Library]] = {}  # By the names that users call them


def _library(
    name: str, *hooks: Hook, distribution: str = "", built_on: str = "", **more: bool
) -> None:
    """Adds a library; what it is built on are names with blanks between."""
    below = frozenset(built_on.split())
    LIBRARIES[name] = Library(name, distribution or name, hooks, below, **more)


# --- AMD Quark: ONNX (static, dynamic, MatMulNBits) and PyTorch ---------------------------

# Quark marks most steps itself, for its own profiler, which is hooked. The table adds the steps that it declares
# and never reports, and the entry points around them.

_PROFILER: Final = "quark.common.profiler.profiler"
_QUARK_ONNX: Final = "quark.onnx.quantization"
_QUARK_ALGORITHMS: Final = "quark.onnx.algorithm"
_QUARK_BARS: Final = (
    "common", "awq.awq", "awq.smooth", "awq.auto_smooth", "blockwise_tuning.blockwise_tuning",
    "blockwise_joint_tuning.processor", "osscar.osscar",
)  # fmt: skip
_READER: Final = "quark.onnx.calibration.data_readers"
_QUARK_TORCH: Final = "quark.torch.quantization.api"
_QUARK_EXPORT: Final = "quark.torch.export.api"
_LEAVES: Final = "nodes_to_exclude"
_QUARK_UTILS: Final = "quark.onnx.utils.model_utils"
_QUARK: Final = "quark:described"

_library(
    "quark",
    # Steps that Quark marks itself.
    Hook(_PROFILER, "GlobalProfiler.scope", "quark:scope"),
    Hook(_PROFILER, "GlobalProfiler.__enter__", "quark:enter_scope"),
    Hook(_PROFILER, "GlobalProfiler.__exit__", "steps:end_block"),
    Hook(_PROFILER, "GlobalProfiler.__init__", "quark:initialize"),
    Hook(_PROFILER, "GlobalProfiler._checkpoint", "quark:checkpoint"),
    Hook(_PROFILER, "GlobalProfiler.start_cache_dir_monitoring", OBSERVED, after="quark:watch_cache_dir"),
    # Steps that it declares and does not report.
    Hook(f"{_QUARK_ALGORITHMS}.finetuning.fast_finetune", "fast_finetune", STEP, ProfileStep.FAST_FINETUNE, filled_in=True),
    Hook(_QUARK_TORCH, "ModelQuantizer._calibrate_all_params", STEP, ProfileStep.CALIBRATION_WEIGHTS, filled_in=True),
    Hook(_QUARK_EXPORT, "export_onnx", STEP, ProfileStep.EXPORT_ONNX, filled_in=True),
    Hook(_QUARK_EXPORT, "export_safetensors", STEP, ProfileStep.EXPORT_HF_SAFETENSORS, filled_in=True),
    Hook(_QUARK_EXPORT, "export_gguf", STEP, ProfileStep.EXPORT_GGUF, filled_in=True),
    Hook(_QUARK_UTILS, "check_onnx_model", STEP, ProfileStep.FLOAT_MODEL_VALIDATION, filled_in=True),
    Hook(_QUARK_UTILS, "run_onnx_model", STEP, ProfileStep.FLOAT_MODEL_VALIDATION, filled_in=True),
    # Reads all that the program's reader has, for minutes maybe, before the first step that Quark marks.
    Hook(_READER, "CachedDataReader.__init__", STEP, ProfileStep.DATASET_LOADING, filled_in=True, after="quark:note_cached_samples"),
    # Entry points, and the progress of calibration.
    Hook(f"{_QUARK_ONNX}.api", "ModelQuantizer.quantize_model", ENTRY_POINT, describe=_QUARK),
    Hook(f"{_QUARK_ONNX}.quantize", "quantize_static", ENTRY_POINT, config=ALL, describe=_QUARK, models=_MODELS, leaves=_LEAVES),
    Hook(f"{_QUARK_ONNX}.quantize", "quantize_dynamic", ENTRY_POINT, config=ALL, describe=_QUARK, models=_MODELS),
    Hook(_QUARK_TORCH, "ModelQuantizer.quantize_model", ENTRY_POINT, describe=_QUARK),
    Hook(_QUARK_TORCH, "ModelQuantizer.direct_quantize_checkpoint", ENTRY_POINT, describe=_QUARK),
    Hook(_READER, "CachedDataReader.get_next", OBSERVED, after="samples:sample"),
    *(Hook("quark.onnx.calibration.calibrators", f"{each}.collect_data", OBSERVED, before=OF_CALIBRATOR) for each in ("OverridedMinMaxCalibrater", "OverridedHistogramCalibrater", "PowOfTwoCalibrater")),
    Hook(_QUARK_TORCH, "ModelQuantizer._do_calibration", "samples:passes", ProfileStep.CALIBRATION_FORWARD, filled_in=True, counts="dataloader", before="observers:of_model"),
    # Layers that advanced algorithms go through; `common` is of GPTQ, GPTAQ and Qronos.
    *(Hook(f"quark.torch.algorithm.{name}", "tqdm", BAR, counts="layer") for name in _QUARK_BARS),
    Hook(f"{_QUARK_ALGORITHMS}.finetuning.fast_finetune", "tqdm", BAR, counts="layer"),
    Hook(f"{_QUARK_ALGORITHMS}.sq.smooth_quant", "tqdm", BAR, counts="sample"),
    Hook(f"{_QUARK_ALGORITHMS}.gptq.gptq", "GptqProcessor.init_gptq_quant", OBSERVED, after="quark:note_nodes"),
    Hook(f"{_QUARK_ALGORITHMS}.gptq.gptq", "GPTQ.fasterquant", OBSERVED, before=LAYER),
    # How well layers were quantized.
    Hook(f"{_QUARK_ONNX}.output_eval", "eval_metrics", STEP, ProfileStep.MODEL_EVALUATION, filled_in=True),
    Hook(f"{_QUARK_ONNX}.output_eval", "calculate_cos", OBSERVED, after="quark:of_cosine"),
    Hook(f"{_QUARK_ONNX}.output_eval", "calculate_l2_distance", OBSERVED, after="quark:of_l2"),
    Hook("quark.onnx.algorithm.finetuning.onnx_evaluate", "average_L2", OBSERVED, after="quark:of_finetuned"),
    Hook("quark.onnx.algorithm.mprecision.sensitivity_analyzer", "SensitivityAnalyzer.analyze", OBSERVED, after="quark:of_sensitivity"),
    Hook("quark.torch.algorithm.gptq.gptq", "fasterquant_inner", OBSERVED, after="quark:of_gptq"),
    # Names of configurations, which the configurations themselves do not have.
    Hook(f"{_QUARK_ONNX}.config.custom_config", "get_default_config", OBSERVED, after="quark:note_name"),
    Hook("quark.torch.quantization.config.template", "LLMTemplate.get_config", OBSERVED, after="quark:note_name"),
    distribution="amd-quark",
    built_on="onnxruntime torch torchao transformers gguf",
    nests=True,
)  # fmt: skip

# --- ONNX Runtime's quantization tools: static, dynamic, and block-wise for MatMul --------

_ORT: Final = "onnxruntime.quantization"
_CALIBRATE: Final = f"{_ORT}.calibrate"
_DEBUG: Final = f"{_ORT}.qdq_loss_debug"
_QUANTIZER: Final = (("self.per_channel", semconv.PER_CHANNEL),)
_NBITS_CONFIG: Final = ("self.algo_config", "self.nodes_to_exclude")

_library(
    "onnxruntime",
    Hook(f"{_ORT}.shape_inference", "quant_pre_process", STEP, ProfileStep.PRE_PROCESS),
    Hook(_CALIBRATE, "create_calibrator", OBSERVED, after="libraries:note_model"),
    Hook(_CALIBRATE, "MinMaxCalibrater.collect_data", "libraries:collect", ProfileStep.CALIBRATION),
    Hook(_CALIBRATE, "MinMaxCalibrater.compute_data", "libraries:compute", ProfileStep.CALIBRATION),
    Hook(_CALIBRATE, "HistogramCalibrater.collect_data", "libraries:collect", ProfileStep.CALIBRATION),
    Hook(_CALIBRATE, "HistogramCalibrater.compute_data", "libraries:compute", ProfileStep.CALIBRATION),
    Hook(f"{_ORT}.qdq_quantizer", "QDQQuantizer.quantize_model", STEP, ProfileStep.QUANTIZATION_STATIC, _QUANTIZER, after=NOTE_WEIGHTS),
    Hook(f"{_ORT}.onnx_quantizer", "ONNXQuantizer.quantize_model", STEP, choose="libraries:static_or_dynamic", sources=_QUANTIZER, after=NOTE_WEIGHTS),
    Hook(f"{_ORT}.matmul_nbits_quantizer", "MatMulNBitsQuantizer.process", STEP, ProfileStep.QUANTIZATION_MATMUL_NBITS, (("self.model_path", semconv.INPUT_PATH),), config=_NBITS_CONFIG, models="libraries:models_of_quantizer", after=NOTE_WEIGHTS),
    Hook(f"{_ORT}.matmul_bnb4_quantizer", "MatMulBnb4Quantizer.process", STEP, ProfileStep.QUANTIZATION_MATMUL_NBITS, config=("self.quant_type", "self.block_size", "self.nodes_to_exclude"), after=NOTE_WEIGHTS),
    Hook(f"{_ORT}.onnx_model", "ONNXModel.save_model_to_file", STEP, ProfileStep.POST_PROCESS),
    Hook("onnxruntime.transformers.float16", "convert_float_to_float16", STEP, ProfileStep.MODEL_QUANTIZATION, config=ALL, describe="tables:of_float16"),
    Hook(_DEBUG, "collect_activations", STEP, ProfileStep.MODEL_EVALUATION),
    Hook(_DEBUG, "compute_activation_error", STEP, ProfileStep.MODEL_EVALUATION, after="libraries:of_activations"),
    Hook(_DEBUG, "compute_weight_error", STEP, ProfileStep.MODEL_EVALUATION, after="libraries:of_weights"),
    # Entry points: their arguments describe the steps, and their models are costed.
    Hook(f"{_ORT}.quantize", "quantize_static", ENTRY_POINT, config=ALL, models=_MODELS, after=NOTE_WEIGHTS, leaves=_LEAVES),
    Hook(f"{_ORT}.quantize", "quantize_dynamic", ENTRY_POINT, config=ALL, models=_MODELS),
    Hook(f"{_ORT}.quantize", "quantize", ENTRY_POINT, config=ALL, models=_MODELS, after=NOTE_WEIGHTS),
)  # fmt: skip


def _always(kind: str) -> Callable[[Any], dict[str, AttributeValue]]:
    """Returns what describes each call by one type of weights."""
    return lambda call: {semconv.WEIGHT_TYPE: kind}


of_float16 = _always("float16")
of_blocks = _always("int8")  # it has a table of 256 values


_MIXED: Final = "onnxconverter_common.auto_mixed_precision"
_HALF: Final = "onnxconverter_common.float16"

_library(
    "onnxconverter-common",
    Hook(_HALF, "convert_float_to_float16", STEP, ProfileStep.MODEL_QUANTIZATION, config=ALL, describe="tables:of_float16"),
    Hook(_HALF, "convert_float_to_float16_model_path", STEP, ProfileStep.MODEL_QUANTIZATION, (("model_path", semconv.INPUT_PATH),), config=ALL, describe="tables:of_float16"),
    Hook(_MIXED, "auto_convert_mixed_precision", STEP, ProfileStep.MODEL_QUANTIZATION, config=ALL, describe="tables:of_float16"),
    Hook(f"{_MIXED}_model_path", "auto_convert_mixed_precision_model_path", STEP, ProfileStep.MODEL_QUANTIZATION, config=ALL, describe="tables:of_float16"),
    is_common=True,  # converters of models import it
)  # fmt: skip

# --- PyTorch's own quantization: eager and FX graph mode ----------------------------------

# Between preparation and conversion the program itself runs the model to calibrate it; only ``quantize`` is
# passed the function that does.

_QCONFIG: Final = "libraries:of_qconfigs"

_EAGER: Final = "torch.ao.quantization.quantize"
_FX: Final = "torch.ao.quantization.quantize_fx"

_library(
    "torch",
    Hook(_EAGER, "prepare", STEP, ProfileStep.MODEL_PREPARATION, describe=_QCONFIG, after=WATCH),
    Hook(_EAGER, "prepare_qat", STEP, ProfileStep.MODEL_PREPARATION, describe=_QCONFIG),
    Hook(_EAGER, "convert", STEP, ProfileStep.MODEL_QUANTIZATION, describe="libraries:of_observed"),
    Hook(_EAGER, "quantize_dynamic", STEP, ProfileStep.QUANTIZATION_DYNAMIC, describe=_QCONFIG),
    Hook(_EAGER, "quantize", ENTRY_POINT, describe=_QCONFIG, runs="run_fn"),
    Hook(_EAGER, "quantize_qat", ENTRY_POINT, describe=_QCONFIG),
    Hook(_FX, "prepare_fx", STEP, ProfileStep.MODEL_PREPARATION, describe=_QCONFIG, after=WATCH),
    Hook(_FX, "prepare_qat_fx", STEP, ProfileStep.MODEL_PREPARATION, describe=_QCONFIG),
    Hook(_FX, "convert_fx", STEP, ProfileStep.MODEL_QUANTIZATION, describe="libraries:of_observed"),
    Hook(_FX, "convert_to_reference_fx", STEP, ProfileStep.MODEL_QUANTIZATION, describe="libraries:of_observed"),
    is_common=True,
)  # fmt: skip

# --- torchao: ``quantize_`` in place, and the quantization of exported programs (PT2E) ----

_PT2E: Final = "torchao.quantization.pt2e.quantize_pt2e"

_library(
    "torchao",
    Hook("torchao.quantization.quant_api", "quantize_", "series:layers_or_step", ProfileStep.MODEL_QUANTIZATION, choose="forward_passes:part_of", config=("config",), describe="forward_passes:end_of_first_part", after=WATCH),
    Hook(_PT2E, "prepare_pt2e", STEP, ProfileStep.MODEL_PREPARATION, config=("quantizer",), after=WATCH),
    Hook(_PT2E, "prepare_qat_pt2e", STEP, ProfileStep.MODEL_PREPARATION, config=("quantizer",)),
    Hook(_PT2E, "convert_pt2e", STEP, ProfileStep.MODEL_QUANTIZATION, describe=END_CALIBRATION),
    is_common=True,  # transformers imports it where it is installed
    built_on="torch",
)  # fmt: skip

# --- Hugging Face transformers: models that are quantized while they are loaded -----------


_library(
    "transformers",
    Hook("transformers.modeling_utils", "PreTrainedModel.from_pretrained", STEP, ProfileStep.MODEL_QUANTIZATION, config=("kwargs.quantization_config",), needs="quantization_config"),
    Hook("transformers.integrations.bitsandbytes", "replace_with_bnb_linear", OBSERVED, after="libraries:note_replaced"),
    is_common=True,  # every program that uses it loads models
    built_on="torch torchao hqq optimum-quanto bitsandbytes compressed-tensors",
)  # fmt: skip

# --- Hugging Face diffusers: image models that are quantized while they are loaded --------

_DIFFUSERS: Final = ("kwargs.quantization_config",)

_library(
    "diffusers",
    Hook("diffusers.models.modeling_utils", "ModelMixin.from_pretrained", STEP, ProfileStep.MODEL_QUANTIZATION, config=_DIFFUSERS, needs="quantization_config"),
    Hook("diffusers.pipelines.pipeline_utils", "DiffusionPipeline.from_pretrained", STEP, ProfileStep.MODEL_QUANTIZATION, config=_DIFFUSERS, needs="quantization_config"),
    is_common=True,
    built_on="torch torchao transformers optimum-quanto bitsandbytes nvidia-modelopt",
)  # fmt: skip

# --- Apple's Core ML Tools: converted models, and those of PyTorch before they are ---------

_COREML: Final = "coremltools.optimize.coreml._post_training_quantization"
_COREML_TORCH: Final = "coremltools.optimize.torch"
_COREML_COMPRESSORS: Final = (
    "quantization.post_training_quantization:PostTrainingQuantizer", "palettization.post_training_palettization:PostTrainingPalettizer",
    "palettization.sensitive_k_means:SKMPalettizer", "layerwise_compression.layerwise_compressor:LayerwiseCompressor",
)  # fmt: skip

_library(
    "coremltools",
    *(Hook(_COREML, name, STEP, ProfileStep.MODEL_QUANTIZATION, config=("config",), parameters=("mlmodel", "config")) for name in ("linear_quantize_weights", "palettize_weights", "linear_quantize_activations")),
    *(Hook(f"{_COREML_TORCH}.{module}", f"{name}.compress", STEP, ProfileStep.MODEL_QUANTIZATION, config=("self._config",)) for module, _, name in (each.partition(":") for each in _COREML_COMPRESSORS)),
    Hook(f"{_COREML_TORCH}.quantization.quantizer", "LinearQuantizer.prepare", STEP, ProfileStep.MODEL_PREPARATION, config=("self._config",)),
    Hook(f"{_COREML_TORCH}.quantization.quantizer", "LinearQuantizer.finalize", STEP, ProfileStep.MODEL_QUANTIZATION, config=("self._config",)),
    built_on="torch",
)  # fmt: skip

# --- CTranslate2, and GGUF files: weights are quantized as they are written ---------------

_library(
    "ctranslate2",
    Hook("ctranslate2.converters.converter", "Converter.convert", STEP, ProfileStep.MODEL_QUANTIZATION, (("quantization", semconv.WEIGHT_TYPE),), config=("quantization",), needs="quantization"),
    is_common=True,  # it translates more often than it converts
    built_on="transformers",
)  # fmt: skip

_library(
    "gguf",
    Hook("gguf.gguf_writer", "GGUFWriter.write_tensors_to_file", STEP, ProfileStep.EXPORT_GGUF, (("self.path", semconv.OUTPUT_PATH),), describe="tables:of_gguf", before="libraries:expect_tensors"),
    Hook("gguf.gguf_writer", "GGUFWriter.write_padding", OBSERVED, before="libraries:next_tensor"),
)  # fmt: skip


def of_gguf(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the types of the matrices that are written, as GGML calls them."""
    tensors = [each for shard in call["self"].tensors for each in shard.values()]
    types = {each.dtype.name for each in tensors if len(each.shape) > 1}
    return agreed([{semconv.WEIGHT_TYPE: name} for name in sorted(types)])


# --- Google's AI Edge Quantizer: LiteRT models, by a recipe for groups of operators --------

_EDGE: Final = "ai_edge_quantizer"
_EDGE_FILES: Final = (("self._model_name", semconv.INPUT_PATH),)
_EDGE_RECIPE: Final = "libraries:of_edge_recipe"

_library(
    "ai-edge-quantizer",
    Hook(f"{_EDGE}.quantizer", "Quantizer.calibrate", STEP, choose="libraries:edge_calibration", sources=_EDGE_FILES, describe=_EDGE_RECIPE, before="libraries:expect_edge_samples"),
    *(Hook(f"{_EDGE}.calibrator", f"{each}._calibrate_step", OBSERVED, before="libraries:edge_sample") for each in ("_InferenceOnlyCalibrator", "_PreserveAllTensorsCalibrator", "_ProfilerBasedCalibrator")),
    Hook(f"{_EDGE}.quantizer", "Quantizer.quantize", STEP, ProfileStep.MODEL_QUANTIZATION, _EDGE_FILES, describe=_EDGE_RECIPE),
    Hook(f"{_EDGE}.quantizer", "Quantizer.validate", STEP, ProfileStep.MODEL_EVALUATION, _EDGE_FILES, describe=_EDGE_RECIPE),
)  # fmt: skip

# --- compressed-tensors alone: a configuration applied, weights compressed ----------------

_COMPRESSED: Final = "compressed_tensors"

_library(
    "compressed-tensors",
    Hook(f"{_COMPRESSED}.quantization.lifecycle.apply", "apply_quantization_config", STEP, ProfileStep.MODEL_PREPARATION, config=("config",)),
    Hook(f"{_COMPRESSED}.compressors.model_compressors.model_compressor", "ModelCompressor.compress_model", STEP, ProfileStep.FREEZE_MODEL),
    is_common=True,  # transformers imports it where it is installed
)  # fmt: skip

# --- Hugging Face's optimum-onnx, which calls onnxruntime's calibrators and quantizers ----

# The steps are onnxruntime's; the arguments that describe them are optimum-onnx's.

_OPTIMUM: Final = "optimum.onnxruntime.quantization"
_OPTIMIZED: Final = ("self.onnx_model_path", semconv.INPUT_PATH)

_library(
    "optimum-onnx",
    Hook(_OPTIMUM, "ORTQuantizer.fit", ENTRY_POINT, sources=(_OPTIMIZED, ("calibration_config.method", semconv.CALIBRATION_METHOD)), after="libraries:keep_shapes"),
    Hook(_OPTIMUM, "ORTQuantizer.quantize", ENTRY_POINT, sources=(_OPTIMIZED, ("quantization_config.format", semconv.FORMAT)), config=("quantization_config", "self._calibration_config"), models="libraries:models_of_optimum"),
)  # fmt: skip

# --- OpenVINO's NNCF: post-training quantization and weight compression, ONNX and PyTorch -

_NNCF: Final = "nncf.quantization.quantize_model"
_MODE: Final = (
    ("mode", semconv.CONFIG_NAME),
    ("preset", semconv.CONFIG_NAME),
    ("target_device", semconv.BACKEND),
)
_OF_NNCF: Final = "tables:of_nncf"
_NNCF_ALGORITHMS: Final = "nncf.quantization.algorithms"
_NNCF_BARS: Final = (
    "bias_correction.algorithm", "fast_bias_correction.algorithm", "smooth_quant.algorithm",
    "weight_compression.algorithm", "weight_compression.awq", "weight_compression.gptq",
    "weight_compression.mixed_precision", "weight_compression.scale_estimation",
)  # fmt: skip

_library(
    "nncf",
    Hook(_NNCF, "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, _MODE, config=ALL, describe=_OF_NNCF, after=NOTE_WEIGHTS),
    Hook(_NNCF, "quantize_with_accuracy_control", STEP, ProfileStep.MODEL_QUANTIZATION, _MODE, config=ALL, describe=_OF_NNCF, after=NOTE_WEIGHTS),
    Hook(_NNCF, "compress_weights", STEP, ProfileStep.MODEL_QUANTIZATION, _MODE, config=ALL, describe=_OF_NNCF, after=NOTE_WEIGHTS),
    Hook(f"{_NNCF_ALGORITHMS}.pipeline", "collect_statistics", STEP, ProfileStep.CALIBRATION),
    Hook(f"{_NNCF_ALGORITHMS}.weight_compression.algorithm", "WeightCompression._collect_statistics", STEP, ProfileStep.CALIBRATION),
    Hook("nncf.common.tensor_statistics.aggregator", "track", BAR, counts="sample"),
    *(Hook(f"{_NNCF_ALGORITHMS}.{name}", "track", BAR, counts="layer") for name in _NNCF_BARS),
    built_on="torch",
    nests=True,
)  # fmt: skip


def of_nncf(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the types that a mode of NNCF's means, and the algorithms that are switched on."""
    mode = re.fullmatch(r"(.+?)(?:_(a?)sym)?", str(getattr(call.get("mode"), "value", "int8")))
    assert mode is not None
    found: dict[str, AttributeValue] = {semconv.WEIGHT_TYPE: mode[1]}
    if "preset" in call:
        found[semconv.ACTIVATION_TYPE] = mode[1]
    if mode[2] is not None:
        found[semconv.SYMMETRIC] = not mode[2]
    switches = ("awq", "gptq", "scale_estimation", "lora_correction")
    if algorithms := tuple(name for name in switches if call.get(name)):
        found[semconv.ALGORITHMS] = algorithms
    return found


# --- Hugging Face's optimum-quanto: quantize in place, calibrate in a ``with`` block, freeze

_QUANTO: Final = "optimum.quanto"

_library(
    "optimum-quanto",
    Hook(f"{_QUANTO}.quantize", "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, config=ALL, after=NOTE_MODULES),
    Hook(f"{_QUANTO}.quantize", "freeze", STEP, ProfileStep.FREEZE_MODEL, before="libraries:count_modules"),
    Hook(f"{_QUANTO}.nn.qmodule", "QModuleMixin.freeze", OBSERVED, before=LAYER),
    Hook(f"{_QUANTO}.calibrate", "Calibration.__enter__", "steps:begin_block", ProfileStep.CALIBRATION),
    Hook(f"{_QUANTO}.calibrate", "Calibration.__exit__", "steps:end_block"),
    Hook(f"{_QUANTO}.calibrate", "Calibration.calibrate_input", OBSERVED, before="libraries:calibrated"),
    built_on="torch",
)  # fmt: skip

# --- HQQ: half-quadratic quantization of the linear layers of a PyTorch model -------------

_library(
    "hqq",
    Hook("hqq.models.base", "BaseHQQModel.quantize_model", STEP, ProfileStep.MODEL_QUANTIZATION, config=("quant_config",)),
    Hook("hqq.models.base", "BasePatch.patch_linearlayers", OBSERVED, before="libraries:linears_of_hqq"),
    Hook("hqq.core.quantize", "HQQLinear.quantize", LAYERS, ProfileStep.MODEL_QUANTIZATION, config=("weight_quant_params",), before=LAYER),
    built_on="torch",
)  # fmt: skip

# --- Intel's Neural Compressor 3: prepare, calibrate, convert; or all of it in one call ---

# Between ``prepare`` and ``convert`` the program itself runs the model; ``quantize`` is passed the function that
# does. Its decorators hide names and parameters of functions.

_INC: Final = "neural_compressor.torch"
_INC_QUANTIZE: Final = f"{_INC}.quantization.quantize"
_WEIGHT_ONLY: Final = f"{_INC}.algorithms.weight_only"
_INC_CONFIG: Final = "libraries:of_configuration"
_INC_PARAMETERS: Final = ("model", "quant_config", "run_fn")

_library(
    "neural-compressor",
    Hook(_INC_QUANTIZE, "prepare", STEP, ProfileStep.MODEL_PREPARATION, describe=_INC_CONFIG, parameters=_INC_PARAMETERS, after=WATCH),
    Hook(_INC_QUANTIZE, "convert", STEP, ProfileStep.MODEL_QUANTIZATION, describe="libraries:of_prepared", parameters=_INC_PARAMETERS),
    Hook(_INC_QUANTIZE, "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, describe=_INC_CONFIG, parameters=_INC_PARAMETERS, runs="run_fn"),
    Hook(f"{_INC}.quantization.autotune", "autotune", STEP, ProfileStep.ADVANCED_ALGORITHMS),
    Hook("neural_compressor.common.base_tuning", "TuningMonitor.add_trial_result", OBSERVED, after="libraries:of_trial"),
    Hook("neural_compressor.common.base_tuning", "EvaluationFuncWrapper.evaluate", STEP, ProfileStep.MODEL_EVALUATION),
    Hook(f"{_INC}.quantization.save_load_entry", "save", STEP, ProfileStep.POST_PROCESS, parameters=("model", "checkpoint_dir")),
    # What the models' own `save` is:
    Hook(f"{_WEIGHT_ONLY}.save_load", "save", STEP, ProfileStep.POST_PROCESS),
    Hook(f"{_INC}.algorithms.pt2e_quant.save_load", "save", STEP, ProfileStep.POST_PROCESS),
    Hook(f"{_WEIGHT_ONLY}.modules", "INCWeightOnlyLinear.pack", OBSERVED, before=LAYER),
    Hook(f"{_WEIGHT_ONLY}.hqq.core", "HQQLinear.from_float", OBSERVED, before=LAYER),
    built_on="torch torchao transformers auto-round",
    nests=True,
)  # fmt: skip

# --- vLLM's LLM Compressor: a recipe applied to a language model in one shot --------------

# A pipeline takes the samples through the complete model, or through one part of it after another, and the recipe's
# modifiers quantize as they pass.

_ONESHOT: Final = "llmcompressor.entrypoints.oneshot"
_PIPELINES: Final = "llmcompressor.pipelines"
_RECIPE: Final = "libraries:of_recipe"
_SESSION: Final = "libraries:described_by_session"

_library(
    "llmcompressor",
    Hook(_ONESHOT, "oneshot", ENTRY_POINT, describe=_RECIPE),
    Hook(_ONESHOT, "Oneshot.__call__", ENTRY_POINT, describe=_RECIPE, sources=(("self.output_dir", semconv.OUTPUT_PATH),)),
    Hook("llmcompressor.entrypoints.utils", "initialize_model_from_path", STEP, ProfileStep.MODEL_LOADING, (("model_args.model", semconv.INPUT_PATH),)),
    Hook("llmcompressor.datasets.utils", "get_processed_dataset", STEP, ProfileStep.DATASET_LOADING),
    Hook("llmcompressor.core.session", "CompressionSession.initialize", STEP, ProfileStep.MODEL_PREPARATION),
    Hook(f"{_PIPELINES}.data_free.pipeline", "DataFreePipeline.__call__", STEP, ProfileStep.CALIBRATION_WEIGHTS, describe=_SESSION),
    Hook(f"{_PIPELINES}.basic.pipeline", "BasicPipeline.__call__", STEP, ProfileStep.CALIBRATION, describe=_SESSION, counts="dataloader", before=OBSERVERS),
    Hook(f"{_PIPELINES}.sequential.pipeline", "SequentialPipeline.__call__", STEP, ProfileStep.CALIBRATION, describe=_SESSION, before=OBSERVERS),
    Hook(f"{_PIPELINES}.sequential.helpers", "trace_subgraphs", OBSERVED, after="libraries:note_parts"),
    Hook(f"{_PIPELINES}.sequential.pipeline", "_get_batches", "libraries:batches"),
    Hook("llmcompressor.utils.metric_logging", "CompressionLogger.set_results", OBSERVED, after="libraries:of_modifier"),
    Hook("llmcompressor.modifiers.transform.awq.base", "AWQModifier._compute_best_scale", OBSERVED, after="libraries:of_awq"),
    Hook("llmcompressor.transformers.compression.compressed_tensors_utils", "modify_save_pretrained", "libraries:saving", ProfileStep.EXPORT_HF_SAFETENSORS),
    Hook("llmcompressor.entrypoints.model_free", "model_free_ptq", STEP, ProfileStep.FILE_TO_FILE_QUANTIZATION, (("scheme", semconv.CONFIG_NAME),), config=ALL, describe="libraries:of_scheme"),
    built_on="torch transformers auto-round compressed-tensors",
)  # fmt: skip

# --- Intel's AutoRound: rounding that is learned, one block of a model after another ------

# The samples go through the model once, for what reaches each block; the blocks are then tuned on that.

_BASE: Final = "auto_round.compressors.base"
_ORCHESTRATOR: Final = "auto_round.compressors.orchestrator"
_COMPRESSOR: Final = "libraries:of_compressor"
_FORMAT: Final = (("format", semconv.FORMAT),)
_ROUND_FILES: Final = (
    ("self.model_name_or_path", semconv.INPUT_PATH),
    ("self.output_dir", semconv.OUTPUT_PATH),
    ("self.output_dir", semconv.RESUME_PATH),
    ("self.scheme_input", semconv.CONFIG_NAME),
    ("self.format", semconv.FORMAT),
)

_library(
    "auto-round",
    Hook(_BASE, "BaseOrchestrator.quantize_and_save", ENTRY_POINT, sources=_FORMAT),
    Hook("auto_round.utils.model", "llm_load_model", STEP, ProfileStep.MODEL_LOADING),
    Hook(_BASE, "BaseOrchestrator.post_init", STEP, choose="libraries:preparation"),
    Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_data_driven", STEP, ProfileStep.MODEL_QUANTIZATION, describe=_COMPRESSOR),
    Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_zero_shot", STEP, ProfileStep.MODEL_QUANTIZATION, describe=_COMPRESSOR, before="libraries:all_blocks"),
    Hook("auto_round.calibration.llm", "LLMCalibrator.calib", STEP, ProfileStep.CALIBRATION, before="libraries:count_dataset"),
    Hook("auto_round.calib_dataset", "get_dataloader", STEP, ProfileStep.DATASET_LOADING, counts=RETURNED),
    Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_blocks", STEP, ProfileStep.ADVANCED_ALGORITHMS, before="libraries:blocks"),
    Hook("auto_round.algorithms.composer", "AlgorithmComposer.compress_block", OBSERVED, before=LAYER),
    Hook("auto_round.wrapper", "unwrapper_block", OBSERVED, after="libraries:of_block"),
    Hook("auto_round.wrapper", "unwrapper_layer", OBSERVED, after="libraries:of_block"),
    Hook(_BASE, "BaseOrchestrator.save_quantized", STEP, choose="libraries:kind_of_export", sources=_FORMAT, describe=_COMPRESSOR, after=NOTE_FAKE),
    Hook("auto_round.compressors.model_free", "_ModelFreeCompressorCore.run", STEP, ProfileStep.FILE_TO_FILE_QUANTIZATION, _ROUND_FILES, config=("self.scheme_input",), after=NOTE_FAKE),
    built_on="torch transformers gguf compressed-tensors",
    nests=True,
)  # fmt: skip

# --- NVIDIA's Model Optimizer: PyTorch and ONNX --------------------------------------------

# For ONNX it puts functions of its own into onnxruntime's calibrators, whose steps are within its own.

_MTQ: Final = "modelopt.torch.quantization"
_LAYERWISE: Final = (("config.algorithm.layerwise.checkpoint_dir", semconv.RESUME_PATH),)
_MODELOPT_ONNX: Final = "modelopt.onnx.quantization"
_PATCHES: Final = f"{_MODELOPT_ONNX}.ort_patching"

_library(
    "nvidia-modelopt",
    Hook(f"{_MTQ}.model_quant", "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, _LAYERWISE, describe="libraries:of_modelopt"),
    Hook(f"{_MTQ}.model_quant", "calibrate", STEP, ProfileStep.CALIBRATION, config=("algorithm",), before=COUNT_PASSES),
    Hook(f"{_MTQ}.model_quant", "auto_quantize", STEP, ProfileStep.MODEL_QUANTIZATION, describe="libraries:of_search", after="libraries:note_quantizers"),
    Hook(f"{_MTQ}.compress", "compress", STEP, ProfileStep.FREEZE_MODEL),
    Hook("modelopt.torch.export.unified_export_hf", "export_hf_checkpoint", STEP, ProfileStep.EXPORT_HF_SAFETENSORS),
    Hook(f"{_MODELOPT_ONNX}.quantize", "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, (("quantize_mode", semconv.WEIGHT_TYPE),), config=ALL, models=_MODELS, after=NOTE_WEIGHTS),
    *(Hook(f"{_MODELOPT_ONNX}.{each}", "quantize", OBSERVED, after=NOTE_WEIGHTS) for each in ("int4", "int8", "fp8")),
    Hook("modelopt.onnx.autocast.convert", "convert_to_mixed_precision", STEP, ProfileStep.MODEL_QUANTIZATION, (("low_precision_type", semconv.WEIGHT_TYPE),), config=ALL),
    Hook("modelopt.onnx.autocast.convert", "convert_to_f16", STEP, ProfileStep.MODEL_QUANTIZATION, (("low_precision_type", semconv.WEIGHT_TYPE),), config=ALL),
    Hook(f"{_MODELOPT_ONNX}.int4", "_quantize_awq_clip", STEP, ProfileStep.ADVANCED_ALGORITHMS),
    Hook(f"{_MODELOPT_ONNX}.int4", "_quantize_awq_lite", STEP, ProfileStep.ADVANCED_ALGORITHMS),
    Hook(_PATCHES, "_collect_data_minmax_calibrator", "libraries:collect", ProfileStep.CALIBRATION),
    Hook(_PATCHES, "_compute_data_minmax_calibrator", "libraries:compute", ProfileStep.CALIBRATION),
    Hook(_PATCHES, "_collect_data_histogram_calibrator", "libraries:collect", ProfileStep.CALIBRATION),
    Hook(_PATCHES, "_collect_data_min_max_calibrater_single_node_calibration", "libraries:collect", ProfileStep.CALIBRATION),
    Hook(_PATCHES, "_compute_data_min_max_calibrater_single_node_calibration", "libraries:compute", ProfileStep.CALIBRATION),
    Hook(_PATCHES, "_collect_data_histogram_calibrater_single_node_calibration", "libraries:collect", ProfileStep.CALIBRATION),
    built_on="torch transformers",
    nests=True,
)  # fmt: skip

# --- GPTQModel: GPTQ, AWQ and others for language models, one layer after another ---------

# What reaches the first layer is captured for every sample; layers are then quantized on that, in threads of its own.

_GPTQMODEL: Final = "gptqmodel.models.base"

_library(
    "gptqmodel",
    Hook("gptqmodel.models.auto", "GPTQModel.from_pretrained", STEP, ProfileStep.MODEL_LOADING),
    Hook(_GPTQMODEL, "BaseQModel.quantize", STEP, ProfileStep.MODEL_QUANTIZATION, (("checkpoint.path", semconv.RESUME_PATH),), config=("self.quantize_config",), before="observers:of_model"),
    Hook(_GPTQMODEL, "BaseQModel.prepare_dataset", STEP, ProfileStep.DATASET_LOADING),
    Hook("gptqmodel.looper.stage_inputs_capture", "StageInputsCapture.cache_inputs", STEP, ProfileStep.CALIBRATION, counts="calibration_data"),
    Hook("gptqmodel.looper.extension", "LoopExtensions.start", OBSERVED, after="libraries:note_plan"),
    Hook(_GPTQMODEL, "BaseQModel.pre_quantize", OBSERVED, before=LAYER),
    Hook("gptqmodel.looper.loop_processor", "LoopProcessor.log_new_row", OBSERVED, after="libraries:of_log"),
    Hook(_GPTQMODEL, "BaseQModel.save", STEP, ProfileStep.EXPORT_HF_SAFETENSORS, (("save_dir", semconv.OUTPUT_PATH),)),
    built_on="torch torchao transformers bitsandbytes",
    nests=True,
)  # fmt: skip

# --- bitsandbytes: weights are quantized as their model is moved to a device --------------

_BNB: Final = "bitsandbytes.nn.modules"
_TORCH_MODULE: Final = "torch.nn.modules.module"
_MOVED: Final = "libraries:moved"
_4BIT_CONFIG: Final = ("quant_type", "blocksize", "compress_statistics", "quant_storage")

_library(
    "bitsandbytes",
    Hook(_TORCH_MODULE, "Module.to", _MOVED, ProfileStep.MODEL_QUANTIZATION),
    Hook(_TORCH_MODULE, "Module.cuda", _MOVED, ProfileStep.MODEL_QUANTIZATION),
    Hook(_TORCH_MODULE, "Module.cpu", _MOVED, ProfileStep.MODEL_QUANTIZATION),
    Hook(_BNB, "Params4bit._quantize", LAYERS, ProfileStep.MODEL_QUANTIZATION, describe="libraries:of_weight", before=LAYER),
    Hook(_BNB, "Int8Params._quantize", LAYERS, ProfileStep.MODEL_QUANTIZATION, describe="libraries:of_weight", before=LAYER),
    Hook("bitsandbytes.functional", "quantize_4bit", LAYERS, ProfileStep.MODEL_QUANTIZATION, config=_4BIT_CONFIG),
    # `int8_vectorwise_quant` is not here: each forward pass of a layer in 8 bits calls it for its activations.
    Hook("bitsandbytes.functional", "quantize_blockwise", LAYERS, ProfileStep.MODEL_QUANTIZATION, config=("blocksize",), describe="tables:of_blocks"),
)  # fmt: skip


# --- Microsoft's Olive: passes over a model, of which each may use another library --------

_library(
    "olive-ai",
    Hook("olive.engine.engine", "Engine.run", ENTRY_POINT, config=("self.input_passes_configs",)),
    Hook("olive.engine.engine", "Engine._evaluate_model", STEP, ProfileStep.MODEL_EVALUATION),
    Hook("olive.passes.olive_pass", "Pass.run", STEP, choose="tables:name_of_pass", config=("self.config",)),
    nests=True,
)  # fmt: skip


def name_of_pass(call: Mapping[str, Any]) -> str:
    """A step with the name of the pass."""
    return type(call["self"]).__name__
