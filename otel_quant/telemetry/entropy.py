"""Has OpenTelemetry's SDK draw its random numbers from the system, not from the program.

The SDK takes identifiers of spans and traces from the generator of Python's `random`, chooses
exemplars with it, and its exporters do so on threads of their own at each export. A program
that seeds that generator would draw other numbers when it is watched; it would have the same
trace identifier in every run, and in a run as many spans of one identifier as it seeds.

The system's numbers have no state: a forked child does not repeat its parent's.
"""

from __future__ import annotations

import functools
import random
from types import ModuleType
from typing import Final

import wrapt

from otel_quant.fault_boundary import FAULTS

_EXPORTER: Final = "opentelemetry.exporter.otlp."

_DRAWING: Final = (
    "opentelemetry.sdk.trace.id_generator",
    "opentelemetry.sdk.metrics._internal.exemplar.exemplar_reservoir",
    _EXPORTER + "common.http",
    _EXPORTER + "proto.grpc.exporter",
    # Before there was one for all of HTTP:
    _EXPORTER + "proto.http.trace_exporter",
    _EXPORTER + "proto.http.metric_exporter",
    _EXPORTER + "proto.http._log_exporter",
)
"""Modules that draw with `random`, or with a function of it by its own name."""

_SYSTEM: Final = random.SystemRandom()
_PROGRAMS: Final = getattr(random.random, "__self__", random)
"""The generator whose methods the functions of `random` are."""


@functools.cache
def keep_from_the_program() -> None:
    """Gives those modules the system's generator, now or when they are imported, and for good."""
    for module in _DRAWING:
        wrapt.register_post_import_hook(_give, module)


def _give(module: ModuleType) -> None:
    with FAULTS.kept_in(f"random numbers of {module.__name__}"):
        for name, value in list(vars(module).items()):
            if value is random:
                setattr(module, name, _SYSTEM)
            elif getattr(value, "__self__", None) is _PROGRAMS:
                setattr(module, name, getattr(_SYSTEM, value.__name__))
