"""Sees which Python lines the steps are at, and between them the program, on the sampler's thread.

A sample is booked whole to the line that is seen: the time since the last one, on a processor or not by the
thread's own counters, and what the process's memory has grown by. While a C function holds the GIL no sample
can be taken; the next one, when it returns, counts for all of that time, and sees its line.
"""

from __future__ import annotations

import math
import opcode
import os
import re
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress
from itertools import islice
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, NamedTuple, TypeAlias

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.kernel_files import forget, read_kept
from otel_quant.capture.garbage import COLLECTIONS
from otel_quant.capture.gil import GilWaits, current_frames, within_and_pread
from otel_quant.capture.instructions import before, holder_in, kind_at, lock_at
from otel_quant.capture.instruments import HELD, MISSED
from otel_quant.capture.other_tasks import OtherTasks, carried_by_connections
from otel_quant.capture.peak_lines import PeakLines
from otel_quant.capture.probes.memory import Taken, resident, taken_now
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.diagnosis.bounds import Evidence, bound_of
from otel_quant.diagnosis.gpus import GpusOfStep
from otel_quant.diagnosis.growth import Growth
from otel_quant.diagnosis.spots import (
    CHILD,
    EVENTS,
    FOR_THREADS,
    FUTEX,
    LOCK,
    NETWORK,
    PIPE,
    SLEEP,
    kernel_waits_for,
    spot_of,
)
from otel_quant.diagnosis.stack_trees import Stacks, top_lines
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import (
    AFTER,
    BEFORE,
    BETWEEN,
    DEEPEST,
    NOTHING,
    OUTSIDE,
    RECORDER,
    Amounts,
    Place,
    Spot,
)  # fmt: skip
from otel_quant.schema.dataclass import dataclass, field
from otel_quant.schema.events import encodable
from otel_quant.schema.readings import AttributeValue, Reading, RunInfo
from otel_quant.schema.settings import Settings
from otel_quant.schema.units import duration_text

STACKS_SHARE: Final = 0.001
"""Part of one core that the stacks may take beside the readings."""

_MOST_PLACES: Final = 20_000
"""Positions in code whose lines are remembered: to find out a line takes as long as all else of a frame."""

_Use: TypeAlias = tuple[int, int]
"""What a thread has run and waited for a processor, in ns."""

_Uses: TypeAlias = Mapping[int, _Use]
_NOT_RUN: Final = 0, 0

_MOVES: Final = 1 << 20
"""Bytes by which memory rises or falls from which on all Python threads are looked at, for who has taken it."""

_ALONE: Final = 0.8  # Share of the page faults from which on they are one thread's

_TAKE_NOTHING: Final = (SLEEP, PIPE, CHILD, FUTEX, *FOR_THREADS)
"""Waits in which a thread takes no memory, or little: what is read from a network or a disk may be much."""

_FAR: Final = 3000  # Milliseconds from which on a loop's next timer hardly ends its wait

_SOON: Final = 200_000_000  # Nanoseconds after which what a step was doing at its end is not known

_LOCKS: Final = ("threading.py", "queue.py", "concurrent/futures/")

_WATCHED: Final = 5
"""Samples for which they are from then on, and from the start of a step: a thread's part is known from two in a row."""

_MOST_WATCHED: Final = 32  # Threads beyond which they are not
_RARELY: Final = 4  # Samples between two looks at who waits for the GIL, while a thread sleeps
_RESUME: Final = opcode.opmap["RESUME"]
_ENDS: Final = {at for name, at in opcode.opmap.items() if "JUMP_BACKWARD" in name}
"""What a function begins with, and what each pass of a loop ends with. CPython hands over there, which do nothing themselves."""

_WALKED: Final = 4000  # Frames that are looked at: of recursion more than are kept
_DEEP: Final = 64
_PERIODS: Final = (2, 3, 4)
"""Frames from which on functions that call each other in turns are folded, and how many of them."""

_BUSY: Final = 0.05
"""Share of a processor, or of a GPU, above which a thread is not blocked, or a program does something."""

_FLOWS: Final = 1_000_000
"""Bytes a second, read from disks and written, above which it does something."""

_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_FOR_US: Final = {"_find_and_load", "join"}
"""Functions that we call for ourselves alone: to import, and to wait for a thread of ours."""

_BOUNDARY: Final = FAULTS.kept_in("").around(print).__code__  # All that it calls is our work

_STANDARD: Final = tuple(
    path + os.sep for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))
)
_REMOTE: Final = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_INSTALLED: Final = re.compile(r".*[/\\](?:site|dist)-packages[/\\](.*)", re.DOTALL)


