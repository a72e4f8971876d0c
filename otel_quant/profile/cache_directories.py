"""Measures how much the cache directories of a run grow; a thread adds up their files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from otel_quant.fault_boundary import FAULTS
from otel_quant.threads import start_thread

_INTERVAL: Final = 1.0
_REST: Final = 49
"""Pause after a measurement, as a multiple of its duration: a directory with many files takes at
most one fiftieth of the time. A single slow measurement is ignored."""


class CacheDirectories:
    """Measures the sizes of directories repeatedly and finds the largest growth.

    Args:
        interval: Seconds between two measurements.
    """

    def __init__(self, interval: float = _INTERVAL) -> None:
        self._interval = interval
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._first_sizes: dict[Path, int] = {}
        self._peak = 0
        self._pause_ends = 0.0  # by the monotonic clock, in seconds
        self._last_duration = 0.0  # of a measurement, in seconds
        # Reentrant: a signal handler may close a step during a measurement.
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, path: str | Path) -> None:
        """Starts to watch a directory; its present size is not counted.

        Args:
            path: The directory, or a single file.
        """
        if self._pid != os.getpid():
            self._reset()  # a forked child does not have its parent's threads
        target = Path(path).absolute()
        with self._lock:
            self._first_sizes[target] = size_of(target) or 0
            if self._thread is None:
                self._thread = start_thread(self._run, "otel-quant-cache-dirs")

    def measure_now(self) -> None:
        """Measures at a checkpoint: a file may be removed before the thread measures again.

        Does nothing if no directory is watched, or if the last two measurements took so long that
        the pause after them is not over.
        """
        if self._thread is None or self._pid != os.getpid():
            return  # in a forked child, the lock may be held by a thread that does not exist
        if time.monotonic() >= self._pause_ends:
            self._measure()

    def finish(self) -> float | None:
        """Measures a last time and stops.

        Returns:
            Largest growth of a directory, in MiB; None if none grew.
        """
        if self._pid != os.getpid():
            self._reset()
        thread = self._thread
        if thread is None:
            return None
        self._stopped.set()
        thread.join(timeout=5)
        self._measure()
        peak = self._peak
        self._reset()
        return peak / (1024 * 1024) if peak > 0 else None

    def _run(self) -> None:
        wait = self._interval
        while not self._stopped.wait(wait):
            with FAULTS.kept_in("watch of the cache directories"):
                self._measure()
            wait = max(self._interval, self._pause_ends - time.monotonic())

    def _measure(self) -> None:
        began = time.monotonic()
        with self._lock:
            watched = tuple(self._first_sizes.items())
        grown = [size - first for path, first in watched if (size := size_of(path)) is not None]
        ended = time.monotonic()
        with self._lock:  # the thread and a checkpoint may measure at the same time
            self._peak = max([self._peak, *grown])
            # The shorter of two: a single one may be long because the thread was suspended.
            before, self._last_duration = self._last_duration, ended - began
            self._pause_ends = ended + _REST * min(before, self._last_duration)


def size_of(path: Path) -> int | None:
    """Adds up the sizes of the files in a directory; links are not followed.

    Args:
        path: A directory or a file.

    Returns:
        Bytes; None if it cannot be read, for example because it was removed.
    """
    try:
        return sum(_sizes(path)) if path.is_dir() else path.stat().st_size
    except OSError:
        return None


def _sizes(folder: Path) -> Iterator[int]:
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
                    elif entry.is_file(follow_symlinks=False):
                        yield entry.stat(follow_symlinks=False).st_size
                except OSError:
                    continue  # removed after it was listed
