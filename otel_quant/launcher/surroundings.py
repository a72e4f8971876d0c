"""What a program may use, and what the kernel, the disks and a batch system know of its end."""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from otel_quant.base.kernel_files import (
    GROUP_KILLS,
    KILLS,
    number_in,
    oom_counts,
    read_proc,
    read_process,
)
from otel_quant.base.machine import environment_at_start
from otel_quant.capture.probes.memory import HOST_OOM_COUNTER, oom_counters, read_limits
from otel_quant.capture.recorder.run_info import rank_of
from otel_quant.format.curve import name_of
from otel_quant.format.event_file import process_file
from otel_quant.launcher.start import now_ns
from otel_quant.schema import semconv
from otel_quant.schema.dataclass import dataclass, field
from otel_quant.schema.readings import Limits
from otel_quant.schema.units import duration_text, size

if sys.platform == "linux":
    import fcntl
    import resource

    _LIMITS: Final = resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_AS

_JOBS: Final = {"Slurm": "SLURM_JOB_ID", "PBS": "PBS_JOBID", "LSF": "LSB_JOBID"}
"""The variable with the number of a job, by batch system."""

_LONGEST: Final = 16  # Digits of a number that a batch system gives


class ProcessUse(NamedTuple):
    """Limits of setrlimit(2) of a process, and what it has used of them. None for no limit."""

    is_over: bool  # It was read after the process had ended
    # CPU time in seconds, by the clock that the kernel compares with the limit. The clock of
    # getrusage(2) is up to a tenth behind it.
    cpu_time: float
    cpu_limit: int | None  # Seconds, from which on the kernel sends SIGXCPU every second
    last_cpu_limit: int | None  # Seconds, at which it sends SIGKILL
    file_size_limit: int | None  # Bytes
    address_space: int | None  # Limit of all addresses, in bytes
    addresses: int  # Highest size of the address space that was seen, in bytes


class OomKills(NamedTuple):
    """What the kernel's out-of-memory killer has done since the program began."""

    counter: Path  # The counter that tells
    is_of_host: bool  # It counts all processes of the machine
    kills: int  # Processes that it has ended
    of_groups: int  # Control groups of which it has ended every process


SHARED_MEMORY: Final = "shared memory"  # What is on `/dev/shm`


class Disk(NamedTuple):
    """A file system that the program may have written to."""

    places: str  # What is on it
    free: int  # Bytes, at the least that was seen
    size: int  # Bytes


_GET_INFO: Final = 0xC040FF0B
_EXIT: Final = 8
_INFO: Final = "=Q52xi"
"""PIDFD_GET_INFO, PIDFD_INFO_EXIT, and the mask and the exit code of struct pidfd_info in linux/pidfd.h."""

_MOST_CHILDREN: Final = 200
"""Child processes of which a descriptor is held, and failed ones that are remembered."""


@dataclass(slots=True)
class Child:
    """A child process, and how it ended."""

    pid: int  # Its process id
    descriptor: int | None  # By which the kernel tells how it ended
    name: str  # What it runs: ``python quantize.py``
    began: int  # When it was seen first, in nanoseconds since the epoch
    ended: int = 0  # When it was seen to be gone, likewise
    code: int = 0  # Its exit code, or the signal that ended it as -9
    is_new: bool = True  # It may be about to call `exec`
    rank: dict[str, int | str] = field(default_factory=dict)  # Which of which job, if it is one


