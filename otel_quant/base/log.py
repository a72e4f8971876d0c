"""The logger of otel-quant, whose warnings are printed if no handler of the program does.

Python prints a warning for which there is no handler. The handlers of OpenTelemetry count as
handlers, and they send what they get: a user who has no backend would not learn of a failure.

Who logs imports the logger from here. The package does not load this module: commands that log
nothing start without `logging`.
"""

from __future__ import annotations

import functools
import logging
from typing import Final


class StderrLog(logging.Handler):
    """Does what Python does for a logger without handlers, where there are only OpenTelemetry's."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a record, unless a handler of the program gets it."""
        last_resort = logging.lastResort
        if last_resort is None or record.levelno < last_resort.level:
            return
        if not self._is_for_another(logging.getLogger(record.name)):
            last_resort.handle(record)

    def _is_for_another(self, logger: logging.Logger) -> bool:
        above: logging.Logger | None = logger
        while above is not None:
            for handler in above.handlers:
                if handler is not self and not type(handler).__module__.startswith(
                    "opentelemetry."
                ):
                    return True
            above = above.parent if above.propagate else None
        return False


LOG: Final = logging.getLogger("otel_quant")
LOG.addHandler(StderrLog())


@functools.cache
def warn_once(text: str) -> None:
    """Logs a warning, unless this process has logged it before."""
    LOG.warning("%s", text)
