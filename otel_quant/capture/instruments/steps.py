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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.configuration import completed, of_arguments
from otel_quant.capture.instruments.hooks import (
    HOOKS,
    Arguments,
    AttributeSources,
    Function,
    Hook,
    Library,
    Models,
    load,
    value_at,
    wraps,
)
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import OPENING_A_STEP, Activation, as_step, is_failure, qualified_name
from otel_quant.export.otel.service_name import model_name
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue, ProfileStep, Reading


class Operation:
    """One call of an entry point."""

    __slots__ = ("attributes", "costs_models", "input_shapes", "owner", "shared_step")

    def __init__(
        self, owner: str, attributes: Mapping[str, AttributeValue], costs_models: bool
    ) -> None:
        self.owner = owner
        self.attributes = attributes
        self.costs_models = costs_models
        self.shared_step: Activation | None = None
        self.input_shapes: Mapping[str, tuple[int, ...]] = {}

    def begin_shared_step(self, activation: Activation) -> None:
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


def _within(
    outer: Mapping[str, AttributeValue], attributes: Mapping[str, AttributeValue]
) -> dict[str, AttributeValue]:
    """Returns attributes with the outer call's; only the outermost call has the complete configuration."""
    found = {**outer, **attributes}
    if semconv.CONFIG_HASH in outer:
        found[semconv.CONFIG_HASH] = outer[semconv.CONFIG_HASH]
    return found


@contextmanager
def operating(
    owner: str, attributes: Mapping[str, AttributeValue], *, costs_models: bool = False
) -> Iterator[Operation]:
    """Marks a block as an operation."""
    outer = innermost()
    inherited = outer.attributes if outer is not None else _NOTHING
    operation = Operation(owner, _within(inherited, attributes), costs_models)
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
        [other.distribution for other in HOOKS.libraries if library.name in other.built_on]
    )


def enclosing_steps() -> Iterator[OpenStep]:
    """Yields the open steps that the calling context is in, innermost first."""
    step = RUNTIME.current_step()
    if step is not None:
        yield from step.outwards()


def is_reported_already(label: str, library: Library) -> bool:
    """Whether it is within a step of the same library (unless that nests steps of other names), or one built on it."""
    built_on_it = distributions_built_on(library)
    for step in enclosing_steps():
        owner = step.info.library
        if owner in built_on_it:
            return True
        if owner == library.distribution and (not library.nests or step.info.label == label):
            return True
    return any(each.owner in built_on_it for each in around())


# --- attributes -----------------------------------------------------------------------


ATTRIBUTE_OF: Final[dict[str, str]] = {
    "calibrate_method": semconv.CALIBRATION_METHOD,
    "calibration_method": semconv.CALIBRATION_METHOD,
    "quant_format": semconv.FORMAT,
    "weight_type": semconv.WEIGHT_TYPE,
    "activation_type": semconv.ACTIVATION_TYPE,
    "per_channel": semconv.PER_CHANNEL,
    "model_input": semconv.INPUT_PATH,
    "input_model": semconv.INPUT_PATH,
    "input_model_path": semconv.INPUT_PATH,
    "pretrained_model_path": semconv.INPUT_PATH,
    "model_output": semconv.OUTPUT_PATH,
    "output_model_path": semconv.OUTPUT_PATH,
    "output_dir": semconv.OUTPUT_PATH,
    "save_path": semconv.OUTPUT_PATH,
    "bits": semconv.BITS,
    "block_size": semconv.BLOCK_SIZE,
}

_PATHS: Final = frozenset({semconv.INPUT_PATH, semconv.OUTPUT_PATH})


