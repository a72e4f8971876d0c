"""AMD Quark: what its configurations describe; the scopes of its own profiler become steps.

What configurations have is looked up by name: none of Quark is imported here, and a version that spells something
differently has fewer attributes.

Quark marks its steps with a decorator, which opens a scope at each call: the function and its arguments are
in the frame that does so. A step is opened and closed just after Quark's own checkpoint: metrics that the program
has added to Quark's profiler are not asked a second time, their values come from Quark's record.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments import layer_values, steps
from otel_quant.capture.instruments.configuration import described as of_configuration
from otel_quant.capture.instruments.hooks import Arguments, Function, Hook, Library, wraps
from otel_quant.capture.instruments.samples import expect_layers, note_shapes
from otel_quant.capture.probes.cache_directories import CACHE_DIRECTORIES
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import qualified_name
from otel_quant.export.quark_yaml.file import DEFAULT_PATH
from otel_quant.schema import semconv
from otel_quant.schema.readings import AttributeValue
from otel_quant.schema.settings import QUARK_PROFILING

_PRESETS: Final = "quark.onnx.quantization.config.custom_config"

# Switches of quantize_static and of its extra options, with the names of the algorithms in Quark's own
# configuration classes.
_SWITCHES: Final = {
    "include_cle": "cle", "include_sq": "smooth_quant", "include_rotation": "quarot",
    "include_auto_mp": "auto_mixprecision", "UseGPTQ": "gptq", "BiasCorrection": "bias_correction",
}  # fmt: skip

_NAMES: Final[dict[int, str]] = {}
"""Names of configurations that are alive, by identity: most are not hashable."""


def note_name(call: Mapping[str, Any], configuration: object) -> None:
    """Names the configuration that it makes."""
    name = call.get("config_name", call.get("scheme"))
    if isinstance(name, str):
        _NAMES[id(configuration)] = name
        weakref.finalize(configuration, _NAMES.pop, id(configuration), None).atexit = False


def note_cached_samples(call: Mapping[str, Any], result: object) -> None:
    """Notes the shapes of the first sample: for bfloat16 and block formats nothing reads the samples afterwards."""
    if samples := getattr(call["self"], "_data_cache", None):
        note_shapes(samples[0])


def note_nodes(call: Mapping[str, Any], result: object) -> None:
    """Notes how many layers GPTQ goes through."""
    expect_layers(len(call["self"].quant_node_list), {"amd-quark"})


def described(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes that the configuration of a call makes."""
    found: dict[str, AttributeValue | None] = {}
    configuration = call.get("quant_config") or getattr(call.get("self"), "config", None)
    if configuration is not None:
        # The older kind of configuration for ONNX wraps what has the name.
        inner = getattr(configuration, "global_quant_config", None)
        found |= of_configuration(configuration)
        found[semconv.CONFIG_NAME] = _name_of(configuration) or _name_of(inner)
    algorithms = tuple(_algorithms(call, configuration))
    if algorithms or "include_cle" in call:
        found[semconv.ALGORITHMS] = algorithms
    return {key: value for key, value in found.items() if value is not None}


def _algorithms(arguments: Mapping[str, Any], configuration: object) -> Iterator[str]:
    """Yields the names of the algorithms that are asked for."""
    for algorithm in getattr(configuration, "algo_config", None) or ():
        name = getattr(algorithm, "name", None)
        if isinstance(name, str):
            yield name
    given = {**(arguments.get("extra_options") or {}), **arguments}
    yield from (name for switch, name in _SWITCHES.items() if given.get(switch) is True)
    if given.get("include_fast_ft") is True:
        finetune = given.get("FastFinetune") or {}
        yield str(finetune.get("OptimAlgorithm", "adaround")).lower()


def _name_of(configuration: object) -> str | None:
    if (known := _NAMES.get(id(configuration))) is not None:
        return known
    # A preset that is used as Quark declares it, not by its name.
    for name, value in vars(sys.modules.get(_PRESETS, object)).items():
        if value is configuration and name.endswith("_QCONFIG"):
            return name.removesuffix("_QCONFIG")
    return None


# --- its profiler --------------------------------------------------------------------------

_PROFILER: Final = "quark.common.profiler.profiler"

_Open = Callable[[], OpenStep | None]

# What opens the step of a scope, until the ``with`` statement enters it.
_PENDING: Final[ContextVar[_Open | None]] = ContextVar("otel_quant_pending", default=None)


