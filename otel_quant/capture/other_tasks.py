"""Looks every two seconds at the threads and child processes beside an open step: how long they run, and wait for processors."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from otel_quant.base.kernel_files import read_proc, read_process, text_of, threads_of
from otel_quant.capture.probes.memory import groups_of
from otel_quant.diagnosis.tasks import TasksBeside
from otel_quant.schema.dataclass import dataclass, field

_BETWEEN: Final = 2_000_000_000
"""Nanoseconds between two looks, half of that where a step has begun: one takes as long as half a sample for each ten threads."""

_MOST: Final = 64  # Threads, and child processes, that are looked at

_COVERED: Final = 0.5
"""Part of a step between its first look and its end from which on its tasks are known."""

_NONE: Final = 0, 0

_THROTTLED: Final = re.compile(r"^throttled_(?:usec (\d+)|time (\d+))$", re.MULTILINE)


@dataclass(slots=True)
class _Look:
    """What has been counted so far."""

    clock_ns: int = 0
    ran_ns: int = 0  # By all threads of the process, those that have ended too
    used: dict[str, tuple[int, int]] = field(default_factory=dict)  # Ran, waited; in ns, by file
    throttled: float = math.nan  # Seconds
    carried: float = math.nan  # Bytes


@dataclass(slots=True)
class _OfStep:
    first: _Look
    pinned: float = math.nan
    lines: Counter[str] = field(default_factory=Counter)


class OtherTasks:
    """What is known of the tasks beside each open step."""

    def __init__(self) -> None:
        self._newest = _Look()
        self._steps: dict[int, _OfStep] = {}  # By the step's index
        self._children: Collection[int] = ()
        self._commands: dict[str, str] = {}  # Of children, by file
        self._groups: list[Path] | None = None

    def is_due(self, clock_ns: int, *, has_begun: bool) -> bool:
        """Returns whether it is time for another look; a step may have begun since the last sample."""
        passed = clock_ns - self._newest.clock_ns
        return sys.platform == "linux" and passed >= _BETWEEN / (1 + has_begun)

    def look(
        self, clock_ns: int, own: Mapping[int, str], children: Collection[int]
    ) -> Iterator[tuple[int, str]]:
        """Looks; yields for each open step, with its thread's file, the file of the busiest other thread."""
        self._children, before = children, self._newest.used
        self._look(clock_ns)
        ran = {path: sum(used) - sum(before.get(path, used)) for path, used in self._newest.used.items() if path.startswith(_OWN)}  # fmt: skip
        for index in self._steps.keys() - own.keys():
            self._steps.pop(index, None)
        for index, path in own.items():
            known = self._steps.setdefault(index, _OfStep(self._newest))
            with suppress(OSError):
                known.pinned = len(os.sched_getaffinity(int(path.split("/")[4])))
            busiest = max(ran.keys() - {path}, key=ran.__getitem__, default="")
            if busiest and ran[busiest] > 0:
                yield index, busiest

    def add_line(self, index: int, words: str) -> None:
        """Adds where the busiest other thread was at a look, if the step has not ended since."""
        if (known := self._steps.get(index)) is not None:
            known.lines[words] += 1

    def end(self, index: int, path: str, clock_ns: int, lasted_ns: float) -> TasksBeside:
        """Forgets a step; returns what was done beside its thread, whose file is given."""
        known = self._steps.pop(index, None)
        if known is None or clock_ns - known.first.clock_ns < _COVERED * lasted_ns:
            return TasksBeside()
        self._look(clock_ns)
        since, before = clock_ns - known.first.clock_ns, known.first.used
        used = {
            file: (ran - before.get(file, _NONE)[0], waited - before.get(file, _NONE)[1])
            for file, (ran, waited) in self._newest.used.items()
        }
        its, _ = used.pop(path, (math.nan, 0))
        own = [each for file, each in used.items() if file.startswith(_OWN)]
        children = {file: each for file, each in used.items() if not file.startswith(_OWN)}
        child = max(children, key=lambda file: sum(children[file]), default="")
        return TasksBeside(
            max(self._newest.ran_ns - known.first.ran_ns - its, 0) / since,
            sum(waited for _, waited in own) / since,
            sum(waited for _, waited in children.values()) / since,
            max(known.lines, key=known.lines.__getitem__, default=""),
            self._commands.get(child, ""),
            known.pinned,
            (self._newest.throttled - known.first.throttled) / (since / 1e9),
            (self._newest.carried - known.first.carried) / (since / 1e9),
        )

    def _look(self, clock_ns: int) -> None:
        paths = [f"{_OWN}{each}/schedstat" for each in threads_of(os.getpid())[:_MOST]]
        children = {f"/proc/{pid}/schedstat": pid for pid in [*self._children][:_MOST]}
        used = dict(self._newest.used)  # of those that have ended, what was counted
        for path in (*paths, *children):
            with suppress(OSError, ValueError):
                ran, waited, _ = read_proc(path).split()
                used[path] = int(ran), int(waited)
                # The name of a child changes as it begins another program.
                if path in children:
                    name = read_process(children[path], "comm").decode(errors="replace").strip()
                    self._commands[path] = name
        if self._groups is None:
            self._groups = throttle_files()
        known = [seconds for each in self._groups if (seconds := throttled_in(each)) is not None]
        carried = carried_in(text_of(Path("/proc/self/net/dev")))
        self._newest = _Look(
            clock_ns, time.process_time_ns(), used, max(known, default=math.nan), carried
        )


