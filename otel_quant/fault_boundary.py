"""The one place where a failure of otel-quant itself ends.

The program that is watched must not notice that we failed, and its user must be told,
once. Everything of ours that runs inside someone else's program runs within
:meth:`Faults.kept_in`; nothing else in the package catches ``Exception``.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final

_log = logging.getLogger("otel_quant")


class Faults:
    """Swallows exceptions and logs the first of each origin.

    Attributes:
        counts: Number of failures by origin.
    """

    def __init__(self, log: logging.Logger = _log) -> None:
        self._log = log
        self.counts: dict[str, int] = {}

    def kept_in(self, origin: str) -> Boundary:
        """Returns a context manager out of which no ``Exception`` comes.

        Args:
            origin: What is being tried, for the log: "probe gpu", "sink spans". A
                failure is logged the first time that it comes from an origin.

        Returns:
            A context manager; its ``failed`` says afterwards whether it swallowed one.
        """
        return Boundary(self, origin)

    def report(self, origin: str, error: Exception) -> None:
        """Logs a failure unless one of the same origin has been logged.

        Args:
            origin: What was being tried.
            error: What went wrong.
        """
        count = self.counts.get(origin, 0)
        self.counts[origin] = count + 1
        if count == 0:
            self._log.warning(
                "%s failed and is skipped; the program goes on without it: %s: %s",
                origin,
                type(error).__name__,
                error,
                exc_info=(type(error), error, error.__traceback__)
                if self._log.isEnabledFor(logging.DEBUG)
                else None,
            )


class Boundary:
    """See :meth:`Faults.kept_in`. A class, not a generator: it costs a third as much."""

    __slots__ = ("_faults", "_origin", "failed")

    def __init__(self, faults: Faults, origin: str) -> None:
        self._faults = faults
        self._origin = origin
        self.failed = False

    def __enter__(self) -> Boundary:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False  # none, or KeyboardInterrupt and SystemExit, which are the program's own
        self.failed = True
        self._faults.report(self._origin, error)
        return True


FAULTS: Final = Faults()
"""The process's own; a failure is logged once in a process."""
