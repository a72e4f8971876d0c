"""Wrappers that make a step of each call of a library's function."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from otel_quant.capture.instruments.shared.arguments import Arguments, with_argument
from otel_quant.capture.instruments.shared.attributes import attributes_of
from otel_quant.capture.instruments.shared.hooks import HOOKS
from otel_quant.capture.instruments.shared.library import AttributeSources, Hook, Library
from otel_quant.capture.instruments.shared.nesting import is_reported_already
from otel_quant.capture.instruments.shared.operations import inherited_attributes
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import Begin, as_step, qualified_name
from otel_quant.schema.records import AttributeValue


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
