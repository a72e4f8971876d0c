"""Which calls are not reported, because a step or an operation around them is already.

A library that is built on another calls it to do its own work.
"""

from __future__ import annotations

from collections.abc import Iterator

from otel_quant.capture.instruments.shared.hooks import HOOKS
from otel_quant.capture.instruments.shared.library import Library
from otel_quant.capture.instruments.shared.operations import is_within
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME


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
