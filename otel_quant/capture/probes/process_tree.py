"""The descendants of a process, and counters that are summed over them.

Most runs have no descendants, and that case must be fast: one system call finds out whether there is any child to wait
for; it reads no file and reaps no process. If there are children, one file contains the newest process id of the
machine. Where a process or thread has been started since the last time, the lists of every thread of the tree are read.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from otel_quant.base.kernel_files import (
    SELF,
    ask_psutil,
    forget_processes_but,
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


class _KnownTree(NamedTuple):
    """What the last walk has found. Replaced as a whole: threads may walk at the same time."""

    ancestor: int = 0  # Whose descendants
    newest: int = 0  # The newest process id of the machine then
    when: float = 0.0  # Monotonic clock in seconds
    found: tuple[int, ...] = ()


_last_walk = _KnownTree()


def descendants(pid: int = SELF) -> tuple[int, ...]:
    """Returns all descendants, zombies too, parents first; one reaped in the last two seconds may be among them."""
    global _last_walk
    walk = _last_walk
    if not may_have_children(pid):
        if walk.found:
            _last_walk = _KnownTree()
            forget_processes_but(())
        return ()
    newest = _newest_pid()
    is_recent = time.monotonic() - walk.when < _WALK_LASTS
    is_current = walk.ancestor == (pid or os.getpid()) and is_recent
    is_same = newest == walk.newest != 0
    return walk.found if is_current and is_same else _walk(pid, newest)


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
    now, ancestor = time.monotonic(), pid or os.getpid()
    tree = [ancestor]
    for each in tree:  # which grows meanwhile
        tree += _children_of(each)
    if not set(_last_walk.found) <= set(tree):
        forget_processes_but(tree)
    # A process that is forked during the walk has a newer id than `newest`.
    _last_walk = _KnownTree(ancestor, newest, now, tuple(tree[1:]))
    return _last_walk.found


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
            path = f"/proc/{pid}/task/{thread}/children"
            # Most processes have their children by their first thread. Its file stays open: half of a walk's time.
            is_first = thread == str(pid)
            found = read_kept(path, may_be_empty=True) if is_first else read_proc(path)
            children.extend(map(int, found.split()))
        except OSError:
            continue  # the thread has ended
    return children


# --- what they add up to ------------------------------------------------------------------

Figures = tuple[int, ...]

_PASSES: Final = 3
"""Passes for one reading. If children start and exit all the time, no pass is complete; the
next reading then corrects this one."""


class Cumulative:
    """Counters summed over a process and its descendants: what exited ones used stays in the sum.

    When a parent waits for an exited child, the kernel adds the child's counters to the parent's. One that is
    waited for in the middle of a pass is missed in it, not counted twice, as parents are read first: the pass is
    repeated. A process that nobody waits for (its parent ignores SIGCHLD, or it belongs to ``init``) takes its
    figures with it. So if the sum is still lower after another pass, the difference is added from then on.
    """

    def __init__(
        self,
        own: Callable[[], Figures],
        of_child: Callable[[int], Figures],
        list_descendants: Callable[[], Collection[int]] = descendants_now,
    ) -> None:
        self._own = own
        self._of_child = of_child
        self._list = list_descendants
        self._highest: Figures = ()
        self._lost: Figures = ()  # empty until something is

    def read(self, pids: Collection[int]) -> Figures:
        """Reads the totals. No total is lower than at the previous reading."""
        for again in range(_PASSES):
            totals, is_complete, is_hidden = self._added_up(self._list() if again else pids)
            has_fallen = any(map(operator.lt, totals, self._highest))
            if is_complete and (is_hidden or not has_fallen):
                break
        if has_fallen:
            highest = tuple(map(max, self._highest, totals))
            # What is hidden comes back with the end of its process.
            if is_complete and not is_hidden:
                missing = tuple(map(operator.sub, highest, totals))
                self._lost = _added(self._lost or (0,) * len(missing), missing)
            totals = highest
        self._highest = totals
        return totals

    def _added_up(self, pids: Collection[int]) -> tuple[Figures, bool, bool]:
        """Returns the totals of one pass, whether no process ended in it, and whether one cannot be read."""
        totals, is_complete, is_hidden = self._own(), True, False
        for pid in pids:
            try:
                totals = _added(totals, self._of_child(pid))
            except (FileNotFoundError, ProcessLookupError):
                is_complete = False
            except OSError:
                is_hidden = True  # another user's: it ran a setuid program
        return _added(totals, self._lost) if self._lost else totals, is_complete, is_hidden


def _added(first: Iterable[int], second: Iterable[int]) -> Figures:
    return tuple(map(operator.add, first, second))
