"""Opens files so that no file of the program gets the number of one of ours.

A program may close descriptors that it does not know, as a daemon does. A file that it opens then gets
the lowest free number. If that was ours, a thread of ours that is about to write or to close would
write to the program's file, or close it; no check before a write excludes that. Our files therefore
have numbers that a program reaches only with hundreds of files open.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import sys
from typing import Final

if sys.platform != "win32":
    import resource

_LEAST: Final = 700
"""Smallest number of a descriptor; the usual limit is 1024. Half of a limit below 1400."""

_DUPLICATE_ABOVE: Final = 1030
"""F_DUPFD_CLOEXEC of Linux."""


def _libc() -> ctypes.PyDLL | None:
    """Returns the C library, called without releasing the GIL; None where we do not know it."""
    if sys.platform != "linux":
        return None
    try:
        return ctypes.PyDLL(None)
    except OSError:  # a Python that is linked statically
        return None


_LIBC: Final = _libc()


def open_apart(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Opens a file; on Linux under a number that the program's files do not have."""
    if _LIBC is None:
        return os.open(path, flags, mode)
    least = min(_LEAST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    # Iterators, because `next` runs them in one go, without giving the GIL away: between two lines of
    # Python another thread might close the first number and open a file of its own.
    opened = map(_LIBC.open, (os.fsencode(path),), (flags | os.O_CLOEXEC,), (mode,))
    low, to_move, to_close = itertools.tee(opened, 3)
    moved = map(_LIBC.fcntl, to_move, (_DUPLICATE_ABOVE,), (least,))
    number, descriptor, _ = next(zip(low, moved, map(_LIBC.close, to_close), strict=True))
    if number < 0:
        return os.open(path, flags, mode)  # says why it cannot be opened
    if descriptor < 0:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), os.fspath(path))
    return int(descriptor)


def _seek_and_write(descriptor: int, data: bytes, offset: int) -> int:
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.write(descriptor, data)


write_at: Final = getattr(os, "pwrite", _seek_and_write)
"""Writes bytes at an offset; Windows has no ``pwrite``."""
