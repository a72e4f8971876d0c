"""Probe for the size of the cache directories that libraries make.

A library makes its first cache directory before its first step, so directories are watched from the moment that
they are made, and the runs of this process read them. To add up the files of a large directory takes long, so it is
done at most a fiftieth of the time, and at checkpoints alone where the sampler would see no memory meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

_REST: Final = 49
"""Pause after a measurement, as a multiple of its duration, or of the one before if that was shorter: on a busy
machine any single one may wait for a processor."""

_QUICK: Final = 0.1
"""Seconds that a measurement takes at most of directories that are measured between checkpoints too."""


class CacheDirectories:
    """Measures how much the directories have grown that this process watches."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Watches nothing any more. In a forked child: the directories are its parent's."""
        self._first_sizes: dict[Path, int] = {}
        self._begin()

    def _begin(self) -> None:
        self._latest: int | None = None
        self._pause_ends = 0.0  # by the monotonic clock, in seconds
        self._took = 0.0  # seconds, the last measurement
        self._usual = 0.0  # seconds, the shorter of the last two

    def watch(self, path: str | Path) -> None:
        """Starts to watch a directory; its present size is not counted."""
        target = Path(path).absolute()
        if target not in self._first_sizes:
            self._first_sizes.setdefault(target, size_of(target) or 0)

    def for_new_run(self) -> CacheDirectories:
        """Returns itself as the probe of a run; forgets the directories that no longer exist."""
        known = tuple(self._first_sizes.items())
        self._first_sizes = {path: size for path, size in known if path.exists()}
        self._begin()
        return self

    def __call__(self, pids: Collection[int] = ()) -> int | None:
        """Returns the growth in bytes of the directory that has grown most; the last one during a pause."""
        if self._first_sizes and (began := time.monotonic()) >= self._pause_ends:
            watched = tuple(self._first_sizes.items())
            grown = [size - first for path, first in watched if (size := size_of(path)) is not None]
            self._latest = max([0, *grown]) if grown else None
            ended = time.monotonic()
            before, self._took = self._took, ended - began
            self._usual = min(before, self._took)
            self._pause_ends = ended + _REST * self._usual
        return self._latest

    def end_pause(self) -> None:
        """Has the next reading measure again, the last of a run, unless that takes long."""
        if self._usual <= _QUICK:
            self._pause_ends = 0.0

    def sample(self, pids: Collection[int] = ()) -> int | None:
        """Returns the same between checkpoints; the last one of what takes long to measure."""
        return self() if self._usual <= _QUICK else self._latest


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


CACHE_DIRECTORIES: Final = CacheDirectories()  # The cache directories of this process

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CACHE_DIRECTORIES.forget)