def attributes_of(
    arguments: Mapping[str, Any], sources: AttributeSources = (), config: Sequence[str] = ()
) -> dict[str, AttributeValue]:
    """Returns the attributes that arguments make."""
    with_paths = RUNTIME.settings.paths
    found = of_arguments(arguments, config) if config else {}
    for parameter, attribute in ATTRIBUTE_OF.items():
        _add(found, attribute, arguments.get(parameter), with_paths)
    for path, attribute in reversed(sources):
        _add(found, attribute, value_at(arguments, path), with_paths)
    module = next(
        (each for each in arguments.values() if hasattr(type(each), "named_modules")), None
    )
    if module is not None and semconv.INPUT_PATH not in found:
        found[semconv.MODEL_NAME] = _name_of(module, with_paths)
    return found


def _name_of(module: Any, with_paths: bool) -> str:
    """Returns what a model of torch is called: by the hub or its folder, else its class."""
    name = getattr(module, "name_or_path", None) if with_paths else None
    return (model_name(name) if isinstance(name, str) else None) or type(module).__name__


def _add(found: dict[str, AttributeValue], attribute: str, value: Any, with_paths: bool) -> None:
    if attribute in _PATHS:
        if with_paths and isinstance(value, str | os.PathLike):
            found[attribute] = os.fspath(value)
    elif isinstance(value, enum.Enum):
        found[attribute] = value.name
    elif isinstance(value, bool | int | float | str):
        found[attribute] = value
    elif type(value).__name__ == "dtype":  # of torch or numpy
        found[attribute] = str(value).removeprefix("torch.")


# --- steps ----------------------------------------------------------------------------


def step(function: Function, hook: Hook, library: Library) -> Function:
    """Makes each call a step."""
    arguments = Arguments(function, hook.parameters)
    call = as_library_step(
        function,
        load(hook.choose) if hook.choose else hook.step,
        library,
        name=f"{hook.module}.{hook.target}",
        arguments=arguments,
        sources=hook.sources,
        config=hook.config,
        filled_in=hook.filled_in,
    )
    if hook.after:
        call = _with_after(call, hook, arguments)
    if hook.describe or hook.models:
        call = _as_operation(call, hook, library, arguments)
    return _with_arguments(call, hook, library, arguments)


def entry_point(function: Function, hook: Hook, library: Library) -> Function:
    """Makes each call an operation, described by its arguments."""
    arguments = Arguments(function, hook.parameters)
    call = _with_after(function, hook, arguments) if hook.after else function
    call = _as_operation(call, hook, library, arguments, describes=True)
    return _with_arguments(call, hook, library, arguments)


def observed(function: Function, hook: Hook, library: Library) -> Function:
    """Does something after each call."""
    return _with_after(function, hook, Arguments(function))


def as_library_step(
    function: Function,
    kind: str | Callable[[Mapping[str, Any]], str | None],
    library: Library,
    *,
    name: str = "",
    arguments: Arguments | None = None,
    sources: AttributeSources = (),
    config: Sequence[str] = (),
    filled_in: bool = False,
) -> Function:
    """Makes each call of a library's function a step, unless it is reported already; `kind` may be chosen by call."""
    reader = arguments or Arguments(function)
    shown = name or qualified_name(function)

    def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OpenStep | None:
        chosen = kind if isinstance(kind, str) else kind(reader.bound(args, kwargs))
        if chosen is None or not HOOKS.active or is_reported_already(chosen, library):
            return None
        return open_library_step(
            chosen,
            library,
            function=shown,
            attributes=attributes_of(reader.bound(args, kwargs), sources, config),
            filled_in=filled_in,
        )

    return as_step(function, begin)


def open_library_step(
    kind: str, library: Library, attributes: Mapping[str, AttributeValue] = _NOTHING, **more: Any
) -> OpenStep | None:
    """Opens a step of a library, with the attributes of the operations around it below its own."""
    operation = innermost()
    inherited = operation.attributes if operation is not None else _NOTHING
    return RUNTIME.recorder.open(
        kind,
        library=library.distribution,
        library_version=version_of(library),
        attributes=completed(_within(inherited, attributes)),
        **more,
    )


