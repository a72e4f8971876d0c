"""What libraries but Quark have of their own: which step a call is, what describes it, what is a sample, how good a layer is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments import hooks, layer_values, samples, steps
from otel_quant.capture.instruments.configuration import (
    OF_WEIGHTS,
    SHOWN,
    agreed,
    completed,
    described,
    plain,
)
from otel_quant.capture.instruments.forward_passes import end_calibration
from otel_quant.capture.instruments.hooks import HOOKS, Arguments, Function, Hook, Library, wraps
from otel_quant.capture.instruments.layer_values import Layers, lower_is_better, value_of
from otel_quant.capture.instruments.observers import observe_hooked
from otel_quant.capture.instruments.series import end_series
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import OPENING_A_STEP, Activation, qualified_name
from otel_quant.schema import semconv
from otel_quant.schema.events import present
from otel_quant.schema.readings import AttributeValue, ProfileStep

# Whether ``collect_data`` is running: MinMax's own calls ``compute_data`` itself.
_COLLECTING: Final[ContextVar[bool]] = ContextVar("otel_quant_collecting", default=False)


def collect(function: Function, hook: Hook, library: Library) -> Function:
    """Step **{step}**; counts what `get_next` of its reader returns. Within an operation it lasts until ``compute_data``."""
    name = qualified_name(function)
    looked_at = replace(hook, before=hooks.OF_CALIBRATOR)
    run = steps.observed(function, looked_at, library)

    @wraps(function)
    def wrapper(self: Any, data_reader: Any, *args: Any, **kwargs: Any) -> Any:
        with _calibrating(self, name, library, is_last=False) as begun:
            reader = data_reader if begun is None else samples.counted(data_reader)
            token = _COLLECTING.set(True)
            try:
                return run(self, reader, *args, **kwargs)
            finally:
                _COLLECTING.reset(token)

    return wrapper


_READ: Final[WeakKeyDictionary[Any, Mapping[str, AttributeValue]]] = WeakKeyDictionary()
"""The file of a calibrator's model, which it does not keep."""


def note_model(call: Mapping[str, Any], result: object) -> None:
    """Notes the file of the model that a calibrator is made for."""
    _READ[result] = steps.attributes_of({"model": call["model"]})


def compute(function: Function, hook: Hook, library: Library) -> Function:
    """The end of that step, or a step **{step}** of its own."""
    name = qualified_name(function)

    @wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _COLLECTING.get():
            return function(self, *args, **kwargs)
        with _calibrating(self, name, library, is_last=True):
            return function(self, *args, **kwargs)

    return wrapper


def static_or_dynamic(call: Mapping[str, Any]) -> str:
    """Step **Quantization (Static)** or **Quantization (Dynamic)**."""
    is_static = getattr(call["self"], "static", True)
    return ProfileStep.QUANTIZATION_STATIC if is_static else ProfileStep.QUANTIZATION_DYNAMIC


def models_of_quantizer(call: Mapping[str, Any], result: object) -> hooks.Models:
    """Returns a quantizer's result, and the float model where it knows its file: one in memory was changed in place."""
    quantizer = call["self"]
    return steps.models_of({"input_model": quantizer.model_path}, quantizer.model.model)


@contextmanager
def _calibrating(
    calibrator: Any, function: str, library: Library, *, is_last: bool
) -> Iterator[OpenStep | None]:
    """Runs a call of a calibrator within its Calibration step, yielding the step."""
    operation = steps.innermost()
    activation = operation.shared_step if operation is not None else None
    if activation is None:
        activation = Activation(None)
        with FAULTS.kept_in(OPENING_A_STEP):
            if not steps.is_reported_already(ProfileStep.CALIBRATION, library):
                read = _READ.get(calibrator, {}) if operation is None else {}
                known = {**read, semconv.CALIBRATION_METHOD: _method_of(calibrator, library)}
                kind = ProfileStep.CALIBRATION
                step = steps.open_library_step(kind, library, known, function=function)
                activation = Activation(step)
                if operation is not None:
                    operation.begin_shared_step(activation)
    if operation is None or operation.shared_step is not activation:
        with activation:
            yield activation.step
        return
    try:
        yield activation.step
    except BaseException as error:
        operation.end_shared_step(error)
        raise
    if is_last:
        operation.end_shared_step()


