"""Wrappers for the functions of libraries: a call as a step, as an operation, as a sample.

Loaded when the first hooked library is, never before.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

from otel_quant import semconv
from otel_quant.faults import FAULTS
from otel_quant.instruments import LIBRARIES
from otel_quant.instruments.arguments import Arguments, attributes_of
from otel_quant.instruments.library import Hook, Library
from otel_quant.readings import AttributeValue
from otel_quant.recorder import OpenStep
from otel_quant.runtime import RUNTIME
from otel_quant.scope import as_step, qualified_name
from otel_quant.steps import ProfileStep

# What the arguments of the operations that are under way in this context say.
_OPERATION: Final[ContextVar[Mapping[str, AttributeValue]]] = ContextVar(
    "otel_quant_operation", default=MappingProxyType({})
)


def step(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step."""
    return as_library_step(function, hook.step, library, filled_in=hook.filled_in)


def as_library_step(
    function: Callable[..., Any],
    kind: str,
    library: Library,
    label: str | None = None,
    *,
    filled_in: bool = False,
) -> Callable[..., Any]:
    """Makes each call of a library's function a step, unless an enclosing one is it already.

    Args:
        function: The function.
        kind: ``ProfileStep`` that it is.
        library: The library.
        label: What the step is called; the kind itself if None.
        filled_in: Whether the library's own profiler does not report it.

    Returns:
        The wrapper.
    """
    arguments = Arguments(function)
    name = qualified_name(function)

    def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OpenStep | None:
        recorder = RUNTIME.recorder
        if is_covered(recorder.current(), label or kind, library):
            return None
        known = attributes_of(arguments.bound(args, kwargs), RUNTIME.settings.paths)
        return open_library_step(
            kind,
            library,
            label=label,
            function=name,
            attributes=known,
            filled_in=filled_in,
        )

    return as_step(function, begin)


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

    The step carries the arguments of the operations around it too; its own go first.
    """
    return RUNTIME.recorder.open(
        kind,
        label=label,
        library=library.distribution,
        library_version=version_of(library.distribution),
        function=function,
        attributes={**_OPERATION.get(), **(attributes or {})},
        filled_in=filled_in,
    )


def is_covered(enclosing: OpenStep | None, label: str, library: Library) -> bool:
    """Whether a step would repeat one that is open around it.

    That is so within a step of the same name of the same library (a library's function
    that calls its own), and within any step of a library that is built upon this one.
    """
    if enclosing is None:
        return False
    for around in enclosing.lineage():
        owner = around.info.library
        if owner == library.distribution and around.info.label == label:
            return True
        if owner in COVERED_BY.get(library.name, ()):
            return True
    return False


COVERED_BY: Final[dict[str, set[str]]] = {}
"""For each library's name the distributions whose steps hide its own; see
:attr:`Library.covers`."""

for _library in LIBRARIES:
    for _name in _library.covers:
        COVERED_BY.setdefault(_name, set()).add(_library.distribution)


def operation(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Marks each call as an entry point: what happens within belongs together."""
    arguments = Arguments(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with RUNTIME.operation(), _described(arguments, args, kwargs, library):
            return function(*args, **kwargs)

    return wrapper


def quantization(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Marks each call as an operation that turns one ONNX model into another: both are costed."""
    arguments = Arguments(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with RUNTIME.operation():
            with _described(arguments, args, kwargs, library):
                result = function(*args, **kwargs)
            with FAULTS.kept_in("model cost"):
                RUNTIME.models_made(arguments.bound(args, kwargs), result)
            return result

    return wrapper


@contextmanager
def _described(
    arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any], library: Library
) -> Iterator[None]:
    """Has the steps of an operation carry its arguments, and those of operations around it."""
    known = dict(_OPERATION.get())
    with FAULTS.kept_in(f"arguments of {library.name}"):
        bound = arguments.bound(args, kwargs)
        if library.configuration:
            module, _, function = library.configuration.partition(":")
            known |= getattr(importlib.import_module(module), function)(bound)
        known |= attributes_of(bound, RUNTIME.settings.paths)
    token = _OPERATION.set(known)
    try:
        yield
    finally:
        _OPERATION.reset(token)


def layer(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Counts each call as one layer of the step around it, and makes no step of it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with FAULTS.kept_in("counting layers"):
            step = RUNTIME.recorder.current() if RUNTIME.is_running else None
            if step is not None and step.info.library == library.distribution:
                count = step.attributes.get(semconv.LAYER_COUNT, 0)
                assert isinstance(count, int)
                step.attributes[semconv.LAYER_COUNT] = count + 1
        return function(*args, **kwargs)

    return wrapper


def sample(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Counts each call that returns something as one sample of the calibration around it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result is not None:
            with FAULTS.kept_in("counting calibration samples"):
                count_sample(args[0])
        return result

    return wrapper


def count_sample(source: object) -> None:
    """Counts one sample for the innermost open calibration, if there is one.

    Args:
        source: The reader that it comes from. If that knows how many it has, so will
            the step.
    """
    if not RUNTIME.is_running:
        return
    step = RUNTIME.recorder.current()
    for around in step.lineage() if step is not None else ():
        if around.info.kind == ProfileStep.CALIBRATION:
            if not around.samples and isinstance(source, Sized):
                with suppress(TypeError):  # a loader that has a length only for some data
                    around.attributes[semconv.CALIBRATION_SAMPLE_TOTAL] = len(source)
            around.recorder.count_samples(around)
            return


@functools.cache
def version_of(distribution: str) -> str | None:
    """Returns the installed version of a distribution, None if it cannot be told."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
