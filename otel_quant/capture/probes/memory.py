"""Probe for the resident memory of the process tree, and how much memory the process may use.

On Linux the figures come from ``/proc/PID/status``; ``VmHWM`` there is the kernel's high-water
mark, the highest RSS so far. Elsewhere they come from psutil.

The limit is the control group's or physical memory. ``memory.high`` of a control group is ignored: above it the
kernel only slows the group down and reclaims pages; above ``memory.max`` it kills. ``RLIMIT_AS`` is ignored as
well: it limits addresses, not resident memory.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

from otel_quant.base.kernel_files import (
    SELF,
    ask_psutil,
    number_in,
    read_kept,
    read_process,
    text_of,
    write_process,
)
from otel_quant.schema.readings import Limits, MemoryReading

_LINUX = sys.platform == "linux"

if sys.platform != "win32":
    import resource


_MARGIN: Final = 4 << 20
"""Bytes by which two marks of the same memory may differ: each core counts on its own, and the
kernel adds the counts up only from time to time."""

_CORES: Final = os.cpu_count() or 1
_DRIFT: Final = 2 * _CORES * max(64, 2 * _CORES) * 4096
"""Bytes by which two marks may differ on a machine with many cores: each core (before Linux
6.2: each thread) may have so many pages not yet added up, for each of two kinds of pages."""

_ADDRESS_SPACE_KEYS: Final = (b"\nVmPeak:", b"\nVmStk:", b"\nVmExe:", b"\nVmLib:", b"\nRssFile:")
"""Figures that rarely change, so that they are equal in two readings of one address space."""

_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

_MOVED: Final = 1 << 20
"""Bytes by which memory has to fall for the marks of children to be read: it moves by pages all the time."""

_MARKS_LAST: Final = 0.5
"""Seconds after which a sample has the marks of child processes again: they may end at any time."""

_Child = tuple[int, int, int | None]  # Process id, RSS and mark of a child, in bytes


class MemoryProbe:
    """Reads the resident memory of a process and its descendants."""

    def __init__(self, pid: int = SELF) -> None:
        self._pid = pid
        self._statm = f"/proc/{pid or 'self'}/statm"
        self._highest_mark = 0
        self._pids: Collection[int] = ()  # descendants at the last reading that was not brief
        self._with_memory: Collection[int] = ()  # those of them that had memory of their own
        self._read_at = 0.0  # monotonic clock of that reading, in seconds
        self._last = 0  # memory in use at the last sample, in bytes
        # RSS at the last reading without all pages that were touched by then, in bytes
        self._untouched = 0

    def sample(self, pids: Collection[int] = ()) -> MemoryReading:
        """Reads what is in use, in a third of the time: of a process without children the next mark tells the peak."""
        if not _LINUX or pids != self._pids:
            return self(pids)
        if not pids:
            rss = resident(self._statm)
            return MemoryReading(rss, rss, is_brief=True, possible=self._possible(rss))
        if time.monotonic() - self._read_at >= _MARKS_LAST:
            return self(pids)
        rss, before = resident(self._statm), self._last
        children = tuple(_sizes_of(self._with_memory))
        self._last = total = rss + sum(size for _, size, _ in children)
        if total < before - _MOVED:  # what was higher in between is in the marks
            return self(pids)
        possible = self._possible(rss)
        return MemoryReading(rss, total, children=children, is_brief=True, possible=possible)

    def __call__(self, pids: Collection[int] = ()) -> MemoryReading:
        """Reads the memory."""
        # Read first: an exited child's mark may be a copy of a mark that is read below, which
        # may have risen by then.
        reaped, faults = _of_reaped() if self._pid == SELF else (None, None)
        rss, mark = _rss_and_mark(self._pid)
        tree = rss = rss or 0
        highest = max(self._highest_mark, mark or 0)
        children = tuple(_of_children(pids, self._with_memory)) if pids else ()
        for _, of_child, its_mark in children:
            tree += of_child
            highest = max(highest, its_mark or 0)
        self._highest_mark = highest
        if pids or self._pids:
            self._pids, self._last, self._read_at = pids, tree, time.monotonic()
            self._with_memory = [pid for pid, _, _ in children]
        return MemoryReading(
            rss,
            tree,
            mark,
            children,
            # Only above every mark so far is it certainly a child's and new: a child that calls exec starts with the
            # mark of the process that it was forked from. The margin is small: a child may have been read just before its peak.
            reaped if (reaped or 0) > _above(highest) else None,
            faults if mark is not None and not pids else None,
            above_marks=None if mark is None else _above(max(highest, reaped or 0)),
            possible=0 if mark is None or self._pid != SELF else self._possible(rss),
        )

    def _possible(self, rss: int) -> int:
        """Returns what this process may have held since the last reading, in bytes."""
        touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt * _PAGE
        possible, self._untouched = self._untouched + touched, rss - touched
        return possible


def _above(mark: int) -> int:
    """Returns what another mark of the same memory cannot be."""
    return mark + max(_MARGIN, min(mark >> 5, _DRIFT))


def reset_high_water(pids: Collection[int] = ()) -> frozenset[int]:
    """Lowers the kernel's marks to the memory in use now (exact mode; Linux only)."""
    _reset(SELF)
    lowered = set()
    for pid in pids:
        try:
            _reset(pid)
            lowered.add(pid)
        except OSError:
            continue
    return frozenset(lowered)