def _method_of(calibrator: Any, library: Library) -> str:
    """Returns the name of the library's own class: the program may have derived one from it."""
    packages = ("onnxruntime", library.hooks[0].module.partition(".")[0])
    classes = type(calibrator).__mro__
    own = (each for each in classes if each.__module__.partition(".")[0] in packages)
    return next(own, classes[0]).__name__.removesuffix("Calibrater")


# --- how well layers were quantized -------------------------------------------------------


def of_activations(call: Mapping[str, Any], result: Any) -> Layers:
    """Records the errors of each tensor."""
    for tensor, errors in result.items():
        for measure, error in errors.items():
            yield from value_of(error, layer=tensor, measure=measure, **_of_function(call))


def of_weights(call: Mapping[str, Any], result: Any) -> Layers:
    """Records the error of each weight."""
    for weight, error in result.items():
        yield from value_of(error, layer=weight, measure="weight_error", **_of_function(call))


def _of_function(call: Mapping[str, Any]) -> dict[str, str]:
    """Returns what is known of a function of errors: the program may pass its own."""
    name = getattr(call["err_func"], "__name__", "")
    is_ratio = name == "compute_signal_to_quantization_noice_ratio"
    return {"better": "higher", "unit": "dB"} if is_ratio else {}


def of_trial(call: Mapping[str, Any], result: Any) -> Layers:
    """Records what the program's function of accuracy has returned for a trial."""
    trial, value = call["trial_index"], call["trial_result"]
    yield from value_of(value, layer=f"trial {trial}", measure="trial_result", better="higher")


def of_modifier(call: Mapping[str, Any], result: Any) -> Layers:
    """Records GPTQ's error of a module."""
    if modifier := layer_values.variables_of("compress_module_list").get("self"):
        name = modifier._module_names[call["self"].module]
        yield from lower_is_better(call["loss"], layer=name, measure="error")


def of_awq(call: Mapping[str, Any], result: Any) -> Layers:
    """Records the smallest error in the search for the scales of a layer."""
    found = call["self"]._error_metrics[-1]
    yield from lower_is_better(found["best_error"], layer=found["layer_name"], measure="best_error")


def of_block(call: Mapping[str, Any], result: Any) -> Layers:
    """Records the loss that tuning ends with, of a block or of a layer outside of blocks."""
    functions = "quantize_block", "quantize_layer_outside_block"
    block, layer = map(layer_values.variables_of, functions)
    names = block or layer
    if names.get("init_loss") is not None:
        name = names["block_ctx"].block_name if block else names["layer_name"]
        yield from lower_is_better(names["last_loss"], layer=name, measure="loss")


def of_log(call: Mapping[str, Any], result: Any) -> Layers:
    """Records the loss in a row of its log, which has it as text, or a text on why there is none."""
    row = call["stat"]
    with suppress(ValueError):
        layer = f"{row['layer']}.{row['module']}"
        yield from lower_is_better(float(row["loss"]), layer=layer, measure="loss")


# --- optimum-onnx: calibration and quantization are two calls -----------------------------

_SHAPES: Final[WeakKeyDictionary[Any, Mapping[str, tuple[int, ...]]]] = WeakKeyDictionary()
"""Shapes of inputs by the quantizer of optimum-onnx that was calibrated with them."""


def keep_shapes(call: Mapping[str, Any], result: object) -> None:
    """Keeps the shapes of the models' inputs that the calibration has seen."""
    if (operation := steps.innermost()) is not None:
        _SHAPES[call["self"]] = operation.input_shapes


def models_of_optimum(call: Mapping[str, Any], folder: Any) -> hooks.Models:
    """Returns the models of a quantizer, with the shapes of its calibration for their cost."""
    quantizer = call["self"]
    if (operation := steps.innermost()) is not None:
        operation.input_shapes = _SHAPES.get(quantizer, {})
    before, suffix = Path(quantizer.onnx_model_path), call.get("file_suffix")
    name = f"{before.stem}_{suffix}" if suffix else before.stem
    after = Path(folder) / f"{name}.onnx"
    return steps.models_of({"input_model": before, "output_model": after}, None)