@functools.cache
def version_of(library: Library) -> str | None:
    """Returns the version of a library; of a build with another name, as for a GPU, its own ``__version__``."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(library.distribution)
    package = sys.modules.get(library.hooks[0].module.partition(".")[0])
    version = getattr(package, "__version__", None)
    return version if isinstance(version, str) else None


# --- within -----------------------------------------------------------------------------


def _with_after(function: Function, hook: Hook, arguments: Arguments) -> Function:
    after = load(hook.after)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        with FAULTS.kept_in(f"hook {hook.target}"):
            after(arguments.bound(args, kwargs), result)
        return result

    return wrapper


def _with_arguments(
    function: Function, hook: Hook, library: Library, arguments: Arguments
) -> Function:
    """Has the function that is passed to a call be a step, and the items of a loader or its passes counted."""

    def change(passed: Any) -> Any:
        if not callable(passed):
            return passed
        counting = load("forward_passes:counting")(passed, library)
        return as_library_step(counting, ProfileStep.CALIBRATION, library)

    if hook.runs:
        function = arguments.replacing(function, hook.runs, change)
    if hook.counts:
        function = arguments.replacing(function, hook.counts, load("samples:counted"))
    return function


def _as_operation(
    function: Function,
    hook: Hook,
    library: Library,
    arguments: Arguments,
    describes: bool = False,
) -> Function:
    """Makes each call an operation of a library, described by its arguments if they do not describe a step."""
    describe = load(hook.describe) if hook.describe else None
    find_models = load(hook.models) if hook.models else None
    origin = f"arguments of {hook.module}.{hook.target}"

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        bound: dict[str, Any] = {}
        attributes: dict[str, AttributeValue] = {}
        with FAULTS.kept_in(origin):
            bound = arguments.bound(args, kwargs)
            if describes:
                attributes |= attributes_of(bound, hook.sources, hook.config)
            if describe is not None:
                attributes |= describe(bound)
        find = find_models if find_models is not None and _costs_its_models(library) else None
        with operating(
            library.distribution, attributes, costs_models=find is not None
        ) as operation:
            with _failed_step_of(hook.target, library):
                result = function(*args, **kwargs)
            if find is not None:
                with FAULTS.kept_in("model cost"):
                    _report_models(functools.partial(find, bound, result), operation)
            return result

    return wrapper


@contextmanager
def _failed_step_of(name: str, library: Library) -> Iterator[None]:
    """Makes a call that raises before its first step a step: nothing else would report it."""
    began: Reading | None = None
    with FAULTS.kept_in(OPENING_A_STEP):
        if HOOKS.active and not is_reported_already(name, library):
            recorder = RUNTIME.recorder
            before, began = recorder.opened, recorder.reading_now()
    try:
        yield
    except BaseException as error:
        if began is not None and is_failure(error) and recorder.opened == before:
            with FAULTS.kept_in(OPENING_A_STEP):
                Activation(open_library_step(name, library, began=began)).finish(error)
        raise


def _costs_its_models(library: Library) -> bool:
    """Whether an operation that begins now costs its models, and not one around it."""
    with FAULTS.kept_in("model cost"):
        built_on_it = distributions_built_on(library)
        return not any(each.costs_models for each in _AROUND.get()) and not any(
            each.owner in built_on_it for each in around()
        )
    return False


def _report_models(find: Callable[[], Models], operation: Operation) -> None:
    """Costs the models of an operation that has ended without an error, and reports them."""
    settings = RUNTIME.settings
    if not settings.cost or not RUNTIME.is_running or RUNTIME.recorder.ended:
        return
    # Imported here: a program that costs no model does not pay for it.
    from otel_quant.capture.instruments.model_cost import cost_models

    costs = cost_models(
        find(),
        time_limit=settings.cost_timeout,
        paths=settings.paths,
        hashes=settings.hashes,
        shapes=operation.input_shapes,
    )
    RUNTIME.recorder.models_costed(list(costs))
