"""The thread that takes readings between checkpoints.

It measures the CPU time that it costs, waking up included, and waits long enough that
its share stays below :data:`SHARE` of one core, whatever the machine and the number of
processes and GPUs: the interval that the user asks for is the shortest one, not a promise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from otel_quant.fault_boundary import FAULTS

SHARE: Final = 0.0045
"""Part of one core that the sampler aims at; its budget is 0.005, and costs vary."""


_SAVED: Final = 1.0
"""Seconds of the share that may be saved up, so that one dear sample needs no pause."""


class Pace:
    """How long to wait between samples so that they keep to :data:`SHARE` of a core.

    What a sample cost has to be earned, at ``SHARE`` seconds a second. All time counts as
    earning: the pause, and the sample's own, for a sample that waits a second for the GIL
    spends CPU time on waiting.

    Args:
        interval: Shortest pause, in seconds.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._owed = 0.0  # seconds; below 0 is saved

    def pause(self, cost: float, elapsed: float) -> float:
        """Returns how long to wait for the next sample, in seconds.

        Args:
            cost: CPU time that the last one took, waking up included, in seconds.
            elapsed: Time since the one before it, in seconds.
        """
        self._owed = max(-_SAVED, self._owed + cost / SHARE - elapsed)
        return max(self._interval, self._owed)


class Sampler:
    """Calls a function again and again on a thread of its own.

    Args:
        take: Takes one sample.
        interval: Shortest time between two samples, in seconds; 0 never starts.
    """

    def __init__(self, take: Callable[[], None], interval: float) -> None:
        self._take = take
        self._interval = interval
        # Held while sampling goes on. A wait for an Event takes a lock as well, and as much
        # time again to set it up.
        self._going = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts sampling; does nothing if that is switched off or under way."""
        if self._interval <= 0 or self._thread is not None:
            return
        self._going.acquire()
        self._thread = threading.Thread(target=self._run, name="otel-quant-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops sampling. Returns within the time that one sample takes."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._going.release()
        except RuntimeError:
            pass  # two threads end the run at once
        if thread is not threading.current_thread():
            thread.join(timeout=1.0)

    def _run(self) -> None:
        pace, pause = Pace(self._interval), self._interval
        spent, now = time.thread_time(), time.monotonic()
        while not self._going.acquire(timeout=pause):
            with FAULTS.kept_in("sampler"):
                self._take()
            spent_before, spent = spent, time.thread_time()
            before, now = now, time.monotonic()
            pause = pace.pause(spent - spent_before, now - before)
        self._going.release()
