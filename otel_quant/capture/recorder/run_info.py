"""What is known of a run when it begins, and what made it."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import sys
import uuid
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from otel_quant.base.kernel_files import ask_psutil
from otel_quant.base.machine import processors
from otel_quant.capture.instruments import PACKAGES
from otel_quant.capture.probes.limits import read_limits
from otel_quant.capture.recorder.origin import ci_of, git_head, shown_command
from otel_quant.schema import semconv
from otel_quant.schema.events import present
from otel_quant.schema.records import AttributeValue, RunInfo
from otel_quant.version import VERSION

LIBRARIES: Final[Mapping[str, str]] = {
    "quark": "amd-quark",
    "accelerate": "accelerate",
    "bitsandbytes": "bitsandbytes",
    "brevitas": "brevitas",
    "gptqmodel": "gptqmodel",
    "modelopt": "nvidia-modelopt",
    "numpy": "numpy",
    "onnx": "onnx",
    "onnx_ir": "onnx-ir",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "openvino": "openvino",
    "optimum": "optimum",
}
"""The libraries without hooks whose versions are reported, too: module and distribution."""


def new_run_info(
    environ: Mapping[str, str],
    carrier: Mapping[str, str] | None = None,
    *,
    name: str = "",
    paths: bool = True,
    arguments: bool = True,
    folder: Path | None = None,
) -> RunInfo:
    """Describes the run that is about to begin in this process."""
    rank = _integer(environ.get("RANK"))
    return RunInfo(
        id=uuid.uuid4().hex[:16],
        pid=os.getpid(),
        name=name,
        launched_ns=_launched_ns() if rank is not None else None,
        limits=read_limits(),
        rank=rank,
        world_size=_integer(environ.get("WORLD_SIZE")),
        parent_carrier=carrier
        or {
            header: environ[header.upper()]
            for header in ("traceparent", "tracestate", "baggage")
            if environ.get(header.upper())
        },
        paths=paths,
        origin=_origin(environ, paths, arguments, folder),
    )


def completed(run: RunInfo) -> RunInfo:
    """Returns a run with what made it as it is known at its end."""
    libraries = tuple(loaded_libraries())
    if not run.origin or not libraries:
        return run
    return dataclasses.replace(run, origin={**run.origin, semconv.LIBRARIES: libraries})


def loaded_libraries() -> Iterator[str]:
    """Yields each library that is loaded, of :data:`LIBRARIES` and with hooks, with its version."""
    hooked = {package.partition(".")[0]: name for name, package in PACKAGES.items()}
    for module, distribution in {**hooked, **LIBRARIES}.items():
        loaded = sys.modules.get(module)
        if loaded is None:
            continue
        version = vars(loaded).get("__version__")
        if not isinstance(version, str):
            try:
                version = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                continue
        yield f"{distribution} {version}"


def _origin(
    environ: Mapping[str, str], paths: bool, arguments: bool, folder: Path | None
) -> dict[str, AttributeValue]:
    """Returns the attributes of what makes the run."""
    machine = platform.uname()
    revision, ref = git_head(folder) if folder is not None else (None, None)
    command = shown_command(sys.orig_argv if arguments else sys.orig_argv[:1], paths=paths)
    known = {
        semconv.PROCESS_COMMAND_LINE: command or None,
        semconv.PYTHON_VERSION: platform.python_version(),
        semconv.HOST_NAME: machine.node,
        semconv.OS_DESCRIPTION: f"{machine.system} {machine.release} {machine.machine}",
        semconv.CPU_MODEL: _cpu_model(),
        semconv.CPU_COUNT: os.cpu_count(),
        semconv.CPU_LIMIT: _cpu_limit(),
        semconv.ADDRESS_SPACE_LIMIT: _resource_limit("RLIMIT_AS"),
        semconv.FILE_SIZE_LIMIT: _resource_limit("RLIMIT_FSIZE"),
        semconv.OTEL_QUANT_VERSION: VERSION,
        semconv.GPU_DRIVERS: tuple(_gpu_drivers()) or None,
        semconv.VCS_REVISION: revision or None,
        semconv.VCS_REF: ref or None,
        semconv.LIBRARIES: tuple(loaded_libraries()) or None,
    }
    return {**ci_of(environ), **present(known)}


def _launched_ns() -> int | None:
    """Returns when the parent was started: the ranks of a host have the same, and no other run."""
    try:
        return int(ask_psutil(os.getppid(), "create_time") * 1e9)
    except OSError:
        return None


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None


def _cpu_model() -> str | None:
    for line in _beginning("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or None


def _cpu_limit() -> float:
    """Returns the processors that this process may use."""
    quota, _, period = _beginning("/sys/fs/cgroup/cpu.max").partition(" ")
    limit = int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else math.inf
    return min(float(processors()), limit)


def _resource_limit(name: str) -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(getattr(resource, name))
    return None if soft == resource.RLIM_INFINITY else soft


def _gpu_drivers() -> Iterator[str]:
    """Yields each driver with its version, as the kernel's modules tell it."""
    for driver in ("nvidia", "amdgpu"):
        version = _beginning(f"/sys/module/{driver}/version")
        if version:
            yield f"{driver} {version}"


def _beginning(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""
