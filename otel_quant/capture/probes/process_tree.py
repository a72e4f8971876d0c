"""Finds the processes that belong to the run: the descendants of this process, or of another.

Most runs have none, and that case must be fast: one system call finds out whether there is any
child to wait for; it reads no file and reaps no process. If there are children, one file contains
the newest process id of the machine. If few processes or threads have been started since the last
time, only these are looked at; else the lists of every thread of the tree are read.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from otel_quant.base.kernel_files import (
    SELF,
    ask_psutil,
    forget_processes_but,
    number_in,
    read_kept,
    read_proc,
    threads_of,
)

_HAS_CHILDREN_FILES = Path("/proc/self/task").is_dir() and (
    Path(f"/proc/self/task/{os.getpid()}/children").exists()
)
_CAN_PEEK = hasattr(os, "waitid") and hasattr(os, "WNOWAIT")

_WALK_LASTS: Final = 2.0
"""Seconds after which a walk is repeated even without a new process: a process whose parent has
exited is no longer our descendant, and this creates no new process id."""

_LOOK_LASTS: Final = 0.2
"""Seconds between two looks of the sampler for new processes, at least. On a busy machine others start some in
each pause, and to find out whose they are took as long as all else of a sample. A process that lives for half a
second is seen all the same."""

_FEW: Final = 16
"""New ids that are looked at one by one, each at the cost of reading one file."""

# The last walk: whose descendants, the newest process id then, the time, and the descendants.
_last_walk: tuple[int, int, float, tuple[int, ...]] = (0, 0, 0.0, ())
_looked = 0.0  # when new processes were last looked for


def descendants(pid: int = SELF, *, sampled: bool = False) -> tuple[int, ...]:
    """Returns all descendants, zombies too, parents first; one reaped in the last two seconds may be among them.

    For a sample, one that was started in the last fifth of a second may be missing, if there were others.
    """
    global _last_walk, _looked  # one tuple, replaced as a whole: threads may walk at the same time
    ancestor, newest_then, then, known = _last_walk
    now, is_known = time.monotonic(), ancestor == (pid or os.getpid())
    if sampled and known and is_known and now - _looked < _LOOK_LASTS:
        return known
    if not may_have_children(pid):
        if known and pid == SELF:
            _last_walk = (0, 0, 0.0, ())
            forget_processes_but(())
        return ()
    newest, _looked = _newest_pid(), now
    is_few = newest and 0 <= newest - newest_then <= _FEW
    if not is_known or not is_few or now - then >= _WALK_LASTS:
        return _walk(pid, newest)
    if newest != newest_then:
        known = _with_new(known, ancestor, range(newest_then + 1, newest + 1))
    _last_walk = (ancestor, newest, then, known)
    return known


def descendants_now(pid: int = SELF) -> tuple[int, ...]:
    """Returns the same without using the last walk: for callers that found an exited process."""
    return _walk(pid, _newest_pid()) if may_have_children(pid) else ()


def may_have_children(pid: int = SELF) -> bool:
    """Returns False if a process certainly has no child, not even one to wait for."""
    if _CAN_PEEK and pid == SELF:
        try:
            # WNOWAIT leaves a zombie in place for its parent to wait for.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        except OSError:
            pass  # a sandbox forbids the call: read the files
    return True


def _walk(pid: int, newest: int) -> tuple[int, ...]:
    global _last_walk
    if not _HAS_CHILDREN_FILES:
        try:
            return tuple(child.pid for child in ask_psutil(pid, "children", recursive=True))
        except OSError:
            return ()
    now = time.monotonic()
    found: list[int] = []
    ancestor = pid or os.getpid()
    pending = [ancestor]
    while pending:
        children = _children_of(pending.pop())
        found.extend(children)
        pending.extend(children)
    if not set(_last_walk[3]) <= set(found):
        forget_processes_but((ancestor, *found))
    # A process that is forked during the walk has a newer id than `newest`.
    _last_walk = (ancestor, newest, now, tuple(found))
    return tuple(found)


def _with_new(known: tuple[int, ...], ancestor: int, ids: range) -> tuple[int, ...]:
    """Returns the descendants with the new ids that are processes of the tree."""
    tree = {ancestor, *known}
    for new in ids:
        if new in tree:  # forked during the last walk, which found it
            continue
        try:
            status = read_proc(f"/proc/{new}/status")
        except OSError:
            continue  # it has ended
        # An id may belong to a thread, whose group has another.
        if number_in(status, b"\nTgid:") == new and number_in(status, b"\nPPid:") in tree:
            tree.add(new)
            known = (*known, new)
    return known


def _newest_pid() -> int:
    """Returns the id of the newest process or thread; 0 if it is unknown, as in some sandboxes."""
    try:
        return int(read_kept("/proc/loadavg").rsplit(None, 1)[-1])
    except (OSError, IndexError, ValueError):
        return 0


def _children_of(pid: int) -> list[int]:
    """Returns the children of one process: of each thread, as the kernel lists them."""
    children: list[int] = []
    for thread in threads_of(pid):
        try:
            children.extend(map(int, read_proc(f"/proc/{pid}/task/{thread}/children").split()))
        except OSError:
            continue  # the thread has ended
    return children
