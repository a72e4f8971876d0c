"""AMD Quark: what its configurations describe; the scopes of its own profiler become steps.

What configurations have is looked up by name: none of Quark is imported here, and a version that spells something
differently has fewer attributes.

Quark marks its steps with a decorator, which opens a scope at each call: the function and its arguments are
in the frame that does so. A step is opened and closed just after Quark's own checkpoint: metrics that the program
has added to Quark's profiler are not asked a second time, their values come from Quark's record.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.configuration import described as of_configuration
from otel_quant.capture.instruments.hooks import HOOKS, Arguments, Function, Hook, Library, wraps
from otel_quant.capture.instruments.samples import note_shapes
from otel_quant.capture.instruments.steps import (
    attributes_of,
    is_reported_already,
    open_library_step,
)
from otel_quant.capture.probes.cache_directories import CACHE_DIRECTORIES
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import OPENING_A_STEP, Activation, qualified_name
from otel_quant.export.quark_yaml.file import DEFAULT_PATH
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue, ProfileStep
from otel_quant.schema.settings import QUARK_PROFILING

_PRESETS: Final = "quark.onnx.quantization.config.custom_config"
_PRESET_SUFFIX: Final = "_QCONFIG"

# Switches of quantize_static, and of its extra options, by the name that Quark's own
# configuration classes give the algorithm.
_SWITCHES: Final = {
    "include_cle": "cle",
    "include_sq": "smooth_quant",
    "include_rotation": "quarot",
    "include_auto_mp": "auto_mixprecision",
}
_OPTIONS: Final = {"UseGPTQ": "gptq", "BiasCorrection": "bias_correction"}


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


def described(call: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Returns the attributes that the configuration of a call makes."""
    found: dict[str, AttributeValue | None] = {}
    configuration = call.get("quant_config") or getattr(call.get("self"), "config", None)
    if configuration is not None:
        # The older kind of configuration for ONNX wraps what has the name.
        inner = getattr(configuration, "global_quant_config", None)
        found |= of_configuration(configuration)
        found[semconv.CONFIG_NAME] = _name_of(configuration) or _name_of(inner)
        found |= _torch_types(inner)
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
    for switch, name in _SWITCHES.items():
        if arguments.get(switch) is True:
            yield name
    options = arguments.get("extra_options")
    options = options if isinstance(options, Mapping) else {}
    for option, name in _OPTIONS.items():
        if options.get(option) is True:
            yield name
    if arguments.get("include_fast_ft") is True:
        finetune = options.get("FastFinetune")
        yield str(dict(finetune or {}).get("OptimAlgorithm", "adaround")).lower()


def _torch_types(layers: object) -> dict[str, AttributeValue | None]:
    """Returns what the specifications of weights and inputs make, where there is one of each."""
    weight, inputs = (getattr(layers, name, None) for name in ("weight", "input_tensors"))
    found: dict[str, AttributeValue | None] = {
        semconv.WEIGHT_TYPE: _type_of(weight),
        semconv.ACTIVATION_TYPE: _type_of(inputs),
    }
    group = getattr(weight, "group_size", None)
    if isinstance(group, int) and group > 0:
        found[semconv.BLOCK_SIZE] = group
    observer = getattr(inputs, "observer_cls", None)
    if observer is not None and getattr(inputs, "is_dynamic", None) is False:
        found[semconv.CALIBRATION_METHOD] = getattr(observer, "__name__", None)
    return found


def _type_of(specification: object) -> str | None:
    name = getattr(getattr(specification, "dtype", None), "name", None)
    return name if isinstance(name, str) else None


def _name_of(configuration: object) -> str | None:
    if (known := _NAMES.get(id(configuration))) is not None:
        return known
    # A preset that is used as Quark declares it, not by its name.
    for name, value in vars(sys.modules.get(_PRESETS, object)).items():
        if value is configuration and name.endswith(_PRESET_SUFFIX):
            return name.removesuffix(_PRESET_SUFFIX)
    return None