def _reset(pid: int) -> None:
    write_process(pid, "clear_refs", b"5")  # proc(5): reset the peak resident set size


def _rss_and_mark(pid: int) -> tuple[int | None, int | None]:
    """Returns RSS and mark in bytes; a zombie and a kernel thread have neither."""
    if not _LINUX:
        return ask_psutil(pid, "memory_info").rss, None
    status = read_process(pid, "status")
    at = status.find(b"\nVmHWM:")
    if at < 0:
        return None, None
    # The line after it, always, is VmRSS. One search for both: a step reads this of each child twice.
    _, mark, _, _, rss, _ = status[at : at + 80].split(None, 5)
    return int(rss) << 10, int(mark) << 10


def high_water() -> int | None:
    """Returns this process's mark in bytes; None where there is none."""
    return _rss_and_mark(SELF)[1] if _LINUX else None


Taken: TypeAlias = tuple[int, int, int, int, float]
"""A moment of the monotonic clock in ns, RSS then in bytes, the page faults of the calling thread and of its process, and seconds that the thread ran."""


def taken_now() -> Taken | None:
    """Returns what has been taken until now; None on another system than Linux."""
    if not _LINUX:
        return None
    of = (resource.RUSAGE_THREAD, resource.RUSAGE_SELF)
    own, every = (resource.getrusage(each).ru_minflt for each in of)
    return time.perf_counter_ns(), resident(), own, every, time.thread_time()


def most_addresses() -> int | None:
    """Returns the highest size of this process's address space in bytes; None where it is not known."""
    peak = number_in(read_process(SELF, "status"), b"\nVmPeak:") if _LINUX else None
    return None if peak is None else 1024 * peak


def resident(statm: str = "/proc/self/statm", **how: Any) -> int:
    """Returns RSS in bytes; as :func:`read_kept` is asked to read it."""
    return int(read_kept(statm, **how).split(None, 2)[1]) * _PAGE


def _sizes_of(pids: Iterable[int]) -> Iterator[_Child]:
    for pid in pids:
        with suppress(OSError):  # it has ended
            if size := resident(f"/proc/{pid}/statm"):
                yield pid, size, None


def _of_children(pids: Collection[int], known: Collection[int]) -> Iterator[_Child]:
    for pid in pids:
        try:
            if _LINUX and pid not in known and _shares_memory(pid):
                continue
            rss, mark = _rss_and_mark(pid)
        except OSError:
            continue
        if rss is not None:  # a zombie has no memory left
            yield pid, rss, mark


def _shares_memory(pid: int) -> bool:
    """Whether a process is between vfork and exec, where the kernel shows its parent's figures for it."""
    status = read_process(pid, "status")
    if number_in(status, b"\nRssFile:") is None:
        return False
    parent = number_in(status, b"\nPPid:") or 0
    parents = read_process(SELF if parent == os.getpid() else parent, "status")
    return all(number_in(status, key) == number_in(parents, key) for key in _ADDRESS_SPACE_KEYS)


def _of_reaped() -> tuple[int | None, int | None]:
    """Returns the highest RSS in bytes, and the page faults, of children that were waited for."""
    if sys.platform == "win32":
        return None, None
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Kibibytes on Linux and the BSDs, bytes on macOS; 0 means that no child was waited for.
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss * unit or None, usage.ru_minflt


