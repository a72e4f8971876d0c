"""What wrappers make of calls: steps, and operations around them, with attributes and models.

A call of an entry point is an operation: no step, and no span. It has the name of the library that runs, so
that a library on which that one is built, and which it calls to do its own work, reports nothing between its
steps either; it has the attributes for the steps within; it holds a step that several calls make up; and in a
worker process its end is when telemetry is sent.
"""

from __future__ import annotations

import enum
import functools
import importlib.metadata
import os
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture import scope
from otel_quant.capture.instruments import configuration, hooks
from otel_quant.capture.instruments.hooks import Arguments, Function, Hook, Library, Models, wraps
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.diagnosis.resuming import saved_in
from otel_quant.export.otel.service_name import model_name
from otel_quant.schema import semconv
from otel_quant.schema.dataclass import dataclass, field
from otel_quant.schema.events import present
from otel_quant.schema.readings import AttributeValue, ProfileStep, Reading


@dataclass(slots=True, eq=False)
class Operation:
    """One call of an entry point."""

    owner: str  # Distribution of the library
    attributes: Mapping[str, AttributeValue]  # Of the steps within
    costs_models: bool = False
    shared_step: scope.Activation | None = None
    layers: int = 0  # How many are quantized within, 0 if that is not known
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # Attributes that say what was asked for, until the model is written: steps before that leave them out
    asked: Collection[str] = ()

    def begin_shared_step(self, activation: scope.Activation) -> None:
        """Begins a step that lasts until :meth:`end_shared_step`, or to the operation's end."""
        activation.resume()
        self.shared_step = activation

    def end_shared_step(self, error: BaseException | None = None) -> None:
        """Ends the step that :meth:`begin_shared_step` began, if it is open."""
        activation, self.shared_step = self.shared_step, None
        if activation is not None:
            activation.suspend()
            activation.finish(error)


# The operations that the calling context is in, outermost first.
_AROUND: Final[ContextVar[tuple[Operation, ...]]] = ContextVar("otel_quant_operations", default=())

_NOTHING: Final[Mapping[str, AttributeValue]] = MappingProxyType({})


def innermost() -> Operation | None:
    """Returns the innermost operation that the calling context is in."""
    found = _AROUND.get()
    return found[-1] if found else None


def around() -> tuple[Operation, ...]:
    """Returns the operations around, outermost first; in a library's own thread, which has no context, all under way."""
    found = _AROUND.get()
    if not found and RUNTIME.current_step() is None:
        found = tuple(RUNTIME.operations)
    return found


