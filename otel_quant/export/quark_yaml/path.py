"""The path of a run's local file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from otel_quant.export.quark_yaml.request import ProfileRequest
from otel_quant.schema.settings import QUARK_PROFILING

DEFAULT_PATH: Final = "quark_profile.yaml"
"""Default path of Quark's profiler, and ours."""

LAST_READING: Final = ".last_reading.json"
"""How the names of files end that have the newest reading of a run beside its profile."""

_QUARKS_PROFILER: Final = "quark.common.profiler.profiler"


def beside(path: Path, tag: str) -> Path:
    """Returns a path in the same folder with a tag before the suffix."""
    return path.with_name(f"{path.stem}.{tag}{path.suffix}")


def profile_path(
    request: ProfileRequest, rank: int | None, is_child: bool, quark_own_path: str | None
) -> Path:
    """Returns the path of a run's local file."""
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
    """Returns the path to which Quark's own profiler writes, or will write, in this process.

    Quark's profiler chooses its path on first use, perhaps after our run has begun. Until then
    its default path is assumed if it is loaded and switched on.
    """
    module = modules.get(_QUARKS_PROFILER)
    if module is None:
        return None
    instance = getattr(getattr(module, "GlobalProfiler", None), "_instance", None)
    if instance is not None and getattr(instance, "_initialized", False):
        return str(instance.output_path) if instance.enabled else None
    return DEFAULT_PATH if environ.get(QUARK_PROFILING) == "1" else None
