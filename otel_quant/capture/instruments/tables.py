"""The tables of the libraries: what is hooked, and what a call becomes.

Lines are as long as a hook needs: a table is read by columns. Most libraries are nothing else; functions that
a hook names beside the common ones are in a module beside this one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from otel_quant.capture.instruments.hooks import (
    ALL,
    ENTRY_POINT,
    LAYER,
    OBSERVED,
    SAMPLES,
    STEP,
    Hook,
    Library,
)
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue, ProfileStep

_MODELS: Final = "hooks:models_of"

# --- AMD Quark: ONNX (static, dynamic, MatMulNBits) and PyTorch ---------------------------

# Quark marks most steps itself, for its own profiler, which is hooked. The table adds the steps that it declares
# and never reports, and the entry points around them.

_PROFILER: Final = "quark.common.profiler.profiler"
_QUARK_ONNX: Final = "quark.onnx.quantization"
_READER: Final = "quark.onnx.calibration.data_readers"
_QUARK_TORCH: Final = "quark.torch.quantization.api"
_QUARK_EXPORT: Final = "quark.torch.export.api"
_QUARK_UTILS: Final = "quark.onnx.utils.model_utils"
_QUARK: Final = "quark:described"
_OPTIONS: Final = (
    ("extra_options.MatMulNBitsParams.Bits", semconv.BITS),
    ("extra_options.MatMulNBitsParams.GroupSize", semconv.BLOCK_SIZE),
)

QUARK: Final = Library(
    name="quark",
    distribution="amd-quark",
    versions_seen="0.13",
    built_on=frozenset({"onnxruntime", "torch", "torchao", "transformers"}),
    nests=True,
    hooks=(
        # Steps that Quark marks itself.
        Hook(_PROFILER, "GlobalProfiler.scope", "quark:scope"),
        Hook(_PROFILER, "GlobalProfiler.__enter__", "quark:enter_scope"),
        Hook(_PROFILER, "GlobalProfiler.__exit__", "quark:exit_scope"),
        Hook(_PROFILER, "GlobalProfiler.__init__", "quark:initialize"),
        Hook(_PROFILER, "GlobalProfiler._checkpoint", "quark:checkpoint"),
        Hook(_PROFILER, "GlobalProfiler.start_cache_dir_monitoring", OBSERVED, after="quark:watch_cache_dir"),
        # Steps that it declares and does not report.
        Hook("quark.onnx.algorithm.finetuning.fast_finetune", "fast_finetune", STEP, ProfileStep.FAST_FINETUNE, filled_in=True),
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
        Hook(f"{_QUARK_ONNX}.quantize", "quantize_static", ENTRY_POINT, config=ALL, describe=_QUARK, models=_MODELS, sources=_OPTIONS),
        Hook(f"{_QUARK_ONNX}.quantize", "quantize_dynamic", ENTRY_POINT, config=ALL, describe=_QUARK, models=_MODELS, sources=_OPTIONS),
        Hook(_QUARK_TORCH, "ModelQuantizer.quantize_model", ENTRY_POINT, describe=_QUARK),
        Hook(_QUARK_TORCH, "ModelQuantizer.direct_quantize_checkpoint", ENTRY_POINT, describe=_QUARK),
        Hook(_READER, "CachedDataReader.get_next", OBSERVED, after="samples:sample"),
        Hook(_QUARK_TORCH, "ModelQuantizer._do_calibration", "samples:passes", ProfileStep.CALIBRATION_FORWARD, filled_in=True, counts="dataloader"),
        Hook("quark.onnx.algorithm.finetuning.torch_utils", "optimize_module", LAYER),
        # Names of configurations, which the configurations themselves do not have.
        Hook(f"{_QUARK_ONNX}.config.custom_config", "get_default_config", OBSERVED, after="quark:note_name"),
        Hook("quark.torch.quantization.config.template", "LLMTemplate.get_config", OBSERVED, after="quark:note_name"),
    ),
)  # fmt: skip

# --- ONNX Runtime's quantization tools: static, dynamic, and block-wise for MatMul --------

_ORT: Final = "onnxruntime.quantization"
_CALIBRATE: Final = f"{_ORT}.calibrate"
_DEBUG: Final = f"{_ORT}.qdq_loss_debug"
_NBITS_MODELS: Final = "onnxruntime:models_of_quantizer"
_QUANTIZER: Final = (("self.per_channel", semconv.PER_CHANNEL),)
_SAVED: Final = (("output_path", semconv.OUTPUT_PATH),)
_NBITS: Final = (
    ("self.algo_config.bits", semconv.BITS),
    ("self.bits", semconv.BITS),
    ("self.algo_config.block_size", semconv.BLOCK_SIZE),
    ("self.block_size", semconv.BLOCK_SIZE),
    ("self.algo_config.quant_format", semconv.FORMAT),
    ("self.model_path", semconv.INPUT_PATH),
)
_NBITS_CONFIG: Final = ("self.algo_config", "self.bits", "self.block_size", "self.is_symmetric", "self.accuracy_level", "self.nodes_to_exclude")  # fmt: skip

ONNXRUNTIME: Final = Library(
    name="onnxruntime",
    distribution="onnxruntime",
    versions_seen="1.20, 1.31, 1.32",
    hooks=(
        Hook(f"{_ORT}.shape_inference", "quant_pre_process", STEP, ProfileStep.PRE_PROCESS),
        Hook(_CALIBRATE, "MinMaxCalibrater.collect_data", "onnxruntime:collect", ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "MinMaxCalibrater.compute_data", "onnxruntime:compute", ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "HistogramCalibrater.collect_data", "onnxruntime:collect", ProfileStep.CALIBRATION),
        Hook(_CALIBRATE, "HistogramCalibrater.compute_data", "onnxruntime:compute", ProfileStep.CALIBRATION),
        Hook(f"{_ORT}.qdq_quantizer", "QDQQuantizer.quantize_model", STEP, ProfileStep.QUANTIZATION_STATIC, _QUANTIZER),
        Hook(f"{_ORT}.onnx_quantizer", "ONNXQuantizer.quantize_model", STEP, choose="onnxruntime:static_or_dynamic", sources=_QUANTIZER),
        Hook(f"{_ORT}.matmul_nbits_quantizer", "MatMulNBitsQuantizer.process", STEP, ProfileStep.QUANTIZATION_MATMUL_NBITS, _NBITS, config=_NBITS_CONFIG, models=_NBITS_MODELS),
        # Its name in onnxruntime 1.20.
        Hook(f"{_ORT}.matmul_4bits_quantizer", "MatMul4BitsQuantizer.process", STEP, ProfileStep.QUANTIZATION_MATMUL_NBITS, _NBITS, config=_NBITS_CONFIG, models=_NBITS_MODELS),
        Hook(f"{_ORT}.onnx_model", "ONNXModel.save_model_to_file", STEP, ProfileStep.POST_PROCESS, _SAVED),
        Hook(_DEBUG, "collect_activations", STEP, ProfileStep.MODEL_EVALUATION),
        Hook(_DEBUG, "compute_activation_error", STEP, ProfileStep.MODEL_EVALUATION),
        Hook(_DEBUG, "compute_weight_error", STEP, ProfileStep.MODEL_EVALUATION),
        # Entry points: their arguments describe the steps, and their models are costed.
        Hook(f"{_ORT}.quantize", "quantize_static", ENTRY_POINT, config=ALL, models=_MODELS),
        Hook(f"{_ORT}.quantize", "quantize_dynamic", ENTRY_POINT, config=ALL, models=_MODELS),
        Hook(f"{_ORT}.quantize", "quantize", ENTRY_POINT, config=ALL, models=_MODELS),
    ),
)  # fmt: skip

# --- PyTorch's own quantization: eager and FX graph mode ----------------------------------

# Between preparation and conversion the program itself runs the model to calibrate it; only ``quantize`` is
# passed the function that does.

_PREPARE: Final = "forward_passes:prepare"
_CONVERT: Final = "forward_passes:convert"
_QCONFIG: Final = "torch_libraries:of_qconfigs"

_EAGER: Final = "torch.ao.quantization.quantize"
_FX: Final = "torch.ao.quantization.quantize_fx"

TORCH: Final = Library(
    name="torch",
    distribution="torch",
    versions_seen="2.13, 2.15",
    is_common=True,
    hooks=(
        Hook(_EAGER, "prepare", _PREPARE, ProfileStep.MODEL_PREPARATION, describe=_QCONFIG),
        Hook(_EAGER, "prepare_qat", STEP, ProfileStep.MODEL_PREPARATION, describe=_QCONFIG),
        Hook(_EAGER, "convert", _CONVERT, ProfileStep.MODEL_QUANTIZATION),
        Hook(_EAGER, "quantize_dynamic", STEP, ProfileStep.QUANTIZATION_DYNAMIC, describe=_QCONFIG),
        Hook(_EAGER, "quantize", ENTRY_POINT, describe=_QCONFIG, runs="run_fn"),
        Hook(_EAGER, "quantize_qat", ENTRY_POINT, describe=_QCONFIG),
        Hook(_FX, "prepare_fx", _PREPARE, ProfileStep.MODEL_PREPARATION, describe=_QCONFIG),
        Hook(_FX, "prepare_qat_fx", STEP, ProfileStep.MODEL_PREPARATION, describe=_QCONFIG),
        Hook(_FX, "convert_fx", _CONVERT, ProfileStep.MODEL_QUANTIZATION),
        Hook(_FX, "convert_to_reference_fx", _CONVERT, ProfileStep.MODEL_QUANTIZATION),
    ),
)  # fmt: skip


# --- torchao: ``quantize_`` in place, and the quantization of exported programs (PT2E) ----

_PT2E: Final = "torchao.quantization.pt2e.quantize_pt2e"
_QUANTIZER_OF: Final = ("quantizer",)

TORCHAO: Final = Library(
    name="torchao",
    distribution="torchao",
    versions_seen="0.18",
    is_common=True,  # transformers imports it where it is installed
    built_on=frozenset({"torch"}),
    hooks=(
        Hook("torchao.quantization.quant_api", "quantize_", "forward_passes:in_place", ProfileStep.MODEL_QUANTIZATION, config=("config",)),
        Hook(_PT2E, "prepare_pt2e", _PREPARE, ProfileStep.MODEL_PREPARATION, config=_QUANTIZER_OF),
        Hook(_PT2E, "prepare_qat_pt2e", STEP, ProfileStep.MODEL_PREPARATION, config=_QUANTIZER_OF),
        Hook(_PT2E, "convert_pt2e", _CONVERT, ProfileStep.MODEL_QUANTIZATION),
    ),
)  # fmt: skip

# --- Hugging Face transformers: models that are quantized while they are loaded -----------

_LOADED_FROM: Final = (("pretrained_model_name_or_path", semconv.INPUT_PATH),)

TRANSFORMERS: Final = Library(
    name="transformers",
    distribution="transformers",
    versions_seen="5.23",
    is_common=True,  # every program that uses it loads models
    built_on=frozenset({"torch", "torchao", "hqq", "optimum-quanto", "bitsandbytes"}),
    hooks=(
        Hook("transformers.modeling_utils", "PreTrainedModel.from_pretrained", STEP, ProfileStep.MODEL_QUANTIZATION, _LOADED_FROM, config=("kwargs.quantization_config",), needs="quantization_config"),
    ),
)  # fmt: skip

# --- Hugging Face's optimum-onnx, which calls onnxruntime's calibrators and quantizers ----

# The steps are onnxruntime's; the arguments that describe them are optimum-onnx's.

_OPTIMUM: Final = "optimum.onnxruntime.quantization"
_FIT: Final = (
    ("calibration_config.method", semconv.CALIBRATION_METHOD),
    ("self.onnx_model_path", semconv.INPUT_PATH),
)
_QUANTIZED: Final = (
    ("quantization_config.format", semconv.FORMAT),
    ("quantization_config.weights_dtype", semconv.WEIGHT_TYPE),
    ("quantization_config.activations_dtype", semconv.ACTIVATION_TYPE),
    ("quantization_config.per_channel", semconv.PER_CHANNEL),
    ("self.onnx_model_path", semconv.INPUT_PATH),
)

OPTIMUM_ONNX: Final = Library(
    name="optimum-onnx",
    distribution="optimum-onnx",
    versions_seen="0.1",
    hooks=(
        Hook(_OPTIMUM, "ORTQuantizer.fit", ENTRY_POINT, sources=_FIT, after="onnxruntime:keep_shapes"),
        Hook(_OPTIMUM, "ORTQuantizer.quantize", ENTRY_POINT, sources=_QUANTIZED, config=("quantization_config", "self._calibration_config"), models="onnxruntime:models_of_optimum"),
    ),
)  # fmt: skip

# --- OpenVINO's NNCF: post-training quantization and weight compression, ONNX and PyTorch -

_NNCF: Final = "nncf.quantization.quantize_model"
_MODE: Final = (
    ("mode", semconv.CONFIG_NAME),
    ("preset", semconv.CONFIG_NAME),
    ("target_device", semconv.BACKEND),
)
_OF_NNCF: Final = "tables:of_nncf"

NNCF: Final = Library(
    name="nncf",
    distribution="nncf",
    versions_seen="3.4",
    built_on=frozenset({"torch"}),
    nests=True,
    hooks=(
        Hook(_NNCF, "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, _MODE, config=ALL, describe=_OF_NNCF),
        Hook(_NNCF, "quantize_with_accuracy_control", STEP, ProfileStep.MODEL_QUANTIZATION, _MODE, config=ALL, describe=_OF_NNCF),
        Hook(_NNCF, "compress_weights", STEP, ProfileStep.MODEL_QUANTIZATION, _MODE, config=ALL, describe=_OF_NNCF),
        Hook("nncf.quantization.algorithms.pipeline", "collect_statistics", STEP, ProfileStep.CALIBRATION),
        Hook("nncf.data.dataset", "DataProvider.__iter__", SAMPLES),
    ),
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
_TYPES: Final = (
    ("weights.name", semconv.WEIGHT_TYPE),
    ("weights", semconv.WEIGHT_TYPE),
    ("activations.name", semconv.ACTIVATION_TYPE),
    ("activations", semconv.ACTIVATION_TYPE),
)

OPTIMUM_QUANTO: Final = Library(
    name="optimum-quanto",
    distribution="optimum-quanto",
    versions_seen="0.2.7",
    built_on=frozenset({"torch"}),
    hooks=(
        Hook(f"{_QUANTO}.quantize", "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, _TYPES, config=ALL),
        Hook(f"{_QUANTO}.quantize", "freeze", STEP, ProfileStep.FREEZE_MODEL),
        Hook(f"{_QUANTO}.calibrate", "Calibration.__enter__", "torch_libraries:begin_calibration", ProfileStep.CALIBRATION),
        Hook(f"{_QUANTO}.calibrate", "Calibration.__exit__", "torch_libraries:end_calibration", ProfileStep.CALIBRATION),
    ),
)  # fmt: skip

# --- HQQ: half-quadratic quantization of the linear layers of a PyTorch model -------------

HQQ: Final = Library(
    name="hqq",
    distribution="hqq",
    versions_seen="0.2.8",
    built_on=frozenset({"torch"}),
    hooks=(
        Hook("hqq.models.base", "BaseHQQModel.quantize_model", STEP, ProfileStep.MODEL_QUANTIZATION, config=("quant_config",)),
        Hook("hqq.core.quantize", "HQQLinear.quantize", LAYER),
    ),
)  # fmt: skip

# --- Intel's Neural Compressor 3: prepare, calibrate, convert; or all of it in one call ---

# Between ``prepare`` and ``convert`` the program itself runs the model; ``quantize`` is passed the function that
# does. Its decorators hide names and parameters of functions.

_INC: Final = "neural_compressor.torch"
_INC_QUANTIZE: Final = f"{_INC}.quantization.quantize"
_WEIGHT_ONLY: Final = f"{_INC}.algorithms.weight_only"
_INC_CONFIG: Final = "torch_libraries:of_configuration"
_INC_PARAMETERS: Final = ("model", "quant_config", "run_fn")
_INC_FOLDER: Final = (("checkpoint_dir", semconv.OUTPUT_PATH),)

NEURAL_COMPRESSOR: Final = Library(
    name="neural-compressor",
    distribution="neural-compressor",
    versions_seen="3.10",
    built_on=frozenset({"torch", "torchao", "transformers", "auto-round"}),
    nests=True,
    hooks=(
        Hook(_INC_QUANTIZE, "prepare", _PREPARE, ProfileStep.MODEL_PREPARATION, describe=_INC_CONFIG, parameters=_INC_PARAMETERS),
        Hook(_INC_QUANTIZE, "convert", _CONVERT, ProfileStep.MODEL_QUANTIZATION, describe=_INC_CONFIG, parameters=_INC_PARAMETERS),
        Hook(_INC_QUANTIZE, "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, describe=_INC_CONFIG, parameters=_INC_PARAMETERS, runs="run_fn"),
        Hook(f"{_INC}.quantization.autotune", "autotune", ENTRY_POINT),
        Hook("neural_compressor.common.base_tuning", "EvaluationFuncWrapper.evaluate", STEP, ProfileStep.MODEL_EVALUATION),
        Hook(f"{_INC}.quantization.save_load_entry", "save", STEP, ProfileStep.POST_PROCESS, _INC_FOLDER, parameters=("model", "checkpoint_dir")),
        # What the models' own `save` is:
        Hook(f"{_WEIGHT_ONLY}.save_load", "save", STEP, ProfileStep.POST_PROCESS),
        Hook(f"{_INC}.algorithms.pt2e_quant.save_load", "save", STEP, ProfileStep.POST_PROCESS),
        Hook(f"{_WEIGHT_ONLY}.modules", "INCWeightOnlyLinear.pack", LAYER),
        Hook(f"{_WEIGHT_ONLY}.hqq.core", "HQQLinear.from_float", LAYER),
    ),
)  # fmt: skip

# --- vLLM's LLM Compressor: a recipe applied to a language model in one shot --------------

# A pipeline takes the samples through the complete model, or through one part of it after another, and the recipe's
# modifiers quantize as they pass.

_ONESHOT: Final = "llmcompressor.entrypoints.oneshot"
_PIPELINES: Final = "llmcompressor.pipelines"
_RECIPE: Final = "torch_libraries:of_recipe"
_SESSION: Final = "torch_libraries:described_by_session"
_GIVEN_MODEL: Final = (("model", semconv.INPUT_PATH),)
_GIVEN_FOLDER: Final = (("self.output_dir", semconv.OUTPUT_PATH),)
_LOADED: Final = (("model_args.model", semconv.INPUT_PATH),)
_LLM_FILES: Final = (
    ("model_stub", semconv.INPUT_PATH),
    ("save_directory", semconv.OUTPUT_PATH),
    ("scheme", semconv.CONFIG_NAME),
)

LLMCOMPRESSOR: Final = Library(
    name="llmcompressor",
    distribution="llmcompressor",
    versions_seen="0.14",
    built_on=frozenset({"torch", "transformers", "auto-round"}),
    hooks=(
        Hook(_ONESHOT, "oneshot", ENTRY_POINT, describe=_RECIPE, sources=_GIVEN_MODEL),
        Hook(_ONESHOT, "Oneshot.__call__", ENTRY_POINT, describe=_RECIPE, sources=_GIVEN_FOLDER),
        Hook("llmcompressor.entrypoints.utils", "initialize_model_from_path", STEP, ProfileStep.MODEL_LOADING, _LOADED),
        Hook("llmcompressor.datasets.utils", "get_processed_dataset", STEP, ProfileStep.DATASET_LOADING),
        Hook("llmcompressor.core.session", "CompressionSession.initialize", STEP, ProfileStep.MODEL_PREPARATION),
        Hook(f"{_PIPELINES}.data_free.pipeline", "DataFreePipeline.__call__", STEP, ProfileStep.CALIBRATION_WEIGHTS, describe=_SESSION),
        Hook(f"{_PIPELINES}.basic.pipeline", "BasicPipeline.__call__", STEP, ProfileStep.CALIBRATION, describe=_SESSION, counts="dataloader"),
        Hook(f"{_PIPELINES}.sequential.pipeline", "SequentialPipeline.__call__", STEP, ProfileStep.CALIBRATION, describe=_SESSION),
        Hook(f"{_PIPELINES}.sequential.helpers", "trace_subgraphs", OBSERVED, after="torch_libraries:note_parts"),
        Hook(f"{_PIPELINES}.sequential.pipeline", "_get_batches", "torch_libraries:batches"),
        Hook(f"{_PIPELINES}.sequential.helpers", "Subgraph.submodules", LAYER),
        Hook("llmcompressor.transformers.compression.compressed_tensors_utils", "modify_save_pretrained", "torch_libraries:saving", ProfileStep.EXPORT_HF_SAFETENSORS),
        Hook("llmcompressor.entrypoints.model_free", "model_free_ptq", STEP, ProfileStep.FILE_TO_FILE_QUANTIZATION, _LLM_FILES, config=ALL),
    ),
)  # fmt: skip

# --- Intel's AutoRound: rounding that is learned, one block of a model after another ------

# The samples go through the model once, for what reaches each block; the blocks are then tuned on that.

_BASE: Final = "auto_round.compressors.base"
_ORCHESTRATOR: Final = "auto_round.compressors.orchestrator"
_COMPRESSOR: Final = "torch_libraries:of_compressor"
_FORMAT: Final = (("format", semconv.FORMAT),)
_NAMED_MODEL: Final = (("pretrained_model_name_or_path", semconv.INPUT_PATH),)
_ROUND_FILES: Final = (
    ("self.model_name_or_path", semconv.INPUT_PATH),
    ("self.output_dir", semconv.OUTPUT_PATH),
    ("self.scheme_input", semconv.CONFIG_NAME),
    ("self.format", semconv.FORMAT),
)

AUTO_ROUND: Final = Library(
    name="auto-round",
    distribution="auto-round",
    versions_seen="0.16",
    built_on=frozenset({"torch", "transformers"}),
    nests=True,
    hooks=(
        Hook(_BASE, "BaseOrchestrator.quantize_and_save", ENTRY_POINT, sources=_FORMAT),
        Hook("auto_round.utils.model", "llm_load_model", STEP, ProfileStep.MODEL_LOADING, _NAMED_MODEL),
        Hook(_BASE, "BaseOrchestrator.post_init", STEP, choose="torch_libraries:preparation"),
        Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_data_driven", STEP, ProfileStep.MODEL_QUANTIZATION, describe=_COMPRESSOR),
        Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_zero_shot", STEP, ProfileStep.MODEL_QUANTIZATION, describe=_COMPRESSOR),
        Hook("auto_round.calibration.llm", "LLMCalibrator.calib", "torch_libraries:calibrating", ProfileStep.CALIBRATION),
        Hook("auto_round.calib_dataset", "get_dataloader", "torch_libraries:reading", ProfileStep.DATASET_LOADING),
        Hook(_ORCHESTRATOR, "CompressionOrchestrator._quantize_blocks", STEP, ProfileStep.ADVANCED_ALGORITHMS),
        Hook("auto_round.algorithms.composer", "AlgorithmComposer.compress_block", LAYER),
        Hook(_BASE, "BaseOrchestrator.save_quantized", STEP, choose="torch_libraries:kind_of_export", sources=_FORMAT),
        Hook("auto_round.compressors.model_free", "_ModelFreeCompressorCore.run", STEP, ProfileStep.FILE_TO_FILE_QUANTIZATION, _ROUND_FILES, config=("self.scheme_input",)),
    ),
)  # fmt: skip

# --- NVIDIA's Model Optimizer: PyTorch and ONNX --------------------------------------------

# For ONNX it puts functions of its own into onnxruntime's calibrators, whose steps are within its own.

_MTQ: Final = "modelopt.torch.quantization"
_MODELOPT_ONNX: Final = "modelopt.onnx.quantization"
_PATCHES: Final = f"{_MODELOPT_ONNX}.ort_patching"
_SEARCH: Final = ("constraints", "quantization_formats", "method", "num_calib_steps", "num_score_steps", "disabled_layers")  # fmt: skip
_EXPORTED: Final = (("export_dir", semconv.OUTPUT_PATH),)
_MODE_FOR_ONNX: Final = (
    ("quantize_mode", semconv.WEIGHT_TYPE),
    ("onnx_path", semconv.INPUT_PATH),
    ("output_path", semconv.OUTPUT_PATH),
)

NVIDIA_MODELOPT: Final = Library(
    name="nvidia-modelopt",
    distribution="nvidia-modelopt",
    versions_seen="0.47",
    built_on=frozenset({"torch", "transformers"}),
    nests=True,
    hooks=(
        Hook(f"{_MTQ}.model_quant", "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, describe="torch_libraries:of_modelopt"),
        Hook(f"{_MTQ}.model_quant", "calibrate", "forward_passes:calibrate", ProfileStep.CALIBRATION, config=("algorithm",)),
        Hook(f"{_MTQ}.model_quant", "auto_quantize", STEP, ProfileStep.MODEL_QUANTIZATION, config=_SEARCH),
        Hook(f"{_MTQ}.compress", "compress", STEP, ProfileStep.FREEZE_MODEL),
        Hook("modelopt.torch.export.unified_export_hf", "export_hf_checkpoint", STEP, ProfileStep.EXPORT_HF_SAFETENSORS, _EXPORTED),
        Hook(f"{_MODELOPT_ONNX}.quantize", "quantize", STEP, ProfileStep.MODEL_QUANTIZATION, _MODE_FOR_ONNX, config=ALL, models=_MODELS),
        Hook(f"{_MODELOPT_ONNX}.int4", "_quantize_awq_clip", STEP, ProfileStep.ADVANCED_ALGORITHMS),
        Hook(f"{_MODELOPT_ONNX}.int4", "_quantize_awq_lite", STEP, ProfileStep.ADVANCED_ALGORITHMS),
        Hook(_PATCHES, "_collect_data_minmax_calibrator", "onnxruntime:collect", ProfileStep.CALIBRATION),
        Hook(_PATCHES, "_compute_data_minmax_calibrator", "onnxruntime:compute", ProfileStep.CALIBRATION),
        Hook(_PATCHES, "_collect_data_histogram_calibrator", "onnxruntime:collect", ProfileStep.CALIBRATION),
        Hook(_PATCHES, "_collect_data_min_max_calibrater_single_node_calibration", "onnxruntime:collect", ProfileStep.CALIBRATION),
        Hook(_PATCHES, "_compute_data_min_max_calibrater_single_node_calibration", "onnxruntime:compute", ProfileStep.CALIBRATION),
        Hook(_PATCHES, "_collect_data_histogram_calibrater_single_node_calibration", "onnxruntime:collect", ProfileStep.CALIBRATION),
    ),
)  # fmt: skip

# --- GPTQModel: GPTQ, AWQ and others for language models, one layer after another ---------

# What reaches the first layer is captured for every sample; layers are then quantized on that, in threads of its own.

_GPTQMODEL: Final = "gptqmodel.models.base"
_LOADED_MODEL: Final = (("model_id_or_path", semconv.INPUT_PATH),)
_SAVED_IN: Final = (("save_dir", semconv.OUTPUT_PATH),)

GPTQMODEL: Final = Library(
    name="gptqmodel",
    distribution="gptqmodel",
    versions_seen="7.7",
    built_on=frozenset({"torch", "torchao", "transformers", "bitsandbytes"}),
    nests=True,
    hooks=(
        Hook("gptqmodel.models.auto", "GPTQModel.from_pretrained", STEP, ProfileStep.MODEL_LOADING, _LOADED_MODEL),
        Hook(_GPTQMODEL, "BaseQModel.quantize", STEP, ProfileStep.MODEL_QUANTIZATION, config=("self.quantize_config",)),
        Hook(_GPTQMODEL, "BaseQModel.prepare_dataset", STEP, ProfileStep.DATASET_LOADING),
        Hook("gptqmodel.looper.stage_inputs_capture", "StageInputsCapture.cache_inputs", STEP, ProfileStep.CALIBRATION, counts="calibration_data"),
        Hook(_GPTQMODEL, "BaseQModel.pre_quantize", LAYER),
        Hook(_GPTQMODEL, "BaseQModel.save", STEP, ProfileStep.EXPORT_HF_SAFETENSORS, _SAVED_IN),
    ),
)  # fmt: skip

# --- bitsandbytes: weights are quantized as their model is moved to a device --------------

_BNB: Final = "bitsandbytes.nn.modules"
_TORCH_MODULE: Final = "torch.nn.modules.module"
_MOVED: Final = "torch_libraries:moved"
_4BIT: Final = (("quant_type", semconv.WEIGHT_TYPE), ("blocksize", semconv.BLOCK_SIZE))
_4BIT_CONFIG: Final = ("quant_type", "blocksize", "compress_statistics", "quant_storage")

BITSANDBYTES: Final = Library(
    name="bitsandbytes",
    distribution="bitsandbytes",
    versions_seen="0.50",
    hooks=(
        Hook(_TORCH_MODULE, "Module.to", _MOVED, ProfileStep.MODEL_QUANTIZATION),
        Hook(_TORCH_MODULE, "Module.cuda", _MOVED, ProfileStep.MODEL_QUANTIZATION),
        Hook(_TORCH_MODULE, "Module.cpu", _MOVED, ProfileStep.MODEL_QUANTIZATION),
        Hook(_BNB, "Params4bit._quantize", "torch_libraries:weight", ProfileStep.MODEL_QUANTIZATION),
        Hook(_BNB, "Int8Params._quantize", "torch_libraries:weight", ProfileStep.MODEL_QUANTIZATION),
        Hook("bitsandbytes.functional", "quantize_4bit", STEP, ProfileStep.MODEL_QUANTIZATION, _4BIT, config=_4BIT_CONFIG),
    ),
)  # fmt: skip

# --- Microsoft's Olive: passes over a model, of which each may use another library --------

OLIVE: Final = Library(
    name="olive-ai",
    distribution="olive-ai",
    versions_seen="0.13",
    nests=True,
    hooks=(
        Hook("olive.engine.engine", "Engine.run", ENTRY_POINT, config=("self.input_passes_configs",)),
        Hook("olive.engine.engine", "Engine._evaluate_model", STEP, ProfileStep.MODEL_EVALUATION),
        Hook("olive.passes.olive_pass", "Pass.run", STEP, choose="tables:name_of_pass", config=("self.config",)),
    ),
)  # fmt: skip


def name_of_pass(call: Mapping[str, Any]) -> str:
    """A step with the name of the pass."""
    return type(call["self"]).__name__


LIBRARIES: Final[Mapping[str, Library]] = {
    library.name: library
    for library in (
        QUARK, ONNXRUNTIME, TORCH, TORCHAO, TRANSFORMERS, OPTIMUM_ONNX, NNCF, OPTIMUM_QUANTO, HQQ,
        NEURAL_COMPRESSOR, LLMCOMPRESSOR, AUTO_ROUND, NVIDIA_MODELOPT, GPTQMODEL, BITSANDBYTES, OLIVE,
    )
}  # fmt: skip
