"""The file of a curve: JSON lines, bounded in size, complete up to a second before a kill.

The first line, and each line that adds a column, is a mapping; every other line is a list: one
bucket, in the order of the columns. A bucket that is still filling is appended again every
:data:`FLUSH_EVERY` seconds, and the last line of a bucket counts. When the file has grown to
:data:`LARGEST`, the curve is halved until its buckets fit into half of that, and the file is replaced
whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_quant.base.files import HeldFile
from otel_quant.export.recording.curve import Bucket, Curve, Number, cells_of, columns_of, reader_of
from otel_quant.export.recording.event_file import NewerSchemaError

SCHEMA: Final = 1
"""Version of the format."""

LARGEST: Final = 290_000
"""Bytes at which the file is written anew."""

FLUSH_EVERY: Final = 1.0
"""Seconds between two writes: what a kill can lose."""


class CurveFile:
    """Writes a curve while it grows. One thread at a time may use it."""

    def __init__(self, path: Path, began_ns: int, clock_ns: int, interval: float) -> None:
        self._began_ns, self._clock_ns = began_ns, clock_ns
        self._curve = Curve(max(1, round(interval * 1000)))
        self._levels: tuple[str, ...] = ()
        self._totals: tuple[str, ...] = ()
        self._changed: dict[int, Bucket] = {}
        self._has_new_columns = True
        self._written_ns = clock_ns
        self._file = HeldFile(path)
        self._size = 0
        self._is_outdated = False  # what is on disk has buckets of another length

    def add(
        self, clock_ns: int, levels: Mapping[str, Number], totals: Mapping[str, Number]
    ) -> None:
        """Adds a reading, and writes what is due."""
        if not levels.keys() <= set(self._levels) or not totals.keys() <= set(self._totals):
            self._levels = tuple(dict.fromkeys((*self._levels, *levels)))
            self._totals = tuple(dict.fromkeys((*self._totals, *totals)))
            self._has_new_columns = True
        at = max(0, clock_ns - self._clock_ns) // 1_000_000
        bucket = self._curve.add(at, levels, totals)
        self._changed[bucket.position] = bucket
        if clock_ns - self._written_ns >= FLUSH_EVERY * 1e9:
            self._written_ns = clock_ns
            self.flush()

    def flush(self) -> None:
        """Writes every bucket that has changed."""
        text = self._head() if self._has_new_columns else ""
        text += self._rows(self._changed)
        if not text:
            return
        data = text.encode()
        if self._is_outdated or self._size + len(data) > LARGEST:
            self._write_anew()
        else:
            self._file.append(data)
            self._size += len(data)
        self._has_new_columns = False
        self._changed.clear()

    def summary(self) -> dict[str, Number]:
        """Returns the highest value of each level and the last of each total, by name."""
        return self._curve.summary()

    def close(self) -> None:
        """Writes what is left and closes the file."""
        try:
            self.flush()
        finally:
            self._file.close()

    def forget(self) -> None:
        """In a forked child: closes its copy."""
        self._file.forget()

    def _write_anew(self) -> None:
        data = (self._head() + self._rows(self._curve.buckets)).encode()
        while len(data) > LARGEST // 2 and len(self._curve.buckets) > 1:
            self._curve.halve()
            self._is_outdated = True
            data = (self._head() + self._rows(self._curve.buckets)).encode()
        self._file.replace(data)
        self._size, self._is_outdated = len(data), False

    def _head(self) -> str:
        head = {
            "schema": SCHEMA,
            "time": self._began_ns,
            "clock": self._clock_ns,
            "length": self._curve.length,
            "columns": columns_of(self._levels, self._totals),
        }
        return json.dumps(head, separators=(",", ":")) + "\n"

    def _rows(self, buckets: Mapping[int, Bucket]) -> str:
        return "".join(
            json.dumps(cells_of(bucket, self._levels, self._totals), separators=(",", ":")) + "\n"
            for bucket in buckets.values()
        )


@dataclass(frozen=True, slots=True)
class RecordedCurve:
    """A curve that was read from its file."""

    began_ns: int  # Wall clock when it began, in nanoseconds since the epoch
    clock_ns: int  # Monotonic clock at the same moment, in nanoseconds
    curve: Curve  # Its buckets


def read_curve(path: Path) -> RecordedCurve:
    """Reads a curve. A last line that a kill has cut short is left out."""
    lines = path.read_bytes().split(b"\n")
    del lines[-1]  # after the last line feed: nothing, or a line that was cut
    head: dict[str, Any] = {}
    curve: Curve | None = None
    for number, line in enumerate(lines, start=1):
        try:
            if line.startswith(b"{"):
                head = json.loads(line)
                schema = head.get("schema")
                if isinstance(schema, int) and schema > SCHEMA:
                    raise NewerSchemaError(f"{path}, line {number}: schema {schema}", schema)
                curve = curve or Curve(int(head["length"]))
                bucket_of = reader_of(head["columns"])
            elif curve is None:
                raise ValueError("the first line is a bucket; expected the columns")
            else:
                bucket = bucket_of(json.loads(line))
                curve.buckets[bucket.position] = bucket
        except NewerSchemaError:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    if curve is None:
        raise ValueError(f"{path} has no columns; expected them in its first line")
    return RecordedCurve(int(head["time"]), int(head["clock"]), curve)
