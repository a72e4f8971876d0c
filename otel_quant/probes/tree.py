"""Which processes belong to the run: this one's descendants.

Most runs have none, and then the answer must cost next to nothing: the kernel is asked
once whether there is anything to wait for, which reads no file and reaps nobody. With
children every thread's list has to be read, unless nothing at all has been forked since
that was done last: the kernel tells the newest process id for the price of one file.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import psutil

from otel_quant.probes.kernel_files import read_proc

_HAS_CHILDREN_FILES = Path("/proc/self/task").is_dir() and (
    Path(f"/proc/self/task/{os.getpid()}/children").exists()
)
_CAN_PEEK = hasattr(os, "waitid") and hasattr(os, "WNOWAIT")

_FRESH: Final = 1.0
"""Seconds that a walk is good for. A process whose parent has exited is none of ours any
more, and that alone makes no new process id."""

# Of the last walk: our process id, the newest one then, when it was, and what was found.
_last_walk: tuple[int, bytes, float, tuple[int, ...]] = (0, b"", 0.0, ())


def descendants() -> tuple[int, ...]:
    """Returns the process ids of all living (or unreaped) descendants, parents first.

    One that has been waited for within the last second may still be among them.
    """
    if not _may_have_children():
        return ()
    newest = _newest_pid()
    own_pid, newest_then, then, known = _last_walk
    if own_pid != os.getpid() or not newest or newest != newest_then:
        return _walk(newest)
    return known if time.monotonic() - then < _FRESH else _walk(newest)


def descendants_now() -> tuple[int, ...]:
    """Returns the same, found anew: for who has met one that has gone."""
    return _walk(_newest_pid()) if _may_have_children() else ()


def _may_have_children() -> bool:
    if _CAN_PEEK:
        try:
            # WNOWAIT leaves a zombie for its parent to wait for: we only look.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        except OSError:
            pass  # a sandbox that forbids the call: look the slow way
    return True


def _walk(newest: bytes) -> tuple[int, ...]:
    global _last_walk  # one tuple, replaced whole: threads may walk at once
    if not _HAS_CHILDREN_FILES:
        return _descendants_by_psutil()
    now = time.monotonic()
    found: list[int] = []
    pending = [os.getpid()]
    while pending:
        children = _children_of(pending.pop())
        found.extend(children)
        pending.extend(children)
    # What is forked during the walk has a newer id than `newest`.
    _last_walk = (os.getpid(), newest, now, tuple(found))
    return tuple(found)


def _newest_pid() -> bytes:
    """Returns the id that was given to a process or thread last; nothing if it is unknown."""
    try:
        newest = read_proc("/proc/loadavg").split()[-1]
    except (OSError, IndexError):
        return b""
    return newest if newest != b"0" else b""  # a kernel that does not tell


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
