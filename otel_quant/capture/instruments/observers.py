"""What reaches the observers of a library in a calibration: how much, by shapes, and the range that each observer keeps.

While a step calibrates, calls of observers pass a function of ours. It is set on their class: no module has an
attribute or a hook more than without, so that what is saved, copied, compiled, scripted and exported within the step is
the same; and it is gone when the step ends. Of a call that is traced or compiled nothing is noted. Figures of tensors
on a GPU are kept, and read when the step ends: nothing waits for a GPU before.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.hooks import Function, Library, uncounted, wraps
from otel_quant.capture.recorder.observed_layers import ObservedLayer, ObservedLayers
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.schema.readings import LayerSeen

_OBSERVERS: Final = (
    "torch.ao.quantization.observer:ObserverBase", "torchao.quantization.pt2e.observer:ObserverBase",
    "quark.torch.quantization.observer.observer:ObserverBase", "llmcompressor.observers.base:Observer",
    "modelopt.torch.quantization.nn.modules.tensor_quantizer:TensorQuantizer",
)  # fmt: skip
"""The classes that a library's observers have in common, each of them a module of PyTorch's."""

_HOOKING: Final = (
    ("llmcompressor.modifiers.utils.hooks:HooksMixin", "register_hook"),
    ("gptqmodel.looper.loop_processor:LoopProcessor", "pre_process_fwd_hook"),
)
"""The methods by which libraries without observers hook layers, by the class that declares them."""

_SETTLE: Final = re.compile("(?!.*MovingAverage|Memoryless).*(MinMax|^MaxCalibrator)")
"""Names of classes that keep a range alone, which only grows."""

_PARTS: Final = re.compile(r"(\w*_)?(observer|quantizer|fake_quant|(post|pre)_process)(_\d+)?")
"""Parts of a module's name that are an observer's, not the layer's."""

_IMAGE: Final = 4  # Dimensions from which on a tensor has images, not vectors of features


class _Seen(NamedTuple):
    layer: ObservedLayer
    of: _Observed


