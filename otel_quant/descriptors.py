"""Opens files so that no file of the program gets the number of one of ours.

A program may close descriptors that it does not know, as a daemon does. A file that it opens then gets
the lowest free number. If that was ours, a thread of ours that is about to write or to close would
write to the program's file, or close it; no check before a write excludes that. Our files therefore
have numbers that a program reaches only with hundreds of files open.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

_LEAST: Final = 700
"""Smallest number of a descriptor; the usual limit is 1024."""

_DUPLICATE_ABOVE: Final = 1030
"""F_DUPFD_CLOEXEC of Linux."""


def _libc() -> ctypes.PyDLL | None:
    """Returns the C library, called without releasing the GIL; None where we do not know it."""
    if sys.platform != "linux":
        return None
    try:
        return ctypes.PyDLL(None, use_errno=True)
    except OSError:  # a Python that is linked statically
        return None


_LIBC: Final = _libc()


def open_apart(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Opens a file, on Linux under a number of 700 or more where the process may have as many.

    Args:
        path: The file.
        flags: As for :func:`os.open`. A program that is executed does not get the file.
        mode: Permissions of a new file.

    Returns:
        The descriptor.

    Raises:
        OSError: It could not be opened.
    """
    if _LIBC is None:
        return os.open(path, flags, mode)
    name = os.fsencode(path)
    # No other thread runs Python code from here to the end: the first number is not used again.
    low = int(_LIBC.open(name, flags | os.O_CLOEXEC, mode))
    error = ctypes.get_errno()
    if low >= 0:
        high = int(_LIBC.fcntl(low, _DUPLICATE_ABOVE, _LEAST))
        if high < 0:
            return low  # the limit of the process is lower
        _LIBC.close(low)
        return high
    raise OSError(error, os.strerror(error), os.fspath(path))
