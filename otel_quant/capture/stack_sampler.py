"""Sees which Python lines the steps are at, on the sampler's thread.

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
from otel_quant.diagnosis.stack_trees import Stacks, top_lines
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import DEEPEST, OUTSIDE, Amounts, Place
from otel_quant.schema.events import encodable
from otel_quant.schema.readings import AttributeValue, Reading, RunInfo

STACKS_SHARE: Final = 0.001
"""Part of one core that the stacks may take beside the readings."""

_MOST_PLACES: Final = 20_000
"""Positions in code whose lines are remembered: to find out a line takes as long as all else of a frame."""

_Use: TypeAlias = tuple[int, int, int]
"""What a thread has run and waited for a processor, in ns, and how often it has got one."""

_NOT_RUN: Final = 0, 0, 0

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


class _SinceLast(NamedTuple):
    """What lies between two samples. 0 stands for unknown."""

    last_ns: int  # Monotonic clock
    now_ns: int
    rss_before: int  # bytes
    rss: int

    def from_start_of(self, step: OpenStep) -> _SinceLast:
        """Returns the part since a step has begun."""
        memory = step.start.memory
        before = memory.rss if memory is not None else self.rss_before
        return _SinceLast(step.start.clock_ns, self.now_ns, before, self.rss)

    def amounts(self, ran: int, waited: int, is_busiest: bool) -> Amounts:
        """Returns what is booked to the line of a thread: it alone takes memory if it is the busiest."""
        time = max(0, self.now_ns - (self.last_ns or self.now_ns))
        # Of a new thread with the identifier of one that ended, it is less than 0.
        ran = min(max(0, ran), time)
        waited = min(max(0, waited), time - ran)
        grown = self.rss - self.rss_before if is_busiest and self.rss and self.rss_before else 0
        return Amounts(time, ran, waited, max(0, grown), max(0, -grown))


class StackSampler:
    """Adds the stacks of the threads that have an open step, or of all Python threads."""

    def __init__(self, *, names_paths: bool, of_every_thread: bool = False) -> None:
        self.stacks = Stacks()
        self.newest: Mapping[int, Place] = {}  # By the step's index: its line at the last sample
        self._names_paths = names_paths
        self._of_every_thread = of_every_thread
        # By id of the code and position in it
        self._places: dict[tuple[int, int], tuple[CodeType, Place | None]] = {}
        self._last_ns = 0
        self._last_rss = 0
        # Open steps by index, with the names around them
        self._seen: dict[int, tuple[str, ...]] = {}
        self._beside: dict[int, _Beside] = {}  # Of open steps, by index
        self._schedstats: dict[int | None, str] = {}  # Of each thread, the kernel's file
        self._threads: dict[int, _Use] = {}  # Of each thread, since it began
        self._stacks: dict[int, list[Place]] = {}  # Of each thread, at the last sample
        self._uses_gpu = False  # Whether the program has had memory on one
        self._calls: dict[int, str] = {}  # Of each thread, what kind of call it was in then

    def take(self, steps: Mapping[int, OpenStep], reading: Reading) -> None:
        """Takes a sample of the open steps, by index; `reading` was read just before."""
        rss = reading.memory.rss if reading.memory is not None else 0
        since = _SinceLast(self._last_ns, reading.clock_ns, self._last_rss, rss)
        self._last_ns, self._last_rss = since.now_ns, rss
        for index in self._seen.keys() - steps.keys():
            self.stacks.settle(index, self._seen.pop(index))
        # A thread is in the innermost of its steps, which was opened last.
        innermost = {step.info.thread: step for step in steps.values()}
        for step in innermost.values():
            self._add_beside(step, reading)
        self.newest = newest = {}
        frames: dict[int, FrameType] = {}
        threads: Collection[int] = innermost.keys()
        if self._of_every_thread:
            frames = sys._current_frames()
            threads = frames.keys() - {threading.get_ident()}
        if not threads:
            return
        self._uses_gpu = self._uses_gpu or any(gpu.own for gpu in reading.gpus)
        used = self._used(threads)
        self._stacks = self._stacks_of(threads, used, frames)
        # Memory is of the process: of several threads, the one that has run most has taken it.
        busiest = max(innermost or threads, key=lambda each: used.get(each, _NOT_RUN))
        for thread, lines in self._stacks.items():
            if not lines:
                continue
            index, own, (ran, waited, _) = OUTSIDE, since, used.get(thread, _NOT_RUN)
            if thread in innermost:
                step = innermost[thread]
                index = step.info.index
                newest[index] = lines[-1]
                if index not in self._seen:
                    self._seen[index] = tuple(each.info.label for each in step.outwards())
                if step.start.clock_ns > since.last_ns:
                    own = since.from_start_of(step)
                    ran = self._threads.get(thread, _NOT_RUN)[0] - step.thread_ns
            seen = own.amounts(ran, waited, thread == busiest)
            self.stacks.add(index, lines, seen)
            if (kind := self._calls.get(thread)) and index in self._beside:
                self._beside[index].gpus.add_call(kind, seen.time)

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
        beside.gpus.add(reading.gpus, samples)
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
