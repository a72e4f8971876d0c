"""Decides whether a process that the NVIDIA driver does not list uses no GPU memory.

In some containers the driver lists processes by the process ids of another PID namespace. Our
processes are then never found in its list, however much memory they use, so "not listed" must
not be reported as 0 bytes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
"""Inode of the namespace that the kernel starts with (``PROC_PID_INIT_INO``)."""

_UVM: Final = "dev/nvidia-uvm"
"""CUDA opens this device before it allocates anything; NVML never opens it."""


class PidNamespace:
    """Whether the driver's lists of processes use our process ids."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._same_ids = sys.platform != "linux" or self._is_initial()

    def _is_initial(self) -> bool:
        try:
            return (self._root / "proc/self/ns/pid").stat().st_ino == INITIAL_PID_NAMESPACE
        except OSError:
            return False

    def note_own_process_listed(self) -> None:
        """Notes that the driver has listed one of our processes under our process id."""
        self._same_ids = True

    def unlisted_means_unused(self, pids: Iterable[int]) -> bool:
        """Returns whether processes that the driver does not list use no GPU memory.

        This holds if the driver uses our process ids: in the initial namespace, or once it has
        listed one of our processes. Otherwise it holds if none of the processes has started
        CUDA.
        """
        if self._same_ids:
            return True
        if not (self._root / _UVM).exists():
            return False
        return not any(self._may_use_cuda(pid) for pid in pids)

    def _may_use_cuda(self, pid: int) -> bool:
        folder = f"{self._root}/proc/{pid}/fd"
        try:
            files = os.listdir(folder)  # noqa: PTH208  # pathlib takes ten times as long
        except FileNotFoundError:
            return False  # it has exited
        except OSError:
            return True
        for file in files:
            try:
                target = os.readlink(f"{folder}/{file}")  # noqa: PTH115  # same reason
            except OSError:
                continue  # closed meanwhile
            if target.endswith("/nvidia-uvm"):
                return True
        return False
