"""Which processes belong to the run: this one's descendants.

Most runs have none, and then the answer must cost next to nothing: the kernel is asked
once whether there is anything to wait for, which reads no file and reaps nobody.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

import psutil

_HAS_CHILDREN_FILES = Path("/proc/self/task").is_dir() and (
    Path(f"/proc/self/task/{os.getpid()}/children").exists()
)
_CAN_PEEK = hasattr(os, "waitid") and hasattr(os, "WNOWAIT")

# By thread: each adds to its own without a lock, which a fork could leave held.
_BYTES_READ: Final[dict[int, int]] = {}


def descendants() -> tuple[int, ...]:
    """Returns the process ids of all living (or unreaped) descendants, parents first."""
    if _CAN_PEEK:
        try:
            # WNOWAIT leaves a zombie for its parent to wait for: we only look.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return ()
        except OSError:
            pass  # a sandbox that forbids the call: look the slow way
    if not _HAS_CHILDREN_FILES:
        return _descendants_by_psutil()
    found: list[int] = []
    pending = [os.getpid()]
    while pending:
        children = _children_of(pending.pop())
        found.extend(children)
        pending.extend(children)
    return tuple(found)


def _children_of(pid: int) -> list[int]:
    """Children of one process: each thread's list, since a thread owns what it forked."""
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - half the cost of iterdir
    except OSError:
        return children
    for thread in threads:
        try:
            children.extend(map(int, read_proc(f"/proc/{pid}/task/{thread}/children").split()))
        except OSError:
            continue  # the thread has ended since
    return children


def _descendants_by_psutil() -> tuple[int, ...]:
    try:
        return tuple(child.pid for child in psutil.Process().children(recursive=True))
    except psutil.Error:
        return ()


def read_proc(path: str) -> bytes:
    """Reads a kernel file whole.

    Opened anew each time, on purpose: a descriptor kept open could be closed by the
    program and its number given to a file of its own.

    Args:
        path: A file below ``/proc`` or ``/sys``.

    Returns:
        Its content.

    Raises:
        OSError: It is not there, or may not be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(handle, 16384)
        while chunk := os.read(handle, 16384) if len(content) % 4096 == 0 and content else b"":
            content += chunk
        thread = threading.get_ident()
        _BYTES_READ[thread] = _BYTES_READ.get(thread, 0) + len(content)
        return content
    finally:
        os.close(handle)


def bytes_read() -> int:
    """Returns the bytes that :func:`read_proc` has read so far: the kernel counts them too."""
    return sum(list(_BYTES_READ.values()))
