"""The events of one process: JSON lines, one ``write`` each, so that a kill loses none.

A line has ``schema``, ``time`` (nanoseconds since the epoch), ``clock`` (monotonic, in nanoseconds),
``kind``, and the names of :mod:`otel_quant.telemetry.semconv`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from otel_quant.recordings.layout import SCHEMA

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


class EventFile:
    """Writes events. Any number of threads may use it: a line is one append.

    Args:
        path: Path of the file.

    Raises:
        OSError: The file exists or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, _FLAGS, 0o666)

    def write(self, kind: str, time_ns: int, clock_ns: int, fields: Mapping[str, Any]) -> None:
        """Appends an event.

        Args:
            kind: What has happened.
            time_ns: Wall clock, in nanoseconds since the epoch.
            clock_ns: Monotonic clock, in nanoseconds.
            fields: The rest, by name; what is None is left out.

        Raises:
            OSError: It could not be written whole; a cut line is ended, so that the next stands
                alone.
        """
        event: dict[str, Any] = {"schema": SCHEMA, "time": time_ns, "clock": clock_ns, "kind": kind}
        event.update((name, value) for name, value in fields.items() if value is not None)
        data = _text(event).encode()
        written = os.write(self._descriptor, data)
        if written < len(data):
            os.write(self._descriptor, b"\n")
            raise OSError(28, f"only {written} of {len(data)} bytes could be written", str(self.path))

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


def _text(event: Mapping[str, Any]) -> str:
    try:
        return json.dumps(event, default=str, allow_nan=False, separators=(",", ":")) + "\n"
    except ValueError:  # JSON has no NaN and no infinity
        return json.dumps(_finite(event), default=str, separators=(",", ":")) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the events of a process; a line that is cut or no event is left out.

    Args:
        path: The file.

    Raises:
        OSError: It cannot be read.
        NewerSchemaError: A newer otel-quant has written it.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if not isinstance(event, dict) or "kind" not in event:
                continue
            schema = event.get("schema")
            if isinstance(schema, int) and schema > SCHEMA:
                raise NewerSchemaError(f"{path}, line {number}: schema {schema}", schema)
            yield event


class NewerSchemaError(ValueError):
    """A recording was written by a newer otel-quant.

    Args:
        where: File and line.
        schema: Its schema.
    """

    def __init__(self, where: str, schema: int) -> None:
        super().__init__(
            f"{where}; this otel-quant reads {SCHEMA} and less: read it with a newer one"
        )
        self.schema = schema
