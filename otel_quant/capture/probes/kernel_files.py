"""Reads files below ``/proc`` and counts the bytes.

The kernel counts these bytes as read by the program; the disk probe subtracts them.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from otel_quant.base.descriptors import open_apart

SELF: Final = 0
"""Process id that means this process."""

_CHUNK: Final = 16384

# By thread id: each thread changes only its own entry, so no lock is needed.
_BYTES_READ: Final[dict[int, int]] = {}


def read_process(pid: int, name: str) -> bytes:
    """Reads a file about a process."""
    return read_proc(f"/proc/{pid or 'self'}/{name}")


def read_proc(path: str) -> bytes:
    """Reads a whole kernel file."""
    handle = open_apart(path, os.O_RDONLY)
    try:
        content = os.read(handle, _CHUNK)
        while chunk := os.read(handle, _CHUNK) if len(content) % 4096 == 0 and content else b"":
            content += chunk
        return _counted(content)
    finally:
        os.close(handle)


def bytes_read() -> int:
    """Returns the bytes that all threads have read through this module so far."""
    return sum(list(_BYTES_READ.values()))


def _counted(content: bytes) -> bytes:
    thread = threading.get_ident()
    _BYTES_READ[thread] = _BYTES_READ.get(thread, 0) + len(content)
    return content
