"""Where a run writes its local file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from otel_quant.environment import QUARK_PROFILING
from otel_quant.profile.request import ProfileRequest

DEFAULT_PATH: Final = "quark_profile.yaml"
"""Where Quark's profiler writes unless it is told otherwise, and so do we."""

_QUARKS_PROFILER: Final = "quark.common.profiler.profiler"


def beside(path: Path, tag: str) -> Path:
    """Returns a path in the same folder, told apart by a tag before the suffix.

    Args:
        path: ``out/quark_profile.yaml``.
        tag: ``rank3``.

    Returns:
        ``out/quark_profile.rank3.yaml``.
    """
    return path.with_name(f"{path.stem}.{tag}{path.suffix}")


def profile_path(
    request: ProfileRequest, rank: int | None, is_child: bool, quark_own_path: str | None
) -> Path:
    """Chooses where a run writes its local file.

    Args:
        request: What is asked for.
        rank: Rank given by a launcher; each rank has a file of its own.
        is_child: Whether this process was forked or spawned by one that is profiled, and
            so has been given the same path.
        quark_own_path: Where Quark's own profiler writes in this process, see
            :func:`quark_own_path`; None if it does not.

    Returns:
        The path. It may exist: see :mod:`otel_quant.profile.file`.
    """
    named = request.path or DEFAULT_PATH
    path = Path(named)
    if request.is_exact:
        return path
    if named.endswith("/") or path.is_dir():
        path /= DEFAULT_PATH
    if rank is not None:
        path = beside(path, f"rank{rank}")
    if is_child:
        path = beside(path, str(os.getpid()))
    if quark_own_path is not None and path.resolve() == Path(quark_own_path).resolve():
        path = beside(path, "otel")
    return path


def quark_own_path(
    environ: Mapping[str, str] = os.environ, modules: Mapping[str, Any] = sys.modules
) -> str | None:
    """Tells where Quark's own profiler writes, or is about to write, in this process.

    It takes its path when it is first used, which may be after our run has begun: once
    it is loaded and switched on, its default path is taken to be its own.

    Args:
        environ: The environment.
        modules: The loaded modules; Quark is never imported to find out.

    Returns:
        Its path; None if it is not loaded or not switched on.
    """
    module = modules.get(_QUARKS_PROFILER)
    if module is None:
        return None
    instance = getattr(getattr(module, "GlobalProfiler", None), "_instance", None)
    if instance is not None and getattr(instance, "_initialized", False):
        return str(instance.output_path) if instance.enabled else None
    return DEFAULT_PATH if environ.get(QUARK_PROFILING) == "1" else None
