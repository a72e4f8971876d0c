"""What is asked of the local file, by the environment or by the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from otel_quant.environment import Settings


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """A local file that is asked for.

    Attributes:
        path: Where to write it, as the user named it; None for the default.
        makes_folders: Whether folders that are missing on the way there are made.
        strict: Whether it holds only what Quark's holds.
        is_exact: Whether the path is taken as it is. Else ranks and child processes, which are
            given the same path, write beside it.
    """

    path: str | None = None
    makes_folders: bool = True
    strict: bool = False
    is_exact: bool = False


class ProgramRequest:
    """What the program itself has asked for, by an exporter or by Quark's API.

    Attributes:
        latest: The last request; None if there was none. It holds for every run that begins
            from then on.
    """

    def __init__(self) -> None:
        self.latest: ProfileRequest | None = None

    def ask(self, path: str | None = None, *, makes_folders: bool = True) -> None:
        """Asks for the local file of the runs that begin from now on in this process.

        Args:
            path: Where to write it; None leaves that to an earlier request, or to the
                environment.
            makes_folders: Whether folders that are missing on the way to the path are made.
        """
        if path is not None or self.latest is None:
            self.latest = ProfileRequest(path, makes_folders)


PROGRAM_REQUEST: Final = ProgramRequest()
"""The process's own."""


def requested_by(settings: Settings, program: ProfileRequest | None) -> ProfileRequest | None:
    """Returns what is asked of the file of a run that begins; None if none is asked for.

    Args:
        settings: What the environment asks for.
        program: What the program has asked for; its path goes first.
    """
    if program is None and not settings.profile_wanted:
        return None
    if program is None or program.path is None:
        return ProfileRequest(settings.profile_path, strict=settings.yaml_strict)
    return ProfileRequest(program.path, program.makes_folders, strict=settings.yaml_strict)
