"""What reaches the observers of a library in a calibration: how much, by shapes, and the range that each observer keeps.

While a step calibrates, calls of observers go through a function of ours. It is set on their class and
removed when the step ends: modules get no hooks and no attributes, so that what is saved, copied, compiled and exported
within the step is the same. Calls that are traced or compiled are not noted. Ranges on a GPU are read at the end.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import chain
from typing import Any, Final
from weakref import WeakKeyDictionary

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.hooks import Function, Library, uncounted, wraps
from otel_quant.capture.instruments.layer_values import variables_of
from otel_quant.capture.recorder.observed_layers import ObservedLayer, ObservedLayers
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.schema.readings import LayerSeen

_SETTLE: Final = re.compile("(?!.*MovingAverage|Memoryless).*(MinMax|^MaxCalibrator)")
"""Names of classes that keep a range alone, which only grows."""

_PARTS: Final = re.compile(r"(\w*_)?(observer|quantizer|fake_quant|(post|pre)_process)(_\d+)?")
"""Parts of a module's name that are an observer's, not the layer's."""

_NOTING: Final = "what reaches layers"  # Origin of failures, for :meth:`Faults.kept_in`
_MODEL: Final[ContextVar[Any]] = ContextVar("otel_quant_calibrated_model", default=None)


class _Observed(ObservedLayers):
    """What reaches the layers of a step."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.names = {id(each): name for name, each in model.named_modules()}
        self.hooked: set[str] = set()  # Names of the layers that have no observer

    def end(self) -> list[LayerSeen]:
        """Ends the observation; returns what is known of each layer."""
        _UNDER_WAY.remove(self)
        with FAULTS.kept_in(_NOTING):
            while _CHANGED and not _UNDER_WAY:
                owner, name, before = _CHANGED.pop()
                delattr(owner, name) if before is None else setattr(owner, name, before)
            for layer in self.layers.values():
                if layer.on_gpu is not None:
                    _note_range(layer, 0, *(each.cpu() for each in layer.on_gpu))
        return super().end()


_SEEN: Final[WeakKeyDictionary[Any, tuple[_Observed, ObservedLayer]]] = WeakKeyDictionary()
_UNDER_WAY: Final[list[_Observed]] = []
_CHANGED: Final[list[tuple[type, str, Any]]] = []
"""Changed classes: the class, the name of the method, and its own method before; None if it had none."""


def of_model(call: Mapping[str, Any], library: Library) -> Callable[[], object]:
    """Notes what reaches the layers of its model."""
    model = call["model"] if "model" in call else call["self"].model
    return partial(_MODEL.reset, _MODEL.set(model))


def of_layers(call: Mapping[str, Any], library: Library) -> Callable[[], object]:
    """Notes what reaches the layers of its model."""
    undo = of_model(call, library)
    observe_hooked()
    return undo


def observe_hooked() -> None:
    """Starts to note what reaches the layers that the library hooks from now on, in the current step."""
    if (step := RUNTIME.current_step()) is not None:
        observe(step, hooks_layers=True)


def observe(step: OpenStep, model: Any = None, *, hooks_layers: bool = False) -> None:
    """Starts to note, until a step ends, what reaches the observers of a model and the layers that its library hooks."""
    model = _MODEL.get() if model is None else model
    if model is None or not RUNTIME.settings.observers:
        return
    with FAULTS.kept_in(_NOTING):
        observers, observed = _observers_in(model), step.observed
        if observed is None and (observers or hooks_layers):
            observed = step.observed = _Observed(model)
            if not _UNDER_WAY:
                _change_classes()
            _UNDER_WAY.append(observed)
        if not isinstance(observed, _Observed):
            return
        for name, observer in observers.items():
            if observer not in _SEEN or _SEEN[observer][0] not in _UNDER_WAY:
                kind = type(getattr(observer, "_calibrator", observer)).__name__
                _SEEN[observer] = observed, observed.add(name, settles=bool(_SETTLE.match(kind)))
                observed.hooked.discard(name)


def _change_classes() -> None:
    for reference, (name, make) in _METHODS.items():
        base = _found(reference)
        derived = [] if base is None else [base] if name == "__call__" else _with_derived(base)
        for each in derived:
            before = vars(each).get(name)
            if before is not None or name == "__call__":
                _CHANGED.append((each, name, before))
                setattr(each, name, make(before))


def _found(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(sys.modules.get(module), name, None)


def _with_derived(base: Any) -> list[type]:
    derived = [_with_derived(each) for each in base.__subclasses__()]
    return [base, *chain(*derived)]


# --- observers ----------------------------------------------------------------------------


def _noting_call(own: Function | None) -> Function:
    """Returns the `__call__` to set on a class of observers: it runs the class's own, or the module's, and notes the call."""
    torch = sys.modules["torch"]
    module, is_compiling = torch.nn.Module, torch.compiler.is_compiling

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = own or module.__call__  # read each time: a tracer replaces it
        if is_compiling():
            return run(self, *args, **kwargs)
        has_failed = True
        try:
            result = run(self, *args, **kwargs)
            has_failed = False
        finally:
            note(self, args, has_failed)
        return result

    return uncounted(call)


def _note_call(observer: Any, args: tuple[Any, ...], has_failed: bool) -> None:
    """Notes a call of an observer; if it has failed, whether what it was given is finite."""
    observed, layer = _SEEN.get(observer, (None, None))
    if observed not in _UNDER_WAY or layer is None or observed is None or not args:
        return
    # ModelOpt's quantizers are also called outside of a calibration.
    if _kept(observer, "_if_calib") is not False and (tokens := _tokens_in(args[0])):
        observed.reached(layer, tokens)
        found = args[0].detach().aminmax() if has_failed else _range_of(observer)
        _note_range(layer, observed.sample, *found)


note: Final = FAULTS.kept_in(_NOTING).around(_note_call)


def _tokens_in(tensor: Any) -> int:
    """Returns how many vectors of features, or images, a tensor has; 0 for other objects and traced tensors."""
    torch = sys.modules["torch"]
    is_tensor = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return tokens_of(tensor.shape) if is_tensor and not torch.jit.is_tracing() else 0


def tokens_of(shape: Sequence[int]) -> int:
    """Returns the same of a shape; images have four dimensions or more."""
    return 0 if 0 in shape else shape[0] if len(shape) > 3 else math.prod(shape[:-1])


def _range_of(observer: Any) -> tuple[Any, Any]:
    """Returns the lowest and the highest that an observer has of a tensor, or of each channel; None if it has none."""
    if (calibrator := _kept(observer, "_calibrator")) is not None:
        return (getattr(calibrator, "_calib_amax", None),) * 2
    edges = _kept(observer, "calib_bin_edges")  # of a histogram of Quark's
    if edges is not None and edges.numel():
        return edges[0], edges[-1]
    ending = "_val" if (low := _kept(observer, "min_vals")) is None else "_vals"
    return _kept(observer, "min_val") if low is None else low, _kept(observer, f"max{ending}")


def _kept(observer: Any, name: str) -> Any:
    """Returns a value or a buffer of an observer, None if it has none, for which a module's `getattr` takes microseconds."""
    own = vars(observer)
    return own[name] if name in own else own["_buffers"].get(name)


