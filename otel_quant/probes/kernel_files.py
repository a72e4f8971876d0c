"""Files below ``/proc``, whole, and how many bytes of them have been read.

The kernel counts what we read there as the program's own reading: the disk probe takes it off.
"""

from __future__ import annotations

import os
import threading
from typing import Final

SELF: Final = 0
"""Stands for this process where a process id is asked for."""

_MOST: Final = 16384

# By thread: each adds to its own without a lock.
_BYTES_READ: Final[dict[int, int]] = {}


def read_process(pid: int, name: str) -> bytes:
    """Reads a file about a process.

    Args:
        pid: The process; :data:`SELF` for this one.
        name: ``status``, ``io`` or ``stat``.

    Returns:
        Its content at this moment.

    Raises:
        OSError: The process has gone (``FileNotFoundError``, ``ProcessLookupError``), or
            this one may not read the file.
    """
    return read_proc(f"/proc/{pid or 'self'}/{name}")


def read_proc(path: str) -> bytes:
    """Reads a kernel file whole.

    Args:
        path: A file below ``/proc`` or ``/sys``.

    Returns:
        Its content.

    Raises:
        OSError: It is not there, or may not be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(handle, _MOST)
        while chunk := os.read(handle, _MOST) if len(content) % 4096 == 0 and content else b"":
            content += chunk
        return _counted(content)
    finally:
        os.close(handle)


def bytes_read() -> int:
    """Returns the bytes that have been read here so far, by all threads."""
    return sum(list(_BYTES_READ.values()))


def _counted(content: bytes) -> bytes:
    thread = threading.get_ident()
    _BYTES_READ[thread] = _BYTES_READ.get(thread, 0) + len(content)
    return content
