"""Probe for how much the cache directories of a library grow on disk.

A library makes its first cache directory before its first step, so directories are watched from
the moment that they are made, and the runs of this process read them. To add up the files of a
large directory takes long: a thread of its own does it between checkpoints, at most a fiftieth of
the time, so that neither the sampler nor the program waits for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from otel_quant.base.fault_boundary import FAULTS, start_thread

_INTERVAL: Final = 0.2
"""Seconds between two measurements of the thread."""

_REST: Final = 49
"""Pause after a measurement, as a multiple of its duration: a directory with many files takes at
most one fiftieth of the time. A single slow measurement is ignored."""

_UNUSED: Final = 5.0
"""Seconds without a sample after which the thread ends: the run is over."""


class CacheDirectories:
    """Measures how much watched directories have grown; a call is for checkpoints, :meth:`sample` for between."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Watches nothing any more. In a forked child: the directories are its parent's."""
        self._first_sizes: dict[Path, int] = {}
        self._latest: int | None = None
        self._pause_ends = 0.0  # by the monotonic clock, in seconds
        self._last_duration = 0.0  # of a measurement, in seconds
        self._sampled_at = 0.0
        # Reentrant: a signal handler may close a step during a measurement.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def watch(self, path: str | Path) -> None:
        """Starts to watch a directory; its present size is not counted."""
        target = Path(path).absolute()
        if target not in self._first_sizes:
            size = size_of(target) or 0
            with self._lock:
                self._first_sizes.setdefault(target, size)

    def for_new_run(self) -> CacheDirectories:
        """Returns itself as the probe of a run; forgets the directories that no longer exist."""
        with self._lock:
            known = self._first_sizes.items()
            self._first_sizes = {path: size for path, size in known if path.exists()}
            self._latest = None
        return self

    def __call__(self, pids: Collection[int] = ()) -> int | None:
        """Measures at a checkpoint: a file may be removed before the thread measures again.

        The last measurement is used if it took so long that the pause after it is not over.
        """
        if self._first_sizes and time.monotonic() >= self._pause_ends:
            self._measure()
        return self._latest

    def sample(self, pids: Collection[int] = ()) -> int | None:
        """Returns what the thread has measured, and starts it if it does not run."""
        if self._first_sizes:
            self._sampled_at = time.monotonic()
            if self._thread is None or not self._thread.is_alive():
                self._thread = start_thread(self._run, "otel-quant-cache-dirs")
        return self._latest

    def _run(self) -> None:
        while time.monotonic() - self._sampled_at < _UNUSED:
            time.sleep(max(_INTERVAL, self._pause_ends - time.monotonic()))
            with FAULTS.kept_in("probe cache"):
                self._measure()

    def _measure(self) -> None:
        began = time.monotonic()
        with self._lock:
            watched = tuple(self._first_sizes.items())
        grown = [size - first for path, first in watched if (size := size_of(path)) is not None]
        ended = time.monotonic()
        with self._lock:  # the thread and a checkpoint may measure at the same time
            self._latest = max([0, *grown]) if grown else None
            # The shorter of two: a single one may be long because the thread was suspended.
            before, self._last_duration = self._last_duration, ended - began
            self._pause_ends = ended + _REST * min(before, self._last_duration)


def size_of(path: Path) -> int | None:
    """Adds up the sizes of the files in a directory; links are not followed."""
    try:
        return sum(_sizes(path)) if path.is_dir() else path.stat().st_size
    except OSError:
        return None


def _sizes(folder: Path) -> Iterator[int]:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from _sizes(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue  # removed after it was listed


CACHE_DIRECTORIES: Final = CacheDirectories()
"""Those of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CACHE_DIRECTORIES.forget)
