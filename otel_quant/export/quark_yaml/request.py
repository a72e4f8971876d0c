"""Requests for the local file, by the environment or by the program."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.schema.settings import Settings


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
