"""What wrappers make of calls: steps, and operations around them, with attributes and models.

A call of an entry point is an operation: no step, and no span. It has the name of the library at work, so
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
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.arguments import (
    Arguments,
    Models,
    models_of,
    with_argument,
)
from otel_quant.capture.instruments.shared.hooks import HOOKS, AttributeSources, Hook, Library, load
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import Activation, Begin, as_step, qualified_name
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue


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
# Those of all contexts, for threads that were started without one.
_UNDER_WAY: Final[list[Operation]] = []

_NOTHING: Final[Mapping[str, AttributeValue]] = MappingProxyType({})


def innermost() -> Operation | None:
    """Returns the innermost operation that the calling context is in."""
    found = _AROUND.get()
    return found[-1] if found else None


def inherited_attributes() -> Mapping[str, AttributeValue]:
    """Returns the attributes of the operations around; those of inner ones go first."""
    found = _AROUND.get()
    return found[-1].attributes if found else _NOTHING


def around() -> tuple[Operation, ...]:
    """Returns the operations that the calling context is in, outermost first.

    A thread that was started without a context, as the libraries' own worker threads are,
    is taken to be in every operation under way.
    """
    found = _AROUND.get()
    if not found and RUNTIME.current_step() is None:
        found = tuple(_UNDER_WAY)
    return found


def costs_models() -> bool:
    """Whether an operation around costs its models, so that one within does not."""
    return any(each.costs_models for each in _AROUND.get())


def is_within(owners: Collection[str]) -> bool:
    """Whether the calling context is in an operation of one of some distributions."""
    return bool(owners) and any(each.owner in owners for each in around())


@contextmanager
def operating(
    owner: str, attributes: Mapping[str, AttributeValue], *, costs_models: bool = False
) -> Iterator[Operation]:
    """Marks a block as an operation."""
    operation = Operation(owner, {**inherited_attributes(), **attributes}, costs_models)
    token = _AROUND.set((*_AROUND.get(), operation))
    _UNDER_WAY.append(operation)
    try:
        with RUNTIME.operation():
            try:
                yield operation
            except BaseException as error:
                operation.end_shared_step(error)
                raise
            operation.end_shared_step()
    finally:
        _UNDER_WAY.remove(operation)
        _AROUND.reset(token)


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
    """Whether a step would repeat what is being reported.

    That is so within a step of the same library, unless it nests its own steps and this
    one has another name; and within any step or operation of a library that is built on
    this one.
    """
    built_on_it = distributions_built_on(library)
    for around in enclosing_steps():
        owner = around.info.library
        if owner in built_on_it:
            return True
        if owner == library.distribution and (not library.nests or around.info.label == label):
            return True
    return is_within(built_on_it)


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

# The same for what Quark takes in a dictionary named extra_options.
_ATTRIBUTE_OF_OPTION: Final[dict[tuple[str, str], str]] = {
    ("MatMulNBitsParams", "Bits"): semconv.BITS,
    ("MatMulNBitsParams", "GroupSize"): semconv.BLOCK_SIZE,
}

_PATHS: Final = frozenset({semconv.INPUT_PATH, semconv.OUTPUT_PATH})


def attributes_of(
    arguments: Mapping[str, Any], with_paths: bool, sources: AttributeSources = ()
) -> dict[str, AttributeValue]:
    """Returns the attributes that arguments make."""
    found: dict[str, AttributeValue] = {}
    for parameter, attribute in ATTRIBUTE_OF.items():
        _add(found, attribute, arguments.get(parameter), with_paths)
    options = arguments.get("extra_options")
    if isinstance(options, Mapping):
        for (group, option), attribute in _ATTRIBUTE_OF_OPTION.items():
            inner = options.get(group)
            if isinstance(inner, Mapping):
                _add(found, attribute, inner.get(option), with_paths)
    for path, attribute in reversed(sources):
        _add(found, attribute, _value_at(arguments, path), with_paths)
    return found


def _value_at(arguments: Mapping[str, Any], path: str) -> Any:
    parameter, *names = path.split(".")
    value = arguments.get(parameter)
    for name in names:
        if isinstance(value, Mapping):
            value = value.get(name)
        elif value is not None:
            value = getattr(value, name, None)
    return value


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


def step(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step."""
    return as_library_step(
        function, hook.step, library, filled_in=hook.filled_in, sources=hook.sources
    )


def as_library_step(
    function: Callable[..., Any],
    kind: str,
    library: Library,
    *,
    filled_in: bool = False,
    sources: AttributeSources = (),
) -> Callable[..., Any]:
    """Makes each call of a library's function a step, unless it is reported already."""
    return as_step(
        function,
        library_step_begin(function, kind, library, filled_in=filled_in, sources=sources),
    )


