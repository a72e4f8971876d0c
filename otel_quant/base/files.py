"""The files that a run writes: lines appended, written over within a page, or replaced whole.

Nothing is buffered: what was written before a kill is on disk, and a forked child has nothing of it to
write again. A reader asks the lock of a file whether the process that writes it is alive.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO, Final

if sys.platform != "win32":
    import fcntl
    import resource

LOCKS_EXIST: Final = sys.platform != "win32"  # Whether this system can lock files

PAGE: Final = 4096
"""Bytes that the kernel writes completely or not at all, also of a process that is killed meanwhile: it
cuts a write short only between two pages. A divisor of the page size, where pages are larger."""

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

_MODES: Final = "O_CLOEXEC", "O_BINARY", "O_NONBLOCK"
_READING: Final = os.O_RDONLY | sum(getattr(os, name, 0) for name in _MODES)

_LEAST: Final = 700  # Smallest number of a descriptor of ours; the usual limit is 1024
_TRIES: Final = 5
_SILENT: Final = 90.0
"""Seconds without a write after which a process counts as gone, where files cannot be locked: three
heartbeats."""


class HeldFile:
    """An open file, locked until it is closed; each write makes sure that the program has not taken its descriptor."""

    def __init__(self, path: Path, *, appends: bool = True, is_new: bool = True) -> None:
        self._appends = os.O_APPEND if appends else 0
        # Reentrant: a signal handler may close a step during a write.
        self._lock = threading.RLock()
        self._open(path, os.O_EXCL if is_new else 0)

    def _open(self, path: Path, flags: int = 0) -> None:
        self.path = path
        self._descriptor = open_apart(path, _FLAGS | self._appends | flags)
        self._status = os.fstat(self._descriptor)
        self._is_regular = stat.S_ISREG(self._status.st_mode)
        self._is_open = True
        # False: another process writes this file. None: there are no locks here.
        self.is_locked = _hold(self._descriptor) if self._is_regular else None

    def append(self, data: bytes, size: int | None = None) -> None:
        """Appends lines, all or none; `size` is the file's size, if it was just asked for."""
        with self._lock:
            before = self._checked() if size is None else size
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError as error:
                if self._is_regular:
                    os.ftruncate(self._descriptor, before)
                error.filename = str(self.path)
                raise

    def write_at(self, offset: int, data: bytes) -> None:
        """Writes over a part of the file that lies within a page."""
        with self._lock:
            self._checked()
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            written = os.write(self._descriptor, data)
            if written < len(data):
                raise self._error(errno.ENOSPC, f"only {written} of {len(data)} bytes were written")

    def replace(self, data: bytes) -> None:
        """Replaces the content whole, by a rename."""
        with self._lock:
            if sys.platform == "win32":  # where no open file is renamed
                self.close()
                replace_whole(self.path, data)
                self._open(self.path)
                return
            beside = self.path.with_name(f".{self.path.name}.new")
            beside.unlink(missing_ok=True)  # of a process that was killed
            new = HeldFile(beside)
            try:
                new.append(data)
                beside.replace(self.path)
            except OSError:
                new.close()
                beside.unlink(missing_ok=True)
                raise
            self.close()
            self._descriptor, self._status, self._is_open = new._descriptor, new._status, True

    def move(self, path: Path) -> None:
        """Moves the file, over one that is there."""
        with self._lock:
            if sys.platform == "win32":  # where no open file is renamed
                self.close()
                self.path.replace(path)
                self._open(path)
                return
            self.path.replace(path)
            self.path = path

    def is_intact(self) -> bool:
        """Returns whether the file can be written to."""
        try:
            self._checked()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Closes the file, unless the program has done so. A second call does nothing."""
        with self._lock:
            is_open, self._is_open = self._is_open, False
            try:
                status = os.fstat(self._descriptor)
            except OSError:
                return
            if is_open and os.path.samestat(status, self._status):
                os.close(self._descriptor)

    def forget(self) -> None:
        """In a forked child: closes its copy, which would keep the lock of the parent."""
        self._lock = threading.RLock()  # a thread of the parent may hold it
        self.close()

    def _checked(self) -> int:
        """Makes sure that the descriptor belongs to our file; returns the size of the file."""
        if not self._is_open:
            raise self._error(errno.EBADF, "this file is closed, as its run has ended")
        try:
            status = os.fstat(self._descriptor)
        except OSError as error:
            error.filename = str(self.path)
            raise
        if not os.path.samestat(status, self._status):
            raise self._error(
                errno.EBADF,
                "the program has closed this file's descriptor and used its number again; "
                "it must close only what it has opened",
            )
        if self._is_regular and status.st_nlink == 0:
            raise self._error(errno.ENOENT, "this file has been removed while its run wrote it")
        return status.st_size

    def _error(self, number: int, message: str) -> OSError:
        return OSError(number, message, str(self.path))


class PageFile:
    """A small file that is written over in place, so that a kill leaves the old text or the new one.

    To replace it by a rename each time takes a hundred times as long on ext4, which then writes it to
    the disk at once. If it is removed, or closed by the program, the next write makes it again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: HeldFile | None = None
        self._length = 0

    def put(self, text: str) -> None:
        """Writes a text of ASCII that is shorter than a page."""
        data = text.encode("ascii").ljust(self._length - 1) + b"\n"  # nothing longer may remain
        if self._file is None or not self._file.is_intact():
            self._file = HeldFile(self.path, appends=False, is_new=False)
        self._file.write_at(0, data)
        self._length = len(data)

    def remove(self) -> None:
        """Removes the file, if it was made."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self.path.unlink(missing_ok=True)

    def forget(self) -> None:
        """In a forked child: closes its copy."""
        if self._file is not None:
            self._file.forget()


def replace_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all: a reader never sees a part of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def open_regular(path: Path) -> BinaryIO:
    """Opens a file to read it. Anything else is refused: a FIFO would wait, and a device never end."""
    descriptor = os.open(path, _READING)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def is_held(path: Path) -> bool:
    """Returns whether the process that writes a file is alive."""
    try:
        with open_regular(path) as file:
            is_free = try_lock(file.fileno(), shared=True)
            if is_free is not None:
                return not is_free
            return time.time() - os.fstat(file.fileno()).st_mtime < _SILENT
    except OSError:
        return False


def open_apart(path: str | os.PathLike[str], flags: int) -> int:
    """Opens a file under a number that the program's own files do not reach.

    A program may close the descriptors that it does not know, up to the few hundreds that it uses
    itself, as daemons do: ours stay open. What it opens next gets none of our numbers, so that nothing
    of ours reads, writes or closes a file of the program.
    """
    descriptor = os.open(path, flags, 0o666)
    if sys.platform == "win32":
        return descriptor
    least = min(_LEAST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, shared: bool = False) -> bool | None:
    """Locks a file for this process, until the file is closed; None where there are no locks."""
    if sys.platform == "win32" or not LOCKS_EXIST:
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _hold(descriptor: int) -> bool | None:
    for _ in range(_TRIES):
        is_locked = try_lock(descriptor)
        if is_locked is not False:
            return is_locked
        time.sleep(0.001)  # a reader is just asking
    return False
