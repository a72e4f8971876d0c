"""Wrappers for the functions of libraries: a call as a step, as an operation, as a sample.

Loaded when the first hooked library is, never before.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_quant.faults import FAULTS
from otel_quant.instruments import LIBRARIES
from otel_quant.instruments.arguments import Arguments, attributes_of
from otel_quant.instruments.library import Hook, Library
from otel_quant.readings import AttributeValue
from otel_quant.recorder import OpenStep
from otel_quant.runtime import RUNTIME
from otel_quant.scope import as_step, qualified_name
from otel_quant.steps import ProfileStep


def step(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Makes each call a step."""
    return as_library_step(function, hook.step, library)


def as_library_step(
    function: Callable[..., Any], kind: str, library: Library, label: str | None = None
) -> Callable[..., Any]:
    """Makes each call of a library's function a step, unless an enclosing one is it already.

    Args:
        function: The function.
        kind: ``ProfileStep`` that it is.
        library: The library.
        label: What the step is called; the kind itself if None.

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
        return open_library_step(kind, library, label=label, function=name, attributes=known)

    return as_step(function, begin)


def open_library_step(
    kind: str,
    library: Library,
    *,
    label: str | None = None,
    function: str | None = None,
    attributes: Mapping[str, AttributeValue] | None = None,
) -> OpenStep | None:
    """Opens a step of a library. For the arguments see :meth:`Recorder.open`."""
    return RUNTIME.recorder.open(
        kind,
        label=label,
        library=library.distribution,
        library_version=version_of(library.distribution),
        function=function,
        attributes=attributes,
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

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with RUNTIME.operation():
            return function(*args, **kwargs)

    return wrapper


def quantization(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Marks each call as an operation that turns one ONNX model into another: both are costed."""
    arguments = Arguments(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with RUNTIME.operation():
            result = function(*args, **kwargs)
            with FAULTS.kept_in("model cost"):
                RUNTIME.models_made(arguments.bound(args, kwargs), result)
            return result

    return wrapper


def sample(function: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Counts each call that returns something as one sample of the calibration around it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result is not None:
            with FAULTS.kept_in("counting calibration samples"):
                count_sample()
        return result

    return wrapper


def count_sample() -> None:
    """Counts one sample for the innermost open calibration, if there is one."""
    if not RUNTIME.is_running:
        return
    step = RUNTIME.recorder.current()
    for around in step.lineage() if step is not None else ():
        if around.info.kind == ProfileStep.CALIBRATION:
            around.recorder.count_samples(around)
            return


@functools.cache
def version_of(distribution: str) -> str | None:
    """Returns the installed version of a distribution, None if it cannot be told."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
