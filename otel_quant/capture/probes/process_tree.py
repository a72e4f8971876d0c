"""Finds the processes that belong to the run: the descendants of this process, or of another.

Most runs have none, and that case must be fast: one system call finds out whether there is any
child to wait for; it reads no file and reaps no process. If there are children, one file contains
the newest process id of the machine. If few processes or threads have been started since the last
time, only these are looked at; else the lists of every thread of the tree are read.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Collection, Iterable
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

_FEW: Final = 16
"""New ids that are looked at one by one, each at the cost of reading one file."""

# The last walk: whose descendants, the newest process id then, the time, and the descendants.
_last_walk: tuple[int, int, float, tuple[int, ...]] = (0, 0, 0.0, ())


def descendants(pid: int = SELF) -> tuple[int, ...]:
    """Returns the process ids of all descendants that run or are zombies, parents first.

    A process that was reaped within the last two seconds may still be in the list.
    """
    global _last_walk  # one tuple, replaced as a whole: threads may walk at the same time
    if not may_have_children(pid):
        if _last_walk[3] and pid == SELF:
            _last_walk = (0, 0, 0.0, ())
            forget_processes_but(())
        return ()
    newest = _newest_pid()
    ancestor, newest_then, then, known = _last_walk
    is_new = ancestor != (pid or os.getpid()) or not newest
    if is_new or time.monotonic() - then >= _WALK_LASTS or not 0 <= newest - newest_then <= _FEW:
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
    """Returns the descendants with those of some new ids that are processes of the tree."""
    tree = {ancestor, *known}
    for new in ids:
        if new in tree:  # forked during the last walk, which found it
            continue
        try:
            status = read_proc(f"/proc/{new}/status")
        except OSError:
            continue  # it has ended
        # An id may be that of a thread, whose group has another.
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
    """Returns the children of one process: those of each thread, as the kernel lists them."""
    children: list[int] = []
    for thread in threads_of(pid):
        try:
            children.extend(map(int, read_proc(f"/proc/{pid}/task/{thread}/children").split()))
        except OSError:
            continue  # the thread has ended
    return children


Figures = tuple[int, ...]

_PASSES: Final = 3
"""Passes for one reading. If children start and exit all the time, no pass is complete; the
next reading then corrects this one."""


class Cumulative:
    """Counters that only rise, summed over this process and its descendants.

    When a parent waits for an exited child, the kernel adds the child's counters to the parent's.
    So the sum over existing processes (zombies included) contains what exited ones used. Two cases
    would make the sum fall or count something twice:

    - A process is waited for in the middle of a pass. Parents are read before their children, so
      its figures are missed in that pass but never counted twice; the pass is then repeated.
    - A process is not waited for: its parent ignores SIGCHLD, or it is an orphan and belongs to
      ``init``. Its figures leave the sum for good. If the sum is still lower after another pass,
      the difference is remembered and added from then on.
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
        self._last: dict[int, Figures] = {}

    def read(self, pids: Collection[int]) -> Figures:
        """Reads the totals. No total is lower than at the previous reading."""
        if not pids and not self._last and self._highest and not self._lost:
            # Most programs have no child, and this takes half as long.
            sums = self._own()
            if not any(map(operator.lt, sums, self._highest)):
                self._highest = sums
                return sums
        for remaining in reversed(range(_PASSES)):
            sums, is_complete = self._pass(pids)
            self._highest = self._highest or sums
            totals = _added(sums, self._lost) if self._lost else sums
            if is_complete and not any(map(operator.lt, totals, self._highest)):
                break
            if remaining:
                pids = self._list()
            elif is_complete:
                higher = tuple(map(max, self._highest, totals))
                missing = tuple(map(operator.sub, higher, totals))
                self._lost = _added(self._lost, missing) if self._lost else missing
        self._highest = tuple(map(max, self._highest, totals))
        return self._highest

    def _pass(self, pids: Collection[int]) -> tuple[Figures, bool]:
        sums, is_complete = self._own(), True
        seen: dict[int, Figures] = {}
        for pid in pids:
            try:
                seen[pid] = self._of_child(pid)
            except (FileNotFoundError, ProcessLookupError):
                is_complete = False
                continue
            except OSError:
                # It belongs to another user, perhaps because it ran a setuid program.
                if pid not in self._last:
                    continue
                seen[pid] = self._last[pid]
            sums = _added(sums, seen[pid])
        self._last = seen
        return sums, is_complete


def _added(first: Iterable[int], second: Iterable[int]) -> Figures:
    return tuple(map(operator.add, first, second))
