"""Quark's functions that read a resource, on our probes.

As Quark's, they return 0 where nothing can be measured. Unlike Quark's, they import no torch,
start no program and do not touch the GPU's caches.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import Enum
from typing import Any

import psutil

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.probes.disk import DiskProbe
from otel_quant.capture.probes.gpu import GPUS
from otel_quant.capture.probes.memory import MemoryProbe
from otel_quant.capture.probes.process_tree import descendants
from otel_quant.schema.figures import total_used
from otel_quant.schema.readings import GpuReading


class Hardware(str, Enum):  # noqa: UP042 - prints as Quark's does
    """Kinds of hardware."""

    ROCM = "rocm"
    CUDA = "cuda"
    CPU = "cpu"


def detect_platform() -> Hardware:
    """Returns what torch was built for if it is loaded, else the kind of the visible GPUs."""
    version = getattr(sys.modules.get("torch"), "version", None)
    if version is not None:
        if getattr(version, "hip", None):
            return Hardware.ROCM
        return Hardware.CUDA if getattr(version, "cuda", None) else Hardware.CPU
    gpus = _gpus()
    if not gpus:
        return Hardware.CPU
    return Hardware.CUDA if gpus[0].id.startswith(("GPU-", "MIG-")) else Hardware.ROCM


def _read(name: str, probe: Callable[..., Any]) -> Any:
    with FAULTS.kept_in(f"probe {name}"):
        return probe(descendants())
    return None


def get_cpu_memory() -> int:
    """Returns the RSS of this process and its descendants, in bytes."""
    return getattr(_read("memory", MemoryProbe()), "tree_rss", 0)


def _gpus() -> tuple[GpuReading, ...]:
    return _read("gpu", GPUS) or ()


def get_gpu_memory() -> int:
    """Returns the memory in use on all visible GPUs, in bytes."""
    return total_used(_gpus()) or 0


def get_disk_io() -> tuple[int, int]:
    """Returns the bytes that the process tree has read from and written to storage so far."""
    return init_disk_io_profiling()[1:]


def init_disk_io_profiling() -> tuple[bool, int, int]:
    """Returns whether disk I/O can be measured, and what :func:`get_disk_io` returns."""
    disk = _read("disk", DiskProbe())
    return (True, disk.read, disk.write) if disk is not None else (False, 0, 0)


def init_psutil_profiling() -> tuple[bool, psutil.Process | None, int]:
    """Returns whether memory can be measured, this process, and its memory in bytes."""
    memory = get_cpu_memory()
    return (True, psutil.Process(os.getpid()), memory) if memory else (False, None, 0)


def init_gpu_profiling() -> bool:
    """Returns whether a GPU's memory can be measured."""
    return bool(_gpus())
