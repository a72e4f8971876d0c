"""Which threads are taking a checkpoint of a run: it does not end before they have."""

from __future__ import annotations

import threading
from typing import Final

_LONGEST_WAIT: Final = 1.0
"""Seconds that the end of a run waits for other threads: a driver may hang."""


class CheckpointsUnderWay:
    """Entered by each thread while it takes a checkpoint, with ``with``; a thread may nest them."""

    def __init__(self, lock: threading.RLock) -> None:
        self._threads: list[int] = []
        self._is_waited_for = False
        self.use(lock)

    def use(self, lock: threading.RLock) -> None:
        """Uses another lock: in a forked child a thread that does not exist may hold the first."""
        self._lock = lock
        self._one_is_over = threading.Condition(lock)

    def __enter__(self) -> None:
        with self._lock:
            self._threads.append(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads.remove(threading.get_ident())
            if self._is_waited_for:
                self._one_is_over.notify_all()

    def __bool__(self) -> bool:
        return bool(self._threads)

    def wait_for_others(self) -> None:
        """Waits until no other thread takes a checkpoint, or a second. Called with the run's lock.

        The lock is free meanwhile.
        """
        own = threading.get_ident()
        self._is_waited_for = True
        self._one_is_over.wait_for(
            lambda: all(each == own for each in self._threads), _LONGEST_WAIT
        )
