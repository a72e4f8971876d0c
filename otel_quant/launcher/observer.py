"""Watches the program from outside: a curve of the recording, and what is known when it has ended.

From outside it is blind neither while the program holds Python's lock nor after it is dead.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.probes.sampler import Sampler
from otel_quant.export.recording.curve import CurveFile, Number
from otel_quant.export.recording.largest_processes import SMALLEST_SHARE, LargestProcesses
from otel_quant.export.recording.layout import curve_path
from otel_quant.launcher.observation import LastSeen, Observation, with_mark
from otel_quant.launcher.post_mortem import ending_of, plain_ending
from otel_quant.launcher.program import Ending as ProgramEnding
from otel_quant.launcher.program_tree import ProgramTree, TreeReading, signal_of
from otel_quant.launcher.surroundings import Surroundings, cache_growth, last_words_ns
from otel_quant.launcher.victim import find_victim
from otel_quant.recordings.model import Ending
from otel_quant.recordings.reader import read
from otel_quant.schema import series

INTERVAL: Final = 0.05
"""Seconds between two readings."""

_SHARE: Final = 0.03
"""Part of one core that readings of many processes may take; then they become rarer."""

_LOOK_NS: Final = 1_000_000_000
"""Nanoseconds between two looks at names, limits and counters. Also the age of readings that count
for what a program held that was killed for want of memory: it is freed while the kernel works."""


_MOST_REMEMBERED: Final = 200
"""Processes that have ended of which something is kept."""


class Observer:
    """Takes readings of the program until it has ended.

    It never raises: what fails is logged once and is missing from the recording.
    """

    def __init__(
        self,
        folder: Path,
        pid: int,
        interval: float = INTERVAL,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._folder, self._pid, self._interval = folder, pid, interval
        self._began_ns = time.time_ns()
        self._tree = ProgramTree(pid, environ)
        self._largest = LargestProcesses(pid)
        self._surroundings = Surroundings()
        self._sampler = Sampler(self._sample, interval, _SHARE)
        self._curve: CurveFile | None = None
        self._recent: deque[TreeReading] = deque()
        self._last_seen: dict[int, LastSeen] = {}
        self._signals: dict[int, int] = {}
        self._looked_ns = 0
        self._cache: int | None = None
        self._highest_mark = 0
        # A program is started as a copy of this process, whose memory is in the kernel's mark.
        self._mark_before = _bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    def start(self) -> None:
        """Starts a thread that takes readings. To be called as soon as the program runs."""
        with FAULTS.kept_in("observer, file"):
            self._curve = CurveFile(
                curve_path(self._folder, "launcher"),
                time.time_ns(),
                time.monotonic_ns(),
                self._interval,
            )
        with FAULTS.kept_in("observer"):
            self._sample()
        with FAULTS.kept_in("observer, thread"):
            self._sampler.start()

    def finish(self, ended: ProgramEnding) -> Ending:
        """Ends the thread, completes the curve and finds out how the program has ended."""
        seen = self.observe(ended)
        with FAULTS.kept_in("observer, end"):
            if ended.code == 0:  # most programs: of their steps, which may be many, none is needed
                brief = read(self._folder, in_brief=True)
                if find_victim(seen, brief) is None:
                    return plain_ending(seen, brief.began_ns)
            return ending_of(seen, read(self._folder))
        return plain_ending(seen, self._began_ns)

    def observe(self, ended: ProgramEnding) -> Observation:
        """Ends the thread and completes the curve."""
        time_ns, clock_ns = time.time_ns(), time.monotonic_ns()
        self._sampler.stop()
        seen = Observation(
            pid=self._pid, time_ns=time_ns, exit_code=ended.code, signal=ended.signal
        )
        with FAULTS.kept_in("observer, end"):
            seen = self._observation(seen, _bytes(ended.max_rss or 0))
        with FAULTS.kept_in("observer, file"):
            if self._curve is not None:
                memory = with_mark(seen.last_seen.get(self._pid), seen.mark)
                if memory is not None:
                    self._curve.add(clock_ns, {series.MEMORY: memory}, {})
                self._curve.close()
        with FAULTS.kept_in("observer, GPUs"):
            self._tree.close()
        return seen

    def summary(self) -> dict[str, Number]:
        """Returns the highest value of each level of the curve and the last of each total, by name.

        The single processes are left out.
        """
        found = self._curve.summary() if self._curve is not None else {}
        return {name: value for name, value in found.items() if not name.startswith(series.PROCESS)}

    def _sample(self) -> None:
        reading = self._tree.read()
        if reading is None:
            return
        if reading.clock_ns - self._looked_ns >= _LOOK_NS:
            self._looked_ns = reading.clock_ns
            self._largest.look(reading.processes)
            self._surroundings.look(self._pid, reading.processes)
            self._cache = cache_growth(self._folder)
        else:
            self._largest.meet(reading.processes)
        self._note_ends(reading)
        peak = self._peak_between(reading)
        self._recent.append(reading)
        while reading.clock_ns - self._recent[0].clock_ns > _LOOK_NS:
            self._recent.popleft()
        if self._curve is not None:
            with FAULTS.kept_in("observer, file"):
                if peak is not None:
                    self._curve.add(reading.clock_ns, {series.MEMORY: peak}, {})
                self._curve.add(reading.clock_ns, self._levels(reading), _totals(reading))

    def _peak_between(self, reading: TreeReading) -> int | None:
        """Returns what a program without children has held between this reading and the last."""
        mark = reading.high_water or 0
        has_risen = mark > max(self._highest_mark, reading.memory)
        is_alone = len(reading.processes) == 1 and self._highest_mark > 0
        self._highest_mark = max(self._highest_mark, mark)
        return mark if has_risen and is_alone else None

    def _note_ends(self, reading: TreeReading) -> None:
        for pid in reading.zombies:
            if pid not in self._signals and (number := signal_of(pid)) is not None:
                self._signals[pid] = number
        if not self._recent:
            return
        before = self._recent[-1]
        least = before.memory * SMALLEST_SHARE
        for pid in before.processes.keys() - reading.processes.keys():
            if before.processes[pid] >= least or pid == self._pid:
                self._note_last(pid)

    def _note_last(self, pid: int) -> None:
        """Notes the newest reading as the last in which a process was alive."""
        last = self._recent[-1]
        self._last_seen.pop(pid, None)  # the id may have been used before
        self._last_seen[pid] = LastSeen(
            time.time_ns() - (time.monotonic_ns() - last.clock_ns),
            last.memory,
            max(reading.memory for reading in self._recent),
            self._largest.named(last.processes),
        )
        while len(self._last_seen) > _MOST_REMEMBERED:
            del self._last_seen[next(iter(self._last_seen))]

    def _levels(self, reading: TreeReading) -> dict[str, Number]:
        levels: dict[str, Number] = {series.MEMORY: reading.memory}
        for name, rss in self._largest.series(reading.processes).items():
            levels[series.PROCESS + name] = rss
        if self._cache is not None:
            levels[series.CACHE] = self._cache
        for gpu in reading.gpus:
            levels[series.gpu_used(gpu.index)] = gpu.used
            if gpu.process_used is not None:
                levels[series.gpu_process_used(gpu.index)] = gpu.process_used
        return levels

    def _observation(self, seen: Observation, mark: int) -> Observation:
        kills = self._surroundings.oom_kills()
        last = self._recent[-1] if self._recent else None
        if last is not None:
            for pid in last.processes:
                self._note_last(pid)
        return dataclasses.replace(
            seen,
            last_seen=self._last_seen,
            mark=mark if mark > max(self._mark_before, self._highest_mark) else None,
            limits=self._surroundings.limits,
            address_space=self._surroundings.address_space,
            available=self._surroundings.available,
            oom_kills=kills[0] if kills is not None else None,
            oom_counter=str(kills[1]) if kills is not None else None,
            signals=self._signals,
            last_words_ns=last_words_ns(self._folder),
            gpus=last.gpus if last is not None else (),
            written=last.disk.write if last is not None and last.disk is not None else None,
        )


def _bytes(max_rss: int) -> int:
    return max_rss * (1 if sys.platform == "darwin" else 1024)


def _totals(reading: TreeReading) -> dict[str, Number]:
    totals: dict[str, Number] = {}
    if reading.disk is not None:
        totals[series.DISK_READ] = reading.disk.read
        totals[series.DISK_WRITE] = reading.disk.write
    if reading.cpu is not None:
        totals[series.CPU] = round(reading.cpu.user + reading.cpu.system, 3)
        if reading.cpu.wait is not None:
            totals[series.CPU_WAIT] = round(reading.cpu.wait, 3)
    if reading.waits is not None:
        totals[series.CPU_WAITS] = round(reading.waits, 3)
    return totals
