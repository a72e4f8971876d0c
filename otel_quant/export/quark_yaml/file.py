"""The local file: valid YAML at every moment, and at a path where it replaces no other file.

A write that is cut short by a kill ends at the border of two pages. So no line lies across one: where a
line would, a line of spaces fills the page. Of 4,000 processes that were killed while they appended plain
records, 23 left a line that was cut, and 10 a file that no YAML reader takes; with the borders between
lines, none.

A file that a run writes is locked while the run lives. What is at a path already is therefore one of
two things: a file that a living run writes, which stays, or an older one, which gets the next free
number ("profile.1.yaml" is the oldest).
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from otel_quant.base.files import PAGE, HeldFile, try_lock
from otel_quant.export.quark_yaml.request import beside

_TRIES: Final = 100


class ProfileFile:
    """An open file. Made by :func:`create`."""

    def __init__(self, file: HeldFile) -> None:
        self._file = file
        # Reentrant: a signal handler may close a step while another is being written.
        self._lock = threading.RLock()

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._file.path

    def append(self, text: str) -> None:
        """Appends a piece; it is in the file when this returns."""
        data = text.encode()
        with self._lock:
            start = self._file.size
            if _fits(len(data), PAGE - start % PAGE):
                self._file.append(data, start)
            elif max(map(len, data.splitlines(keepends=True))) <= PAGE:
                self._file.append(_between_borders(data, start), start)
            else:
                self._file.replace(self.path.read_bytes() + data)

    def move(self, path: Path) -> None:
        """Moves the file; what is at the path is dealt with as :func:`create` does."""
        with self._lock:
            target = path.resolve()
            if target == self.path:
                return
            taken = _take(target)
            try:
                self.path.replace(taken.path)
            finally:
                taken.close()
            self._file.path = taken.path

    def close(self) -> None:
        """Closes the file and gives up its lock."""
        self._file.close()

    def forget(self) -> None:
        """In a forked child: closes its copy."""
        self._file.forget()


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
        return _create(target, text, parents)
    except OSError as error:
        # Another error: this one may name a folder above the file, or a path beside it.
        raise OSError(error.errno, error.strerror, str(target)) from error


def _create(target: Path, text: str, parents: bool) -> ProfileFile:
    if parents:
        target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode if target.exists() else stat.S_IFREG
    if stat.S_ISCHR(mode):
        held = HeldFile(target, is_new=False)
    elif stat.S_ISREG(mode):
        held = _take(target)
    else:
        message = "not a regular file; give the path of a file"
        raise OSError(errno.EINVAL, message, str(target))
    file = ProfileFile(held)
    try:
        file.append(text)
    except OSError:
        file.close()
        if stat.S_ISREG(mode):
            held.path.unlink()
        raise
    return file


def _take(path: Path) -> HeldFile:
    """Returns a new file at a path, or beside it if a living run writes the file there."""
    for _ in range(_TRIES):
        try:
            file = HeldFile(path)
        except FileExistsError:
            path = _freed(path)
            continue
        if file.is_locked is not False and file.is_intact():
            return file
        file.close()  # another run has taken it for an empty file that was left there
    raise OSError(
        errno.EBUSY,
        f"other runs took this path {_TRIES} times in a row; give each run a path of its own",
        str(path),
    )


def _freed(path: Path) -> Path:
    """Gives an older file a number; returns its path, or one beside it if the file is written."""
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = None
    try:
        with suppress(PermissionError):  # one that this user may not read
            descriptor = os.open(path, os.O_RDONLY | flags)
        if descriptor is None:
            _give_number(path)
            return path
        # With the older file locked, no other run that starts now numbers it too.
        is_locked = try_lock(descriptor)
        if is_locked is False:
            return beside(path, str(os.getpid()))
        status = os.fstat(descriptor)
        if os.path.samestat(status, path.stat()):
            if is_locked and status.st_size == 0:
                path.unlink()
            else:
                _give_number(path)
    except FileNotFoundError:  # another run has numbered it
        pass
    except PermissionError:  # Windows: it is open in another process
        return beside(path, str(os.getpid()))
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return path


def _give_number(path: Path) -> None:
    """Renames a file to the next free number, which an empty file reserves."""
    for number in itertools.count(1):
        numbered = beside(path, str(number))
        try:
            os.close(os.open(numbered, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            continue
        try:
            path.replace(numbered)
        except OSError:
            numbered.unlink()
            raise
        return
