"""The processes of a run, and what they add up to: CPU time, disk I/O, and the size of cache directories.

What threads wait for a processor is what a busy machine, or a limit of CPUs, adds to the time of a program. The
bytes that the probes read from ``/proc`` are subtracted from ``read_chars``: the program did not read them. The few
kilobytes of the local profile are not subtracted from what was written.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from otel_quant.base.kernel_files import (
    SELF,
    ask_psutil,
    bytes_read,
    forget_processes_but,
    number_in,
    read_kept,
    read_proc,
    read_process,
    threads_of,
)
from otel_quant.schema.readings import CpuReading, DiskReading

# --- the processes ------------------------------------------------------------------------
#
# The descendants of this process, or of another. Most runs have none, and that case must be fast: one system call
# finds out whether there is any child to wait for; it reads no file and reaps no process. If there are children, one
# file contains the newest process id of the machine. If few processes or threads have been started since the last
# time, only these are looked at, and of those of other sessions nothing is read; else the lists of every thread of the
# tree are read.

_HAS_CHILDREN_FILES = Path("/proc/self/task").is_dir() and (
    Path(f"/proc/self/task/{os.getpid()}/children").exists()
)
_CAN_PEEK = hasattr(os, "waitid") and hasattr(os, "WNOWAIT")

_WALK_LASTS: Final = 2.0
"""Seconds after which a walk is repeated even without a new process: a process whose parent has
exited is no longer our descendant, and this creates no new process id."""

_FEW: Final = 32
"""New ids that are looked at one by one, those of a session of the run at the cost of reading one file."""


class _Walk(NamedTuple):
    """What a walk has found. Replaced as a whole: threads may walk at the same time."""

    ancestor: int = 0  # Whose descendants
    newest: int = 0  # The newest process id of the machine then
    when: float = 0.0  # Monotonic clock in seconds
    found: tuple[int, ...] = ()
    sessions: frozenset[int] = frozenset()  # Of all of them


_last_walk = _Walk()


def descendants(pid: int = SELF) -> tuple[int, ...]:
    """Returns all descendants, zombies too, parents first; one reaped in the last two seconds may be among them."""
    global _last_walk
    walk = _last_walk
    if not may_have_children(pid):
        if walk.found and pid == SELF:
            _last_walk = _Walk()
            forget_processes_but(())
        return ()
    newest = _newest_pid()
    is_few = newest and 0 <= newest - walk.newest <= _FEW
    is_known = walk.ancestor == (pid or os.getpid())
    if not is_known or not is_few or time.monotonic() - walk.when >= _WALK_LASTS:
        return _walk(pid, newest)
    if newest != walk.newest:
        _last_walk = walk = _with_new(walk, newest)
    return walk.found


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
    if not set(_last_walk.found) <= set(found):
        forget_processes_but((ancestor, *found))
    # A process that is forked during the walk has a newer id than `newest`.
    sessions = frozenset(map(_session_of, (ancestor, *found)))
    _last_walk = _Walk(ancestor, newest, now, tuple(found), sessions)
    return tuple(found)


def _session_of(pid: int) -> int:
    """Returns the session of a process; 0 of one that has ended, or of a leader that is not in this namespace."""
    try:
        return os.getsid(pid)
    except PermissionError:  # a security module forbids to ask: it may be one of ours
        return pid
    except OSError:
        return 0


def _with_new(walk: _Walk, newest: int) -> _Walk:
    """Returns a walk with the new ids that are processes of the tree."""
    tree, ids = {walk.ancestor, *walk.found}, range(walk.newest + 1, newest + 1)
    for new in ids:
        if new in tree:  # forked during the last walk, which found it
            continue
        # A process has the session of its parent, or is in one that it or a new parent has begun.
        session = _session_of(new)
        if session not in walk.sessions and session not in tree and session not in ids:
            continue
        try:
            status = read_proc(f"/proc/{new}/status")
        except OSError:
            continue  # it has ended
        # An id may belong to a thread, whose group has another.
        if number_in(status, b"\nTgid:") == new and number_in(status, b"\nPPid:") in tree:
            tree.add(new)
            walk = walk._replace(found=(*walk.found, new), sessions=walk.sessions | {session})
    return walk._replace(newest=newest)


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

_LINUX = sys.platform == "linux"

Figures = tuple[int, ...]

_PASSES: Final = (1, 2, 3)
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
        for number in _PASSES:
            if number > 1:
                pids = self._list()
            totals, is_complete, is_hidden = self._own(), True, False
            for pid in pids:
                try:
                    totals = _added(totals, self._of_child(pid))
                except (FileNotFoundError, ProcessLookupError):
                    is_complete = False
                except OSError:
                    is_hidden = True  # another user's: it ran a setuid program
            if self._lost:
                totals = _added(totals, self._lost)
            has_fallen = any(map(operator.lt, totals, self._highest))
            if is_complete and (is_hidden or not has_fallen):
                break
        if has_fallen:
            highest = tuple(map(max, self._highest, totals))
            # What is hidden comes back with the end of its process.
            if is_complete and not is_hidden:
                missing = tuple(map(operator.sub, highest, totals))
                self._lost = _added(self._lost, missing) if self._lost else missing
            totals = highest
        self._highest = totals
        return totals


def _added(first: Iterable[int], second: Iterable[int]) -> Figures:
    return tuple(map(operator.add, first, second))


# --- disk ---------------------------------------------------------------------------------

_AVAILABLE: Final = sys.platform != "darwin"
"""Whether the system offers these counters to an ordinary user."""


class DiskProbe:
    """Reads cumulative I/O of a process and its descendants, in bytes."""

    def __init__(self, pid: int = SELF) -> None:
        self._read_before = bytes_read()
        own = self._own if pid == SELF else functools.partial(_io_of, pid)
        self._totals = Cumulative(own, _io_of, functools.partial(descendants_now, pid))

    def __call__(self, pids: Collection[int] = ()) -> DiskReading | None:
        """Reads the counters."""
        return DiskReading(*self._totals.read(pids)) if _AVAILABLE else None

    def _own(self) -> Figures:
        ours = bytes_read() - self._read_before  # without this read, which the counter lacks too
        read, write, *chars = _io_of(SELF)
        if not chars:
            return read, write
        read_chars, write_chars = chars
        return read, write, read_chars - ours, write_chars


def _io_of(pid: int) -> Figures:
    """Returns read, write and, where known, read_chars and write_chars of one process."""
    if not _LINUX:
        counters = ask_psutil(pid, "io_counters")
        return counters.read_bytes, counters.write_bytes
    # In the order of the kernel; takes a third of a regular expression's time.
    fields = read_process(pid, "io").split()
    return int(fields[9]), int(fields[11]), int(fields[1]), int(fields[3])


# --- CPU ----------------------------------------------------------------------------------

_SECOND: Final = 1_000_000_000

_MANY: Final = 32
"""Threads from which on they are read once a second: each takes 2 µs."""


def main_thread_wait(pid: int) -> float | None:
    """Returns how long the main thread of a process has waited since it began, in seconds."""
    try:
        waited = _waited(read_process(pid, "schedstat"))
    except OSError:
        return None
    return None if waited is None else waited / _SECOND


class ThreadWaits:
    """Adds up the waits of all threads of processes; a thread that has ended stays in the sum."""

    def __init__(self) -> None:
        self._sum = 0
        self._last: dict[str, int] = {}
        self._next_ns = 0

    def read(self, pids: Iterable[int]) -> float | None:
        """Returns how long all threads together have waited since they began, in seconds."""
        now = time.monotonic_ns()
        if len(self._last) >= _MANY and now < self._next_ns:
            return None
        self._next_ns = now + _SECOND
        found: dict[str, int] = {}
        for pid in pids:
            for thread in threads_of(pid):
                try:
                    waited = _waited(read_proc(f"/proc/{pid}/task/{thread}/schedstat"))
                except OSError:
                    continue  # the thread has ended, or the system has no such file
                if waited is not None:
                    found[thread] = waited
                    # A lower figure belongs to a new thread with the id of one that has ended.
                    self._sum += max(0, waited - self._last.get(thread, 0))
        if not found and not self._last:
            return None
        self._last = found
        return self._sum / _SECOND


def _waited(schedstat: bytes) -> int | None:
    """Returns nanoseconds; None of a kernel that does not count: it reports that nothing ever ran."""
    _, waited, turns = schedstat.split()
    return int(waited) if turns != b"0" else None


_MICROSECONDS: Final = 1_000_000
_TICK = _MICROSECONDS // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10_000

if sys.platform != "win32":
    import resource

# Positions in /proc/PID/stat, counted from the field after the command's name (proc(5)).
_MAJOR_FAULTS, _CHILDREN_MAJOR_FAULTS = 9, 10
_USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 11, 12, 13, 14


class CpuProbe:
    """Reads cumulative CPU time of a process and its descendants."""

    def __init__(self, pid: int = SELF) -> None:
        own = _own_cpu if pid == SELF else functools.partial(_cpu_of, pid)
        self._pid = pid
        self._totals = Cumulative(own, _cpu_of, functools.partial(descendants_now, pid))

    def __call__(self, pids: Collection[int] = ()) -> CpuReading | None:
        """Reads the counters."""
        if sys.platform == "win32":
            times = ask_psutil(self._pid, "cpu_times")
            return CpuReading(times.user, times.system)
        user, system, faults = self._totals.read(pids if _LINUX else ())
        wait = main_thread_wait(self._pid)
        return CpuReading(user / _MICROSECONDS, system / _MICROSECONDS, faults, wait)


def _own_cpu() -> Figures:
    """Returns microseconds in user mode and in the kernel, and major faults."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        round((own.ru_utime + reaped.ru_utime) * _MICROSECONDS),
        round((own.ru_stime + reaped.ru_stime) * _MICROSECONDS),
        own.ru_majflt + reaped.ru_majflt,
    )


