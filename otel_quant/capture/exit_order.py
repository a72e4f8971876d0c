"""Who comes first when this process ends: at exit Python calls what was registered last first.

1. What the program registers after its first step, Quark's own profiler with its last record too.
2. The end of the run: its spans end, its files are complete, and exporters have a limited time to deliver.
3. What was there before: the providers of the SDK, which register as they are made; those that have not
   answered by then are not shut down (:mod:`otel_quant.export.otel.delivery`).
"""

from __future__ import annotations

import atexit
from collections.abc import Callable


class ExitOrder:
    """The place of the run's end among what happens at exit."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._is_registered = False

    def take_place(self) -> None:
        """Has the run end at exit: after what registers later, before what has registered."""
        if not self._is_registered:
            self.be_first()

    def be_first(self) -> None:
        """Moves the end before what has registered since: providers that were made after the first step."""
        self._is_registered = True
        atexit.unregister(self._end)
        atexit.register(self._end)