# --- limits -------------------------------------------------------------------------------

_UNLIMITED: Final = 2**62
"""Version 1 writes "no limit" as the largest multiple of the page size below 2**63."""

_LIMIT_FILES: Final = {2: "memory.max", 1: "memory.limit_in_bytes"}
_OOM_FILES: Final = {
    # Of the group alone, before Linux 5.2 with the groups within it; version 1 counts the group alone.
    2: ("memory.events.local", "memory.events"),
    1: ("memory.oom_control",),
}
HOST_OOM_COUNTER: Final = Path("/proc/vmstat")

_MOUNT: Final = r"\S+ \S+ \S+ (?P<mounted>\S+) (?P<point>\S+) .*- (?:(?P<is_second>cgroup2) \S|cgroup \S+ (?:\S+,)?%s(?:,|$))"
"""A line of mountinfo that mounts control groups with a controller: proc(5)."""

_TOTAL: Final = re.compile(r"^MemTotal:\s*(\d+)", re.MULTILINE)


def read_limits(root: Path = Path("/"), pid: int = SELF) -> Limits:
    """Reads the memory limit of a process: the smallest of its control group and those above, or physical memory."""
    found = [Limits(size, "physical") for size in _memory_of_machine(root)]
    for version, groups in groups_of(root, pid):
        sizes = (_limits_of(group, _LIMIT_FILES[version]) for group in groups)
        found += [Limits(size, "cgroup") for size in chain.from_iterable(sizes)]
    return min(found, key=lambda limit: limit.memory or 0, default=Limits())


def _memory_of_machine(root: Path) -> list[int]:
    if (total := _TOTAL.search(text_of(root / "proc/meminfo"))) is not None:
        return [int(total[1]) * 1024]  # its "kB" are KiB
    if root != Path("/"):
        return []
    import psutil  # elsewhere than on Linux

    return [int(psutil.virtual_memory().total)]


def oom_counters(pid: int = SELF, root: Path = Path("/")) -> list[Path]:
    """Returns the files with the kernel's counts of kills, by the group of the process, whichever group's limit it was."""
    every = groups_of(root, pid)
    files = [[groups[0] / name for name in _OOM_FILES[version]] for version, groups in every]
    return [next((each for each in names if each.exists()), names[-1]) for names in files]


def groups_of(
    root: Path, pid: int = SELF, controller: str = "memory"
) -> Iterator[tuple[int, list[Path]]]:
    """Yields for each version of control groups the folders of a process's group and of all above it: cgroups(7)."""
    mounts = _mounts(root, controller)
    for line in text_of(root / f"proc/{pid or 'self'}/cgroup").splitlines():
        rest = line.partition(":")[2]
        controllers, colon, path = rest.partition(":")
        # Version 2 names none
        if colon and (not controllers or controller in controllers.split(",")):
            version = 1 if controllers else 2
            mounted, point = mounts.get(version, ("/", f"/sys/fs/cgroup/{controllers}"))
            top, parts = root / point.lstrip("/"), _below_mount(mounted, path)
            yield version, [top.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]


def _limits_of(group: Path, file: str) -> list[int]:
    # The second is version 1's limit over all ancestors, including those outside a container.
    lines = *text_of(group / file).splitlines(), *text_of(group / "memory.stat").splitlines()
    found = (line.removeprefix("hierarchical_memory_limit ") for line in lines)
    return [int(each) for each in found if each.isdigit() and 0 < int(each) < _UNLIMITED]


def _below_mount(mounted: str, path: str) -> tuple[str, ...]:
    """Returns the path of a group below the mount, which a container sees as the host does, or as ``/`` or ``/../..``."""
    group = PurePosixPath(path)
    if group.is_relative_to(mounted):
        group = group.relative_to(mounted)
    return () if ".." in group.parts else group.parts[group.is_absolute() :]


def _mounts(root: Path, controller: str) -> dict[int, tuple[str, str]]:
    """Finds by version the control group that is mounted, and where, in mountinfo."""
    found, pattern = {}, re.compile(_MOUNT % controller)
    lines = text_of(root / "proc/self/mountinfo").splitlines()
    for line in reversed(lines):  # the first line counts
        if (mount := pattern.match(line)) is not None:
            found[2 if mount["is_second"] else 1] = mount["mounted"], mount["point"]
    return found