_OWN: Final = "/proc/self/task/"


def throttle_files(root: Path = Path("/")) -> list[Path]:
    """Returns the files that count for how long the control group, or one above it, was kept from processors."""
    found = (it / "cpu.stat" for _, groups in groups_of(root, controller="cpu") for it in groups)
    return [each for each in found if throttled_in(each) is not None]


def carried_in(devices: str) -> float:
    """Returns the bytes that a network's devices have received and sent; NaN if none tells."""
    found = (line.partition(":")[2].split() for line in devices.splitlines())
    counts = [int(each[0]) + int(each[8]) for each in found if len(each) > 8]
    return sum(counts) if counts else math.nan


def carried_by_connections() -> int | None:
    """Returns the bytes that sockets of IP have received and sent, among the first descriptors; None if there are none.

    What waits for one may wait for a pipe or a time as well.
    """
    import ctypes  # the probes of a step have loaded it

    family, length, ask = ctypes.c_int(), ctypes.c_int(4), ctypes.PyDLL(None).getsockopt
    asked = _SOL_SOCKET, _SO_DOMAIN, ctypes.byref(family), ctypes.byref(length)
    found = [each for each in range(_MOST) if ask(each, *asked) == 0 and family.value in _IP]
    counts, of_tcp, carried = (ctypes.c_uint64 * 17)(), ctypes.c_int(136), 0
    for each in found:
        # What is there unread is not waited for.
        ctypes.PyDLL(None).ioctl(each, _UNREAD, ctypes.byref(length))
        if not length.value and ask(each, *_TCP_INFO, counts, ctypes.byref(of_tcp)) == 0:
            carried += sum(counts[15:])  # acknowledged, and received
    return carried if found else None


# Linux's, without loading the module socket
_SOL_SOCKET, _SO_DOMAIN, _IP = 1, 39, (2, 10)
_TCP_INFO: Final = 6, 11  # IPPROTO_TCP, TCP_INFO
_UNREAD: Final = 0x541B  # FIONREAD


def throttled_in(file: Path) -> float | None:
    """Returns for how many seconds a group was; None if its file does not tell."""
    if (match := _THROTTLED.search(text_of(file))) is None:
        return None
    return int(match[1]) / 1e6 if match[1] else int(match[2]) / 1e9
