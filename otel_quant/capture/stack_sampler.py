"""Sees which Python lines the steps are at, and between them the program, on the sampler's thread.

A sample is booked whole to the line that is seen: the time since the last one, on a processor or not by the
thread's own counters, and what the process's memory has grown by. While a C function holds the GIL no sample
can be taken; the next one, when it returns, counts for all of that time, and sees its line.
"""

from __future__ import annotations

import math
import os
import re
import sys
import sysconfig
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, TypeAlias

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.kernel_files import forget, read_kept
from otel_quant.capture.gpu_calls import kind_at
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.diagnosis.bounds import Evidence, bound_of
from otel_quant.diagnosis.gpus import GpusOfStep
from otel_quant.diagnosis.growth import Growth
from otel_quant.diagnosis.spots import EVENTS, spot_of
from otel_quant.diagnosis.stack_trees import Stacks, top_lines
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import (
    AFTER,
    BEFORE,
    BETWEEN,
    DEEPEST,
    OUTSIDE,
    Amounts,
    Place,
    Spot,
)  # fmt: skip
from otel_quant.schema.events import encodable
from otel_quant.schema.readings import AttributeValue, Reading, RunInfo
from otel_quant.schema.settings import Settings
from otel_quant.schema.units import duration_text

STACKS_SHARE: Final = 0.001
"""Part of one core that the stacks may take beside the readings."""

_MOST_PLACES: Final = 20_000
"""Positions in code whose lines are remembered: to find out a line takes as long as all else of a frame."""

_Use: TypeAlias = tuple[int, int, int]
"""What a thread has run and waited for a processor, in ns, and how often it has got one."""

_NOT_RUN: Final = 0, 0, 0

_BUSY: Final = 0.05
"""Share of a processor, or of a GPU, above which a thread is not blocked, or a program does something."""

_FLOWS: Final = 1_000_000
"""Bytes a second, read from disks and written, above which it does something."""

_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_STANDARD: Final = tuple(
    sysconfig.get_path(name) + os.sep
    for name in ("stdlib", "platstdlib")
    if sysconfig.get_path(name)
)
_INSTALLED: Final = re.compile(r".*[/\\](?:site|dist)-packages[/\\](.*)", re.DOTALL)


@dataclass(slots=True)
class _Beside:
    """What samples show of a step beside its stacks."""

    growth: Growth = field(default_factory=Growth)  # Memory, by calibration samples
    gpus: GpusOfStep = field(default_factory=GpusOfStep)


class _Still(NamedTuple):
    """A line that a step has not left since then, while its thread was blocked."""

    line: Place
    since_ns: int  # Monotonic clock
    cpu: float = math.nan  # CPU time of the process tree then, in seconds
    disk: int = 0  # Bytes that it had read from disks and written until then


class _SinceLast(NamedTuple):
    """What lies between two samples. 0 stands for unknown."""

    last_ns: int  # Monotonic clock
    now_ns: int
    rss_before: int  # bytes
    rss: int

    def after(self, reading: Reading | None) -> _SinceLast:
        """Returns the part since a reading at which a step has begun or ended, if that was in between."""
        if reading is None or reading.clock_ns <= self.last_ns:
            return self
        memory = reading.memory
        before = memory.rss if memory is not None else self.rss_before
        return _SinceLast(reading.clock_ns, self.now_ns, before, self.rss)

    def amounts(self, ran: int, waited: int, is_busiest: bool) -> Amounts:
        """Returns what is booked to the line of a thread: it alone takes memory if it is the busiest."""
        time = max(0, self.now_ns - (self.last_ns or self.now_ns))
        # Of a new thread with the identifier of one that ended, it is less than 0.
        ran = min(max(0, ran), time)
        waited = min(max(0, waited), time - ran)
        grown = self.rss - self.rss_before if is_busiest and self.rss and self.rss_before else 0
        return Amounts(time, ran, waited, max(0, grown), max(0, -grown))


