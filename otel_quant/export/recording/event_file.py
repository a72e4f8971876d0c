"""The events of one process: JSON lines, one ``write`` each, so that a kill loses none.

A line has ``schema``, ``time`` (nanoseconds since the epoch), ``clock`` (monotonic, in nanoseconds),
``kind``, and the names of :mod:`otel_quant.schema.semconv`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from otel_quant.base.files import HeldFile
from otel_quant.export.recording.layout import SCHEMA

_ENCODE: Final = json.JSONEncoder(default=str, allow_nan=False, separators=(",", ":")).encode
"""Made once: ``json.dumps`` with these arguments makes an encoder for each event."""

_HEAD: Final = 120
"""Bytes at the beginning of a line in which its kind stands: it comes after three numbers."""

_OF_RUN: Final = b'"kind":"run.'
_OF_PROCESS: Final = b'"kind":"process.'


class EventFile:
    """Writes events. Any number of threads may use it: a line is one append."""

    def __init__(self, path: Path) -> None:
        self._file = HeldFile(path)

    def write(self, kind: str, time_ns: int, clock_ns: int, fields: Mapping[str, Any]) -> None:
        """Appends an event."""
        event: dict[str, Any] = {"schema": SCHEMA, "time": time_ns, "clock": clock_ns, "kind": kind}
        event.update((name, value) for name, value in fields.items() if value is not None)
        self._file.append(as_json(event).encode() + b"\n")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def forget(self) -> None:
        """In a forked child: closes its copy."""
        self._file.forget()


def as_json(value: Mapping[str, Any]) -> str:
    """Returns a mapping as JSON on one line, in ASCII; NaN and infinity as text."""
    try:
        return _ENCODE(value)
    except (TypeError, ValueError):  # JSON has no NaN, no infinity, and only some kinds of keys
        return _ENCODE(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the events of a process; a line that is cut or no event is left out."""
    with path.open("rb") as lines:
        yield from _events(path, lines)


def read_ends(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the events of a process; if all of its runs have ended, only those of the runs.

    The last event of a run has what its steps have said of it.
    """
    lines = path.read_bytes().splitlines()
    of_runs = [line for line in lines if _OF_RUN in (head := line[:_HEAD]) or _OF_PROCESS in head]
    events = list(_events(path, of_runs))
    kinds = [event["kind"] for event in events]
    if kinds.count("run.started") == kinds.count("run.ended"):
        return iter(events)
    return _events(path, lines)


def _events(path: Path, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict) or "kind" not in event:
            continue
        schema = event.get("schema")
        if isinstance(schema, int) and schema > SCHEMA:
            raise NewerSchemaError(f"{path}, line {number}: schema {schema}", schema)
        yield event


EXPECTED: Final = "expected a recording (the folder that `otel-quant run -- PROGRAM` makes) or a quark_profile.yaml"
"""What errors say is expected of a path."""


class NotARecordingError(ValueError):
    """A folder holds no recording, or a file is no profile."""


class NewerSchemaError(ValueError):
    """A recording was written by a newer otel-quant."""

    def __init__(self, where: str, schema: int) -> None:
        super().__init__(
            f"{where}; this otel-quant reads {SCHEMA} and less: read it with a newer one"
        )
        self.schema = schema
