"""A file that a process keeps open while it records, and the lock that says that it is alive.

A program may close descriptors that it does not know, and get their numbers for files of its own.
So each write first makes sure that the descriptor is still that of the file.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Final

from otel_quant.base.descriptors import open_apart, write_at
from otel_quant.base.file_locks import try_lock

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_TRIES: Final = 5
_SILENT: Final = 90.0
"""Seconds without a write after which a process counts as gone, where files cannot be locked: three
heartbeats."""


class HeldFile:
    """An open file, locked until it is closed or its process is gone."""

    def __init__(self, path: Path, *, appends: bool = True, replaces: bool = False) -> None:
        self.path = path
        flags = _FLAGS | (os.O_TRUNC if replaces else os.O_EXCL)
        self._descriptor = open_apart(path, flags | (os.O_APPEND if appends else 0))
        status = os.fstat(self._descriptor)
        self._identity = status.st_dev, status.st_ino
        self._is_open = True
        # Reentrant: a signal handler may close a step during a write.
        self._lock = threading.RLock()
        _hold(self._descriptor)

    def write(self, data: bytes) -> None:
        """Appends a line with one ``write``."""
        with self._lock:
            descriptor = self._checked()
            written = os.write(descriptor, data)
            if written < len(data):
                os.write(descriptor, b"\n")
                raise _cut(written, data, self.path)

    def write_all(self, data: bytes) -> None:
        """Appends several lines, with as many writes as it takes."""
        with self._lock:
            descriptor = self._checked()
            written = 0
            while written < len(data):
                written += os.write(descriptor, data[written:])

    def write_at(self, offset: int, data: bytes) -> None:
        """Writes over a part of the file."""
        with self._lock:
            written = write_at(self._checked(), data, offset)
            if written < len(data):
                raise _cut(written, data, self.path)

    def close(self) -> None:
        """Closes the file, unless the program has done so. A second call does nothing."""
        with self._lock:
            try:
                descriptor = self._checked()
            except OSError:
                return
            finally:
                self._is_open = False
            os.close(descriptor)

    def forget(self) -> None:
        """In a forked child: closes its copy, which would keep the lock of the parent."""
        self._lock = threading.RLock()  # a thread of the parent may hold it
        self.close()

    def _checked(self) -> int:
        if self._is_open:
            status = os.fstat(self._descriptor)
            if (status.st_dev, status.st_ino) == self._identity:
                return self._descriptor
        raise OSError(errno.EBADF, "the file has been closed", str(self.path))


def is_held(path: Path) -> bool:
    """Returns whether the process that writes a file is alive."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return False
    try:
        is_free = try_lock(descriptor, shared=True)
        if is_free is not None:
            return not is_free
        return time.time() - os.fstat(descriptor).st_mtime < _SILENT
    finally:
        os.close(descriptor)


def _hold(descriptor: int) -> None:
    for _ in range(_TRIES):
        if try_lock(descriptor) is not False:
            return
        time.sleep(0.001)  # a reader is just asking


def _cut(written: int, data: bytes, path: Path) -> OSError:
    return OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes could be written", str(path))
