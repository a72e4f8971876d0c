"""For how long a program has waited in vain for an endpoint that does not answer: its child processes wait no more of it.

Forked ones share this with their parent; spawned ones open it by the path that they are given. Loaded in every
instrumented program that starts processes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import Any, Final

from otel_quant.base.files import open_apart

_NAME: Final = "otel-quant-waited"


class Waited:
    """Seconds since the endpoint took something, in memory that processes share once there are several."""

    def __init__(self) -> None:
        self._shared: Any = memoryview(bytearray(8)).cast("d")
        self._path = ""  # Empty while it is not shared

    @property
    def seconds(self) -> float:
        """All that the processes have waited so far."""
        return float(self._shared[0])

    @seconds.setter
    def seconds(self, value: float) -> None:
        self._shared[0] = value

    def share(self) -> str:
        """Shares it with the processes that are started from now on; returns a path for those that are not forked."""
        if not self._path and hasattr(os, "memfd_create"):
            made = os.memfd_create(_NAME)
            os.ftruncate(made, 8)
            descriptor = open_apart(f"/proc/self/fd/{made}", os.O_RDWR)
            os.close(made)
            shared = memoryview(mmap(descriptor, 8)).cast("d")
            shared[0], self._shared = self.seconds, shared
            self._path = f"/proc/{os.getpid()}/fd/{descriptor}"
        return self._path

    def join(self, path: str) -> None:
        """Has what the parent of this process has, unless that has closed it."""
        with suppress(OSError):
            if path and _NAME in str(Path(path).readlink()):
                with Path(path).open("r+b") as file:
                    self._shared, self._path = memoryview(mmap(file.fileno(), 8)).cast("d"), path


WAITED: Final = Waited()  # That of this process