def _cpu_of(pid: int) -> Figures:
    fields = read_process(pid, "stat").rpartition(b")")[2].split(None, _CHILDREN_SYSTEM + 1)
    if not fields:
        raise ProcessLookupError(pid)
    return (
        (int(fields[_USER]) + int(fields[_CHILDREN_USER])) * _TICK,
        (int(fields[_SYSTEM]) + int(fields[_CHILDREN_SYSTEM])) * _TICK,
        int(fields[_MAJOR_FAULTS]) + int(fields[_CHILDREN_MAJOR_FAULTS]),
    )


# --- cache directories --------------------------------------------------------------------
#
# A library makes its first cache directory before its first step, so directories are watched from the moment that
# they are made, and the runs of this process read them. To add up the files of a large directory takes long, so it is
# done at most a fiftieth of the time, and at checkpoints alone where the sampler would see no memory meanwhile.

_REST: Final = 49
"""Pause after a measurement, as a multiple of its duration, or of the one before if that was shorter: on a busy
machine any single one may wait for a processor."""

_QUICK: Final = 0.1
"""Seconds that a measurement takes at most of directories that are measured between checkpoints too."""


class CacheDirectories:
    """Measures how much the directories have grown that this process watches."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Watches nothing any more. In a forked child: the directories are its parent's."""
        self._first_sizes: dict[Path, int] = {}
        self._latest: int | None = None
        self._pause_ends = 0.0  # by the monotonic clock, in seconds
        self._took = 0.0  # seconds, the last measurement
        self._usual = 0.0  # seconds, the shorter of the last two

    def watch(self, path: str | Path) -> None:
        """Starts to watch a directory; its present size is not counted."""
        target = Path(path).absolute()
        if target not in self._first_sizes:
            self._first_sizes.setdefault(target, size_of(target) or 0)

    def for_new_run(self) -> CacheDirectories:
        """Returns itself as the probe of a run; forgets the directories that no longer exist."""
        known = tuple(self._first_sizes.items())
        self._first_sizes = {path: size for path, size in known if path.exists()}
        self._latest, self._pause_ends, self._took, self._usual = None, 0.0, 0.0, 0.0
        return self

    def __call__(self, pids: Collection[int] = ()) -> int | None:
        """Returns the growth in bytes of the directory that has grown most; the last one during a pause."""
        if self._first_sizes and (began := time.monotonic()) >= self._pause_ends:
            watched = tuple(self._first_sizes.items())
            grown = [size - first for path, first in watched if (size := size_of(path)) is not None]
            self._latest = max([0, *grown]) if grown else None
            ended = time.monotonic()
            before, self._took = self._took, ended - began
            self._usual = min(before, self._took)
            self._pause_ends = ended + _REST * self._usual
        return self._latest

    def end_pause(self) -> None:
        """Has the next reading measure again, the last of a run, unless that takes long."""
        if self._usual <= _QUICK:
            self._pause_ends = 0.0

    def sample(self, pids: Collection[int] = ()) -> int | None:
        """Returns the same between checkpoints; the last one of what takes long to measure."""
        return self() if self._usual <= _QUICK else self._latest


def size_of(path: Path) -> int | None:
    """Adds up the sizes of the files in a directory; links are not followed."""
    try:
        return sum(_sizes(path)) if path.is_dir() else path.stat().st_size
    except OSError:
        return None


def _sizes(folder: Path) -> Iterator[int]:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from _sizes(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue  # removed after it was listed


CACHE_DIRECTORIES: Final = CacheDirectories()
"""The cache directories of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CACHE_DIRECTORIES.forget)