def _within(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Returns attributes with the outer call's."""
    operation = innermost()
    outer = operation.attributes if operation is not None else _NOTHING
    return configuration.with_outer(outer, attributes)


@contextmanager
def operating(
    owner: str, attributes: Mapping[str, AttributeValue], *, costs_models: bool = False
) -> Iterator[Operation]:
    """Marks a block as an operation."""
    operation = Operation(owner, _within(attributes), costs_models)
    token = _AROUND.set((*_AROUND.get(), operation))
    RUNTIME.operations.append(operation)
    try:
        yield operation
    except BaseException as error:
        operation.end_shared_step(error)
        raise
    else:
        operation.end_shared_step()
    finally:
        _AROUND.reset(token)
        if operation in RUNTIME.operations:  # else this is a child, forked within
            RUNTIME.operations.remove(operation)
        RUNTIME.report_if_idle()


# --- what is not reported -------------------------------------------------------------


def distributions_built_on(library: Library) -> frozenset[str]:
    """Returns the distributions within whose steps a library's calls are not reported."""
    return frozenset(
        [other.distribution for other in hooks.HOOKS.libraries if library.name in other.built_on]
    )


def owners_of(library: Library) -> frozenset[str]:
    """Returns the distributions whose steps have a library's samples, layers and figures."""
    return distributions_built_on(library) | {library.distribution}


def enclosing_steps() -> Iterator[OpenStep]:
    """Yields the open steps that the calling context is in, innermost first."""
    step = RUNTIME.current_step()
    if step is not None:
        yield from step.outwards()


def is_reported_already(label: str, library: Library) -> bool:
    """Whether it is within a step of the same library (unless that nests steps of other names), or one built on it.

    Of wrappers that outlive their removal nothing is reported.
    """
    if not hooks.HOOKS.active:
        return True
    built_on_it = distributions_built_on(library)
    for step in enclosing_steps():
        owner = step.info.library
        if owner in built_on_it:
            return True
        if owner == library.distribution and (not library.nests or step.info.label == label):
            return True
    return any(each.owner in built_on_it for each in around())


# --- attributes -----------------------------------------------------------------------


FILES: Final[dict[str, str]] = {
    name: attribute
    for attribute, names in {
        semconv.INPUT_PATH: "model_input input_model input_model_path pretrained_model_path model_id_or_path "
        "pretrained_model_name_or_path onnx_path source_model_path model_stub model",
        semconv.OUTPUT_PATH: "model_output output_model_path output_model output_path output_dir save_path "
        "save_directory checkpoint_dir export_dir serialize_to_path target_model_path",
    }.items()
    for name in names.split()
}
"""Usual names of parameters for files."""


def attributes_of(
    arguments: Mapping[str, Any], sources: hooks.AttributeSources = (), config: Sequence[str] = ()
) -> dict[str, AttributeValue]:
    """Returns the attributes that arguments make."""
    with_paths = RUNTIME.settings.paths
    found = (configuration.of_arguments(arguments, config) if config else {}) | dict(
        configuration.usual(arguments)
    )
    for path, attribute in (*FILES.items(), *reversed(sources)):
        value = hooks.value_at(arguments, path)
        if attribute in (semconv.INPUT_PATH, semconv.OUTPUT_PATH):
            if with_paths and isinstance(value, str | os.PathLike):
                found[attribute] = os.fspath(value)
        elif attribute == semconv.RESUME_PATH:
            found |= resuming(value)
        elif isinstance(value, enum.Enum):
            found[attribute] = value.name
        elif isinstance(value, bool | int | float | str):
            found[attribute] = value
    modules = [each for each in arguments.values() if hasattr(type(each), "named_modules")]
    if modules and semconv.INPUT_PATH not in found:
        # By the name that the hub or its folder has, else its class
        name = getattr(modules[0], "name_or_path", None) if with_paths else None
        known = model_name(name) if isinstance(name, str) else None
        found[semconv.MODEL_NAME] = known or type(modules[0]).__name__
    return found


def resuming(place: object) -> dict[str, AttributeValue]:
    """Returns where a library keeps what it goes on from after a kill, and how much was there; nothing without paths."""
    if not (isinstance(place, str | os.PathLike) and RUNTIME.settings.paths) or place == "auto":
        return {}
    folder = str(Path(place).resolve())
    saved = saved_in(folder)
    return present({semconv.RESUME_PATH: folder, semconv.RESUME_DONE: saved and saved.done})


# --- models ---------------------------------------------------------------------------

_CONFIGURED: Final[dict[int, Mapping[str, AttributeValue]]] = {}
"""What was configured of models, and of the quantizers that have them, while they are alive: by identity."""

_DEFINING: Final = frozenset(
    {ProfileStep.MODEL_PREPARATION, ProfileStep.MODEL_QUANTIZATION, ProfileStep.QUANTIZATION_STATIC,
     ProfileStep.QUANTIZATION_DYNAMIC, ProfileStep.QUANTIZATION_MATMUL_NBITS}
)  # fmt: skip
"""Steps whose own configuration counts, if they have one; others work on what was configured before."""


def _configurable(call: Mapping[str, Any]) -> list[Any]:
    """Returns the models of a call; of a method that is given none, what it belongs to, with its model."""
    models = [each for each in call.values() if _has_configuration(each)]
    owner = [call["self"], getattr(call["self"], "model", None)] if "self" in call else []
    return models or owner


def _has_configuration(value: object) -> bool:
    return hasattr(type(value), "named_modules") or type(value).__name__ == "ONNXModel"


def with_configuration(
    call: Mapping[str, Any], found: Mapping[str, AttributeValue], kind: str
) -> dict[str, AttributeValue]:
    """Returns the attributes of a call with the configuration that its model was given before."""
    if semconv.CONFIG_HASH in found and kind in _DEFINING:
        return dict(found)
    own = found.keys() & {semconv.ALGORITHMS}  # One may be given to each step
    known = (_CONFIGURED[id(each)] for each in _configurable(call) if id(each) in _CONFIGURED)
    operation = innermost()
    said = operation.attributes if operation is not None else _NOTHING
    kept = configuration.with_outer(next(known, _NOTHING), said)
    return {**found, **{name: kept[name] for name in kept.keys() - said.keys() - own}}


def keep_configuration(
    call: Mapping[str, Any], result: object, attributes: Mapping[str, AttributeValue]
) -> None:
    """Keeps the configuration of a call for the model that it returns, else for those that it was given."""
    kept = {name: value for name, value in attributes.items() if name in configuration.OF_MODEL}
    models = [result] if _has_configuration(result) else _configurable(call)
    for model in models if kept else ():
        if id(model) not in _CONFIGURED:
            with suppress(TypeError):  # it has no weak references
                weakref.finalize(model, _CONFIGURED.pop, id(model), None).atexit = False
                _CONFIGURED[id(model)] = kept
        else:
            _CONFIGURED[id(model)] = kept


def restate(
    step: OpenStep, found: Mapping[str, AttributeValue], gone: Collection[str] = ()
) -> None:
    """Replaces attributes of a step, and of the operations around it, by what the model turned out to have."""
    within = [each for each in around() if each is innermost() or each.owner == step.info.library]
    owners: list[Any] = [step, *within]
    for each in owners:
        each.attributes = {
            **{name: value for name, value in each.attributes.items() if name not in gone}, **found
        }  # fmt: skip
    for operation in within:
        operation.asked = ()


def models_of(arguments: Mapping[str, Any], result: object) -> Models:
    """Returns the models that an operation has read and written."""

    def given(attribute: str) -> Any:
        names = (name for name, each in FILES.items() if each == attribute)
        return next((arguments[name] for name in names if arguments.get(name) is not None), None)

    before, after = given(semconv.INPUT_PATH), given(semconv.OUTPUT_PATH)
    after = result if after is None else after
    found: Models = [("float", before)] if _is_model(before) and not _is_same(before, after) else []
    return [*found, ("quantized", after)] if _is_model(after) else found


def _is_model(model: object) -> bool:
    if isinstance(model, str | os.PathLike):
        return Path(os.fspath(model)).suffix == ".onnx" and Path(os.fspath(model)).is_file()
    return hasattr(model, "graph") and hasattr(model, "SerializeToString")


def _is_same(before: object, after: object) -> bool:
    if isinstance(before, str | os.PathLike) and isinstance(after, str | os.PathLike):
        return Path(after).is_file() and Path(before).samefile(after)
    return before is after


# --- steps ----------------------------------------------------------------------------


def step(function: Function, hook: Hook, library: Library) -> Function:
    """Makes each call a step."""
    name = f"{hook.module}.{hook.target}"
    call = as_library_step(observed(function, hook, library, name), hook, library, name)
    return _as_operation(call, hook, library) if hook.describe or hook.models else call


def entry_point(function: Function, hook: Hook, library: Library) -> Function:
    """Makes each call an operation, described by its arguments."""
    return _as_operation(observed(function, hook, library), hook, library)


def as_library_step(function: Function, hook: Hook, library: Library, name: str) -> Function:
    """Makes each call of a function a step, unless it is reported already."""
    arguments = Arguments(function, hook.parameters)
    choose = hook.choose and hooks.load(hook.choose)

    def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OpenStep | None:
        kind = choose(arguments.bound(args, kwargs)) if choose else hook.step
        if kind is None or is_reported_already(kind, library):
            return None
        call = arguments.bound(args, kwargs)
        attributes = attributes_of(call, hook.sources, hook.config)
        attributes = with_configuration(call, attributes, kind)
        return open_library_step(
            kind, library, attributes, _shown_later(hook), function=name, filled_in=hook.filled_in
        )

    return scope.as_step(function, begin)


def _shown_later(hook: Hook) -> Collection[str]:
    """Returns the attributes that the model shows when a call has ended."""
    return configuration.SHOWN if hook.after in hooks.NOTES else ()


# The blocks (``with``) that the calling context is in, innermost last: the object that is entered, its step, and
# what the library's table keeps of it.
_Block = tuple[Any, scope.Activation, list[Any]]
BLOCKS: Final[ContextVar[tuple[_Block, ...]]] = ContextVar("otel_quant_blocks", default=())


def entering(function: Function, open_step: Callable[[], OpenStep | None]) -> Function:
    """Makes a block that a function enters a step, if one opens."""

    @wraps(function)
    def wrapper(self: Any) -> Any:
        result = function(self)
        activation = scope.begun(open_step)
        activation.resume()
        BLOCKS.set((*BLOCKS.get(), (self, activation, [])))
        return result

    return wrapper


def begin_block(function: Function, hook: Hook, library: Library) -> Function:
    """Begins the step **{step}**."""

    def open_step() -> OpenStep | None:
        if is_reported_already(hook.step, library):
            return None
        return open_library_step(hook.step, library, function=f"{hook.module}.{hook.target}")

    return entering(function, open_step)


def end_block(function: Function, hook: Hook, library: Library) -> Function:
    """Ends that step."""

    @wraps(function)
    def wrapper(self: Any, kind: Any, error: Any, traceback: Any) -> Any:
        blocks = BLOCKS.get()
        if not blocks or blocks[-1][0] is not self:
            return function(self, kind, error, traceback)
        BLOCKS.set(blocks[:-1])
        try:
            return function(self, kind, error, traceback)
        finally:
            blocks[-1][1].__exit__(kind, error, traceback)

    return wrapper


def open_library_step(
    kind: str, library: Library, attributes: Mapping[str, AttributeValue] = _NOTHING,
    later: Collection[str] = (), **more: Any,
) -> OpenStep | None:  # fmt: skip
    """Opens a step of a library, with the attributes of the operations and the step around it below its own.

    A span's attributes can be changed, not taken back: those of some names are set when it ends.
    """
    parent = RUNTIME.current_step()
    if parent is not None and parent.info.library is not None:
        of_parent = parent.attributes.items()
        outer = {name: each for name, each in of_parent if name in configuration.OF_MODEL}
        attributes = configuration.with_outer(outer, attributes)
    known = configuration.completed(_within(attributes))
    operation = innermost()
    asked = set(operation.asked if operation is not None else ()).difference(later)
    known = {name: value for name, value in known.items() if name not in asked}
    opened = RUNTIME.recorder.open(
        kind, library=library.distribution, library_version=version_of(library),
        attributes={name: each for name, each in known.items() if name not in later}, **more,
    )  # fmt: skip
    if opened is not None:
        opened.attributes |= {name: each for name, each in known.items() if name in later}
    return opened


@functools.cache
def version_of(library: Library) -> str | None:
    """Returns the version of a library; of a build with another name, as for a GPU, its own ``__version__``."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(library.distribution)
    package = sys.modules.get(library.hooks[0].module.partition(".")[0])
    version = getattr(package, "__version__", None)
    return version if isinstance(version, str) else None


# --- within -----------------------------------------------------------------------------


def observed(function: Function, hook: Hook, library: Library, step: str = "") -> Function:
    """Does what a hook asks for within each call: if that is to be a step of some name, only where it is.

    The configuration of a step stays with its model.
    """
    arguments = Arguments(function, hook.parameters)
    if names := _excluded(hook):
        function = arguments.replacing(function, hook.leaves, lambda own: [*(own or ()), *names])
    if hook.runs:
        function = arguments.replacing(function, hook.runs, partial(_as_calibration, library))
    if hook.counts:
        function = hooks.load("samples:counting")(function, hook, arguments)
    if not (step or hook.before or hook.after):
        return function
    before, after = (hooks.load(name) if name else None for name in (hook.before, hook.after))
    origin = f"hook {hook.target}"

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        within = RUNTIME.current_step()
        if not hooks.HOOKS.active or (step and (within is None or within.info.function != step)):
            return function(*args, **kwargs)
        call: dict[str, Any] = {}
        undo = None
        with FAULTS.kept_in(origin):
            call = arguments.bound(args, kwargs)
            undo = before(call, library) if before is not None else None
        try:
            result = function(*args, **kwargs)
        finally:
            if undo is not None:
                with FAULTS.kept_in(origin):
                    undo()
        with FAULTS.kept_in(origin):
            layers = after(call, result) if after is not None else None
            if layers is not None and RUNTIME.is_running and (measured := list(layers)):
                RUNTIME.recorder.measure_layers(measured, owners_of(library))
            if step and within is not None:
                keep_configuration(call, result, within.attributes)
        return result

    return wrapper


def _excluded(hook: Hook) -> tuple[str, ...]:
    """Returns the names of nodes that calls of a function are to leave in float, too."""
    return (RUNTIME.settings.exclude or ()) if hook.leaves else ()


def _as_calibration(library: Library, passed: Any) -> Any:
    """Makes a function that is passed to a call a step; the forward passes of its model are its samples."""
    if not callable(passed):
        return passed
    hook = Hook("", "", hooks.STEP, ProfileStep.CALIBRATION, before=hooks.COUNT_PASSES)
    name = scope.qualified_name(passed)
    return as_library_step(observed(passed, hook, library, name), hook, library, name)


def _as_operation(function: Function, hook: Hook, library: Library) -> Function:
    """Makes each call an operation of a library, described by its arguments if they do not describe a step."""
    arguments = Arguments(function, hook.parameters)
    describe = hooks.load(hook.describe) if hook.describe else None
    find_models = hooks.load(hook.models) if hook.models else None
    origin = f"arguments of {hook.module}.{hook.target}"

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        bound: dict[str, Any] = {}
        attributes: dict[str, AttributeValue] = {}
        find = None
        with FAULTS.kept_in(origin):
            find = find_models if _costs_its_models(library) else None
            bound = arguments.bound(args, kwargs)
            if hook.wrapper == hooks.ENTRY_POINT:
                attributes |= attributes_of(bound, hook.sources, hook.config)
            if describe is not None:
                attributes |= describe(bound)
            if names := _excluded(hook):
                attributes[semconv.CONFIG_EXCLUDED] = names
            # A configuration of its own is its step's.
            if not (hook.config or attributes.keys() & configuration.OF_MODEL):
                attributes = with_configuration(bound, attributes, hook.step)
        costs = find is not None
        with operating(library.distribution, attributes, costs_models=costs) as operation:
            operation.asked = _shown_later(hook)
            with _failed_step_of(hook.target, library):
                result = function(*args, **kwargs)
            if hook.wrapper == hooks.ENTRY_POINT:
                with FAULTS.kept_in(origin):
                    keep_configuration(bound, result, operation.attributes)
            if find is not None:
                with FAULTS.kept_in("model cost"):
                    _report_models(partial(find, bound, result), operation)
            return result

    return wrapper


@contextmanager
def _failed_step_of(name: str, library: Library) -> Iterator[None]:
    """Makes a call that raises before its first step a step: nothing else would report it."""
    began: Reading | None = None
    with FAULTS.kept_in(scope.OPENING_A_STEP):
        if not is_reported_already(name, library):
            recorder = RUNTIME.recorder
            before, began = recorder.opened, recorder.reading_now()
    try:
        yield
    except BaseException as error:
        if began is not None and scope.is_failure(error) and recorder.opened == before:
            with FAULTS.kept_in(scope.OPENING_A_STEP):
                scope.Activation(open_library_step(name, library, began=began)).finish(error)
        raise


def _costs_its_models(library: Library) -> bool:
    """Whether an operation that begins now costs its models, and not one around it."""
    built_on_it = distributions_built_on(library)
    is_costed = any(each.costs_models for each in _AROUND.get())
    return not is_costed and not any(each.owner in built_on_it for each in around())


def _report_models(find: Callable[[], Models], operation: Operation) -> None:
    """Costs the models of an operation that has ended without an error, and reports them."""
    settings = RUNTIME.settings
    if not settings.cost or not RUNTIME.is_running or RUNTIME.recorder.ended:
        return
    # Imported here: a program that costs no model does not pay for it.
    from otel_quant.capture.instruments.model_cost import cost_models

    costs = cost_models(
        find(), time_limit=settings.cost_timeout, paths=settings.paths, hashes=settings.hashes,
        shapes=operation.input_shapes, left_out=operation.attributes.get(semconv.CONFIG_EXCLUDED),
    )  # fmt: skip
    RUNTIME.recorder.models_costed(list(costs))
