"""How much memory the process may use: the control group's limit or physical memory.

``memory.high`` of a control group is ignored: above it the kernel only slows the group down and
reclaims pages; above ``memory.max`` it kills. ``RLIMIT_AS`` is ignored as well: it limits
addresses, not resident memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from otel_quant.base.kernel_files import SELF
from otel_quant.schema.records import Limits

_UNLIMITED: Final = 2**62
"""Version 1 writes "no limit" as the largest multiple of the page size below 2**63."""

_LIMIT_FILES: Final = {2: "memory.max", 1: "memory.limit_in_bytes"}
_OOM_FILES: Final = {
    # Of the group alone, before Linux 5.2 with the groups within it; version 1 counts the group alone.
    2: ("memory.events.local", "memory.events"),
    1: ("memory.oom_control",),
}
KILLS: Final = "oom_kill"
GROUP_KILLS: Final = "oom_group_kill"
"""What the kernel counts: processes that it has ended for want of memory, and groups of which it
has ended every process at once (``memory.oom.group``)."""

HOST_OOM_COUNTER: Final = Path("/proc/vmstat")

_DEFAULT_MOUNTS: Final = {2: ("/", "/sys/fs/cgroup"), 1: ("/", "/sys/fs/cgroup/memory")}
"""By version, the control group that is mounted, and where."""


def read_limits(root: Path = Path("/"), pid: int = SELF) -> Limits:
    """Reads the memory limit of a process: the smallest of its control group and those above, or physical memory."""
    physical = _memory_of_machine(root)
    cgroup = min(_cgroup_limits(root, pid), default=None)
    if cgroup is not None and (physical is None or cgroup < physical):
        return Limits(cgroup, "cgroup")
    if physical is not None:
        return Limits(physical, "physical")
    return Limits()


def _memory_of_machine(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        key, _, value = line.partition(":")
        if key == "MemTotal":
            return int(value.split()[0]) * 1024  # its "kB" are KiB
    if root != Path("/"):
        return None
    import psutil  # elsewhere than on Linux

    return int(psutil.virtual_memory().total)


def oom_counters(pid: int = SELF, root: Path = Path("/")) -> list[Path]:
    """Returns the files with the kernel's counts of kills, by the group of the process, whichever group's limit it was."""
    files = [
        [groups[0] / name for name in _OOM_FILES[version]] for version, groups in _groups(root, pid)
    ]
    return [next((each for each in names if each.exists()), names[-1]) for names in files]


def oom_counts(counter: Path) -> dict[str, int]:
    """Returns what a counter has of kills; nothing if it cannot be read or the kernel is too old."""
    found = (line.partition(" ") for line in _lines(counter))
    return {key: int(value) for key, _, value in found if key in (KILLS, GROUP_KILLS)}


def _cgroup_limits(root: Path, pid: int) -> Iterator[int]:
    for version, groups in _groups(root, pid):
        for group in groups:
            yield from _limits_of(group, _LIMIT_FILES[version])


def _groups(root: Path, pid: int) -> Iterator[tuple[int, list[Path]]]:
    """Yields for each version the folders of a process's group and of all above it."""
    mounts = _mounts(root)
    for line in _lines(root / f"proc/{pid or 'self'}/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        version = 2 if number == "0" and not controllers else 1
        if version == 2 or "memory" in controllers.split(","):
            mounted, point = mounts[version]
            top, parts = root / point.lstrip("/"), _below_mount(mounted, path)
            yield version, [top.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]


def _limits_of(group: Path, file: str) -> Iterator[int]:
    yield from _numbers(*_lines(group / file))
    # Version 1's limit over all ancestors, including those outside a container.
    for line in _lines(group / "memory.stat"):
        if line.startswith("hierarchical_memory_limit "):
            yield from _numbers(line.split()[1])


def _below_mount(mounted: str, path: str) -> tuple[str, ...]:
    """Returns the path of a group below the mount, which a container sees as the host does, or as ``/`` or ``/../..``."""
    group = PurePosixPath(path)
    if group.is_relative_to(mounted):
        group = group.relative_to(mounted)
    return () if ".." in group.parts else group.parts[group.is_absolute() :]


def _numbers(*values: str) -> Iterator[int]:
    for value in values:
        if value.isdigit() and 0 < int(value) < _UNLIMITED:  # version 2 writes "max"
            yield int(value)


def _mounts(root: Path) -> dict[int, tuple[str, str]]:
    """Finds the hierarchies that can have memory limits, by version, in mountinfo."""
    found = dict(_DEFAULT_MOUNTS)
    for line in reversed(_lines(root / "proc/self/mountinfo")):  # the first line counts
        mount, _, system = line.partition(" - ")
        fields, kind = mount.split(), system.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            found[2] = fields[3], fields[4]
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found[1] = fields[3], fields[4]
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except OSError:
        return []
