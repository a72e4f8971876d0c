"""The thread that takes readings between checkpoints.

It measures its own CPU time, waking up included, and waits long enough to use about
:data:`SHARE` of one core. The interval that the user sets is therefore a minimum. No pause is
longer than :data:`LONGEST_PAUSE` (or that interval): a child process that holds gigabytes for a
second must be seen, so expensive samples cost more than the share.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.threads import start_thread

SHARE: Final = 0.0045
"""Part of one core that the sampler aims at. The documented share is 0.005; costs vary."""

LONGEST_PAUSE: Final = 0.4
"""Seconds. With this, two samples are less than 0.5 s apart on a busy machine too, where a thread
that wakes up may wait for a core."""

_COMPARED: Final = 3
"""Samples of which the one with the middle cost is charged. A single one that took 50 times as
long, as happens on a busy machine, says nothing about the next."""

_LARGEST_CREDIT: Final = 1.0
"""Seconds by which sampling may be ahead of its budget, so that one expensive sample after
cheap ones needs no pause."""


class Pace:
    """Computes the pause after each sample that keeps sampling near its CPU budget.

    The budget grows by :data:`SHARE` seconds of CPU time in each second of elapsed time. A
    sample that took ``cost`` seconds of CPU time needs ``cost / SHARE`` seconds of elapsed time.
    The sample's own duration counts as elapsed time, not only the pause: a sample may wait a
    second for the GIL. What a pause of :data:`LONGEST_PAUSE` does not pay is forgotten.
    """

    def __init__(self, interval: float, share: float = SHARE) -> None:
        self._interval = interval
        self._share = share
        self._costs: deque[float] = deque(maxlen=_COMPARED)
        # Elapsed time still needed to pay for the samples so far, in seconds; negative: credit.
        self._missing = 0.0

    def pause(self, cost: float, elapsed: float) -> float:
        """Returns how long to wait for the next sample, in seconds."""
        self._costs.append(cost)
        usual = sorted(self._costs)[len(self._costs) // 2]
        missing = self._missing + usual / self._share - elapsed
        self._missing = min(LONGEST_PAUSE, max(-_LARGEST_CREDIT, missing))
        return max(self._interval, self._missing)


class Sampler:
    """Calls a function repeatedly on a thread of its own."""

    def __init__(self, take: Callable[[], None], interval: float, share: float = SHARE) -> None:
        self._take = take
        self._interval = interval
        self._share = share
        # Held while sampling runs; released to stop it. Waiting for an Event takes twice as long.
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts sampling. Does nothing if it is switched off or already running."""
        if self._interval <= 0 or self._thread is not None:
            return
        self._running.acquire()
        self._thread = start_thread(self._run, "otel-quant-sampler")
        if self._thread is None:
            self._running.release()

    def stop(self) -> None:
        """Stops sampling. Returns within the time that one sample takes."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._running.release()
        except RuntimeError:
            pass  # another thread has just stopped it
        if thread is not threading.current_thread():
            thread.join(timeout=1.0)

    def _run(self) -> None:
        pace, pause = Pace(self._interval, self._share), self._interval
        spent, now = time.thread_time(), time.monotonic()
        boundary, take = FAULTS.kept_in("sampler"), self._take
        while not self._running.acquire(timeout=pause):
            with boundary:
                take()
            spent_before, spent = spent, time.thread_time()
            before, now = now, time.monotonic()
            pause = pace.pause(spent - spent_before, now - before)
        self._running.release()