@dataclass(slots=True)
class _Beside:
    """What samples show of a step beside its stacks."""

    growth: Growth = field(default_factory=Growth)  # Memory, by calibration samples
    calls: Growth = field(default_factory=Growth)  # CPU time of its data reader, likewise
    gpus: GpusOfStep = field(default_factory=GpusOfStep)
    gil_ns: int = 0  # For which it waited for the GIL, or the threads that it waits for did
    waits: Counter[str] = field(default_factory=Counter)  # Nanoseconds in C code, by what for
    holders: Counter[str] = field(default_factory=Counter)  # Where the lock's thread was at looks
    # Nanoseconds of a loop's wait so far, and the clock when its timer may end it
    timer: tuple[int, int] = 0, 0
    # Bytes that connections had carried at a loop's first wait, and at most
    carried: tuple[int, int] | None = None


class _Still(NamedTuple):
    """A line that a step has not left since then, while its thread was blocked."""

    line: Place
    since_ns: int  # Monotonic clock
    cpu: float = math.nan  # CPU time of the process tree then, in seconds
    disk: int = 0  # Bytes that it had read from disks and written until then


class _Position(NamedTuple):
    """What is known of a position in code, or of what was done before it."""

    code: CodeType  # Kept, so that no other gets its id
    lines: Sequence[Place]  # Innermost first: none of ours, and of a function that has not begun
    name: str = ""  # Of the function that begins there, or is called


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

    def amounts(self, ran: int, waited: int, *, is_taker: bool) -> Amounts:
        """Returns what is booked to the line of a thread: it alone has the memory if it has taken it."""
        time = max(0, self.now_ns - (self.last_ns or self.now_ns))
        # Of a new thread with the identifier of one that ended, it is less than 0.
        ran = min(max(0, ran), time)
        waited = min(max(0, waited), time - ran)
        grown = self.rss - self.rss_before if is_taker and self.rss and self.rss_before else 0
        return Amounts(time, ran, waited, max(0, grown), max(0, -grown))


