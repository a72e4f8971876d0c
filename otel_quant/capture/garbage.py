"""How long Python's garbage collector has run: no other Python code does meanwhile."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

from otel_quant.diagnosis.spots import spot_of
from otel_quant.diagnosis.tasks import Garbage
from otel_quant.schema.code_lines import Place

_FULL: Final = 2
"""The generation that has all objects."""


class Collections:
    """The collections of this process. Those of the youngest objects alone are many and short: they are not timed."""

    def __init__(self) -> None:
        # All, those of all objects, the newest of these, in ns, and how many there were
        self.taken: tuple[int, ...] = (0, 0, 0, 0)
        self._began_ns = 0
        self._lines_of: Callable[[FrameType | None], Sequence[Place]] = lambda _: ()
        self._line = ""

    def watch(self, lines_of: Callable[[FrameType | None], Sequence[Place]]) -> None:
        """Begins, once in a process; is given what returns the lines of a stack."""
        self._lines_of = lines_of
        if self not in gc.callbacks:
            gc.callbacks.append(self)

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """Is called by Python before and after each collection."""
        if not info["generation"]:
            return
        now = time.thread_time_ns()  # while Python calls us another thread may take the GIL
        if phase == "start":
            self._began_ns = now
        elif self._began_ns:
            took, self._began_ns = now - self._began_ns, 0
            every, full, newest, count = self.taken
            if info["generation"] == _FULL:
                full, newest, count = full + took, took, count + 1
                if lines := self._lines_of(sys._getframe().f_back):
                    self._line = spot_of(lines).words
            self.taken = every + took, full, newest, count

    def since(self, before: tuple[int, ...], lasted_ns: float) -> Garbage:
        """Returns what they have taken in a time that began when they had taken so much."""
        if self not in gc.callbacks:  # the program has removed it
            return Garbage()
        took, full, _, count = (a - b for a, b in zip(self.taken, before, strict=True))
        mean, line = full / max(1, count) / 1e9, self._line if count else ""
        return Garbage(took / lasted_ns, count, mean, before[2] / 1e9, line)


COLLECTIONS: Final = Collections()
"""Those of this process."""