def _note_range(layer: ObservedLayer, sample: int, low: Any, high: Any) -> None:
    if low is not None and low.device.type != "cpu":
        layer.on_gpu = low, high
    elif low is not None and low.numel():
        lowest, highest = map(float, (low, high) if low.numel() == 1 else (low.min(), high.max()))
        if not lowest > highest:  # as before the first value; false for NaN
            layer.note_range(sample, lowest, highest)


def _observers_in(model: Any) -> dict[str, Any]:
    """Returns the observers of activations by the names of the layers; a second one of a layer by its own name."""
    bases = [_found(each) for each, (name, _) in _METHODS.items() if name == "__call__"]
    classes, found = tuple(filter(None, bases)), dict[str, Any]()
    nodes = getattr(getattr(model, "graph", None), "nodes", ())
    of = {str(each.target): each for each in nodes if each.op == "call_module" and each.args}
    for path, each in model.named_modules() if classes else ():
        is_off = getattr(each, "_disabled", False) or getattr(each, "_dynamic", False)
        if isinstance(each, classes) and not is_off:
            name = _name_of(of[path]) if path in of else _layer_of(path)
            if name is not None:
                second = path if path.startswith(name) else f"{name}.{path}"
                found[second if name in found else name] = each
    return found


def _layer_of(path: str) -> str | None:
    """Returns the layer of an observer, by its path; None for one of weights."""
    parts = path.split(".")
    while parts and _PARTS.fullmatch(parts[-1]):
        if "weight" in (last := parts.pop()) or "bias" in last:
            return None
    return ".".join(parts) or path


