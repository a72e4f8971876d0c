"""Finds the processes that belong to the run: the descendants of this process, or of another.

Most runs have none, and that case must be fast: one system call finds out whether there is any
child to wait for; it reads no file and reaps no process. If there are children, the list of
every thread must be read, unless no process has been started since the last time: one file
contains the newest process id of the machine.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import psutil

from otel_quant.capture.probes.kernel_files import SELF, read_proc

_HAS_CHILDREN_FILES = Path("/proc/self/task").is_dir() and (
    Path(f"/proc/self/task/{os.getpid()}/children").exists()
)
_CAN_PEEK = hasattr(os, "waitid") and hasattr(os, "WNOWAIT")

_WALK_LASTS: Final = 1.0
"""Seconds after which a walk is repeated even without a new process: a process whose parent has
exited is no longer our descendant, and this creates no new process id."""

# The last walk: whose descendants, the newest process id then, the time, and the descendants.
_last_walk: tuple[int, bytes, float, tuple[int, ...]] = (0, b"", 0.0, ())


def descendants(pid: int = SELF) -> tuple[int, ...]:
    """Returns the process ids of all descendants that run or are zombies, parents first.

    A process that was reaped within the last second may still be in the list.
    """
    if not _may_have_children(pid):
        return ()
    newest = _newest_pid()
    ancestor, newest_then, then, known = _last_walk
    if ancestor != (pid or os.getpid()) or not newest or newest != newest_then:
        return _walk(pid, newest)
    return known if time.monotonic() - then < _WALK_LASTS else _walk(pid, newest)


def descendants_now(pid: int = SELF) -> tuple[int, ...]:
    """Returns the same without using the last walk: for callers that found an exited process."""
    return _walk(pid, _newest_pid()) if _may_have_children(pid) else ()


def _may_have_children(pid: int) -> bool:
    if _CAN_PEEK and pid == SELF:
        try:
            # WNOWAIT leaves a zombie in place for its parent to wait for.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        except OSError:
            pass  # a sandbox forbids the call: read the files
    return True


def _walk(pid: int, newest: bytes) -> tuple[int, ...]:
    global _last_walk  # one tuple, replaced as a whole: threads may walk at the same time
    if not _HAS_CHILDREN_FILES:
        return _descendants_by_psutil(pid)
    now = time.monotonic()
    found: list[int] = []
    ancestor = pid or os.getpid()
    pending = [ancestor]
    while pending:
        children = _children_of(pending.pop())
        found.extend(children)
        pending.extend(children)
    # A process that is forked during the walk has a newer id than `newest`.
    _last_walk = (ancestor, newest, now, tuple(found))
    return tuple(found)


def _newest_pid() -> bytes:
    """Returns the id of the newest process or thread; empty if it is unknown."""
    try:
        newest = read_proc("/proc/loadavg").split()[-1]
    except (OSError, IndexError):
        return b""
    return newest if newest != b"0" else b""  # some sandboxes always show 0


def _children_of(pid: int) -> list[int]:
    """Returns the children of one process: those of each thread, as the kernel lists them."""
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - takes half as long as iterdir
    except OSError:
        return children
    for thread in threads:
        try:
            children.extend(map(int, read_proc(f"/proc/{pid}/task/{thread}/children").split()))
        except OSError:
            continue  # the thread has ended
    return children


def _descendants_by_psutil(pid: int) -> tuple[int, ...]:
    try:
        return tuple(child.pid for child in psutil.Process(pid or None).children(recursive=True))
    except psutil.Error:
        return ()