def scope(original: Function, hook: Hook, library: Library) -> Function:
    """A step, as named; with the arguments of a function that Quark has decorated."""

    @wraps(original)
    def wrapper(self: Any, step_name: str, user_msg: str | None = None) -> Any:
        result = original(self, step_name, user_msg)
        opening = partial(RUNTIME.recorder.open, step_name, label=user_msg)
        with FAULTS.kept_in("owner of a scope"):
            caller = sys._getframe(1)
            function = caller.f_locals.get("func")
            # Its decorator is public: only a function of its own is a step of the library's.
            if caller.f_globals.get("__name__") == _PROFILER and str(
                getattr(function, "__module__", "")
            ).startswith("quark."):
                opening = partial(_open, step_name, user_msg, library, caller.f_locals)
        _PENDING.set(opening)
        return result

    return wrapper


def _open(
    kind: str, label: str | None, library: Library, caller: Mapping[str, Any]
) -> OpenStep | None:
    if steps.is_reported_already(label or kind, library):
        return None
    function = caller["func"]
    call = Arguments(function).bound(caller.get("args", ()), caller.get("kwargs", {}))
    name = qualified_name(function)
    known = steps.with_configuration(call, steps.attributes_of(call), kind)
    return steps.open_library_step(kind, library, known, label=label, function=name)


def enter_scope(original: Function, hook: Hook, library: Library) -> Function:
    """Begins that step."""

    def open_step() -> OpenStep | None:
        opening = _PENDING.get()
        _PENDING.set(None)
        return opening() if opening is not None else None

    return steps.entering(original, open_step)


def initialize(original: Function, hook: Hook, library: Library) -> Function:
    """Begins the run. Quark's file keeps its path: ours goes elsewhere before Quark opens it."""

    @wraps(original)
    def wrapper(self: Any, output_path: str = DEFAULT_PATH) -> None:
        is_new = not self._initialized
        if is_new and os.environ.get(QUARK_PROFILING) == "1":
            RUNTIME.move_profile_off(output_path)
            RUNTIME.end_at_exit()  # before Quark does: at exit, its last record is made first
        original(self, output_path)
        if is_new:
            with FAULTS.kept_in("Quark's profiler"):
                if self.enabled:
                    RUNTIME.recorder.start()

    return wrapper


def checkpoint(original: Function, hook: Hook, library: Library) -> Function:
    """A checkpoint, if the program asks for it."""

    @wraps(original)
    def wrapper(self: Any, step_name: str) -> None:
        records: Sequence[Mapping[str, object]] = getattr(self, "records", ())
        before = len(records)
        original(self, step_name)
        RUNTIME.metrics.adopt(self, step_name, records[-1] if len(records) > before else {})
        # Quark's profiler takes its own at the ends of the run and of a scope.
        if sys._getframe(1).f_globals.get("__name__") != _PROFILER:
            RUNTIME.recorder.point(step_name)

    return wrapper


def watch_cache_dir(call: Mapping[str, Any], result: object) -> None:
    """A cache directory to watch: Quark calls it for each."""
    CACHE_DIRECTORIES.watch(call["path"])


# --- how well layers were quantized -------------------------------------------------------


def _of_output(call: Mapping[str, Any], result: Any, **more: Any) -> layer_values.Layers:
    """Records how near the model's first output is to the float model's, for one sample."""
    if names := layer_values.variables_of("eval_metrics"):
        output = names["float_sess"].get_outputs()[0].name
        layer = f"{output}, sample {len(names['metric_values_l2']) + 1}"
        yield from layer_values.value_of(result, layer=layer, **more)


of_cosine: Final = partial(_of_output, measure="Cosine Similarity", better="higher")
of_l2: Final = partial(_of_output, measure="L2 Distance", better="lower")


def of_finetuned(call: Mapping[str, Any], result: Any) -> layer_values.Layers:
    """Records the distance of the outputs after one layer was finetuned."""
    names = layer_values.variables_of("fast_finetune")
    if "module" in names:  # else it is before the first
        nodes = names["module"].graph.node
        layer = next((each.name for each in nodes if "uantize" not in each.op_type), "")
        yield from layer_values.lower_is_better(
            result, layer=layer or str(names["i"]), measure="average L2 distance"
        )


def of_sensitivity(call: Mapping[str, Any], result: Any) -> layer_values.Layers:
    """Records the distance of the outputs where one layer has the target precision."""
    measure = getattr(call["self"]._metric_fn, "__name__", "score")
    for each in result:
        yield from layer_values.lower_is_better(each.score, layer=each.name, measure=measure)


def of_gptq(call: Mapping[str, Any], result: Any) -> layer_values.Layers:
    """Records GPTQ's average loss of a layer; with CUDA graphs Quark has none."""
    losses, around = result[1], layer_values.variables_of("apply")
    if losses is not None and "name" in around:
        layer = f"{around['self'].model_decoder_layers}.{around['i']}.{around['name']}"
        average = losses.sum().item() / layer_values.variables_of("quantize")["self"].nsamples
        yield from layer_values.lower_is_better(average, layer=layer, measure="avg loss")
