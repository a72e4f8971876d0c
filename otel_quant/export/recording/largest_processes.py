"""The largest processes of the program: their names, and which of them have a series of their own."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from otel_quant.base.kernel_files import read_proc

MOST: Final = 5
"""Child processes with a series in a curve: each makes the file larger for the whole of the recording."""

_LONGEST_NAME: Final = 60
_INTERPRETERS: Final = ("python", "bash", "sh", "dash")

SMALLEST_SHARE: Final = 0.05
"""Part of the memory of all that a process must have to count as large."""


class LargestProcesses:
    """Names the largest processes, and gives the program and its :data:`MOST` largest children a series.

    The program's begins with its first child, before any other: until then it would say what the whole
    says, in as much room. A child gets one if it was among the largest at two looks in a row, so that
    none that lives a moment, or is a copy of its parent until it calls `exec`, takes the place of
    another; with as many already, in place of the one whose highest memory is the lowest.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._names: dict[int, str] = {}
        self._named_at: dict[int, int] = {}  # the RSS that each had then
        self._series: dict[int, str] = {}
        self._peaks: dict[int, int] = {}  # of those with a series
        self._seen: frozenset[int] = frozenset()

    def look(self, processes: Mapping[int, int]) -> Iterator[str]:
        """Finds the largest and their names; a program that calls ``exec`` changes its name.

        Yields the series that end for a larger process.
        """
        least = sum(processes.values()) * SMALLEST_SHARE
        largest = heapq.nlargest(MOST + 1, processes, key=processes.__getitem__)
        for pid in {*largest, self._pid}:
            self._find_name(pid, processes.get(pid, 0))
        large = frozenset(pid for pid in largest if processes[pid] >= least) - {self._pid}
        for pid in sorted(
            (large & self._seen) - self._series.keys(), key=lambda pid: -processes[pid]
        ):
            children = self._series.keys() - {self._pid}
            if len(children) == MOST:
                smallest = min(children, key=self._peaks.__getitem__)
                if self._peaks[smallest] >= processes[pid]:
                    break
                yield self._series.pop(smallest)
            self._series[pid] = f"{self._name(pid)} ({pid})"
            self._peaks[pid] = processes[pid]
        self._seen = large
        self._names = {pid: name for pid, name in self._names.items() if pid in processes}
        self._named_at = {pid: rss for pid, rss in self._named_at.items() if pid in processes}

    def meet(self, processes: Mapping[int, int]) -> None:
        """Names processes as they become large: one may be dead before the next look."""
        least = sum(processes.values()) * SMALLEST_SHARE
        for pid, rss in processes.items():
            # With twice the memory it may have called `exec` since it was named.
            if rss >= least and rss >= 2 * self._named_at.get(pid, 0):
                self._find_name(pid, rss)

    def series(self, processes: Mapping[int, int]) -> dict[str, int]:
        """Returns RSS in bytes by name of series."""
        if len(processes) > 1 and self._pid not in self._series:
            self._series = {self._pid: f"{self._name(self._pid)} ({self._pid})", **self._series}
        shown = {pid: processes[pid] for pid in self._series if pid in processes}
        self._peaks |= {pid: max(rss, self._peaks.get(pid, 0)) for pid, rss in shown.items()}
        return {self._series[pid]: rss for pid, rss in shown.items()}

    def named(self, processes: Mapping[int, int]) -> tuple[tuple[str, int], ...]:
        """Returns name and RSS in bytes of the largest, largest first."""
        largest = heapq.nlargest(MOST, processes, key=processes.__getitem__)
        return tuple((f"{self._name(pid)} ({pid})", processes[pid]) for pid in largest)

    def _find_name(self, pid: int, rss: int) -> None:
        name = name_of(pid)
        if name is not None:
            self._names[pid], self._named_at[pid] = name, rss

    def _name(self, pid: int) -> str:
        return self._names.get(pid, "process")


def name_of(pid: int) -> str | None:
    """Returns a process's name as a person would say it: ``python3 train.py``."""
    try:
        words = read_proc(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
    except OSError:
        return None
    return short_name(words)


def short_name(words: Sequence[str]) -> str | None:
    """Returns the name of a process with this command line; None for an empty one."""
    program = PurePath(words[0]).name
    if not program:
        return None
    script = _script(words[1:]) if program.startswith(_INTERPRETERS) else None
    return f"{program} {script}"[:_LONGEST_NAME] if script else program[:_LONGEST_NAME]


def _script(arguments: Sequence[str]) -> str | None:
    """Returns the script or module that an interpreter runs; what follows `-c` is not shown."""
    for position, argument in enumerate(arguments):
        if position and arguments[position - 1] in ("-W", "-X"):
            continue  # the value of an option
        if argument == "-m":
            return " ".join(arguments[position : position + 2])
        if argument == "-c":
            return argument
        if argument and not argument.startswith("-"):
            return PurePath(argument).name
    return None