class Exits:
    """How those child processes ended that did not exit with 0.

    From Linux 6.15 on the kernel tells that whoever holds a descriptor of a process. Before, it is known of
    those that are seen between their end and the moment at which they are waited for.
    """

    def __init__(self) -> None:
        self.failed: dict[int, Child] = {}  # By process id
        self._children: dict[int, Child] = {}

    def look(self, children: Iterable[int], alive: Collection[int]) -> None:
        """Looks which child processes are new, and which have ended. To be called at each reading."""
        children = frozenset(children)
        for pid in children:
            child = self._children.get(pid)
            if child is None and len(self._children) < _MOST_CHILDREN:
                name, now = name_of(pid) or "", now_ns()
                self._children[pid] = Child(pid, _descriptor_of(pid), name, now)
            elif child is not None and child.is_new:
                child.name, child.is_new = name_of(pid) or child.name, False
                found = rank_of(environment_at_start({}, pid))
                # The workers of a rank have its environment.
                is_first = all(each.rank != found for each in self._children.values())
                child.rank = found if is_first else {}
            if pid not in alive:
                self._note(pid, _status_of_zombie(pid))
        for pid in self._children.keys() - children:
            descriptor = self._children[pid].descriptor
            if descriptor is not None:
                self._note(pid, _status_of(descriptor))
                os.close(descriptor)
            del self._children[pid]

    def _note(self, pid: int, status: int | None) -> None:
        child = self._children.get(pid)
        if status and child is not None and not child.ended and len(self.failed) < _MOST_CHILDREN:
            child.code, child.ended = os.waitstatus_to_exitcode(status), now_ns()
            self.failed[pid] = child


def _descriptor_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):  # it is gone; the system has none
        return None


def _status_of(descriptor: int) -> int | None:
    """Returns the wait status of a process that is gone; None where the kernel does not tell."""
    known = bytearray(struct.pack(_INFO, _EXIT, 0))
    try:
        fcntl.ioctl(descriptor, _GET_INFO, known)
    except OSError:
        return None
    mask, status = struct.unpack(_INFO, known)
    return status if mask & _EXIT else None


def _status_of_zombie(pid: int) -> int | None:
    """Returns the wait status of a process that has ended and that nobody has waited for."""
    try:
        return int(read_proc(f"/proc/{pid}/stat").split()[-1])
    except (OSError, IndexError, ValueError):
        return None


class Surroundings:
    """Limits and counters of a program, which outlive it here."""

    def __init__(self) -> None:
        self.limits = Limits()
        self.memory_of_others: int | None = None  # Of the machine, in bytes
        self.uses: dict[int, ProcessUse] = {}  # Of processes that have a limit, by process id
        self._known: frozenset[int] = frozenset()
        self._before: dict[Path, Mapping[str, int]] = {}

    def look(self, pid: int, others: Iterable[int] = (), memory: int = 0) -> None:
        """Reads what is in force now, while all of the program uses so much memory, in bytes."""
        self.limits = read_limits(pid=pid)  # it may have moved to another group
        with suppress(OSError):  # there is none elsewhere than on Linux
            known = read_proc("/proc/meminfo")
            total, free = number_in(known, b"MemTotal:"), number_in(known, b"\nMemAvailable:")
            if total is not None and free is not None:
                self.memory_of_others = max(0, 1024 * (total - free) - memory)
        self._known = frozenset()
        groups = {path for process in (pid, *others) for path in oom_counters(process)}
        for counter in (HOST_OOM_COUNTER, *groups):
            if counter not in self._before and (counts := oom_counts(counter)):
                self._before[counter] = counts

    def meet(self, processes: Iterable[int]) -> None:
        """Reads the limits of processes, between two looks of those that have one or are new."""
        processes = frozenset(processes)
        for pid in processes - self._known | processes & self.uses.keys():
            before, use = self.uses.get(pid), _use_of(pid)
            if use is not None:
                self.uses[pid] = use._replace(
                    addresses=max(use.addresses, before.addresses if before is not None else 0)
                )
        self._known = processes

    def oom_kills(self) -> OomKills | None:
        """Returns how many processes the kernel has ended; None where no counter can be read.

        The machine's counter is used only where the program's groups have none, or one is gone.
        """
        now = {counter: oom_counts(counter) for counter in self._before}
        found = []
        for counter, counts in now.items():
            before, is_of_host = self._before[counter], counter == HOST_OOM_COUNTER
            names = KILLS, GROUP_KILLS
            kills, of_groups = (counts.get(it, 0) - before.get(it, 0) for it in names)
            if counts and (kills or is_of_host or all(now.values())):
                found.append(OomKills(counter, is_of_host, kills, of_groups))
        return max(found, key=lambda each: (not each.is_of_host, each.kills), default=None)


