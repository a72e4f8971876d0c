"""Memory of the GPUs that this process can see, whoever made them.

Making the probe costs nothing: which drivers there are is decided by the first reading,
and where there is none every later one is an empty tuple. ``pynvml`` is not imported
before; ``amdsmi`` and torch never are, but asked where the program has loaded them.

Forks: the drivers' libraries hold locks of their own, and a child that is forked while
another thread is inside one would wait for ever. So a fork waits for the reading in
progress, a bounded time, and the child opens the drivers anew.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from otel_quant.probes.amd import open_amd
from otel_quant.probes.nvml import open_nvml
from otel_quant.probes.torch_cuda import Platform, with_torch_memory
from otel_quant.records import GpuReading
from otel_quant.resources import LEVEL, Column, Figure, Metric, Resource, Series

_log = logging.getLogger("otel_quant")

_PATIENCE: Final = 1.0
"""Seconds to wait for another thread's reading. A driver that takes longer is taken to hang."""

_AMD_VARIABLES: Final = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


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

    Beside a visible NVIDIA GPU, AMD's are read only if the program asks for them, by
    ``HIP_VISIBLE_DEVICES``, ``ROCR_VISIBLE_DEVICES`` or a torch that is built for them: many
    a workstation has one in its processor that only draws the desktop. Which ones are visible is read from the environment at the first reading and stays so,
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
        self._waits = True  # for another thread's reading: not again once that took too long
        self._opened: tuple[tuple[Platform, Devices], ...] | None = None
        _PROBES.add(self)

    def __call__(self, pids: Collection[int] = ()) -> tuple[GpuReading, ...]:
        """Takes a reading.

        Args:
            pids: This process's descendants. ``process_used`` sums them and this process.

        Returns:
            One reading for each visible device that answers, in order of ``index``. None
            while a driver keeps another thread waiting: this one goes on.
        """
        if self._opened == ():
            return ()
        lock = self._lock
        if not lock.acquire(timeout=_PATIENCE if self._waits else 0):
            if self._waits:
                _log.warning("A GPU's driver does not answer; until it does, GPUs are not read")
            self._waits = False
            return ()
        try:
            self._waits = True
            return self._read(pids)
        finally:
            lock.release()

    def _read(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        if self._opened is None:
            self._opened = self._open()
        tree = frozenset((os.getpid(), *pids))
        readings: list[GpuReading] = []
        first = 0
        for platform, devices in self._opened:
            own = with_torch_memory(devices.read(tree), platform)
            readings += (replace(r, index=first + r.index) for r in own) if first else own
            first += devices.count
        return tuple(readings)

    def _open(self) -> tuple[tuple[Platform, Devices], ...]:
        if not self._usable:
            return ()
        opened: list[tuple[Platform, Devices]] = []
        nvidia = open_nvml(self._environ, self._root)
        if nvidia is not None:
            opened.append(("cuda", nvidia))
        if nvidia is None or not nvidia.count or self._asks_for_amd():
            amd = open_amd(self._environ, self._root)
            if amd is not None:
                opened.append(("hip", amd))
        return tuple(opened)

    def _asks_for_amd(self) -> bool:
        version = getattr(sys.modules.get("torch"), "version", None)
        return bool(getattr(version, "hip", None)) or any(
            self._environ.get(variable) for variable in _AMD_VARIABLES
        )

    def close(self) -> None:
        """Gives the drivers back, unless one hangs; further readings are empty."""
        opened, self._opened = self._opened, ()
        if self._lock.acquire(timeout=_PATIENCE if self._waits else 0):
            try:
                for _, devices in opened or ():
                    devices.close()
            finally:
                self._lock.release()

    def reset(self) -> None:
        """Forgets the drivers without a word to them, so that the next reading opens them anew.

        Meant for forked children, which must not close what their parent uses. They are
        reset of themselves; a second time does no harm.
        """
        self._opened = None

    def before_fork(self) -> None:
        """Waits for the reading that another thread is taking."""
        if self._lock.acquire(timeout=_PATIENCE):
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


_USAGE: Final = Metric(
    "quant.run.gpu.memory.usage",
    "observable_up_down_counter",
    "By",
    "Memory in use on a visible GPU, by anyone.",
    ("hw.id",),
)

GPU: Final = Resource(
    name="gpu",
    probe=GpuProbe,
    is_sampled=True,
    reads_proc=False,
    figures=(
        Figure(
            "gpu.memory",
            "By",
            "Memory in use on all visible GPUs, by anyone",
            lambda gpus: sum(gpu.used for gpu in gpus),
            LEVEL,
            "2147483648",
            checkpoint="gpu_memory",
            column=Column("gpu_memory_mb", in_quark=True),
        ),
    ),
    device_figures=(
        Figure(
            "memory",
            "By",
            "Memory in use on the device, by anyone",
            lambda gpu: gpu.used,
            LEVEL,
            "2147483648",
            live=Series(_USAGE),
        ),
        Figure(
            "process_memory",
            "By",
            "Memory of this process tree on the device, where the driver says",
            lambda gpu: gpu.process_used,
            LEVEL,
            "1610612736",
        ),
        Figure(
            "torch_allocated",
            "By",
            "Bytes that torch's caching allocator has handed out, if torch is in use",
            lambda gpu: gpu.torch_allocated,
            LEVEL,
            "536870912",
        ),
        Figure(
            "torch_reserved",
            "By",
            "Bytes that torch's caching allocator holds, if torch is in use",
            lambda gpu: gpu.torch_reserved,
            LEVEL,
            "1073741824",
        ),
    ),
)
