"""Memory of the GPUs that this process can see, of any vendor.

Creating the probe does no work. The first reading looks for drivers; if there are none, every later reading is an
empty tuple. ``pynvml`` is imported by the first reading; torch is never imported, only used if the program has
loaded it.

Forks: the drivers' libraries have locks of their own. A child that is forked while another thread holds one would
wait for ever. So a fork waits for the reading in progress, for a limited time, and the child opens the drivers again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from otel_quant.base.log import LOG
from otel_quant.capture.probes.gpu_amd import open_amd
from otel_quant.capture.probes.gpu_devices import Devices, Platform
from otel_quant.capture.probes.gpu_nvidia import open_nvml
from otel_quant.capture.probes.gpu_torch import TorchCounters, platform_of_torch
from otel_quant.schema.figures import GPU_ENERGY
from otel_quant.schema.readings import GpuReading

_LONGEST_WAIT: Final = 1.0
"""Seconds to wait for another thread's reading. After that the driver is assumed to hang."""

_AMD_VARIABLES: Final = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class GpuProbe:
    """Reads all visible GPUs, NVIDIA's first; which are visible is read once, as the runtimes do it.

    If an NVIDIA GPU is visible, AMD's are read only where a variable or torch asks for them: the processors of
    many workstations contain an AMD GPU that only drives the screen.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> None:
        self._environ = environ
        self._root = root
        self._lock = threading.RLock()
        self._forking: set[int] = set()  # threads that fork, and hold the lock meanwhile
        self._usable = True
        self._waits = True  # for another thread's reading; False once a wait timed out
        self._opened: tuple[Devices, ...] | None = None
        self._torch = _counters()

    @property
    def has_none(self) -> bool:
        """Whether a reading has found that there is no GPU."""
        return self._opened == ()

    def sample(self, pids: Collection[int] = ()) -> tuple[GpuReading, ...]:
        """Takes a reading between two checkpoints."""
        return self(pids, is_brief=True)

    def __call__(
        self, pids: Collection[int] = (), *, is_brief: bool = False
    ) -> tuple[GpuReading, ...]:
        """Takes a reading."""
        if self.has_none:
            return ()
        lock = self._lock
        if not lock.acquire(timeout=_LONGEST_WAIT if self._waits else 0):
            if self._waits:
                LOG.warning("A GPU driver does not respond; GPUs are not read until it does")
            self._waits = False
            return ()
        try:
            self._waits = True
            return self._read(pids, is_brief)
        finally:
            lock.release()

    def joules(self) -> float | None:
        """Asks all devices for the energy that they have used since the first reading."""
        self.ask_for_energy()
        return GPU_ENERGY.value(self())

    def ask_for_energy(self) -> None:
        """Has the next reading ask all devices for their counters, instead of taking their last power for what came since."""
        for devices in self._opened or ():
            devices.ask_for_energy()

    def _read(self, pids: Collection[int], is_brief: bool) -> tuple[GpuReading, ...]:
        if self._opened is None:
            self._opened = self._open()
        tree = frozenset((os.getpid(), *pids))
        readings: list[GpuReading] = []
        first, is_whole = 0, True
        for devices in self._opened:
            own = devices.read(tree, is_brief)
            self._torch[devices.platform].add_to(own, is_brief=is_brief)
            for reading in own:
                reading.index += first
            readings += own
            first += devices.count
            is_whole &= devices.is_whole
        if not is_whole:
            for reading in readings:
                reading.is_whole = False
        return tuple(readings)

    def _open(self) -> tuple[Devices, ...]:
        if not self._usable:
            return ()
        nvidia, amd = open_nvml(self._environ, self._root), None
        asks_for_amd = any(map(self._environ.get, _AMD_VARIABLES)) or platform_of_torch() == "hip"
        if nvidia is None or not nvidia.count or asks_for_amd:
            amd = open_amd(self._environ, self._root)
        return tuple(each for each in (nvidia, amd) if each is not None and each.count)

    def before_fork(self) -> None:
        """Waits for the reading that another thread is taking."""
        if self._lock.acquire(timeout=_LONGEST_WAIT):
            self._forking.add(threading.get_ident())

    def after_fork_in_parent(self) -> None:
        """Allows readings again."""
        if threading.get_ident() in self._forking:
            self._forking.discard(threading.get_ident())
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Drops the parent's drivers."""
        # Without the lock, another thread was inside the driver during the fork. That thread
        # does not exist in the child, so the driver's own locks are never released here.
        self._usable = self._usable and threading.get_ident() in self._forking
        self._forking = set()
        self._lock = threading.RLock()
        self._opened, self._torch = None, _counters()


def _counters() -> dict[Platform, TorchCounters]:
    return {"cuda": TorchCounters("cuda"), "hip": TorchCounters("hip")}


GPUS: Final = GpuProbe()  # The process's own: opening the drivers is not cheap

if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=GPUS.before_fork,
        after_in_parent=GPUS.after_fork_in_parent,
        after_in_child=GPUS.after_fork_in_child,
    )