# --- GGUF ---------------------------------------------------------------------------------


def expect_tensors(call: Mapping[str, Any], library: Library) -> None:
    """Notes how many tensors are written, each maybe quantized then, and counts the first as a layer."""
    total = sum(map(len, call["self"].tensors))
    if total and call["self"].temp_file is None:  # else they are in one file already
        samples.expect_layers(total, {library.distribution})
        samples.count_layer({library.distribution})


def next_tensor(call: Mapping[str, Any], library: Library) -> None:
    """Counts the tensor that follows, if one does: what was written is filled up, and before that the header."""
    step = samples.step_counting({library.distribution})
    done, total = step.counts.get("layer", (0, 0)) if step is not None else (0, 0)
    if done < (total or 0) and call["n"] != call["fp"].tell():
        samples.count_layer({library.distribution})


# --- HQQ ----------------------------------------------------------------------------------


def linears_of_hqq(call: Mapping[str, Any], library: Library) -> None:
    """Notes how many linear layers have a configuration."""
    model, given = call["model"], call["patch_params"] or {}
    linear, base = sys.modules["torch"].nn.Linear, sys.modules["hqq.models.base"]
    names = {name for name, each in model.named_modules() if type(each) is linear}
    names -= {*call["cls"].get_ignore_layers(model)}
    configured = [given.get(base.name_to_linear_tag(name)) is not None for name in names]
    samples.expect_layers(sum(configured), steps.owners_of(library))


# --- Google's AI Edge Quantizer -----------------------------------------------------------


def edge_calibration(call: Mapping[str, Any]) -> str | None:
    """Step **Calibration**, if the recipe needs one."""
    return ProfileStep.CALIBRATION if call["self"].need_calibration else None


