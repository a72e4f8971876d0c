"""How much the cache directories of a run grow: a thread that adds up their files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from otel_quant.fault_boundary import FAULTS

_INTERVAL: Final = 1.0
# Adding up a directory of many files takes its time: no more than a fiftieth of all, from the
# second look on that takes as long.
_REST: Final = 49


class CacheDirs:
    """Watches directories until it is asked for the largest growth.

    Args:
        interval: Seconds between two looks.
    """

    def __init__(self, interval: float = _INTERVAL) -> None:
        self._interval = interval
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._first: dict[Path, int] = {}
        self._peak = 0
        self._rested = 0.0
        self._took = 0.0  # the last look
        # Reentrant: a signal handler may close a step in the middle of a look.
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, path: str | Path) -> None:
        """Begins to watch a directory; what it holds now is not counted.

        Args:
            path: The directory, or a single file.
        """
        if self._pid != os.getpid():
            self._forget()  # a forked child has none of its parent's threads
        target = Path(path).absolute()
        with self._lock:
            self._first[target] = size_of(target) or 0
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="otel-quant-cache-dirs", daemon=True
                )
                self._thread.start()

    def look_again(self) -> None:
        """Looks between two looks of the thread: what a step leaves there may not last.

        Does nothing where nothing is watched, or where the last two looks took so long
        that this one would take more than its share.
        """
        if self._thread is None or self._pid != os.getpid():
            return  # in a forked child the parent's thread may hold the lock for ever
        if time.monotonic() >= self._rested:
            self._look()

    def finish(self) -> float | None:
        """Looks a last time and stops.

        Returns:
            The most that any of the directories grew, in MiB; None if none did.
        """
        if self._pid != os.getpid():
            self._forget()
        thread = self._thread
        if thread is None:
            return None
        self._stopped.set()
        thread.join(timeout=5)
        self._look()
        peak = self._peak
        self._forget()
        return peak / (1024 * 1024) if peak > 0 else None

    def _run(self) -> None:
        wait = self._interval
        while not self._stopped.wait(wait):
            with FAULTS.kept_in("watch of the cache directories"):
                self._look()
            wait = max(self._interval, self._rested - time.monotonic())

    def _look(self) -> None:
        began = time.monotonic()
        with self._lock:
            watched = tuple(self._first.items())
        grown = [size - first for path, first in watched if (size := size_of(path)) is not None]
        ended = time.monotonic()
        with self._lock:  # the thread and a checkpoint may look at once
            self._peak = max([self._peak, *grown])
            # A look during which the thread lost the processor says nothing of the directory.
            before, self._took = self._took, ended - began
            self._rested = ended + _REST * min(before, self._took)


def size_of(path: Path) -> int | None:
    """Adds up the sizes of the files in a directory; links are not followed.

    Args:
        path: A directory or a file.

    Returns:
        Bytes; None if it cannot be read, as when it has been removed.
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
                    continue  # removed since it was listed