class _Observed(ObservedLayers):
    """What reaches the layers of a step; its figures on a GPU, the newest of each layer, are read at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.on_gpu: dict[ObservedLayer, tuple[Any, Any]] = {}
        self.names: dict[int, str] = {}  # Of the model's modules, by identity
        self.hooked: set[str] = set()  # Names of the layers that have no observer

    def end(self) -> list[LayerSeen]:
        """Has nothing observed any more."""
        _UNDER_WAY.remove(self)
        with FAULTS.kept_in(_NOTING):
            if not _UNDER_WAY:
                _restore_classes()
            for layer, (low, high) in self.on_gpu.items():
                _note_range(_Seen(layer, self), low.cpu(), high.cpu(), sample=0)
            self.on_gpu.clear()
        return super().end()


_NOTING: Final = "what reaches layers"  # Origin of failures, for :meth:`Faults.kept_in`
_SEEN: Final[WeakKeyDictionary[Any, _Seen]] = WeakKeyDictionary()  # By observer
_UNDER_WAY: Final[list[_Observed]] = []
_CHANGED: Final[list[tuple[type, str, Any]]] = []
"""Classes with a method of ours, its name, and what they had themselves; None for nothing."""

_MODEL: Final[ContextVar[Any]] = ContextVar("otel_quant_calibrated_model", default=None)


def of_model(call: Mapping[str, Any], library: Library) -> Callable[[], object]:
    """Notes what reaches the layers of its model."""
    return partial(_MODEL.reset, _MODEL.set(call["model"]))


def of_layers(call: Mapping[str, Any], library: Library) -> Callable[[], object]:
    """Notes what reaches the layers of its model."""
    model = call["model"] if "model" in call else call["self"].model
    if (step := RUNTIME.current_step()) is not None:
        observe(step, model, hooks_layers=True)
    return of_model({"model": model}, library)


def observe(step: OpenStep, model: Any = None, *, hooks_layers: bool = False) -> None:
    """Has what reaches the observers of a model noted until a step ends, and the layers that its library hooks then."""
    model = _MODEL.get() if model is None else model
    if model is None or not RUNTIME.settings.observers:
        return
    with FAULTS.kept_in(_NOTING):
        classes = tuple(filter(None, map(_found, _OBSERVERS)))
        observers = _observers_in(model, classes)
        observed = step.observed
        if observed is None and (observers or hooks_layers):
            observed = step.observed = _Observed()
            observed.names = {id(each): name for name, each in model.named_modules()}
            if not _UNDER_WAY:
                _change_classes(classes)
            _UNDER_WAY.append(observed)
        if isinstance(observed, _Observed):
            _add(observers, observed)


def _add(observers: Mapping[str, Any], observed: _Observed) -> None:
    for name, observer in observers.items():
        if observer not in _SEEN:
            kind = type(getattr(observer, "_calibrator", observer)).__name__
            layer = observed.add(name, settles=_SETTLE.match(kind) is not None)
            _SEEN[observer] = _Seen(layer, observed)
            observed.hooked.discard(name)


def _found(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(sys.modules.get(module), name, None)


# --- classes ------------------------------------------------------------------------------


def _change_classes(observers: tuple[type, ...]) -> None:
    for each in observers:
        _change(each, "__call__", _looked_at(sys.modules["torch"]))
    for reference, name in _HOOKING:
        make = _MAKERS[name]
        for each in _with_derived(_found(reference)):
            if name in vars(each):
                _change(each, name, make(vars(each)[name]))


def _change(owner: type, name: str, function: Function) -> None:
    _CHANGED.append((owner, name, vars(owner).get(name)))
    setattr(owner, name, function)


def _restore_classes() -> None:
    while _CHANGED:
        owner, name, before = _CHANGED.pop()
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _with_derived(base: Any) -> list[type]:
    derived = base.__subclasses__() if base is not None else []
    return ([base] if base is not None else []) + [
        each for of in derived for each in _with_derived(of)
    ]


def _looked_at(torch: Any) -> Function:
    """Returns what a call of an observer is: the module's own, which this looks at unless it is compiled."""
    module, is_compiling = torch.nn.Module, torch.compiler.is_compiling

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return module.__call__(self, *args, **kwargs)
        has_failed = True
        try:
            result = module.__call__(self, *args, **kwargs)
            has_failed = False
        finally:
            note(self, args, has_failed)
        return result

    return uncounted(call)


# --- what reaches a layer -----------------------------------------------------------------


def _note_call(observer: Any, args: tuple[Any, ...], has_failed: bool) -> None:
    """Notes a call of an observer; if it has failed, whether what it was given is finite."""
    seen = _SEEN.get(observer)
    if seen is None or not args or seen.of not in _UNDER_WAY or not _is_used(observer):
        return
    tokens = _tokens_in(args[0])
    if tokens:
        seen.of.reached(seen.layer, tokens)
        found = args[0].detach().aminmax() if has_failed else _range_of(observer)
        if found is not None:
            _note_range(seen, *found)


note: Final = FAULTS.kept_in(_NOTING).around(_note_call)


def _is_used(observer: Any) -> bool:
    """Whether it observes: ModelOpt's quantizers are called at all times."""
    return not hasattr(observer, "_if_calib") or (observer._if_calib and not observer._disabled)


def _is_idle(observer: Any) -> bool:
    """Whether it is switched off, or keeps nothing from a calibration."""
    return getattr(observer, "_disabled", False) or getattr(observer, "_dynamic", False)


def _tokens_in(tensor: Any) -> int:
    """Returns how many vectors of features a tensor has, or images; 0 for what is none, or is traced."""
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or torch.jit.is_tracing():
        return 0
    return tokens_of(tensor.shape)


def tokens_of(shape: Sequence[int]) -> int:
    """Returns the same by a shape."""
    if 0 in shape:
        return 0
    return shape[0] if len(shape) >= _IMAGE else math.prod(shape[:-1])