def kills_so_far() -> dict[str, object]:
    """Returns the kernel's counter of kills in our own control group, as a manifest has it."""
    for counter in oom_counters():
        with suppress(OSError):
            if KILLS in (counts := oom_counts(counter)):
                known = {"oom_counter": str(counter), "oom_inode": counter.stat().st_ino}
                return {**known, "oom_kills": counts[KILLS]}
    return {}


def _use_of(pid: int) -> ProcessUse | None:
    """Returns what a process may use and uses; None if it has no limit, or is gone."""
    if sys.platform != "linux":
        return None
    try:
        (soft, hard), (file_size, _), (space, _) = (
            [None if limit == resource.RLIM_INFINITY else limit for limit in pair]
            for pair in (resource.prlimit(pid, name) for name in _LIMITS)
        )
        if soft is hard is file_size is space is None:
            return None
        status = read_process(pid, "status")
        cpu_time = time.clock_gettime(~pid << 3)  # its CPUCLOCK_PROF, as the kernel numbers clocks
    except (OSError, ValueError):
        return None
    addresses = 1024 * (number_in(status, b"\nVmPeak:") or 0)
    is_over = b"\nState:\tZ" in status
    return ProcessUse(is_over, cpu_time, soft, hard, file_size, space, addresses)


def disks(folder: Path, environ: Mapping[str, str]) -> tuple[Disk, ...]:
    """Returns the file systems that a program is likely to have written to."""
    places = {
        "the current folder": Path(),
        "the recording": folder,
        "temporary files": Path(environ.get("TMPDIR") or "/tmp"),  # noqa: S108 - only looked at
        SHARED_MEMORY: Path("/dev") / "shm",
    }
    found: dict[int, Disk] = {}
    for place, path in places.items():
        with suppress(OSError):
            device, room = path.stat().st_dev, shutil.disk_usage(path)
            names = f"{found[device].places}, {place}" if device in found else place
            if room.total:  # one without a size of its own has none that could be full
                found[device] = Disk(names, room.free, room.total)
    return tuple(found.values())


def batch_job(environ: Mapping[str, str], lasted: float) -> str | None:
    """Returns what a batch system tells a program, which has lasted some seconds, of its limits."""
    jobs = [f"{name} job {environ[key]}" for name, key in _JOBS.items() if environ.get(key)]
    if not jobs:
        return None

    def number(name: str) -> int | None:
        text = environ.get(name, "")
        return int(text) if text.isdecimal() and len(text) < _LONGEST else None

    began, ends = number("SLURM_JOB_START_TIME"), number("SLURM_JOB_END_TIME")
    if began is not None and ends is not None:
        told = (
            f"had run for {duration_text(time.time() - began)} of {duration_text(ends - began)} "
            "(SLURM_JOB_END_TIME)"
        )
    elif (most := number("PBS_WALLTIME")) is not None:
        told = f"may run for {duration_text(most)} (PBS_WALLTIME); the program ran for {duration_text(lasted)}"
    else:
        told = f"has an unknown time limit; the program ran for {duration_text(lasted)}"
    memory = number("SLURM_MEM_PER_NODE")  # MiB
    limit = f"; {size(memory << 20)} of memory a node (SLURM_MEM_PER_NODE)" if memory else ""
    return f"{jobs[0]} {told}{limit}"


def cache_growth(folder: Path) -> int | None:
    """Returns how much a cache directory has grown, which only the program's processes know."""
    found: list[int] = []
    for path in folder.glob(process_file(folder, "state", "*").name):
        # There may be none yet, or it is just being written.
        with suppress(OSError, ValueError, LookupError, TypeError):
            found.append(int(json.loads(path.read_bytes())["attributes"][semconv.CACHE_GROWTH]))
    return max(found, default=None)