def library_step_begin(
    function: Callable[..., Any],
    kind: str,
    library: Library,
    label: str | None = None,
    *,
    filled_in: bool = False,
    sources: AttributeSources = (),
) -> Begin:
    """Returns what opens the step of a call. For the arguments see :func:`as_library_step`."""
    arguments = Arguments(function)
    name = qualified_name(function)

    def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OpenStep | None:
        if not HOOKS.active or is_reported_already(label or kind, library):
            return None
        return open_library_step(
            kind,
            library,
            label=label,
            function=name,
            attributes=attributes_of(
                arguments.bound(args, kwargs), RUNTIME.settings.paths, sources
            ),
            filled_in=filled_in,
        )

    return begin


def with_argument_as_step(
    function: Callable[..., Any],
    parameter: str,
    kind: str,
    library: Library,
    arguments: Arguments | None = None,
) -> Callable[..., Any]:
    """Makes a step of the function that each call is passed as one of its arguments."""

    def change(passed: Any) -> Any:
        return as_library_step(passed, kind, library) if callable(passed) else passed

    return with_argument(function, parameter, change, arguments)


def open_library_step(
    kind: str,
    library: Library,
    *,
    label: str | None = None,
    function: str | None = None,
    attributes: Mapping[str, AttributeValue] | None = None,
    filled_in: bool = False,
) -> OpenStep | None:
    """Opens a step of a library. For the arguments see :meth:`Recorder.open`.

    The step carries the attributes of the operations around it too; its own go first.
    """
    return RUNTIME.recorder.open(
        kind,
        label=label,
        library=library.distribution,
        library_version=version_of(library),
        function=function,
        attributes={**inherited_attributes(), **(attributes or {})},
        filled_in=filled_in,
    )


@functools.cache
def version_of(library: Library) -> str | None:
    """Returns the version of a library that is in use, None if it is not known.

    The package index has builds of some libraries under other names (for GPUs, say): the version is
    theirs, or else the imported package's own ``__version__``.
    """
    for distribution in (library.distribution, *library.other_distributions):
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(distribution)
    package = sys.modules.get(library.hooks[0].module.partition(".")[0])
    version = getattr(package, "__version__", None)
    return version if isinstance(version, str) else None


# --- entry points ---------------------------------------------------------------------


Describe = Callable[..., Mapping[str, AttributeValue]]
"""Returns the attributes that a call makes; called with the arguments of the call."""


def entry_point(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call an operation, described by its arguments."""
    return as_operation(function, library, by_arguments(function, hook, library))


def model_quantization(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes each call an operation that turns one ONNX model into another: both are costed."""
    arguments = Arguments(function)

    def models(result: object, /, *args: Any, **kwargs: Any) -> Models:
        return models_of(arguments.bound(args, kwargs), result)

    return as_operation(function, library, by_arguments(function, hook, library), models)


def as_operation(
    function: Callable[..., Any],
    library: Library,
    describe: Describe | None = None,
    models: Callable[..., Models] | None = None,
) -> Callable[..., Any]:
    """Makes each call of a function an operation of a library."""
    origin = f"arguments of {qualified_name(function)}"

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        attributes: Mapping[str, AttributeValue] = {}
        if describe is not None:
            with FAULTS.kept_in(origin):
                attributes = describe(*args, **kwargs)
        find = models if models is not None and _costs_its_models(library) else None
        with operating(
            library.distribution, attributes, costs_models=find is not None
        ) as operation:
            result = function(*args, **kwargs)
            if find is not None:
                with FAULTS.kept_in("model cost"):
                    report_models(
                        functools.partial(find, result, *args, **kwargs), operation.input_shapes
                    )
            return result

    return wrapper


def by_arguments(function: Callable[..., Any], hook: Hook, library: Library) -> Describe:
    """Returns what describes the calls of a function by their arguments."""
    arguments = Arguments(function)

    def describe(*args: Any, **kwargs: Any) -> Mapping[str, AttributeValue]:
        bound = arguments.bound(args, kwargs)
        found: dict[str, AttributeValue] = {}
        if library.configuration:
            found = load(library.configuration)(bound)
        return found | attributes_of(bound, RUNTIME.settings.paths, hook.sources)

    return describe


def report_models(find: Callable[[], Models], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Costs the models of an operation that has ended without an error, and reports them."""
    settings = RUNTIME.settings
    if not settings.cost or not RUNTIME.is_running or RUNTIME.recorder.ended:
        return
    # Imported here: a program that costs no model does not pay for it.
    from otel_quant.capture.instruments.shared.model_cost import cost_models

    costs = cost_models(
        find(),
        time_limit=settings.cost_timeout,
        paths=settings.paths,
        hashes=settings.hashes,
        shapes=shapes,
    )
    RUNTIME.recorder.models_costed(list(costs))


def _costs_its_models(library: Library) -> bool:
    """Whether an operation that begins now costs its models, and not one around it."""
    with FAULTS.kept_in("model cost"):
        return not costs_models() and not is_within(distributions_built_on(library))
    return False