# --- its profiler --------------------------------------------------------------------------

_DECORATORS_MODULE: Final = "quark.common.profiler.profiler"

_Open = Callable[[], OpenStep | None]

# What opens the step of a scope, until the ``with`` statement enters it.
_PENDING: Final[ContextVar[_Open | None]] = ContextVar("otel_quant_pending", default=None)
# What the scopes entered in this context have opened, innermost last.
_ENTERED: Final[ContextVar[tuple[Activation, ...]]] = ContextVar("otel_quant_entered", default=())

# Whether Quark takes a checkpoint itself, at the start or the end of a scope.
_IN_OWN_CHECKPOINT: Final[ContextVar[bool]] = ContextVar("otel_quant_boundary", default=False)


def scope(original: Function, hook: Hook, library: Library) -> Function:
    """A step, as named; with the arguments of a function that Quark has decorated."""

    @wraps(original)
    def wrapper(self: Any, step_name: str, user_msg: str | None = None) -> Any:
        result = original(self, step_name, user_msg)
        opening = functools.partial(RUNTIME.recorder.open, step_name, label=user_msg)
        with FAULTS.kept_in("owner of a scope"):
            call = _call_of_quarks(sys._getframe(1))
            if call is not None:
                opening = functools.partial(_open, step_name, user_msg, library, *call)
        _PENDING.set(opening)
        return result

    return wrapper


def _call_of_quarks(caller: FrameType) -> tuple[Function, tuple[Any, ...], dict[str, Any]] | None:
    """Returns the call that opens a scope, if it is of a function of Quark's: its decorator is public."""
    if caller.f_globals.get("__name__") != _DECORATORS_MODULE:
        return None
    names = caller.f_locals
    function: Function | None = names.get("func")
    module: str = getattr(function, "__module__", None) or ""
    if function is None or module.partition(".")[0] != "quark":
        return None
    return function, names.get("args", ()), names.get("kwargs", {})


def _open(
    kind: str,
    label: str | None,
    library: Library,
    function: Function,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> OpenStep | None:
    if not HOOKS.active or is_reported_already(label or kind, library):
        return None
    attributes = attributes_of(Arguments(function).bound(args, kwargs))
    name = qualified_name(function)
    return open_library_step(kind, library, label=label, function=name, attributes=attributes)


@contextmanager
def _own_checkpoint() -> Iterator[None]:
    token = _IN_OWN_CHECKPOINT.set(True)
    try:
        yield
    finally:
        _IN_OWN_CHECKPOINT.reset(token)


def enter_scope(original: Function, hook: Hook, library: Library) -> Function:
    """Begins that step."""

    @wraps(original)
    def wrapper(self: Any) -> Any:
        opening = _PENDING.get()
        _PENDING.set(None)
        with _own_checkpoint():
            result = original(self)
        activation = Activation(None)
        with FAULTS.kept_in(OPENING_A_STEP):
            if opening is not None:
                activation = Activation(opening())
        activation.__enter__()
        _ENTERED.set((*_ENTERED.get(), activation))
        return result

    return wrapper


def exit_scope(original: Function, hook: Hook, library: Library) -> Function:
    """Ends that step."""

    @wraps(original)
    def wrapper(self: Any, kind: Any, error: Any, traceback: Any) -> Any:
        with _own_checkpoint():
            result = original(self, kind, error, traceback)
        entered = _ENTERED.get()
        if entered:
            _ENTERED.set(entered[:-1])
            entered[-1].__exit__(kind, error, traceback)
        return result

    return wrapper


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
        ends_of_the_run = (ProfileStep.START, ProfileStep.END)
        if not _IN_OWN_CHECKPOINT.get() and step_name not in ends_of_the_run:
            RUNTIME.recorder.point(step_name)

    return wrapper


def watch_cache_dir(call: Mapping[str, Any], result: object) -> None:
    """A cache directory to watch: Quark calls it for each."""
    CACHE_DIRECTORIES.watch(call["path"])