def _name_of(observer: Any) -> str | None:
    """Returns the innermost layer that an observer of a graph is behind or before; None for one of weights."""
    source = observer.args[0]
    if source.op in ("get_attr", "call_module"):
        return str(source.target) if source.op == "call_module" else None
    around = (it for it in (source, *observer.users) if it.op == "call_function")
    stacks = [list(it.meta.get("nn_module_stack", {}).values()) for it in around]
    innermost = max(stacks, key=len, default=[])
    return str(innermost[-1][0] if innermost else source)


# --- libraries that hook layers -----------------------------------------------------------


def _noting_registered_hooks(register: Function) -> Function:
    """Returns LLM Compressor's method that registers the hook of a layer, with the hook noted."""

    @wraps(register)
    def wrapper(self: Any, target: Any, hook: Any, hook_type: str, **kwargs: Any) -> Any:
        name = _UNDER_WAY[-1].names.get(id(target)) if _UNDER_WAY else None
        if name is not None and hook_type == "forward" and hasattr(target, "weight"):
            hook = _noted(hook, name)
        return register(self, target, hook, hook_type, **kwargs)

    return wrapper


def _noting_made_hooks(make: Function) -> Function:
    """Returns GPTQModel's method that makes the hook of a layer, with the hook noted."""

    @wraps(make)
    def wrapper(self: Any, name: str) -> Any:
        # Its caller knows the complete name of the layer
        subset = variables_of("_run_single_subset_pass").get("subset", {})
        path = getattr(subset.get(name), "full_name", name)
        return _noted(make(self, name), path, self.current_batch_index)

    return wrapper


_METHODS: Final[Mapping[str, tuple[str, Callable[[Any], Function]]]] = {
    "torch.ao.quantization.observer:ObserverBase": ("__call__", _noting_call),
    "torchao.quantization.pt2e.observer:ObserverBase": ("__call__", _noting_call),
    "quark.torch.quantization.observer.observer:ObserverBase": ("__call__", _noting_call),
    "llmcompressor.observers.base:Observer": ("__call__", _noting_call),
    "modelopt.torch.quantization.nn.modules.tensor_quantizer:TensorQuantizer": ("__call__", _noting_call),
    "llmcompressor.modifiers.utils.hooks:HooksMixin": ("register_hook", _noting_registered_hooks),
    "gptqmodel.looper.loop_processor:LoopProcessor": ("pre_process_fwd_hook", _noting_made_hooks),
}  # fmt: skip
"""The method to replace, by class of a library: the call of observers, or what makes the hooks of layers."""


