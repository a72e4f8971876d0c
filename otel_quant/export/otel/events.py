"""Makes log records that are events: with a name, for what happened at a moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry._logs import Logger, LogRecord, SeverityNumber
from opentelemetry.context import Context


def emit_event(
    logger: Logger,
    name: str,
    body: str | dict[str, Any],
    attributes: Mapping[str, Any],
    context: Context | None,
    time_ns: int,
    severity: SeverityNumber = SeverityNumber.INFO,
) -> None:
    """Emits one event."""
    logger.emit(
        LogRecord(
            timestamp=time_ns,
            context=context,
            severity_number=severity,
            severity_text=severity.name,
            event_name=name,
            body=body,
            attributes={key: value for key, value in attributes.items() if value is not None},
        )
    )
