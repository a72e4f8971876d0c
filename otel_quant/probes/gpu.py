"""Memory of the GPUs that this process can see, whoever made them.

Making the probe costs nothing: which drivers there are is decided by the first reading,
and where there is none every later one is an empty tuple. Neither ``pynvml`` nor
``amdsmi`` is imported before, and torch never is.

Forks: the drivers' libraries hold locks of their own, and a child that is forked while
another thread is inside one would wait for ever. So a fork waits for the reading in
progress, a bounded time, and the child opens the drivers anew.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from otel_quant.probes.amd import open_amd
from otel_quant.probes.nvml import open_nvml
from otel_quant.probes.torch_cuda import Platform, with_torch_memory
from otel_quant.readings import GpuReading

_FORK_PATIENCE: Final = 1.0
"""Seconds that a fork waits for a reading. A driver that takes longer is taken to hang."""


class Devices(Protocol):
    """The visible devices of one vendor."""

    @property
    def count(self) -> int:
        """Number of them, those that do not answer included."""

    def read(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        """Reads those that answer."""

    def close(self) -> None:
        """Gives the driver back."""


class GpuProbe:
    """Reads the memory of all visible GPUs: NVIDIA's first, then AMD's.

    Which ones are visible is read from the environment at the first reading and stays so,
    as it does for the runtimes themselves.

    Args:
        environ: Environment variables.
        root: Root of the file system that holds ``proc``, ``sys`` and ``dev``.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> None:
        self._environ = environ
        self._root = root
        self._lock = threading.RLock()
        self._forking: set[int] = set()  # threads that fork, and hold the lock meanwhile
        self._usable = True
        self._opened: tuple[tuple[Platform, Devices], ...] | None = None
        _PROBES.add(self)

    def __call__(self, pids: Collection[int] = ()) -> tuple[GpuReading, ...]:
        """Takes a reading.

        Args:
            pids: This process tree; ``process_used`` sums its processes and no others. It
                is absent if none is given.

        Returns:
            One reading for each visible device that answers, in order of ``index``.
        """
        if self._opened == ():
            return ()
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            readings: list[GpuReading] = []
            first = 0
            for platform, devices in self._opened:
                own = with_torch_memory(devices.read(pids), platform)
                readings += (replace(r, index=first + r.index) for r in own) if first else own
                first += devices.count
            return tuple(readings)

    def _open(self) -> tuple[tuple[Platform, Devices], ...]:
        if not self._usable:
            return ()
        nvidia = open_nvml(self._environ, self._root)
        amd = open_amd(self._environ, self._root)
        opened: list[tuple[Platform, Devices]] = []
        if nvidia is not None:
            opened.append(("cuda", nvidia))
        if amd is not None:
            opened.append(("hip", amd))
        return tuple(opened)

    def close(self) -> None:
        """Gives the drivers back; further readings are empty."""
        with self._lock:
            for _, devices in self._opened or ():
                devices.close()
            self._opened = ()

    def reset(self) -> None:
        """Forgets the drivers without a word to them, so that the next reading opens them anew.

        Meant for forked children, which must not close what their parent uses. They are
        reset of themselves; a second time does no harm.
        """
        self._opened = None

    def before_fork(self) -> None:
        """Waits for the reading that another thread is taking."""
        if self._lock.acquire(timeout=_FORK_PATIENCE):
            self._forking.add(threading.get_ident())

    def after_fork_in_parent(self) -> None:
        """Lets readings go on."""
        if threading.get_ident() in self._forking:
            self._forking.discard(threading.get_ident())
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Leaves the drivers to the parent."""
        # If the lock could not be had, a thread that does not exist here is inside the
        # driver and holds the driver's own locks: it can never be used here.
        self._usable = self._usable and threading.get_ident() in self._forking
        self._forking = set()
        self._lock = threading.RLock()
        self.reset()


_PROBES: Final[weakref.WeakSet[GpuProbe]] = weakref.WeakSet()


def _at_fork(what: Callable[[GpuProbe], None]) -> Callable[[], None]:
    def hook() -> None:
        for probe in list(_PROBES):
            what(probe)

    return hook


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_at_fork(GpuProbe.before_fork),
        after_in_parent=_at_fork(GpuProbe.after_fork_in_parent),
        after_in_child=_at_fork(GpuProbe.after_fork_in_child),
    )
