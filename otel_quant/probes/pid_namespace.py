"""Whether a driver that does not list our processes thereby says that they use nothing.

A GPU driver may count processes by the numbers of another PID namespace, as it does in
some containers. Then our processes are absent from its list however much memory they
use, and "not listed" must not be told as 0 bytes.
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
    """Judges lists of processes that come from the NVIDIA driver.

    Args:
        root: Root of the file system that holds ``proc`` and ``dev``.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._agrees = sys.platform != "linux" or self._is_initial()

    def _is_initial(self) -> bool:
        try:
            return (self._root / "proc/self/ns/pid").stat().st_ino == INITIAL_PID_NAMESPACE
        except OSError:
            return False

    def saw_ours(self) -> None:
        """Takes note that the driver listed one of our processes under our number for it."""
        self._agrees = True

    def unlisted_means_none(self, pids: Iterable[int]) -> bool:
        """Says whether processes that the driver does not list use no GPU memory.

        They use none if the driver counts processes as we do: in the initial namespace,
        or once it has listed one of ours. Failing that, they use none if CUDA has not
        been started in any of them.

        Args:
            pids: The processes.

        Returns:
            True if 0 bytes is a fact, False if nothing is known.
        """
        if self._agrees:
            return True
        if not (self._root / _UVM).exists():
            return False
        return not any(self._may_use_cuda(pid) for pid in pids)

    def _may_use_cuda(self, pid: int) -> bool:
        folder = f"{self._root}/proc/{pid}/fd"
        try:
            files = os.listdir(folder)  # noqa: PTH208  # pathlib costs ten times as much
        except FileNotFoundError:
            return False  # it has exited
        except OSError:
            return True
        for file in files:
            try:
                target = os.readlink(f"{folder}/{file}")  # noqa: PTH115  # likewise
            except OSError:
                continue  # closed meanwhile
            if target.endswith("/nvidia-uvm"):
                return True
        return False
