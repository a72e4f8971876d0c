"""The probe of each resource. To add one, add its figures to the schema, a file here, and a line below."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

from otel_quant.capture.probes.cache_directories import CACHE_DIRECTORIES
from otel_quant.capture.probes.cpu import CpuProbe
from otel_quant.capture.probes.disk import DiskProbe
from otel_quant.capture.probes.gpu import GpuProbe
from otel_quant.capture.probes.memory import MemoryProbe

Probe: TypeAlias = Callable[[Collection[int]], Any]
"""Reads a resource, given the process ids of this process's descendants, parents first. Returns
a record from which the figures are taken; None or an empty tuple if the resource cannot be
measured. May raise. If it has a method ``sample``, that is called between checkpoints instead."""

PROBES: Final[Mapping[str, Callable[[], Probe]]] = {
    "memory": MemoryProbe,
    "gpu": GpuProbe,
    "disk": DiskProbe,
    "cpu": CpuProbe,
    "cache": CACHE_DIRECTORIES.for_new_run,
}
"""By the name of the resource in :data:`otel_quant.schema.figures.RESOURCES`."""
