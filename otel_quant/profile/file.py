"""A text file that is whole at every moment, and that never replaces another unasked.

Whole: what is appended goes to the kernel at once, with no buffer that a kill would lose
or a forked child would write again. The kernel cuts a write short only between two
pages (when the process is killed, or the disk is full), so a piece that would lie
across the border of two is put behind it; the gap is a line of blanks. A piece that the
disk did not take whole is taken back, and tried again before the next.

Its own: a file is written under a hidden name, locked, and then given its path, so a
path that exists belongs to a run whose lock tells whether it still lives. If it lives,
this run takes a path with its process id; if not, the old file gets the next free
number and this run takes the path. An old file is linked under its number before its
path is given away, so no reader finds the path empty and no race loses a file.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import stat
import threading
from collections import deque
from pathlib import Path
from typing import Final

from otel_quant.profile.path import beside

try:
    import fcntl
except ImportError:  # not POSIX: whether another run lives cannot be told
    fcntl = None  # type: ignore[assignment]  # the module is an object or None

_PAGE: Final = 4096  # or a divisor of the page size, where pages are larger
_TRIES: Final = 100
_MAX_WAITING: Final = 1000  # pieces; what comes after them is lost
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES}
)


class ProfileFile:
    """An open file. Made by :func:`create`.

    Attributes:
        path: Where it is, absolute.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        status = os.fstat(descriptor)
        self._descriptor: int | None = descriptor
        self._identity = (status.st_dev, status.st_ino)
        self._regular = stat.S_ISREG(status.st_mode)
        self._size = status.st_size
        self._writing = False
        self._waiting: deque[bytes] = deque()
        # Reentrant: a signal handler may close a step while another is being written.
        self._lock = threading.RLock()

    def append(self, text: str) -> None:
        """Appends a piece; after a kill it is in the file whole or not at all.

        Args:
            text: Whole lines, a page (4096 bytes) at most for the promise to hold.

        Raises:
            OSError: The piece was not written, and nothing of it is in the file: no
                space, over the limit on file sizes, or the file is no longer ours. It
                is kept, and written before the next piece if that can be.
        """
        data = text.encode()
        with self._lock:
            try:
                descriptor = self._checked()
                while self._waiting:
                    self._write_whole(descriptor, self._waiting[0])
                    self._waiting.popleft()
                self._write_whole(descriptor, data)
            except OSError:
                # A later and shorter piece might fit: none goes before one that waits.
                if len(self._waiting) < _MAX_WAITING:
                    self._waiting.append(data)
                raise

    def _write_whole(self, descriptor: int, data: bytes) -> None:
        room = _PAGE - self._size % _PAGE
        if room < len(data) <= _PAGE and self._regular:
            self._write(descriptor, b" " * (room - 1) + b"\n")
        self._write(descriptor, data)

    def append_lines(self, text: str) -> None:
        """Appends lines of which each is in the file whole or not at all after a kill.

        Args:
            text: Whole lines.

        Raises:
            OSError: As for :meth:`append`; earlier lines may have been written.
        """
        with self._lock:
            piece, room = "", _PAGE - self._size % _PAGE
            for line in text.splitlines(keepends=True):
                length = len(line.encode())
                if length > room and piece:
                    self.append(piece)
                    piece, room = "", _PAGE
                piece += line
                room -= length
            if piece:
                self.append(piece)

    def move(self, path: Path) -> None:
        """Goes on under another path; what is there is dealt with as :func:`create` does.

        Args:
            path: The new path.

        Raises:
            OSError: The file could not be moved; it goes on where it is.
        """
        with self._lock:
            self.path = _publish(self.path, path.resolve())

    def close(self) -> None:
        """Closes the file and gives up its lock. In a forked child: the child's copy."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            ours = self._is_ours(os.fstat(descriptor))
        except OSError:
            return
        if ours:
            os.close(descriptor)

    def _is_ours(self, status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) == self._identity

    def _checked(self) -> int:
        """Makes sure that the descriptor still is our file and nobody else's."""
        if self._descriptor is None:
            raise OSError(errno.EBADF, "the profile has been closed", str(self.path))
        size = self._size
        try:
            status = os.fstat(self._descriptor)
        except OSError as error:
            error.filename = str(self.path)
            raise
        if not self._is_ours(status):
            # The program closed our descriptor and has opened something of its own.
            self._descriptor = None
            raise OSError(errno.EBADF, "the program has closed the profile", str(self.path))
        if self._regular and status.st_nlink == 0:
            raise OSError(errno.ENOENT, "the profile has been removed", str(self.path))
        if self._regular and status.st_size != size == self._size and not self._writing:
            raise OSError(errno.EBUSY, "another program writes to the profile", str(self.path))
        return self._descriptor

    def _write(self, descriptor: int, data: bytes) -> None:
        written, length = 0, len(data)
        outer, self._writing = self._writing, True
        try:
            while written < length:
                written += os.write(descriptor, data[written:])
            self._size += length  # no call within: a signal handler would get in between
        except OSError as error:
            if written and self._regular:
                os.ftruncate(descriptor, self._size)
            error.filename = str(self.path)
            raise
        except BaseException:  # Ctrl-C, just after the kernel had it
            self._size = os.fstat(descriptor).st_size
            raise
        finally:
            self._writing = outer


