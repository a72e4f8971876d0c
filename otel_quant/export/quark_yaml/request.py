"""Requests for the local file, by the environment or by the program, and its path."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.schema.settings import QUARK_PROFILING, Settings

DEFAULT_PATH: Final = "quark_profile.yaml"
"""Default path of Quark's profiler, and ours."""

_QUARKS_PROFILER: Final = "quark.common.profiler.profiler"


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """A request for the local file."""

    path: str | None = None  # Path as the user wrote it; None for the default
    makes_folders: bool = True  # Whether missing folders of the path are created
    strict: bool = False  # Whether the file contains only what Quark's contains
    # Whether the path is used unchanged. Otherwise ranks and child processes, which get the same
    # path, add a tag to the file's name.
    is_exact: bool = False


class ProgramRequest:
    """The request of the program itself, by an exporter or by Quark's API."""

    def __init__(self) -> None:
        self.latest: ProfileRequest | None = None

    def ask(self, path: str | None = None, *, makes_folders: bool = True) -> None:
        """Requests the local file for all runs that begin later in this process."""
        if path is not None or self.latest is None:
            self.latest = ProfileRequest(path, makes_folders)


PROGRAM_REQUEST: Final = ProgramRequest()
"""The only instance of this process."""


def requested_by(settings: Settings, program: ProfileRequest | None) -> ProfileRequest | None:
    """Returns the request for the file of a run that begins; None if no file is requested."""
    if program is None and not settings.profile_wanted:
        return None
    if program is None or program.path is None:
        return ProfileRequest(settings.profile_path, strict=settings.yaml_strict)
    return ProfileRequest(program.path, program.makes_folders, strict=settings.yaml_strict)


def request_of_run(path: str | None = None) -> ProfileRequest | None:
    """Returns the request for the file of a run that begins now; None if no file is requested."""
    with FAULTS.kept_in("beginning of a run"):
        settings = settings_from(os.environ)
        if path is not None:
            return ProfileRequest(path, strict=settings.yaml_strict, is_exact=True)
        return requested_by(settings, PROGRAM_REQUEST.latest)
    return None


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