class StackSampler:
    """Adds the stacks of the threads that have an open step, or of all Python threads.

    Where no step is open, all of the time is that of one thread: the main one, unless another works while it waits.
    """

    def __init__(
        self, *, names_paths: bool, of_every_thread: bool = False, began_ns: int = 0
    ) -> None:
        self.stacks = Stacks()
        self.newest: dict[int, Spot] = {}  # By the step's index: where it was at the last sample
        self._still: dict[int, _Still] = {}  # Likewise
        self._names_paths = names_paths
        self._of_every_thread = of_every_thread
        # By id of the code and position; with its complement what was done before it
        self._positions: dict[tuple[int, int], _Position] = {}
        self.began_ns = self._last_ns = began_ns
        self._last_rss = 0
        self._opened = 0  # How many steps had been opened at the last sample
        # Open steps by index, with the names around them
        self._seen: dict[int, tuple[str, ...]] = {}
        self._beside: dict[int, _Beside] = {}  # Of open steps, by index
        self._schedstats: dict[int, str] = {}  # Of each thread, the kernel's file
        self._threads: dict[int, _Use] = {}  # Of each thread, since it began
        self._stacks: dict[int, list[Place]] = {}  # Of each thread, at the last sample
        self._counted: Set[int] = frozenset()  # The threads with a step then, or those looked at
        # Their stacks, and the memory, just before a sample
        self._ahead: dict[int, list[Place]] = {}
        self._rss_ahead = 0
        self._uses_gpu = False  # Whether the program has had memory on one
        self._calls: dict[int, str] = {}  # Of each thread, what kind of call it was in then
        self._locks: dict[int, str] = {}  # Likewise the name of the lock that it waited for
        # Steps that have ended since the last sample, or before that, and have all of their time
        self._rested, self._over = set[int](), set[int]()
        self._in_ours: set[int] = set()  # The threads that were in our code when they were seen
        self._gil = GilWaits()
        # Threads with a step that may have been blocked for the GIL, and whether for others
        self._blocked: dict[int, bool] = {}
        self._in_line: dict[int, Collection[int]] = {}  # By these, who waited for it
        self._samples = 0
        # By file and function of the program: it and what it had called when memory had grown
        self._takers: dict[tuple[str, str], list[Place]] = {}
        # Bytes by which it had grown where a step's thread slept, while nothing of that is known
        self._slept: Counter[tuple[int, int, tuple[Place, ...]]] = Counter()
        self._peaks = PeakLines()
        self._others = OtherTasks()
        self._watched = 0  # For how many samples all threads are looked at
        # Whether they were at the last one, or the process began then
        self._knows_all = began_ns > 0
        COLLECTIONS.watch(self._lines)

    def look_at_gil(self) -> None:
        """Notes which threads wait for the GIL. To read files wakes them, so it comes first."""
        if self._blocked and len(self._schedstats) != threading.active_count():
            self._note_threads()
        for thread, for_threads in self._blocked.items():
            found = self._gil.waiting(self._schedstats, thread, for_threads=for_threads)
            self._in_line[thread] = found
        self._blocked.clear()

    def _has_run(self) -> bool:
        """Returns whether a thread that counts may have run since the last sample, without giving the GIL away."""
        _, pread = within_and_pread()
        try:
            return pread is None or any(
                int(read_kept(self._schedstats[each], pread=pread).split()[0])
                != self._threads[each][0]
                for each in self._counted
            )
        except (KeyError, OSError, ValueError):
            return True

    def has_moved(self) -> bool:
        """Returns whether memory has risen or fallen since the last sample, without giving the GIL away."""
        _, pread = within_and_pread()
        with suppress(OSError):
            self._rss_ahead = 0 if pread is None else resident(pread=pread)
        return self._rss_ahead > 0 and abs(self._rss_ahead - self._last_rss) >= _MOVES

    def look_ahead(self, see_anywhere: Callable[[], None]) -> None:
        """Notes the memory, and where the threads that count are, before the sample is taken: to read files gives the GIL away."""
        if not self._has_run():
            return
        # Else it would leave the line that did that; in our code it has left that already.
        if not self.has_moved() or self._see_ahead():
            see_anywhere()
            self.has_moved()
            self._see_ahead()

    def _see_ahead(self) -> bool:
        """Notes where the threads that count are; returns whether one is in our code."""
        frames = current_frames()
        known = self._counted & frames.keys()
        self._ahead = {thread: self._seen_at(thread, frames[thread]) for thread in known}
        frames.clear()  # our own is among them, and keeps this function's variables
        return not self._in_ours.isdisjoint(known)

    def take(
        self,
        steps: Mapping[int, OpenStep],  # The open ones, by index
        reading: Reading,  # Just before
        opened: int = 0,  # How many were opened so far
        ended: Reading | None = None,  # When one of them ended last
    ) -> None:
        """Takes a sample."""
        self._samples += 1
        rss = self._rss_ahead or (reading.memory.rss if reading.memory is not None else 0)
        since = _SinceLast(self._last_ns, reading.clock_ns, self._last_rss, rss)
        self._last_ns, self._last_rss, self._rss_ahead = since.now_ns, rss, 0
        self._settle(steps, opened)
        # A thread is in the innermost of its steps, which was opened last.
        innermost = {step.info.thread: step for step in steps.values()}
        for step in innermost.values():
            self._add_beside(step, reading)
        self.newest = {}
        self._still = {index: self._still[index] for index in steps if index in self._still}
        self._uses_gpu = self._uses_gpu or any(gpu.own for gpu in reading.gpus)
        has_begun = not steps.keys() <= self._seen.keys()
        if has_begun or abs(since.rss - since.rss_before) >= _MOVES:
            self._watched = _WATCHED
        ahead, self._ahead = {} if has_begun else self._ahead, {}  # one that has begun was not seen
        busiest, used = self._look(innermost, since.now_ns - since.last_ns, ahead)
        # In our code it has left the line that took the memory.
        lines = () if busiest in self._in_ours else self._stacks.get(busiest or 0, ())
        self._peaks.add(steps, reading.memory, lines)
        if steps and self._others.is_due(since.now_ns, has_begun=has_begun):
            self._look_beside(steps, reading)
        self._over, self._rested = self._rested, set()  # they have ended meanwhile
        for thread, lines in self._stacks.items():
            use, takes = used.get(thread, _NOT_RUN), thread == busiest
            if not lines:
                continue
            if thread in innermost:
                self._add_of_step(innermost[thread], lines, used, since, takes)
            elif takes and not steps:
                seen = since.after(ended).amounts(*use, is_taker=True)
                self.stacks.add(AFTER if opened else BEFORE, lines, seen)
            else:
                self._add_without_step(innermost, lines, use, since, takes)

    def _add_of_step(
        self, step: OpenStep, lines: list[Place], used: _Uses, since: _SinceLast, takes: bool
    ) -> None:
        """Adds what a thread with a step has done."""
        index, thread, own = step.info.index, step.info.thread, since
        if index in self._over:
            return
        ran, waited = used.get(thread, _NOT_RUN)
        self.newest[index] = spot = spot_of(lines)
        self._note_still(index, spot, ran, since)
        if index not in self._seen:
            self._seen[index] = tuple(each.info.label for each in step.outwards())
        if step.start.clock_ns > since.last_ns:
            own = since.after(step.start)
            ran = self._threads.get(thread, _NOT_RUN)[0] - step.thread_ns
        seen = own.amounts(ran, waited, is_taker=takes)
        blocked = seen.time - seen.cpu - seen.waiting
        beside = self._beside.setdefault(index, _Beside())
        if self._uses_gpu and (kind := self._calls.get(thread)):
            beside.gpus.add_call(kind, seen.time)
        if 4 * blocked > seen.time:
            for_threads = spot.waits_for in FOR_THREADS or bool(self._locks.get(thread))
            if ran or (for_threads and not self._samples % _RARELY):
                self._blocked[thread] = for_threads
            if not (for_threads and thread in self._in_line.get(thread, ())):
                beside.gil_ns += self._waited_for_gil(thread, seen, used)
            if not spot.waits_for or self._locks.get(thread):
                beside.waits[what := self._waits_for(thread)] += blocked
                self.newest[index] = spot._replace(waits_for=what if what != SLEEP else "")
            elif spot.waits_for == EVENTS:
                self._note_event(thread, beside, blocked, since, has_run=ran > 0)
        else:
            self._in_line.pop(thread, None)
        if seen.grown:
            self._note_taker(index, lines, seen.grown, spot.waits_for or self._waits_for(thread))
        self.stacks.add(index, lines, seen)

    def _note_taker(self, index: int, lines: list[Place], grown: int, waits_for: str) -> None:
        """Notes the line that takes memory. What is seen in a wait was taken before it: it is moved once that line is known."""
        if waits_for in _TAKE_NOTHING:
            # The line that waits, in a lock or queue of Python's maybe
            above = [at for at, line in enumerate(lines) if not line.file.startswith(_LOCKS)]
            self._slept[index, max(above, default=0), tuple(lines)] += grown
        else:
            owns = (at for at, line in enumerate(lines) if line.is_own)
            self._takers |= {lines[at][:2]: lines[at:] for at in owns}
        for key in [each for each in self._slept if each[2][each[1]][:2] in self._takers]:
            moved, (of, at, slept) = self._slept.pop(key), key
            taker = [*slept[:at], *self._takers[slept[at][:2]]]
            self.stacks.add(of, taker, NOTHING._replace(grown=moved))
            self.stacks.add(of, slept, NOTHING._replace(grown=-moved))

    def _waited_for_gil(self, own: int, seen: Amounts, used: _Uses) -> int:
        """Returns for how long a thread, or two that it waits for, waited for the GIL."""
        known = {**used, own: (seen.cpu, seen.waiting)}
        line = self._in_line.get(own, ())
        blocked = [seen.time - sum(known.get(each, (seen.time, 0))) for each in line]
        return max(0, min(blocked, default=0))

    def add_reader(self, step: OpenStep, reader: object, began: Taken) -> None:
        """Books to a data reader what the calling thread, which has the step, has taken since it called it: samples see other lines."""
        now, code = taken_now(), getattr(getattr(reader, "get_next", None), "__code__", None)
        if now is None or code is None or not self._last_rss:
            return
        _, _, own, every, ran = (after - before for after, before in zip(now, began, strict=True))
        self._beside.setdefault(step.info.index, _Beside()).calls.add(step.counts.samples or 0, ran)
        grown = now[1] - (self._last_rss if self._last_ns > began[0] else began[1])
        place = self._place_of(code, code.co_firstlineno)
        if grown >= _MOVES and own >= _ALONE * every and place is not None:
            within = self._takers.get(place[:2], [place])
            lines = [*self._lines(sys._getframe()), *within]
            self.stacks.add(step.info.index, lines, NOTHING._replace(grown=grown))
            self._last_rss += grown

    def _waits_for(self, thread: int) -> str:
        """Returns what a blocked thread waits for in C code; empty if nobody can tell."""
        if self._calls.get(thread) == SLEEP:
            return SLEEP  # it may be on the way to the kernel's
        if self._locks.get(thread):
            return LOCK
        with suppress(KeyError, OSError):
            path = self._schedstats[thread].replace("schedstat", "wchan")
            what = kernel_waits_for(read_kept(path).decode())
            return what if what != NETWORK or carried_by_connections() is not None else ""
        return ""

    def _note_event(
        self, thread: int, beside: _Beside, blocked: int, since: _SinceLast, *, has_run: bool
    ) -> None:
        """Notes for how long a loop of asyncio has waited for something else than its next timer: that is far, or it went on before.

        The fourth argument of epoll is in how many milliseconds it ends.
        """
        known, ends_ns = beside.timer
        waited = known + blocked if has_run and since.now_ns < ends_ns else 0
        with suppress(KeyError, OSError, IndexError, ValueError):
            path = self._schedstats[thread].replace("schedstat", "syscall")
            timer = int(read_kept(path).split()[4], 16) & 0xFFFFFFFF  # -1 without one
            # After a run it began no sooner than the last sample.
            ends_ns = since.last_ns + 1_000_000 * timer if has_run else ends_ns
            beside.timer = 0 if has_run else known + blocked, ends_ns
            waited = waited if timer <= _FAR else blocked
        if waited:
            carried = carried_by_connections() or 0
            first, most = beside.carried or (carried, carried)
            beside.carried = first, max(most, carried)
            beside.waits[EVENTS] += waited

    def _add_without_step(
        self,
        innermost: Mapping[int, OpenStep],
        lines: list[Place],
        use: _Use,
        since: _SinceLast,
        takes: bool,
    ) -> None:
        """Adds what a thread without a step has done: its memory is the step's, if there is one only."""
        step = next(iter(innermost.values())) if len(innermost) == 1 else None
        own = since if step is None else since.after(step.start)
        grown = own.amounts(0, 0, is_taker=takes)._replace(time=0)
        if grown != NOTHING:
            self.stacks.add(OUTSIDE if step is None else step.info.index, lines, grown)
        if self._of_every_thread:
            self.stacks.add(OUTSIDE, lines, since.amounts(*use, is_taker=False))

    def _settle(self, steps: Mapping[int, OpenStep], opened: int) -> None:
        """Adds up what is over: short steps that have ended, and what came after the last one if there is another."""
        for index in self._seen.keys() - steps.keys():
            self.stacks.settle(index, self._seen.pop(index))
        for over in [key for key in self._slept if key[0] not in steps]:
            del self._slept[over]
        if opened > self._opened:
            self._opened = opened
            self.stacks.move(AFTER, BETWEEN)  # there is another step

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
        self, innermost: Mapping[int, OpenStep], elapsed_ns: int, ahead: dict[int, list[Place]]
    ) -> tuple[int | None, _Uses]:
        """Notes the stacks of the threads that count; returns which has taken the memory, and what each has used."""
        every: Set[int] = frozenset()
        threads: Collection[int] = innermost.keys()
        is_watched, self._watched = self._watched > 0, max(0, self._watched - 1)
        others: Collection[int] = ()
        if self._of_every_thread or is_watched or not innermost:
            every = {
                *current_frames()
            }  # no frames: to read files lets the program go on, whose objects they keep
            others = every - {threading.get_ident()} - innermost.keys()
            if self._of_every_thread or not innermost:
                threads = {*threads, *others}
        knows_all = bool(every) and len(others) <= _MOST_WATCHED
        read = {*threads, *self._gil.rivals, *(others if knows_all else ())}
        used = self._used(read, knows_all=knows_all)
        if innermost:
            busiest = self._taker_of(innermost, others, used, elapsed_ns)
            threads = threads if busiest is None else {*threads, busiest}
        else:
            # The main thread, unless it was blocked while another worked for most of the time.
            first = max(threads, key=lambda each: used.get(each, _NOT_RUN), default=0)
            main = threading.main_thread().ident or first
            worked, of_main = (sum(used.get(each, _NOT_RUN)) for each in (first, main))
            busiest = first if worked > elapsed_ns / 2 > of_main else main
            threads = threads if self._of_every_thread else (busiest,)
        self._stacks = self._stacks_of(threads, used, ahead)
        if not innermost and elapsed_ns > _SOON:  # in our code it tells nothing of what was before
            self._stacks = {each: at for each, at in self._stacks.items() if at != [RECORDER]}
        self._counted = innermost.keys() or self._stacks.keys()
        return busiest, used

    def _taker_of(
        self, innermost: Collection[int], others: Collection[int], used: _Uses, elapsed_ns: int
    ) -> int | None:
        """Returns the thread that has taken the memory: it ran most; None if that may be one that was not read.

        A thread that the module threading does not know has no counter.
        """
        if not others and len(innermost) == 1:
            return next(iter(innermost))
        ran = {each: used.get(each, _NOT_RUN)[0] for each in (*innermost, *others)}
        busiest = max(innermost, key=ran.__getitem__)
        if not used or ran[busiest] > elapsed_ns / 2:
            return busiest
        first = max(ran, key=ran.__getitem__)
        was_ready = sum(used.get(first, _NOT_RUN))  # it ran, or waited for a processor
        is_known = used.keys() >= {*others} or was_ready > elapsed_ns / 2
        return first if is_known else None

    def bound_of(
        self, step: OpenStep, seconds: float, figures: Mapping[str, Any], run: RunInfo
    ) -> tuple[dict[str, AttributeValue], dict[str, Any] | None]:
        """Returns what bounds a step that ends, and its top lines; nothing if little was seen of it."""
        index, cpus = step.info.index, run.origin.get(semconv.CPU_LIMIT)
        beside, root = self._beside.pop(index, _Beside()), self.stacks.steps.get(index)
        self._add_rest(step, round(seconds * 1e9))
        waits, holders = dict(beside.waits), dict(beside.holders)  # a sample may be under way
        file = self._schedstats.get(step.info.thread, "")
        beside_it = self._others.end(index, file, time.perf_counter_ns(), seconds * 1e9)
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
            evidence.calls = beside.calls.line()
            found: dict[str, AttributeValue] = {}
            if (grows := beside.growth.line()) is not None:
                evidence.per_sample = grows.per_sample
                found[semconv.FORECAST_MEMORY_PER_SAMPLE] = round(grows.per_sample)
            total = evidence.total.time or 1
            holder = max(holders, key=holders.__getitem__, default="")
            gil = beside.gil_ns / total
            first, most = beside.carried or (0, 0)
            carried = (most - first) / seconds
            evidence.tasks = beside_it._replace(gil=gil, holder=holder, connections=carried)
            evidence.waits = {what: waited / total for what, waited in waits.items()}
            evidence.garbage = COLLECTIONS.since(step.collected, seconds * 1e9)
            evidence.gpus = beside.gpus.evidence(evidence.total.time)
            if (bound := bound_of(evidence)) is not None:
                named = (semconv.STEP_BOUND_BY, semconv.STEP_BOUND_EVIDENCE)
                found |= dict(zip(named, bound, strict=True))
                return found, top_lines(evidence.by_line)
            return found, None
        return {}, None

    def _add_rest(self, step: OpenStep, lasted_ns: int) -> None:
        """Books what a step has done since it was seen last, soon before its end, to that line: of a short step that is much."""
        index, thread = step.info.index, step.info.thread
        since = _SinceLast(self._last_ns, step.start.clock_ns + lasted_ns, 0, 0)
        is_soon = 0 < since.now_ns - since.last_ns <= _SOON and index in self.newest
        with suppress(KeyError, OSError, ValueError):  # not this system
            if is_soon and thread == threading.get_ident():
                ran, waited = self._threads[thread]
                waits = int(read_kept(self._schedstats[thread]).split()[1])
                used = time.thread_time_ns() - ran, waits - waited
                self._rested.add(index)
                self.stacks.add(index, self._stacks[thread], since.amounts(*used, is_taker=False))

    def _look_beside(self, steps: Mapping[int, OpenStep], reading: Reading) -> None:
        """Looks at the tasks beside the steps' threads, and where the busiest of these are in Python."""
        files = self._schedstats
        known = ((index, files.get(step.info.thread)) for index, step in steps.items())
        own = {index: path for index, path in known if path is not None}
        children = reading.memory.children if reading.memory is not None else ()
        pids = [pid for pid, _, _ in children]
        for index, path in self._others.look(reading.clock_ns, own, pids):
            if path not in files.values():
                self._note_threads()
            thread = next((each for each, file in self._schedstats.items() if file == path), None)
            if thread is not None and thread != threading.get_ident():
                lines = self._lines(current_frames().get(thread))
                self._others.add_line(index, spot_of(lines).words if lines else "")
        # A copy: a step of another thread may end meanwhile.
        for index, beside in self._beside.copy().items():
            step = steps.get(index)
            if step is not None and (lock := self._locks.get(step.info.thread)):
                self._note_holder(beside, lock, step.info.thread)

    def _note_holder(self, beside: _Beside, lock: str, waiting: int) -> None:
        """Notes where the one other thread is that is within a lock of a name."""
        others = (frame for each, frame in current_frames().items() if each != waiting)
        within = [found for frame in others if (found := holder_in(frame, lock)) is not None]
        if len(within) == 1 and (lines := self._lines(within[0])):
            beside.holders[spot_of(lines).words] += 1

    def peak_line(self, step: OpenStep, peak: AttributeValue | None) -> str | None:
        """Returns where the memory of a step that ends was highest, in words; None if that was not seen."""
        seen = self._peaks.end(step.info.index, peak if isinstance(peak, int | float) else 0.0)
        return seen if peak else None

    def _stacks_of(
        self, threads: Collection[int], used: _Uses, ahead: dict[int, list[Place]]
    ) -> dict[int, list[Place]]:
        """Returns the lines of each thread's stack."""
        stacks, frames = {}, dict[int, FrameType]()
        for thread in threads:
            # One that has not run since has the stack that it had: to ask for frames is half the cost.
            if used.get(thread) == _NOT_RUN and thread in self._stacks:
                stacks[thread] = self._stacks[thread]
            elif thread in ahead:
                stacks[thread] = ahead[thread]
            else:
                frames = frames or current_frames()
                stacks[thread] = self._seen_at(thread, frames.get(thread))
        frames.clear()  # a frame that is held keeps the program's objects alive
        return stacks

    def _seen_at(self, thread: int, frame: FrameType | None) -> list[Place]:
        """Returns the lines of a thread's stack; notes what it does there."""
        lines = self._lines(frame)
        self._in_ours.discard(thread)
        if frame is not None:
            if lines == [RECORDER] or frame.f_code.co_filename.startswith(_OURS):
                self._in_ours.add(thread)
            self._locks[thread] = lock_at(frame)
            self._calls[thread] = kind_at(frame)
        return lines

    def _add_beside(self, step: OpenStep, reading: Reading) -> None:
        """Adds the memory at a calibration sample, and how busy the GPUs are that the program has memory on."""
        samples = step.counts.samples
        if not reading.gpus and not samples:
            return
        beside = self._beside.setdefault(step.info.index, _Beside())
        beside.gpus.add(reading.gpus)
        if samples and reading.memory is not None:
            beside.growth.add(samples, reading.memory.within(step.sample_rss))

    def _used(self, threads: Collection[int], *, knows_all: bool) -> dict[int, _Use]:
        """Returns how long threads have run, and waited for a processor, since the last sample."""
        before, self._threads, used = self._threads, {}, {}
        # Of one that was not there at a look at all of them, all that it has used is since then.
        at_first = _NOT_RUN if self._knows_all else None
        self._knows_all = knows_all
        if not self._schedstats.keys() >= set(threads):
            self._note_threads()
        for thread in threads:
            try:
                ran, waited, turns = read_kept(self._schedstats[thread]).split()
            except (KeyError, OSError, ValueError):
                self._schedstats.pop(thread, None)  # not this system, or the thread has ended
                continue
            if turns == b"0":
                continue
            now = self._threads[thread] = int(ran), int(waited)
            if (then := before.get(thread, at_first)) is not None:
                used[thread] = now[0] - then[0], now[1] - then[1]
        return used

    def _note_threads(self) -> None:
        ended = {*self._schedstats.values()}
        ids = {each.ident or 0: each.native_id for each in threading.enumerate()}
        ids[threading.main_thread().ident or 0] = os.getpid()  # of a fork CPython has its parent's
        files = (f"/proc/self/task/{native}/schedstat" for native in ids.values())
        self._schedstats = dict(zip(ids, files, strict=True))
        for path in ended.difference(self._schedstats.values()):
            for name in ("schedstat", "syscall", "wchan"):
                forget(path.replace("schedstat", name))

    def _lines(self, frame: FrameType | None) -> list[Place]:
        """Returns the lines of a stack, outermost first, without ours; of a function within itself the innermost."""
        lines: list[Place] = []
        inner: CodeType | None = None
        outermost: CodeType | None = None
        depth, begins = 0, ""
        while frame is not None and depth < _WALKED:
            depth += 1
            if len(lines) == DEEPEST and len(lines := _folded(lines)) == DEEPEST:
                break
            code = frame.f_code
            if code is not inner:
                known = self._positions.get((id(code), frame.f_lasti)) or self._position_of(frame)
                if depth == 1:
                    begins = known.name
                elif depth == 2 and begins and (done := self._done_before(frame)).name == begins:
                    known = done if done.lines else known
                # At each look: the same line may have been seen in a step.
                if HELD and code in HELD and not _is_below_ours(frame):
                    MISSED.add(HELD[code])
                if known.lines:
                    lines += known.lines
                    inner = code
                elif code is _BOUNDARY or (
                    outermost is not None
                    and outermost.co_name in _FOR_US
                    and code.co_filename.startswith(_OURS)
                ):
                    return [RECORDER]  # whatever it calls, and at whatever line of the program
            outermost, frame = code, frame.f_back
        if outermost is not None and outermost.co_filename.startswith(_OURS):
            return []  # at the exit of the process, we ourselves
        if depth > _DEEP:
            lines = _folded(lines)
        lines.reverse()
        return lines

    def _position_of(self, frame: FrameType) -> _Position:
        """Returns what is known of where a frame is, and keeps it."""
        code, at = frame.f_code, frame.f_lasti
        if len(self._positions) >= _MOST_PLACES:
            self._positions.clear()
        known = _Position(code, (), code.co_name)
        if at >= 0 and (instruction := code.co_code[at]) != _RESUME:
            done = self._done_before(frame).lines if instruction in _ENDS else ()
            own = self._place_of(code, frame.f_lineno)
            known = _Position(code, done or [own] if own is not None else ())
        return self._positions.setdefault((id(code), at), known)

    def _done_before(self, frame: FrameType) -> _Position:
        """Returns what a frame has done before the instruction that it is at, and what that calls; no lines if nobody can tell."""
        code, at = frame.f_code, frame.f_lasti
        known = self._positions.get((id(code), ~at))
        if known is None:
            done = before(code, at)
            called = dict.get(frame.f_globals, done.function)
            inner = self._place_of(called.__code__, 0) if type(called) is FunctionType else None
            own = self._place_of(code, done.line) if done.line else None
            lines = [each for each in (inner, own) if each is not None] if own is not None else ()
            known = self._positions[id(code), ~at] = _Position(code, lines, done.calls)
        return known

    def _place_of(self, code: CodeType, line: int | None) -> Place | None:
        """Returns a line of code; None of ours."""
        file, function = code.co_filename, code.co_qualname
        return _place_in(file, function, line or 0, names_paths=self._names_paths)