def _noted(hook: Function, name: str, index: Callable[[], int | None] = lambda: None) -> Function:
    """Returns a hook that notes the inputs of a layer and calls the library's."""
    observed = _UNDER_WAY[-1] if _UNDER_WAY else None
    if observed is None or name in observed.layers:
        return hook
    observed.hooked.add(name)
    layer = observed.add(name)

    def look(inputs: Any) -> None:
        tensor = inputs[0] if isinstance(inputs, tuple) and inputs else inputs
        if observed not in _UNDER_WAY or name not in observed.hooked:
            return
        if (at := index()) is not None:
            observed.sample = at + 1
        if tokens := _tokens_in(tensor):
            observed.reached(layer, tokens)
            if tensor.is_floating_point() and tensor.device.type == "cpu":
                _note_range(layer, observed.sample, *tensor.detach().aminmax())

    guarded = FAULTS.kept_in(_NOTING).around(look)

    @wraps(hook)
    def wrapper(module: Any, inputs: Any, *more: Any, **kwargs: Any) -> Any:
        guarded(inputs)
        return hook(module, inputs, *more, **kwargs)

    return wrapper


# --- ONNX -----------------------------------------------------------------------------------

_REDUCED: Final = re.compile("(.*)_Reduce(?:Min|Max)")


def of_calibrator(call: Mapping[str, Any], library: Library) -> Callable[[], object] | None:
    """Notes what reaches the tensors that it calibrates."""
    calibrator = next(iter(call.values()))
    step, session = RUNTIME.current_step(), getattr(calibrator, "infer_session", None)
    if step is None or session is None or not RUNTIME.settings.observers:
        return None
    run, look = session.run, FAULTS.kept_in(_NOTING).around(_Outputs(calibrator, step).look)

    @wraps(run)
    def wrapper(output_names: Any, input_feed: Any, *args: Any, **kwargs: Any) -> Any:
        found = run(output_names, input_feed, *args, **kwargs)
        look(input_feed, found)
        return found

    session.run = wrapper
    return partial(vars(session).pop, "run", None)


class _Outputs:
    """What a session returns for each sample: tensors, or the lowest and the highest of each."""

    def __init__(self, calibrator: Any, step: OpenStep) -> None:
        self._step, session = step, calibrator.infer_session
        step.observed = self._observed = step.observed or ObservedLayers()
        nodes = enumerate(calibrator.model.graph.node)
        order = {name: at for at, node in nodes for name in node.output}
        self._inputs = [each.name for each in session.get_inputs()]
        # In the order of the graph; the minimum and maximum of a tensor have the place of that tensor.
        names = [(each.name, _REDUCED.fullmatch(each.name)) for each in session.get_outputs()]
        tensors = [(at, it[1] if it else name, bool(it)) for at, (name, it) in enumerate(names)]
        wanted = getattr(calibrator, "tensors_to_calibrate", None)
        self._outputs = sorted(
            (each for each in tensors if each[2] or wanted is None or each[1] in wanted),
            key=lambda each: order.get(each[1], -1),
        )
        is_moving = getattr(calibrator, "moving_average", False)
        self._settles = bool(_SETTLE.match(type(calibrator).__name__)) and not is_moving

    def look(self, inputs: Mapping[str, Any], found: Sequence[Any]) -> None:
        """Looks at a sample and what was returned for it."""
        self._observed.sample = self._step.counts.samples or 0
        for name in self._inputs:
            self._look_at(name, inputs.get(name))
        for at, name, is_reduced in self._outputs:
            if name not in self._inputs:
                self._look_at(name, found[at], is_reduced=is_reduced)

    def _look_at(self, name: str, value: Any, *, is_reduced: bool = False) -> None:
        if getattr(value, "dtype", None) is None or value.dtype.kind != "f":
            return
        layer = self._observed.add(name, settles=self._settles)
        if value.size and not (is_reduced and math.isinf(value.flat[0])):  # the range of no values
            self._observed.reached(layer, None if is_reduced else tokens_of(value.shape))
            layer.note_range(self._observed.sample, float(value.min()), float(value.max()))
