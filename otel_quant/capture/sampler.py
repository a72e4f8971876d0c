"""The thread that takes samples. It ends while the program forks: from 3.12 on CPython warns it of each that there is.

Loaded in every program that is recorded: it imports little.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from otel_quant.base.fault_boundary import FAULTS, start_thread

TYPE_CHECKING = False  # not typing's, which takes a third of Python's own start to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

SHARE: Final = 0.0045
"""Part of one core that the sampler aims at. The documented share is 0.005; costs vary."""

LONGEST_PAUSE: Final = 0.4
"""Seconds. With this, two samples are less than 0.5 s apart on a busy machine too, where a thread
that wakes up may wait for a core."""

_LARGEST_CREDIT: Final = 1.0
"""Seconds by which sampling may be ahead of its budget, so that one expensive sample after
cheap ones needs no pause."""


_AT_ONCE: Final = 0.0001
"""Seconds after which a thread that runs Python has to give the GIL away that another one waits for."""


class Pace:
    """Computes pauses that keep samples at a share of elapsed time, which they count as: one may wait for the GIL."""

    def __init__(self, interval: float, share: float = SHARE) -> None:
        self._interval, self.share = interval, share
        # Elapsed time still needed to pay for the samples so far, in seconds; negative: credit.
        self._missing = 0.0

    def pause(self, cost: float, elapsed: float) -> float:
        """Returns how long to wait for the next sample, in seconds."""
        missing = self._missing + cost / self.share - elapsed
        self._missing = min(LONGEST_PAUSE, max(-_LARGEST_CREDIT, missing))
        return max(self._interval, self._missing)


class Sampler:
    """Calls a function repeatedly on a thread of its own, at about :data:`SHARE` of a core.

    The interval that the user sets is a minimum. No pause is longer than :data:`LONGEST_PAUSE` (or that interval): a
    child process that holds gigabytes for a second must be seen, so expensive samples cost more than the share.
    """

    def __init__(self, take: Callable[[], None], interval: float, share: float = SHARE) -> None:
        self._take, self._interval, self._pace = take, interval, Pace(interval, share)
        # Held while sampling runs; released to stop it. Waiting for an Event takes twice as long.
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts sampling. Does nothing if it is switched off or already running."""
        if self._interval <= 0 or self._thread is not None:
            return
        if self not in _RUNNING:
            _RUNNING.append(self)
        self._running.acquire()
        self._thread = start_thread(self._run, "otel-quant-sampler")
        if self._thread is None:
            self._running.release()

    def stop(self) -> None:
        """Stops sampling. Returns within the time that one sample takes."""
        if self in _RUNNING:
            _RUNNING.remove(self)
        self._end_thread()

    def sample_every(self, interval: float) -> None:
        """Changes the interval."""
        self._interval, self._pace = interval, Pace(interval, self._pace.share)

    def pause(self) -> None:
        """Ends the thread until the next start: `join` returns a moment before the kernel has none."""
        if (thread := self._end_thread()) is not None:
            until = time.monotonic() + _LONGEST_WAIT
            task = f"/proc/self/task/{thread.native_id}"
            while os.access(task, os.F_OK) and time.monotonic() < until:
                time.sleep(0.001)

    def _end_thread(self) -> threading.Thread | None:
        thread, self._thread = self._thread, None
        if thread is None:
            return None
        try:
            self._running.release()
        except RuntimeError:
            pass  # another thread has just stopped it
        if thread is not threading.current_thread():
            thread.join(timeout=_LONGEST_WAIT)
        return thread

    def see_anywhere(self) -> None:
        """Has the program go on for a moment and then give the GIL at once, wherever it is.

        The sampler has got the GIL where the program gives it away by itself, and would see it in these places alone.
        """
        usual = sys.getswitchinterval()
        sys.setswitchinterval(_AT_ONCE)
        ours = sys.getswitchinterval()
        time.sleep(time.perf_counter_ns() % 1000 / 1000 * usual)
        if sys.getswitchinterval() == ours:  # else the program has changed it
            sys.setswitchinterval(usual)

    def _run(self) -> None:
        pause, spent, now = self._interval, time.thread_time(), time.monotonic()
        take = FAULTS.kept_in("sampler").around(self._take)
        while not self._running.acquire(timeout=pause):
            with _TAKING:
                take()
            spent_before, spent = spent, time.thread_time()
            before, now = now, time.monotonic()
            pause = self._pace.pause(spent - spent_before, now - before)
        self._running.release()


_LONGEST_WAIT: Final = 1.0  # Seconds to wait for the end of the thread: it may wait for who waits
_RUNNING: Final[list[Sampler]] = []  # Those that have been started and not stopped


def _pausing(original: Callable[[], Any]) -> Any:
    # Not by `os.register_at_fork`, whose functions are called before CPython counts.
    def fork() -> Any:
        pid, caller = os.getpid(), sys._getframe(1)
        for each in _RUNNING:
            each.pause()
        # A warning of the program's own threads is to name the line that forks.
        code, place = _call.__code__, caller.f_code.co_filename
        named = code.replace(co_filename=place, co_firstlineno=caller.f_lineno - 1)
        function: Any = type(_call)
        try:
            return function(named, caller.f_globals)(original)
        finally:
            if os.getpid() == pid:
                for each in _RUNNING:
                    each.start()
            else:
                _RUNNING.clear()

    return fork


def _call(function: Callable[[], Any]) -> Any:
    return function()  # the second line, which is given the number of another


# A workaround for CPython 3.11: of a thread that holds frame objects at a fork, as in a sample, the child frees the frames and
# keeps the objects, which its garbage collector then follows into memory that is something else's. A fork waits for the sample.
_TAKING = threading.RLock()  # Held during a sample, and by a thread that forks
_FORKING: Final = threading.local()


def _before_fork() -> None:
    _FORKING.holds = _TAKING.acquire(timeout=_LONGEST_WAIT)  # a driver that is read may hang


def _after_fork_in_parent() -> None:
    if _FORKING.holds:
        _TAKING.release()


def _after_fork_in_child() -> None:
    global _TAKING
    _TAKING = threading.RLock()


if sys.version_info >= (3, 12) and hasattr(os, "fork"):
    os.fork, os.forkpty = _pausing(os.fork), _pausing(os.forkpty)
elif hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
