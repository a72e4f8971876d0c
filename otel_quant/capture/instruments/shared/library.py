"""What a table of a library consists of: names, known before the library is imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

AttributeSources = tuple[tuple[str, str], ...]
"""Pairs: a path to a value in the arguments of a call, the attribute that it is written to.

A path is ``parameter.name.name``, each name an attribute of an object or a key of a mapping.
Of several paths for one attribute the first that leads to a value counts.
"""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """What wraps a hooked function."""

    # What makes the wrapper, as ``module:function``, so that nothing of it is loaded before the
    # library is. It is called with the original function, the hook and the library.
    factory: str
    # What a call becomes, for docs/libraries.md; ``{step}`` and ``{parameter}`` are those of the
    # hook
    effect: str


@dataclass(frozen=True, slots=True)
class Hook:
    """One function of a library that is to be wrapped."""

    module: str  # Module that *defines* it; importing that module sets the hook
    target: str  # Its name there: ``function`` or ``Class.method``
    wrapper: Wrapper  # What wraps it
    step: str = ""  # ``ProfileStep`` that a call is, for wrappers that open one
    parameter: str = ""  # Name of the argument that the wrapper is about, where it is about one
    # Whether the step is one that the library's own profiler does not report
    filled_in: bool = False
    # Where attributes come from beside the arguments that ``attributes.py`` lists
    sources: AttributeSources = ()


@dataclass(frozen=True, slots=True)
class Library:
    """A quantization library."""

    name: str  # What users call it in ``OTEL_QUANT_LIBRARIES``
    distribution: str  # Its name on the package index, for ``quant.library.name``
    hooks: tuple[Hook, ...]  # What is wrapped
    # Names of its other builds on the package index, where the imported package does not say its
    # version
    other_distributions: tuple[str, ...] = ()
    versions_seen: str = ""  # Versions that real quantizations have been run with
    # Names of libraries that it is built on. Within its steps and entry points theirs are not
    # reported: they are how it does its work.
    built_on: frozenset[str] = field(default_factory=frozenset)
    # Function that reads the attributes that only its configuration objects have, as
    # ``module:function``; called with the arguments of an entry point by name
    configuration: str = ""
    # Whether its steps have steps of its own within. Else what a step calls is how the step does
    # its work.
    nests: bool = False
    # Whether many programs import it that never quantize. Nothing of ours is loaded for it until
    # a hooked function is called.
    is_common: bool = False


STEP: Final = Wrapper("otel_quant.capture.instruments.shared.library_steps:step", "step **{step}**")
ENTRY_POINT: Final = Wrapper(
    "otel_quant.capture.instruments.shared.entry_points:entry_point",
    "an entry point: its arguments go with the steps within",
)
MODEL_QUANTIZATION: Final = Wrapper(
    "otel_quant.capture.instruments.shared.entry_points:model_quantization",
    "an entry point: its arguments go with the steps within, and both models are costed",
)
SAMPLE: Final = Wrapper(
    "otel_quant.capture.instruments.shared.samples:sample", "counts one calibration sample"
)
SAMPLES: Final = Wrapper(
    "otel_quant.capture.instruments.shared.samples:samples",
    "each item that it yields is one calibration sample",
)
LAYER: Final = Wrapper(
    "otel_quant.capture.instruments.shared.layers:layer", "counts one layer of the step around it"
)
