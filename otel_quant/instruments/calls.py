"""Wrappers for the functions of libraries: a call as a step, as an operation, as a sample.

Loaded when the first hooked library is, never before.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

from otel_quant.fault_boundary import FAULTS
from otel_quant.instruments import LIBRARIES
from otel_quant.instruments.arguments import Arguments, attributes_of
from otel_quant.instruments.hooks import HOOKS
from otel_quant.instruments.library import Hook, Library, Reads
from otel_quant.instruments.models_of_operations import report_models
from otel_quant.instruments.operations import (
    Operation,
    costs_models,
    inherited_attributes,
    is_within,
    operating,
)
from otel_quant.recording.recorder import OpenStep
from otel_quant.records import AttributeValue
from otel_quant.runtime import RUNTIME
from otel_quant.scope import as_step, qualified_name
from otel_quant.steps import ProfileStep
from otel_quant.telemetry import semconv


def step(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step."""
    return as_library_step(function, hook.step, library, filled_in=hook.filled_in, reads=hook.reads)


def as_library_step(
    function: Callable[..., Any],
    kind: str,
    library: Library,
    label: str | None = None,
    *,
    filled_in: bool = False,
    reads: Reads = (),
) -> Callable[..., Any]:
    """Makes each call of a library's function a step, unless an enclosing one is it already.

    Args:
        function: The function.
        kind: ``ProfileStep`` that it is.
        library: The library.
        label: What the step is called; the kind itself if None.
        filled_in: Whether the library's own profiler does not report it.
        reads: See :attr:`Hook.reads`.

    Returns:
        The wrapper.
    """
    arguments = Arguments(function)
    name = qualified_name(function)

    def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OpenStep | None:
        if not HOOKS.active or is_covered(RUNTIME.current_step(), label or kind, library):
            return None
        known = attributes_of(arguments.bound(args, kwargs), RUNTIME.settings.paths, reads)
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
        library_version=version_of(library),
        function=function,
        attributes={**inherited_attributes(), **(attributes or {})},
        filled_in=filled_in,
    )


def is_covered(enclosing: OpenStep | None, label: str, library: Library) -> bool:
    """Whether a step would repeat what is being reported already.

    That is so within a step of the same library, unless it nests its own steps and this
    one has another name; and within any step or operation of a library that is built
    upon this one.
    """
    owners = COVERED_BY.get(library.name, set())
    for around in enclosing.outwards() if enclosing is not None else ():
        owner = around.info.library
        if owner in owners:
            return True
        if owner == library.distribution and (not library.nests or around.info.label == label):
            return True
    return bool(owners) and is_within(owners)


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
        with operating_on(arguments, args, kwargs, hook, library):
            return function(*args, **kwargs)

    return wrapper


def quantization(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Marks each call as an operation that turns one ONNX model into another: both are costed."""
    arguments = Arguments(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        costs = makes_models(library)
        with operating_on(arguments, args, kwargs, hook, library, costs_models=costs):
            result = function(*args, **kwargs)
            if costs:
                with FAULTS.kept_in("model cost"):
                    report_models(arguments.bound(args, kwargs), result)
            return result

    return wrapper


def makes_models(library: Library) -> bool:
    """Whether an operation that begins now is the one to cost its models, not one around it."""
    with FAULTS.kept_in("model cost"):
        owners = COVERED_BY.get(library.name, set())
        return not costs_models() and not (owners and is_within(owners))
    return False


def operating_on(
    arguments: Arguments,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    hook: Hook,
    library: Library,
    *,
    costs_models: bool = False,
) -> AbstractContextManager[Operation]:
    """Makes an operation of a call, described by the call's arguments.

    Args:
        arguments: What reads them.
        args: Positional arguments.
        kwargs: Keyword arguments.
        hook: The hook on the function.
        library: Whose function it is.
        costs_models: Whether the models that it reads and writes are costed at its end.
    """
    known: dict[str, AttributeValue] = {}
    with FAULTS.kept_in(f"arguments of {hook.target}"):
        bound = arguments.bound(args, kwargs)
        if library.configuration:
            module, _, function = library.configuration.partition(":")
            known |= getattr(importlib.import_module(module), function)(bound)
        known |= attributes_of(bound, RUNTIME.settings.paths, hook.reads)
    return operating(library.distribution, known, costs_models=costs_models)


def layer(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Counts each call as one layer of the step around it, and makes no step of it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with FAULTS.kept_in("counting layers"):
            if RUNTIME.is_running:
                count_layer({library.distribution, *COVERED_BY.get(library.name, ())})
        return function(*args, **kwargs)

    return wrapper


def count_layer(owners: Collection[str]) -> None:
    """Counts one layer for the innermost open step of some distributions, if there is one.

    Args:
        owners: The distributions.
    """
    step = RUNTIME.current_step()
    for around in step.outwards() if step is not None else ():
        if around.info.library in owners:
            count = around.attributes.get(semconv.LAYER_COUNT, 0)
            assert isinstance(count, int)
            around.attributes[semconv.LAYER_COUNT] = count + 1
            return


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


def samples(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Counts what the iterator that a call returns yields, for the calibration around it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Iterator[Any]:
        for item in function(*args, **kwargs):
            with FAULTS.kept_in("counting calibration samples"):
                count_sample(args[0])
            yield item

    return wrapper


def count_sample(source: object) -> None:
    """Counts one sample for the innermost open calibration, if there is one.

    Args:
        source: The reader that it comes from. If that knows how many it has, so will
            the step.
    """
    if not RUNTIME.is_running:
        return
    step = RUNTIME.current_step()
    for around in step.outwards() if step is not None else ():
        if around.info.kind == ProfileStep.CALIBRATION:
            if not around.samples and isinstance(source, Sized):
                # Some readers have a length for some data only, or declare one they lack.
                with suppress(TypeError, NotImplementedError):
                    total = len(source)
                    around.attributes[semconv.CALIBRATION_SAMPLE_TOTAL] = total
                    around.recorder.expect_samples(around, total)
            around.recorder.count_samples(around)
            return


@functools.cache
def version_of(library: Library) -> str | None:
    """Returns the version of a library that is in use, None if it cannot be told.

    The index has builds of some libraries under other names (for GPUs, say); those are
    asked themselves.
    """
    try:
        return importlib.metadata.version(library.distribution)
    except importlib.metadata.PackageNotFoundError:
        package = sys.modules.get(library.hooks[0].module.partition(".")[0])
        version = getattr(package, "__version__", None)
        return version if isinstance(version, str) else None
