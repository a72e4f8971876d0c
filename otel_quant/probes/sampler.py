"""The thread that takes readings between checkpoints.

It measures the CPU time that each sample costs and waits long enough that its share
stays below :data:`SHARE` of one core, whatever the machine and the number of processes
and GPUs: the interval that the user asks for is the shortest one, not a promise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from otel_quant.faults import FAULTS

SHARE: Final = 0.005
"""Part of one core that the sampler may use."""


class Sampler:
    """Calls a function again and again on a thread of its own.

    Args:
        take: Takes one sample.
        interval: Shortest time between two samples, in seconds; 0 never starts.
    """

    def __init__(self, take: Callable[[], None], interval: float) -> None:
        self._take = take
        self._interval = interval
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts sampling; does nothing if that is switched off or under way."""
        if self._interval <= 0 or self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name="otel-quant-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops sampling. Returns within the time that one sample takes."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)
        self._thread = None

    def _run(self) -> None:
        pause = self._interval
        while not self._stop.wait(pause):
            before = time.thread_time()
            with FAULTS.kept_in("sampler"):
                self._take()
            pause = max(self._interval, (time.thread_time() - before) / SHARE)