def _range_of(observer: Any) -> tuple[Any, Any] | None:
    """Returns the lowest and the highest that an observer has of a tensor, or of each channel; None if it has none."""
    if hasattr(observer, "_calibrator"):
        found = getattr(observer._calibrator, "_calib_amax", None)
        return None if found is None else (found, found)
    if hasattr(observer, "min_vals"):
        return observer.min_vals, observer.max_vals
    edges = getattr(observer, "calib_bin_edges", None)  # of a histogram of Quark's
    if edges is not None and edges.numel():
        return edges[0], edges[-1]
    low = getattr(observer, "min_val", None)
    return None if low is None else (low, observer.max_val)


def _note_range(seen: _Seen, low: Any, high: Any, sample: int | None = None) -> None:
    if low.device.type != "cpu":
        seen.of.on_gpu[seen.layer] = low, high
    elif low.numel():
        lowest, highest = map(float, (low, high) if low.numel() == 1 else (low.min(), high.max()))
        if not lowest > highest:  # which it is before the first, and not where one is not a number
            seen.layer.ranged(seen.of.sample if sample is None else sample, lowest, highest)


# --- names --------------------------------------------------------------------------------


def _observers_in(model: Any, classes: tuple[type, ...]) -> dict[str, Any]:
    """Returns the observers of activations by the names of the layers; a second one of a layer by its own name."""
    found: dict[str, Any] = {}
    inputs = {
        str(node.target): node.args[0]
        for node in getattr(getattr(model, "graph", None), "nodes", ())
        if node.op == "call_module" and node.args
    }
    for path, module in model.named_modules() if classes else ():
        if isinstance(module, classes) and not _is_idle(module):
            of = inputs.get(path)
            name = _layer_of(path) if of is None else _name_of(of)
            if name is not None:
                found[path if name in found else name] = module
    return found


def _layer_of(path: str) -> str | None:
    """Returns the layer of an observer, by its path; None for one of weights."""
    parts = path.split(".")
    while parts and _PARTS.fullmatch(parts[-1]):
        if "weight" in parts[-1] or "bias" in parts[-1]:
            return None
        parts.pop()
    return ".".join(parts) or path


def _name_of(node: Any) -> str | None:
    """Returns the layer whose result an observer of a graph has; None for weights."""
    if node.op == "get_attr":
        return None
    modules = list(node.meta.get("nn_module_stack", {}).values())
    if node.op == "call_module" or not modules:
        return str(node.target) if node.op == "call_module" else str(node.name)
    return str(modules[-1][0]) or str(node.name)


# --- libraries that hook layers -----------------------------------------------------------


def _registering(register: Function) -> Function:
    """Returns LLM Compressor's method by which modifiers hook layers."""

    @wraps(register)
    def wrapper(self: Any, target: Any, hook: Any, hook_type: str, **kwargs: Any) -> Any:
        noted = hook
        with FAULTS.kept_in(_NOTING):
            name = _UNDER_WAY[-1].names.get(id(target)) if _UNDER_WAY else None
            if name is not None and hook_type == "forward" and hasattr(target, "weight"):
                noted = _noting(hook, name)
        return register(self, target, noted, hook_type, **kwargs)

    return wrapper


def _processing(make: Function) -> Function:
    """Returns the method by which a processor of GPTQModel's makes the hook of a layer."""

    @wraps(make)
    def wrapper(self: Any, name: str) -> Any:
        hook = make(self, name)
        with FAULTS.kept_in(_NOTING):
            return _noting(hook, name, self.current_batch_index)
        return hook

    return wrapper


_MAKERS: Final = {"register_hook": _registering, "pre_process_fwd_hook": _processing}