def _place_in(file: str, function: str, line: int, *, names_paths: bool) -> Place | None:
    library = ""
    if file.startswith(_OURS):
        return None
    if (installed := _INSTALLED.fullmatch(file)) is not None:
        file = installed[1].replace(os.sep, "/")
        library = file.partition("/")[0].removesuffix(".py")
    elif file.startswith((*_STANDARD, "<frozen ")):
        library = "python"
        for folder in _STANDARD:
            file = file.removeprefix(folder)
    elif not names_paths:
        file = Path(file).name
    # Neither a file of a recording nor OTLP takes half of a surrogate pair, as in a name that is no UTF-8.
    return Place(encodable(file), encodable(function), line, library)


def raised_at(error: BaseException) -> str | None:
    """Returns the innermost line of the program's own code that was under way when an exception was raised, in words."""
    inner = error.__traceback__
    around = islice(walk_stack(inner.tb_frame), _WALKED) if inner is not None else ()
    frames = [*[*walk_tb(inner)][::-1], *around]
    # A process of a pool sends its traceback as text, as `sys.exit` has it, one of a DataLoader within its message.
    text = f"{getattr(error.__cause__ or error, 'tb', '')}{str(error).partition('Original Traceback')[2]}"
    lines = [(file, name, int(line)) for file, line, name in _REMOTE.findall(text)[::-1]]
    lines += [
        (each.f_code.co_filename, each.f_code.co_qualname, line or 0) for each, line in frames
    ]
    places = (_place_in(*each, names_paths=False) for each in lines)
    # Last what is in no file, as code that a library has generated; of `python -c` that is all.
    own = sorted(filter(None, places), key=lambda each: each.file.startswith("<"))
    return next((each.short for each in own if each.is_own), None)


def _is_below_ours(frame: FrameType | None) -> bool:
    """Whether a function of ours has called one, through others maybe: it is a step, or within one."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return frame is not None


def _folded(lines: list[Place]) -> list[Place]:
    """Returns lines, innermost first, without those of functions that call each other in turns, but for the innermost."""
    if len(lines) > _DEEP and 2 * len(set(map(id, lines))) > len(lines):
        return lines
    for period in _PERIODS:
        kept: list[Place] = []
        names: list[tuple[str, str]] = []
        for line in lines:
            kept.append(line)
            names.append(line[:2])
            if names[-period:] == names[-2 * period : -period]:
                del kept[-period:], names[-period:]
        lines = kept
    return lines


def sampler_for(settings: Settings, began_ns: int = 0) -> StackSampler | None:
    """Returns what takes the stacks that are asked for, from a moment on; None if none are."""
    if settings.stacks == "false":
        return None
    every = settings.stacks == "all"
    return StackSampler(names_paths=settings.paths, of_every_thread=every, began_ns=began_ns)
