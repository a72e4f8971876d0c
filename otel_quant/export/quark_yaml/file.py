"""The local file: who asks for it, its path, and how it is valid YAML at every moment and replaces no other file.

A write that is cut short by a kill ends at the border of two pages. So no line lies across one: where a
line would, a line of spaces fills the page. Of 4,000 processes that were killed while they appended plain
records, 23 left a line that was cut, and 10 a file that no YAML reader takes; with the borders between
lines, none.

A file that a run writes is locked while the run lives. What is at a path already is therefore one of
two things: a file that a living run writes, which stays, or an older one, which gets the next free
number ("profile.1.yaml" is the oldest). In a recording it stays: it is of another process of the program.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.files import PAGE, HeldFile, open_regular, try_lock
from otel_quant.schema.dataclass import dataclass
from otel_quant.schema.settings import QUARK_PROFILING, Settings

_TRIES: Final = 100

# --- who asks for it, and where --------------------------------------------------------------

DEFAULT_PATH: Final = "quark_profile.yaml"  # Default path of Quark's profiler, and ours
_QUARKS_PROFILER: Final = "quark.common.profiler.profiler"


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """A request for the local file."""

    path: str | None = None  # Path as the user wrote it; None for the default
    makes_folders: bool = True  # Whether missing folders of the path are created
    strict: bool = False  # Whether the file contains only what Quark's contains
    is_shared: bool = False  # Whether it is in a recording, where the files of other processes stay
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


PROGRAM_REQUEST: Final = ProgramRequest()  # The only instance of this process


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
    if is_child or (request.is_shared and os.path.lexists(path)):
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


# --- the file -----------------------------------------------------------------------------


class ProfileFile(HeldFile):
    """An open file. Made by :func:`create`."""

    def write(self, text: str) -> None:
        """Appends a piece; it is in the file when this returns."""
        data = text.encode()
        with self._lock:
            start = self._checked()
            if _fits(len(data), PAGE - start % PAGE):
                self.append(data, start)
            elif max(map(len, data.splitlines(keepends=True))) <= PAGE:
                self.append(_between_borders(data, start), start)
            else:
                self.replace(self.path.read_bytes() + data)

    def move(self, path: Path) -> None:
        """Moves the file; what is at the path is dealt with as :func:`create` does."""
        with self._lock:
            target = path.resolve()
            if target == self.path:
                return
            taken = _take(target)
            if sys.platform == "win32":  # where no open file is replaced
                taken.close()
            try:
                super().move(taken.path)
            finally:
                taken.close()


def _fits(length: int, left: int) -> bool:
    """Whether text fits into what is left of a page, and a line of spaces behind it, if there is room.

    An empty line behind it could not be told from one of the text.
    """
    return length <= left and (left - length != 1 or left == PAGE)


def _between_borders(data: bytes, start: int) -> bytes:
    """Adds a line of spaces before each line that would lie across two pages."""
    laid = bytearray()
    for line in data.splitlines(keepends=True):
        left = PAGE - (start + len(laid)) % PAGE
        if not _fits(len(line), left):
            laid += b" " * (left - 1) + b"\n"
        laid += line
    return bytes(laid)


def create(path: Path, text: str, *, parents: bool = False) -> ProfileFile:
    """Creates a file with its first piece in it."""
    target = path.resolve()
    try:
        if parents:
            target.parent.mkdir(parents=True, exist_ok=True)
        try:
            mode = target.stat().st_mode
        except FileNotFoundError:  # asked once: another run that starts now may number it
            mode = stat.S_IFREG
        if not (stat.S_ISCHR(mode) or stat.S_ISREG(mode)):
            raise OSError(errno.EINVAL, "not a regular file; give the path of a file")
        file = _take(target) if stat.S_ISREG(mode) else ProfileFile(target, is_new=False)
        try:
            file.write(text)
        except OSError:
            file.close()
            if stat.S_ISREG(mode):
                file.path.unlink()
            raise
        return file
    except OSError as error:
        # Another error: this one may name a folder above the file, or a path beside it.
        raise OSError(error.errno, error.strerror, str(target)) from error


def _take(path: Path) -> ProfileFile:
    """Returns a new file at a path, or beside it if a living run writes the file there."""
    for _ in range(_TRIES):
        try:
            file = ProfileFile(path)
        except FileExistsError:
            path = _freed(path)
            continue
        if file.is_locked is not False and file.is_intact():
            return file
        file.close()  # another run has taken it for an empty file that was left there
    what = f"other runs took this path {_TRIES} times in a row; give each run a path of its own"
    raise OSError(errno.EBUSY, what, str(path))


def _freed(path: Path) -> Path:
    """Gives an older file a number; returns its path, or one beside it if the file is written."""
    try:
        with open_regular(path) as older:
            # With the older file locked, no other run that starts now numbers it too.
            is_locked, status = try_lock(older.fileno()), os.fstat(older.fileno())
            if is_locked is False:
                return beside(path, str(os.getpid()))
            if os.path.samestat(status, path.stat()):
                if is_locked and status.st_size == 0:
                    path.unlink()
                else:
                    numbers = (beside(path, str(number)) for number in itertools.count(1))
                    path.replace(next(each for each in numbers if not os.path.lexists(each)))
    except FileNotFoundError:  # another run has numbered it
        pass
    except PermissionError:  # it is another user's
        return beside(path, str(os.getpid()))
    return path
