"""Files below ``/proc``, whole, at the least cost.

To open and to close one takes as long as to read it, and several times as long where the
processor's caches hold other things, as they do in a step of a real run. The files about
processes that every reading wants are therefore kept open from one to the next.

A descriptor is but a number: the program may close it, and give it to a file of its own.
Three things see to it that this does no harm. What is read is read at a position, which
moves nothing in a file and takes nothing out of a pipe. It must begin as the kernel's
file does, or the file is opened anew. And a descriptor is closed only if it still is
what was opened.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from typing import Final

SELF: Final = 0
"""Stands for this process where a process id is asked for."""

MOST_KEPT: Final = 50
"""Descriptors that are kept: two of this process, and three each of sixteen children. A
program may open some 1000, and has its own use for them."""

_MOST: Final = 16384
_BEGINNINGS: Final = {"status": b"Name:", "io": b"rchar: "}

_Identity = tuple[int, int]

# By process id and name of the file. No lock, which a fork could leave held: each access is
# one step, and who takes an entry out is the one to close it.
_KEPT: Final[dict[tuple[int, str], tuple[int, _Identity]]] = {}

# By thread: each adds to its own without a lock.
_BYTES_READ: Final[dict[int, int]] = {}


def read_process(pid: int, name: str) -> bytes:
    """Reads a file about a process, and keeps it open for the next time.

    Args:
        pid: The process; :data:`SELF` for this one.
        name: ``status``, ``io`` or ``stat``.

    Returns:
        Its content at this moment.

    Raises:
        OSError: The process has gone (``FileNotFoundError``, ``ProcessLookupError``), or
            this one may not read the file.
    """
    path = f"/proc/{pid or 'self'}/{name}"
    if (pid, name) not in _KEPT and len(_KEPT) < MOST_KEPT:
        _keep(path, pid, name)
    kept = _KEPT.get((pid, name))
    if kept is not None:
        try:
            content = os.pread(kept[0], _MOST, 0)
        except OSError:
            content = b""  # the process has gone, or the number is nobody's by now
        if len(content) < _MOST and content.startswith(_BEGINNINGS.get(name) or b"%d (" % pid):
            return _counted(content)
        _let_go(pid, name)
    return read_proc(path)


def read_proc(path: str) -> bytes:
    """Reads a kernel file whole, and leaves nothing open.

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


def retain(pids: Collection[int]) -> None:
    """Closes the files of all processes but this one and those that are given."""
    for pid, name in list(_KEPT):
        if pid != SELF and pid not in pids:
            _let_go(pid, name)


def close_all() -> None:
    """Closes all files. In a forked child: its copies of what its parent had open."""
    for pid, name in list(_KEPT):
        _let_go(pid, name)


def bytes_read() -> int:
    """Returns the bytes that have been read here so far: the kernel counts them too."""
    return sum(list(_BYTES_READ.values()))


def _counted(content: bytes) -> bytes:
    thread = threading.get_ident()
    _BYTES_READ[thread] = _BYTES_READ.get(thread, 0) + len(content)
    return content


def _keep(path: str, pid: int, name: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    entry = handle, _identity(handle)
    if _KEPT.setdefault((pid, name), entry) is not entry:
        os.close(handle)  # another thread was faster


def _let_go(pid: int, name: str) -> None:
    entry = _KEPT.pop((pid, name), None)
    if entry is None:
        return
    handle, identity = entry
    try:
        if _identity(handle) == identity:
            os.close(handle)
    except OSError:
        pass  # the program has closed it


def _identity(handle: int) -> _Identity:
    status = os.fstat(handle)
    return status.st_dev, status.st_ino


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=close_all)
