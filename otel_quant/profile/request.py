"""Requests for the local file, by the environment or by the program."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from otel_quant.environment import Settings, settings_from
from otel_quant.fault_boundary import FAULTS


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """A request for the local file.

    Attributes:
        path: Path as the user wrote it; None for the default.
        makes_folders: Whether missing folders of the path are created.
        strict: Whether the file contains only what Quark's contains.
        is_exact: Whether the path is used unchanged. Otherwise ranks and child processes, which
            get the same path, add a tag to the file's name.
    """

    path: str | None = None
    makes_folders: bool = True
    strict: bool = False
    is_exact: bool = False


class ProgramRequest:
    """The request of the program itself, by an exporter or by Quark's API.

    Attributes:
        latest: The last request; None if there was none. It applies to every run that begins
            later.
    """

    def __init__(self) -> None:
        self.latest: ProfileRequest | None = None

    def ask(self, path: str | None = None, *, makes_folders: bool = True) -> None:
        """Requests the local file for all runs that begin later in this process.

        Args:
            path: Path of the file; None keeps the path of an earlier request, or else of the
                environment.
            makes_folders: Whether missing folders of the path are created.
        """
        if path is not None or self.latest is None:
            self.latest = ProfileRequest(path, makes_folders)


PROGRAM_REQUEST: Final = ProgramRequest()
"""The only instance of this process."""


def requested_by(settings: Settings, program: ProfileRequest | None) -> ProfileRequest | None:
    """Returns the request for the file of a run that begins; None if no file is requested.

    Args:
        settings: The settings of the environment.
        program: The request of the program; its path is used before that of the environment.
    """
    if program is None and not settings.profile_wanted:
        return None
    if program is None or program.path is None:
        return ProfileRequest(settings.profile_path, strict=settings.yaml_strict)
    return ProfileRequest(program.path, program.makes_folders, strict=settings.yaml_strict)


def request_of_run(path: str | None = None) -> ProfileRequest | None:
    """Returns the request for the file of a run that begins now; None if no file is requested.

    Args:
        path: Path that the run was given; None for what the environment and the program have asked
            for.
    """
    with FAULTS.kept_in("beginning of a run"):
        settings = settings_from(os.environ)
        if path is not None:
            return ProfileRequest(path, strict=settings.yaml_strict, is_exact=True)
        return requested_by(settings, PROGRAM_REQUEST.latest)
    return None