def of_edge_recipe(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a recipe."""
    return described(call["self"].get_quantization_recipe())


def expect_edge_samples(call: Mapping[str, Any], library: Library) -> None:
    """Notes how many samples all signatures of a model have."""
    data = call["calibration_data"].values()
    if all(isinstance(each, Sized) for each in data):
        samples.expect_layers(sum(map(len, data)), steps.owners_of(library), "sample")


def edge_sample(call: Mapping[str, Any], library: Library) -> None:
    """Counts each call as one calibration sample."""
    samples.count_sample(None, call["data"])


# --- PyTorch's own quantization -----------------------------------------------------------


def of_qconfigs(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of the qconfigs of a call: a mapping, or those that the modules of its model have."""
    given = call.get("qconfig_mapping", call.get("qconfig_spec"))
    if not isinstance(given, dict) and "dtype" in call:
        given = {"modules": given, "weight": {"dtype": call["dtype"]}}  # of quantize_dynamic
    elif given is None:
        given = dict(_own_qconfigs(call["model"]))
    used = given
    if hasattr(given, "global_qconfig"):
        used = list(_of_layers(given, call["model"])) or [given.global_qconfig]
    found = described(used) | {semconv.CONFIG_HASH: described(given).get(semconv.CONFIG_HASH, "")}
    engine = sys.modules["torch"].backends.quantized.engine
    # Instructions of x86 before VNNI need a range of 7 bits: what has 8 is made for another engine.
    ranges = set(_REDUCED.findall(str([each.get("activation") for each in _qconfigs(plain(used))])))
    if not ranges or ("True" in ranges) == (engine in ("x86", "fbgemm")):
        found[semconv.BACKEND] = engine
    return {name: value for name, value in found.items() if value and name != semconv.CONFIG_NAME}


def _own_qconfigs(model: Any) -> Iterator[tuple[str, Any]]:
    """Yields the qconfigs of modules, but for those that preparation gives to all within a module that has one."""
    known: dict[str, Any] = {}
    for name, module in model.named_modules():
        own, above = getattr(module, "qconfig", None), known.get(name.rpartition(".")[0])
        known[name] = own or above
        if hasattr(module, "qconfig") and (not name or plain(own) != plain(above)):
            yield name, own


def of_observed(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a model whose calibration ends now: of a copy of one that was prepared what it has itself."""
    end_calibration(call)
    if known := steps.with_configuration(call, {}, ""):
        return known
    model = next(iter(call.values()))
    graph = getattr(model, "meta", {}).get("_observed_graph_module_attrs")
    if graph is not None:  # its mapping is a changed copy of what was given, with another hash
        found = of_qconfigs({"model": model, "qconfig_mapping": graph.qconfig_mapping})
        return {name: value for name, value in found.items() if name != semconv.CONFIG_HASH}
    is_prepared = any(getattr(each, "qconfig", None) for each in model.modules())
    return of_qconfigs({"model": model}) if is_prepared else {}


_REDUCED: Final = re.compile("'reduce_range': (True|False)")


def _qconfigs(data: Any) -> Iterator[dict[str, Any]]:
    every = data if isinstance(data, list) else data.values() if isinstance(data, dict) else ()
    yield from (each for each in every if isinstance(each, dict))


def _of_layers(mapping: Any, model: Any) -> Iterator[Any]:
    """Yields the qconfigs of the layers of a model that have a matrix of weights."""
    by_name, by_type = mapping.module_name_qconfigs, mapping.object_type_qconfigs
    for name, module in model.named_modules():
        if getattr(getattr(module, "weight", None), "ndim", 0) > 1:
            parents = name.split(".")
            above = (".".join(parents[:length]) for length in range(len(parents), 0, -1))
            own = next((by_name[each] for each in above if each in by_name), None)
            yield own or by_type.get(type(module), mapping.global_qconfig)


# --- Hugging Face's optimum-quanto: calibration in a ``with`` block ------------------------


def calibrated(call: Mapping[str, Any], library: Library) -> None:
    """Each forward pass of a model within is one calibration sample: of the module called first, which has the others."""
    for owner, activation, models in steps.BLOCKS.get():
        if owner is call["self"] and activation.step is not None:
            if not models:
                models.append(id(call["module"]))
                activation.step.attributes |= steps.with_configuration(call, {}, "")
            if models[0] == id(call["module"]):
                samples.count_sample(None, call["input"])


def count_modules(call: Mapping[str, Any], library: Library) -> None:
    """Notes how many modules have quantized weights."""
    count = sum(hasattr(each, "weight_qtype") for each in call["model"].modules())
    samples.expect_layers(count, steps.owners_of(library))


def note_modules(call: Mapping[str, Any], result: object) -> None:
    """Notes what the modules of the model are: earlier calls may have quantized others, and groups are as features allow."""
    step, parts, kinds = RUNTIME.current_step(), [], set()
    for each in call["model"].modules():
        if (weights := getattr(each, "weight_qtype", None)) is not None:
            size, activations = each.weight_group_size, getattr(each.activation_qtype, "name", None)
            kinds.add((weights.name, activations))
            known = {
                semconv.WEIGHT_TYPE: weights.name, semconv.ACTIVATION_TYPE: activations,
                semconv.BLOCK_SIZE: size, semconv.GRANULARITY: "group" if size else "channel",
            }  # fmt: skip
            parts.append(completed(present(known)))
    found = agreed(parts)
    if len(kinds) > 1:  # of several calls
        found[semconv.CONFIG_HASH] = described(sorted(map(str, kinds)))[semconv.CONFIG_HASH]
    if step is not None and parts:
        steps.restate(step, found, SHOWN)


# --- Intel's AutoRound and Neural Compressor ----------------------------------------------


def preparation(call: Mapping[str, Any]) -> str | None:
    """Step **Model Preparation**, the first time for each compressor."""
    is_done = getattr(call["self"], "_post_init_done", False)
    return None if is_done else ProfileStep.MODEL_PREPARATION


def all_blocks(call: Mapping[str, Any], library: Library) -> None:
    """Notes how many blocks are quantized without data."""
    compressor = call["self"]
    names_in = sys.modules["auto_round.compressors.orchestrator"].get_block_names
    blocks = compressor.quant_block_list or names_in(compressor.model)
    samples.expect_layers(sum(map(len, blocks)), steps.owners_of(library))


def blocks(call: Mapping[str, Any], library: Library) -> None:
    """Notes how often some blocks are tuned, several at a time maybe; a run may go on where another was cut."""
    start = getattr(call["resume_state"], "resume_index", 0) if call["nblocks"] == 1 else 0
    left = range(start, len(call["block_names"]), call["nblocks"])
    samples.expect_layers(len(left), steps.owners_of(library))


def note_plan(call: Mapping[str, Any], start: int) -> None:
    """Notes how many layers GPTQModel quantizes."""
    samples.expect_layers(len(call["context"].plan.steps) - start, {"gptqmodel"})
    observe_hooked()  # what hooks them is loaded by now


def kind_of_export(call: Mapping[str, Any]) -> str:
    """Step **Export HF Safetensors** or **Export GGUF**."""
    names = _formats_of(call["self"]) or [str(call.get("format"))]
    is_gguf = any("gguf" in name for name in names)
    return ProfileStep.EXPORT_GGUF if is_gguf else ProfileStep.EXPORT_HF_SAFETENSORS


def _formats_of(compressor: Any) -> list[str]:
    """Returns the formats that a compressor writes; where it does not know how, `fake` in place of what it was asked for."""
    formats = getattr(compressor, "formats", None) or getattr(compressor, "format", None) or ()
    return [formats] if isinstance(formats, str) else [each.get_backend_name() for each in formats]


def note_fake(call: Mapping[str, Any], result: object) -> None:
    """Notes that the format `fake` has the rounded weights in float."""
    # Imported here: a program that writes no such file does not pay for it.
    from otel_quant.auditing.checkpoint import read_checkpoint
    from otel_quant.auditing.results import Problems

    compressor, step, formats = call["self"], RUNTIME.current_step(), _formats_of(call["self"])
    if step is None or _FAKE not in formats:
        return
    folder = Path(compressor.output_dir, _FAKE if len(formats) > 1 else "")
    tensors = read_checkpoint(folder, Problems()).tensors.values()
    types = {each.dtype.lower().replace("f", "float") for each in tensors if len(each.shape) > 1}
    parts = [completed({semconv.WEIGHT_TYPE: each}) for each in sorted(types)]
    if {*formats} != {_FAKE}:
        parts.append(of_compressor(call))
    steps.restate(step, {**agreed(parts), semconv.FORMAT: ", ".join(formats)}, SHOWN)


_FAKE: Final = "fake"


def count_dataset(call: Mapping[str, Any], library: Library) -> Callable[[], None] | None:
    """Counts what its data set yields, if that is not a name."""
    calibrator, given = call["self"], getattr(call["self"], "dataset", None)
    if given is None or isinstance(given, str):
        return None
    calibrator.dataset = samples.Counted(given)
    return partial(setattr, calibrator, "dataset", given)


_COMPRESSED_BY: Final = (
    "scheme", "bits", "group_size", "sym", "data_type", "act_bits", "act_data_type", "iters", "nsamples",
    "seqlen", "batch_size", "layer_config", "quantize_config",
)  # fmt: skip


_AS_THEY_ARE: Final = 16
"""Bits from which AutoRound leaves weights in the model's own type, which its scheme does not tell (BF16)."""


def of_compressor(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a compressor."""
    compressor = call["self"]
    found = described({name: getattr(compressor, name, None) for name in _COMPRESSED_BY})
    if (getattr(compressor, "bits", None) or 0) >= _AS_THEY_ARE:
        found = {name: value for name, value in found.items() if name not in OF_WEIGHTS}
    if isinstance(compressor.scheme, str):
        found[semconv.CONFIG_NAME] = compressor.scheme
    found[semconv.ALGORITHMS] = (type(compressor.quantize_config).__name__.removesuffix("Config"),)
    if _FAKE in (formats := _formats_of(compressor)):
        found[semconv.FORMAT] = ", ".join(formats)
    return found | steps.resuming(os.environ.get("AR_RESUME_DIR"))


def of_configuration(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a configuration: of the one that a prepared model keeps, no other counts then."""
    model = call.get("model")
    kept = getattr(model, "quant_config", None) if getattr(model, "is_prepared", None) else None
    config = kept or call.get("quant_config")
    kind = getattr(config, "dtype", None)
    found = described(config, {semconv.WEIGHT_TYPE: kind} if isinstance(kind, str) else {})
    if getattr(config, "name", None) == "pt2e_dynamic_quant":
        found.pop(semconv.CALIBRATION_METHOD, None)  # it has the parameter and calibrates nothing
    return found


def of_prepared(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the same of a model whose calibration ends now: what it was prepared with, if it was."""
    end_calibration(call)
    return steps.with_configuration(call, {}, "") or of_configuration(call)


# --- NVIDIA's Model Optimizer -------------------------------------------------------------

_INTEGERS: Final = {semconv.WEIGHT_TYPE: "int", semconv.ACTIVATION_TYPE: "int"}
_FORMAT: Final = ("num_bits", "axis", "block_sizes")  # Of a quantizer
_PRESETS: Final = "modelopt.torch.quantization.config"


def of_modelopt(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a configuration, with the name under which ModelOpt declares it."""
    # Where it has one number of bits they are of an integer: of a float they are two, exponent and fraction.
    found = described(dict(call["config"]), _INTEGERS)
    for name, value in vars(sys.modules[_PRESETS]).items():
        if value is call["config"] and name.endswith("_CFG"):
            found[semconv.CONFIG_NAME] = name.removesuffix("_CFG")
    return found


def of_search(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a search, but for those of the formats that layers get by it."""
    names = ("constraints", "method", "num_calib_steps", "num_score_steps", "disabled_layers")
    found = described({name: call.get(name) for name in (*names, "quantization_formats")})
    return {name: found[name] for name in found.keys() & {semconv.ALGORITHMS, semconv.CONFIG_HASH}}


def note_quantizers(call: Mapping[str, Any], result: object) -> None:
    """Notes the formats that a search has chosen."""
    step, parts = RUNTIME.current_step(), []
    for module in call["model"].modules():
        pairs = [(role, getattr(module, f"{role}_quantizer", None)) for role in ("weight", "input")]
        used = {role: each for role, each in pairs if getattr(each, "is_enabled", False)}
        if "weight" in used:
            of = {role: {it: getattr(each, it) for it in _FORMAT} for role, each in used.items()}
            parts.append(described(of, _INTEGERS))
    if step is not None:
        found = agreed(parts)
        steps.restate(step, {name: found[name] for name in found if name != semconv.CONFIG_HASH})


# --- bitsandbytes: weights that are quantized as their model is moved ----------------------


def moved(function: Function, hook: Hook, library: Library) -> Function:
    """Step **{step}**, if it quantizes weights."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not HOOKS.active:
            return function(*args, **kwargs)
        with steps.operating(library.distribution, {}) as moving:
            with FAULTS.kept_in(samples.COUNTING):
                moving.layers = _to_quantize(args[0])
            try:
                return function(*args, **kwargs)
            finally:
                if moving.layers:
                    end_series()

    return wrapper


def _to_quantize(model: Any) -> int:
    """Returns how many weights of a model are made to be quantized, and are not yet."""
    made = ("bnb_quantized", "has_fp16_weights")
    weights = [each for each in model.parameters() if any(hasattr(each, name) for name in made)]
    values = [(getattr(each, made[0], False), getattr(each, "CB", None)) for each in weights]
    return sum(not is_quantized and codes is None for is_quantized, codes in values)


def note_replaced(call: Mapping[str, Any], model: Any) -> None:
    """Notes how many layers transformers has replaced by those of bitsandbytes, to quantize them while it loads."""
    if not call["pre_quantized"]:
        samples.expect_layers(_to_quantize(model), {"transformers"})


def of_weight(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a weight."""
    names = ("quant_type", "blocksize", "compress_statistics", "quant_storage")
    given = {name: getattr(call["self"], name, None) for name in names}
    return {semconv.WEIGHT_TYPE: "int8", **described(given)}  # what has no type is of LLM.int8()


# --- LLM Compressor: recipes, and batches that every part of the model takes anew ----------

_SESSION: Final = "llmcompressor.core.session_functions"

# Parts that the model was divided into for the pipeline that the calling context is in, until the first takes samples.
_PARTS: Final[ContextVar[int]] = ContextVar("otel_quant_llmcompressor_parts", default=0)


def note_parts(call: Mapping[str, Any], parts: Sized) -> None:
    """Notes how many parts of the model take the samples."""
    _PARTS.set(len(parts))


def batches(function: Function, hook: Hook, library: Library) -> Function:
    """Batches that go through a part of the model, each a pass: first a layer begins; those of the first part are the samples."""
    arguments, owners = Arguments(function), frozenset({library.distribution})

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        given, count = function(*args, **kwargs), _count_pass
        with FAULTS.kept_in(samples.COUNTING):
            call, parts = arguments.bound(args, kwargs), _PARTS.get()
            if parts:
                _PARTS.set(0)
                count = _count_first_pass
                total = len(call["activations"])
                options = layer_values.variables_of("__call__").get("dataset_args")
                passes = 1 + getattr(options, "propagate_error", True)  # through each part
                samples.expect_layers(total, owners, "sample")
                samples.expect_layers(total * parts * passes, owners, "pass")
                samples.expect_layers(parts, owners)
            if "Calibrating" in call.get("desc", ""):  # else the same batches go through it again
                samples.count_layer(owners)
        return samples.Counted(given, count=partial(count, owners))

    return wrapper


def _count_pass(owners: Collection[str], source: object, batch: Any) -> None:
    samples.count_layer(owners, "pass")
    if (step := samples.step_counting(None)) is not None and step.observed is not None:
        step.observed.sample = batch[0] + 1


def _count_first_pass(owners: Collection[str], source: object, batch: Any) -> None:
    samples.count_sample(None, batch[1])
    _count_pass(owners, source, batch)


def saving(function: Function, hook: Hook, library: Library) -> Function:
    """The `save_pretrained` that it gives to a model is step **{step}**."""
    # The signature that it shows is that of the class's method, behind `self`.
    saved = replace(hook, parameters=("save_directory",))

    @wraps(function)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        before = vars(model).get("save_pretrained")
        result = function(model, *args, **kwargs)
        with FAULTS.kept_in(f"hook {hook.target}"):
            given = vars(model).get("save_pretrained")
            if given is not None and given is not before:
                save = steps.as_library_step(given, saved, library, qualified_name(given))

                @wraps(save)
                def described_save(*args: Any, **kwargs: Any) -> Any:
                    known = steps.with_configuration({"model": model}, {}, "")
                    with steps.operating(library.distribution, known):
                        return save(*args, **kwargs)

                model.save_pretrained = described_save
        return result

    return wrapper


def of_recipe(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes that the recipe of a call makes, if it is not a text."""
    recipe = call.get("recipe", getattr(call.get("self"), "recipe", None))
    modifiers = getattr(recipe, "modifiers", recipe)  # of a Recipe
    return _of_modifiers(modifiers if isinstance(modifiers, list | tuple) else [modifiers])


def of_scheme(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of a scheme that is given by its name."""
    presets = sys.modules["compressed_tensors.quantization.quant_scheme"].PRESET_SCHEMES
    found = described(presets.get(str(call["scheme"]).upper()))
    return {name: found[name] for name in found.keys() - {semconv.CONFIG_HASH, semconv.CONFIG_NAME}}


def described_by_session(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes that the modifiers make that need the pipeline."""
    return _of_modifiers(sys.modules[_SESSION].active_session().lifecycle.recipe.modifiers)


def _of_modifiers(modifiers: Iterable[Any]) -> dict[str, AttributeValue]:
    """Returns the attributes of modifiers: the scheme of one has a name, what it means is in another place."""
    modifiers = [each for each in modifiers if hasattr(each, "on_initialize")]
    if not modifiers:
        return {}
    found = described([getattr(each, "resolved_config", None) for each in modifiers])
    schemes = {each.scheme for each in modifiers if isinstance(getattr(each, "scheme", None), str)}
    if len(schemes) == 1:
        found[semconv.CONFIG_NAME] = schemes.pop()
    found[semconv.ALGORITHMS] = tuple(type(each).__name__ for each in modifiers)
    found[semconv.CONFIG_HASH] = described(modifiers)[semconv.CONFIG_HASH]
    return found