class StackSampler:
    """Adds the stacks of the threads that have an open step, or of all Python threads.

    Where no step is open, all of the time is that of one thread: the main one, unless another works while it waits.
    """

    def __init__(
        self, *, names_paths: bool, of_every_thread: bool = False, began_ns: int = 0
    ) -> None:
        self.stacks = Stacks()
        self.newest: Mapping[int, Spot] = {}  # By the step's index: where it was at the last sample
        self._still: dict[int, _Still] = {}  # Likewise
        self._names_paths = names_paths
        self._of_every_thread = of_every_thread
        # By id of the code and position in it
        self._places: dict[tuple[int, int], tuple[CodeType, Place | None]] = {}
        self._last_ns = began_ns
        self._last_rss = 0
        self._opened = 0  # How many steps had been opened at the last sample
        # Open steps by index, with the names around them
        self._seen: dict[int, tuple[str, ...]] = {}
        self._beside: dict[int, _Beside] = {}  # Of open steps, by index
        self._schedstats: dict[int | None, str] = {}  # Of each thread, the kernel's file
        self._threads: dict[int, _Use] = {}  # Of each thread, since it began
        self._stacks: dict[int, list[Place]] = {}  # Of each thread, at the last sample
        self._uses_gpu = False  # Whether the program has had memory on one
        self._calls: dict[int, str] = {}  # Of each thread, what kind of call it was in then

    def take(
        self,
        steps: Mapping[int, OpenStep],  # The open ones, by index
        reading: Reading,  # Just before
        opened: int = 0,  # How many were opened so far
        ended: Reading | None = None,  # When one of them ended last
    ) -> None:
        """Takes a sample."""
        rss = reading.memory.rss if reading.memory is not None else 0
        since = _SinceLast(self._last_ns, reading.clock_ns, self._last_rss, rss)
        self._last_ns, self._last_rss = since.now_ns, rss
        for index in self._seen.keys() - steps.keys():
            self.stacks.settle(index, self._seen.pop(index))
        if opened > self._opened:
            self._opened = opened
            self.stacks.move(AFTER, BETWEEN)  # there is another step
        # A thread is in the innermost of its steps, which was opened last.
        innermost = {step.info.thread: step for step in steps.values()}
        for step in innermost.values():
            self._add_beside(step, reading)
        self.newest = newest = {}
        self._still = {index: self._still[index] for index in steps if index in self._still}
        self._uses_gpu = self._uses_gpu or any(gpu.own for gpu in reading.gpus)
        busiest, used = self._look(innermost, (since.now_ns - since.last_ns) / 2)
        for thread, lines in self._stacks.items():
            if not lines:
                continue
            index, own, (ran, waited, _) = OUTSIDE, since, used.get(thread, _NOT_RUN)
            if not steps and thread == busiest:
                index, own = AFTER if opened else BEFORE, since.after(ended)
            if thread in innermost:
                step = innermost[thread]
                index = step.info.index
                newest[index] = spot = spot_of(lines)
                self._note_still(index, spot, ran, since)
                if index not in self._seen:
                    self._seen[index] = tuple(each.info.label for each in step.outwards())
                if step.start.clock_ns > since.last_ns:
                    own = since.after(step.start)
                    ran = self._threads.get(thread, _NOT_RUN)[0] - step.thread_ns
            seen = own.amounts(ran, waited, thread == busiest)
            self.stacks.add(index, lines, seen)
            if (kind := self._calls.get(thread)) and index in self._beside:
                self._beside[index].gpus.add_call(kind, seen.time)

    def _note_still(self, index: int, spot: Spot, ran: int, since: _SinceLast) -> None:
        known, line = self._still.get(index), spot.own or spot.leaf
        is_busy = ran > _BUSY * (since.now_ns - since.last_ns) or spot.waits_for == EVENTS
        if known is None or is_busy or line != known.line:
            self._still[index] = _Still(line, since.now_ns)

    def still(self, reading: Reading) -> dict[int, float]:
        """Returns for how many seconds steps are at one line, by index, while nothing of the program has run."""
        found, cpu, disk = {}, reading.resources.get("cpu"), reading.resources.get("disk")
        used = sum(cpu[:2]) if cpu is not None else math.nan
        moved = sum(disk[:2]) if disk is not None else 0
        is_computing = any(gpu.work and gpu.own and gpu.work.busy > _BUSY for gpu in reading.gpus)
        for index, known in self._still.items():
            if math.isnan(known.cpu) or is_computing:
                self._still[index] = known._replace(since_ns=reading.clock_ns, cpu=used, disk=moved)
                continue
            seconds = (reading.clock_ns - known.since_ns) / 1e9
            if used - known.cpu <= _BUSY * seconds and moved - known.disk <= _FLOWS * seconds:
                found[index] = seconds
        return found

    def _look(
        self, innermost: Mapping[int, OpenStep], most_ns: float
    ) -> tuple[int, Mapping[int, _Use]]:
        """Notes the stacks of the threads that count; returns which has taken the memory, and what each has used."""
        frames: dict[int, FrameType] = {}
        threads: Collection[int] = innermost.keys()
        if self._of_every_thread or not innermost:
            frames = sys._current_frames()
            threads = frames.keys() - {threading.get_ident()}
        used = self._used(threads)
        # Memory is of the process: of several threads, the one that has run most has taken it.
        busiest = max(innermost or threads, key=lambda each: used.get(each, _NOT_RUN), default=0)
        if not innermost:
            # The main thread, unless it was blocked while another worked for most of the time.
            main = threading.main_thread().ident or busiest
            worked, of_main = (sum(used.get(each, _NOT_RUN)[:2]) for each in (busiest, main))
            busiest = busiest if worked > most_ns > of_main else main
            threads = threads if self._of_every_thread else (busiest,)
        self._stacks = self._stacks_of(threads, used, frames)
        return busiest, used

    def bound_of(
        self, step: OpenStep, seconds: float, figures: Mapping[str, Any], run: RunInfo
    ) -> tuple[dict[str, AttributeValue], dict[str, Any] | None]:
        """Returns what bounds a step that ends, and its top lines; nothing if little was seen of it."""
        index, cpus = step.info.index, run.origin.get(semconv.CPU_LIMIT)
        beside, root = self._beside.pop(index, _Beside()), self.stacks.steps.get(index)
        if root is None:
            return {}, None
        with FAULTS.kept_in("what bounds a step"):
            evidence = Evidence(root, seconds, figures, limit=run.limits.memory or math.nan)
            if step.info.library and step.info.function:
                evidence.function = step.info.function
            if isinstance(cpus, int | float):
                evidence.cpus = cpus
            stalled, where = step.stall
            evidence.stall = stalled, f"no progress for {duration_text(stalled)}{where}"
            if (grows := beside.growth.line()) is not None:
                evidence.per_sample = grows.per_sample
            evidence.gpus = beside.gpus.evidence(evidence.total.time)
            if (bound := bound_of(evidence)) is not None:
                named = (semconv.STEP_BOUND_BY, semconv.STEP_BOUND_EVIDENCE)
                return dict(zip(named, bound, strict=True)), top_lines(evidence.by_line)
        return {}, None

    def _stacks_of(
        self, threads: Collection[int], used: Mapping[int, _Use], frames: dict[int, FrameType]
    ) -> dict[int, list[Place]]:
        """Returns the lines of each thread's stack."""
        stacks = {}
        for thread in threads:
            # One that has not run since has the stack that it had: to ask for frames is half the cost.
            if used.get(thread) == _NOT_RUN and thread in self._stacks:
                stacks[thread] = self._stacks[thread]
            else:
                frames = frames or sys._current_frames()
                stacks[thread] = self._lines(frame := frames.get(thread))
                if self._uses_gpu and frame is not None:
                    self._calls[thread] = kind_at(frame)
        frames.clear()  # a frame that is held keeps the program's objects alive
        return stacks

    def _add_beside(self, step: OpenStep, reading: Reading) -> None:
        """Adds the memory at a calibration sample, and how busy the GPUs are that the program has memory on."""
        samples = step.counts.samples
        if not reading.gpus and not samples:
            return
        beside = self._beside.setdefault(step.info.index, _Beside())
        beside.gpus.add(reading.gpus)
        if samples and reading.memory is not None:
            beside.growth.add(samples, reading.memory.tree_rss)

    def _used(self, threads: Collection[int]) -> dict[int, _Use]:
        """Returns how long threads have run, and waited for a processor, since the last sample, and their turns."""
        before, self._threads, used = self._threads, {}, {}
        if not self._schedstats.keys() >= set(threads):
            ended = {*self._schedstats.values()}
            self._schedstats = {
                each.ident: f"/proc/self/task/{each.native_id}/schedstat"
                for each in threading.enumerate()
            }
            for path in ended.difference(self._schedstats.values()):
                forget(path)
        for thread in threads:
            try:
                ran, waited, turns = read_kept(self._schedstats[thread]).split()
            except (KeyError, OSError, ValueError):
                self._schedstats.pop(thread, None)  # not this system, or the thread has ended
                continue
            if turns == b"0":
                continue
            now = self._threads[thread] = int(ran), int(waited), int(turns)
            if (then := before.get(thread)) is not None:
                used[thread] = now[0] - then[0], now[1] - then[1], now[2] - then[2]
        return used

    def _lines(self, frame: FrameType | None) -> list[Place]:
        """Returns the lines of a stack, outermost first, without ours."""
        lines: list[Place] = []
        while frame is not None and len(lines) < DEEPEST:
            code = frame.f_code
            known = self._places.get((id(code), frame.f_lasti))
            if known is None:
                if len(self._places) >= _MOST_PLACES:
                    self._places.clear()
                # The code itself is kept too, so that no other gets its id.
                known = code, self._place_of(code, frame.f_lineno or 0)
                self._places[id(code), frame.f_lasti] = known
            if known[1] is not None:
                lines.append(known[1])
            frame = frame.f_back
        lines.reverse()
        return lines

    def _place_of(self, code: CodeType, line: int) -> Place | None:
        """Returns a line of code; None for ours."""
        file, library = code.co_filename, ""
        if file.startswith(_OURS):
            return None
        if (installed := _INSTALLED.fullmatch(file)) is not None:
            file = installed[1].replace(os.sep, "/")
            library = file.partition("/")[0].removesuffix(".py")
        elif file.startswith((*_STANDARD, "<frozen ")):
            library = "python"
            for folder in _STANDARD:
                file = file.removeprefix(folder)
        elif not self._names_paths:
            file = Path(file).name
        # Neither a file of a recording nor OTLP takes half of a surrogate pair, as in a name that is no UTF-8.
        return Place(encodable(file), encodable(code.co_qualname), line, library)


def sampler_for(settings: Settings, began_ns: int = 0) -> StackSampler | None:
    """Returns what takes the stacks that are asked for, from a moment on; None if none are."""
    if settings.stacks == "false":
        return None
    every = settings.stacks == "all"
    return StackSampler(names_paths=settings.paths, of_every_thread=every, began_ns=began_ns)