def _noting(hook: Function, name: str, index: Callable[[], int | None] = lambda: None) -> Function:
    """Returns a library's hook of a layer, which is called with the module, its inputs and more."""
    observed = _UNDER_WAY[-1]
    if name in observed.layers:
        return hook
    observed.hooked.add(name)
    seen = _Seen(observed.add(name), observed)

    def note_inputs(inputs: Any) -> None:
        tensor = inputs[0] if isinstance(inputs, tuple) and inputs else inputs
        if observed not in _UNDER_WAY or name not in observed.hooked:
            return
        if (at := index()) is not None:
            observed.sample = at + 1
        if tokens := _tokens_in(tensor):
            observed.reached(seen.layer, tokens)
            if tensor.is_floating_point() and tensor.device.type == "cpu":
                _note_range(seen, *tensor.detach().aminmax())

    guarded = FAULTS.kept_in(_NOTING).around(note_inputs)

    @wraps(hook)
    def wrapper(module: Any, inputs: Any, *more: Any, **kwargs: Any) -> Any:
        guarded(inputs)
        return hook(module, inputs, *more, **kwargs)

    return wrapper


# --- ONNX -----------------------------------------------------------------------------------

_REDUCED: Final = ("_ReduceMin", "_ReduceMax")


def of_calibrator(call: Mapping[str, Any], library: Library) -> Callable[[], object] | None:
    """Notes what reaches the tensors that it calibrates."""
    calibrator = next(iter(call.values()))
    step, session = RUNTIME.current_step(), getattr(calibrator, "infer_session", None)
    if step is None or session is None or not RUNTIME.settings.observers:
        return None
    session.run = _Outputs(calibrator, session, step).around(session.run)
    return partial(vars(session).pop, "run", None)


class _Outputs:
    """What a session returns for each sample: tensors, or the lowest and the highest of each."""

    def __init__(self, calibrator: Any, session: Any, step: OpenStep) -> None:
        self._step = step
        step.observed = self._observed = step.observed or ObservedLayers()
        names = [each.name for each in session.get_outputs()]
        nodes = enumerate(calibrator.model.graph.node)
        order = {name: at for at, node in nodes for name in node.output}
        self._inputs = [each.name for each in session.get_inputs()]
        self._outputs = sorted(enumerate(names), key=lambda it: order.get(_tensor_of(it[1]), -1))
        self._tensors = getattr(calibrator, "tensors_to_calibrate", None)
        is_moving = getattr(calibrator, "moving_average", False)
        self._settles = bool(_SETTLE.match(type(calibrator).__name__)) and not is_moving

    def around(self, run: Function) -> Function:
        """Returns the session's method that looks at what it returns."""
        look = FAULTS.kept_in(_NOTING).around(self._note)

        @wraps(run)
        def wrapper(names: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            found = run(names, inputs, *args, **kwargs)
            look(inputs, found)
            return found

        return wrapper

    def _note(self, inputs: Mapping[str, Any], found: Sequence[Any]) -> None:
        self._observed.sample = self._step.counts.samples or 0
        for name in self._inputs:
            self._note_tensor(name, inputs.get(name))
        for at, name in self._outputs:
            tensor = _tensor_of(name)
            is_wanted = tensor != name or self._tensors is None or name in self._tensors
            if is_wanted and tensor not in self._inputs:
                self._note_tensor(tensor, found[at], is_reduced=tensor != name)

    def _note_tensor(self, name: str, value: Any, *, is_reduced: bool = False) -> None:
        if getattr(value, "dtype", None) is None or value.dtype.kind != "f":
            return
        layer = self._observed.add(name, settles=self._settles)
        if value.size == 0 or (is_reduced and math.isinf(value.flat[0])):  # the range of no values
            return
        self._observed.reached(layer, None if is_reduced else tokens_of(value.shape))
        layer.ranged(self._observed.sample, float(value.min()), float(value.max()))


def _tensor_of(output: str) -> str:
    """Returns the tensor whose lowest or highest an output is, else the output."""
    return output[: -len(_REDUCED[0])] if output.endswith(_REDUCED) else output