def create(path: Path, text: str, *, parents: bool = False) -> ProfileFile:
    """Creates a file with its first piece in it.

    Args:
        path: Where it should be. A file that a living run writes is left alone and this
            one is created beside it, with the process id in its name; any other file
            there is kept under the next free number. A device is written to as it is.
        text: The first piece; see :meth:`ProfileFile.append`.
        parents: Whether folders that are missing on the way there are made.

    Returns:
        The file, locked until it is closed or the process ends.

    Raises:
        OSError: It could not be created; nothing has changed, but for folders.
    """
    target = path.resolve()
    try:
        if parents and not target.parent.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
        mode = _mode(target)
        if mode is not None and not stat.S_ISREG(mode):
            return _on_device(target, mode, text)
        return _create_plainly(target, text) if fcntl is None else _create_locked(target, text)
    except OSError as error:
        # Another error: this one may name the hidden file, and a second.
        raise OSError(error.errno, error.strerror, str(target)) from error


def _on_device(target: Path, mode: int, text: str) -> ProfileFile:
    if not stat.S_ISCHR(mode):
        raise OSError(errno.EINVAL, "the profile's path is not a regular file")
    file = ProfileFile(os.open(target, _FLAGS), target)
    file.append(text)
    return file


def _create_locked(target: Path, text: str) -> ProfileFile:
    hidden = target.with_name(f".otel-quant-{secrets.token_hex(8)}")
    descriptor = os.open(hidden, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
    published = False
    try:
        file = ProfileFile(descriptor, hidden)
        _is_free(descriptor)
        file.append(text)
        file.path = _publish(hidden, target)
        published = True
    finally:
        if not published:
            os.close(descriptor)
            hidden.unlink()
    return file


def _create_plainly(target: Path, text: str) -> ProfileFile:
    """Creates a file where there are no locks, and an open file cannot be moved."""
    for _ in range(_TRIES):
        try:
            descriptor = os.open(target, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            try:
                _keep(target, by_link=False)
            except PermissionError:  # open in another process
                target = beside(target, str(os.getpid()))
            continue
        file = ProfileFile(descriptor, target)
        file.append(text)
        return file
    raise OSError(errno.EBUSY, "other runs keep taking the profile's path")


def _publish(source: Path, target: Path) -> Path:
    """Gives a file its path, or one beside it, without replacing any other."""
    for _ in range(_TRIES):
        if _take_free(source, target):
            return target
        try:
            # Holding the old file's lock keeps another starting run from moving it too.
            descriptor = _open_to_lock(target)
        except FileNotFoundError:
            continue
        try:
            if descriptor is not None and not _is_free(descriptor):
                target = beside(target, str(os.getpid()))
                continue
            if descriptor is not None and not _same(descriptor, target):
                continue
            if descriptor is None or os.fstat(descriptor).st_size:
                _keep(target)
            source.replace(target)
            return target
        finally:
            if descriptor is not None:
                os.close(descriptor)
    raise OSError(errno.EBUSY, "other runs keep taking the profile's path", str(target))


def _take_free(source: Path, target: Path) -> bool:
    """Moves a file to a path if that is free; False if it is taken."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without links: the path is reserved, then replaced.
        try:
            os.close(os.open(target, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            return False
        source.replace(target)
        return True
    source.unlink()
    return True


def _keep(path: Path, *, by_link: bool = True) -> None:
    """Gives an old file the next free number; its path stays until it is given away."""
    for number in itertools.count(1):
        kept = beside(path, str(number))
        if os.path.lexists(kept):
            continue
        if not by_link:
            path.rename(kept)
            return
        try:
            os.link(path, kept)
            return
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            path.rename(kept)
            return


def _open_to_lock(path: Path) -> int | None:
    """Opens a file to see its lock; None if this process may not."""
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    for access in (os.O_RDWR, os.O_RDONLY):
        try:
            return os.open(path, flags | access)
        except PermissionError:
            continue
    return None


def _is_free(descriptor: int) -> bool:
    """Takes a file's lock; False if another run has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None
