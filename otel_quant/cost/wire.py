"""Reads protobuf's wire format from a file without reading what lies in it.

A reader of our own because the usual one has to hold the complete message: a model of a
gigabyte is a few thousand short fields around long payloads, and only the short ones are
wanted. Payloads are skipped with seeks. No mmap: its cached pages count as our memory.

The format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from io import BytesIO, FileIO
from time import monotonic
from typing import Final, TypeAlias

from otel_quant.cost.structure import LONGER, CostError

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5
_VARINTS: Final = frozenset({VARINT, LENGTH})
_FIXED: Final = {FIXED32: 4, FIXED64: 8}  # Bytes of the fields that have a fixed length

WINDOW: Final = 32 * 1024
"""Bytes read at a time. Small, because after each skipped payload one window is read."""

_LOOK_EVERY: Final = 16 * 1024  # Bytes between looks at the clock
_LONGEST_VARINT: Final = 10
MODEL: Final = "an ONNX ModelProto"  # What is expected of a file

Field: TypeAlias = tuple[int, int, int]
"""Field number, wire type, and the value, or for LENGTH fields the number of bytes."""


class Reader:
    """A position in a file, moving forward over fields."""

    def __init__(
        self, file: FileIO | BytesIO, source: str, size: int, deadline: float | None = None
    ) -> None:
        self.source, self.size, self._file = source, size, file
        self.pos = self._base = 0
        self._buffer = b""
        self._limit = -1  # last index in the buffer at which a varint surely ends within it
        self._look_at = _LOOK_EVERY
        self._deadline = deadline

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def error(self, problem: str, expected: str = "", offset: int | None = None) -> CostError:
        """Returns the error for this position, to be raised."""
        at = self.pos if offset is None else offset
        return CostError(self.source, problem, expected=expected, offset=at)

    def fields(self, end: int) -> Iterator[Field]:
        """Yields the fields between here and ``end``.

        A LENGTH field's content may be read from ``pos`` on while it is the current one;
        what the caller leaves is skipped.
        """
        while self.pos < end:
            start = self.pos
            # Keys and lengths are nearly always of one byte: a call for each would cost a
            # tenth of the reading.
            i = start - self._base
            if 0 <= i <= self._limit and (key := self._buffer[i]) < 0x80:
                self.pos = start + 1
            else:
                key = self.varint()
                i = self.pos - self._base - 1
            number = key >> 3
            kind = key & 7
            if number == 0:
                raise self.error("field number 0", MODEL, start)
            if start >= self._look_at:
                self._look_at = start + _LOOK_EVERY
                if self.is_late():
                    raise self.error("the time limit passed while the file was read", LONGER)
            if kind in _VARINTS:
                if i < self._limit and (value := self._buffer[i + 1]) < 0x80:
                    self.pos += 1
                else:
                    value = self.varint()
                stop = self.pos + value if kind == LENGTH else self.pos
                if stop > end and kind == LENGTH:
                    problem = f"field {number} claims {value} bytes where {max(0, end - self.pos)} are left"
                    expected = "a whole ONNX file; this one is truncated or damaged"
                    raise self.error(problem, expected, start)
                yield number, kind, value
                self.pos = stop
            elif kind in _FIXED:
                yield number, kind, int.from_bytes(self.take(_FIXED[kind]), "little")
            else:
                raise self.error(f"field {number} has wire type {kind}", MODEL, start)
        if self.pos > end:
            raise self.error("a field ends outside its message", "a whole ONNX file")

    def varint(self) -> int:
        """Reads one unsigned integer of up to 64 bits."""
        i = self.pos - self._base
        if not 0 <= i <= self._limit:
            self._fill()
            i = 0
        buffer = self._buffer
        try:
            byte = buffer[i]
            if byte < 0x80:
                self.pos += 1
                return byte
            value = byte & 0x7F
            shift = 7
            stop = i + _LONGEST_VARINT
            while True:
                i += 1
                byte = buffer[i]
                if byte < 0x80:
                    break
                value |= (byte & 0x7F) << shift
                shift += 7
                if i >= stop:
                    raise self.error("an integer of more than 64 bits", MODEL)
        except IndexError:
            raise self.error("the file ends inside a field", "a whole ONNX file") from None
        self.pos = self._base + i + 1
        return (value | byte << shift) & 0xFFFFFFFFFFFFFFFF

    def take(self, length: int) -> bytes:
        """Reads ``length`` bytes; the caller bounds it."""
        i = self.pos - self._base
        data = self._buffer[i : i + length]
        if i < 0 or len(data) != length:
            self._fill(length)
            data = self._buffer[:length]
            if len(data) != length:
                problem = f"{length} bytes are needed and {len(data)} are left"
                raise self.error(problem, "a whole ONNX file")
        self.pos += length
        return data

    def _fill(self, least: int = 0) -> None:
        self._file.seek(self.pos)
        wanted = max(WINDOW, least)
        data = self._file.read(wanted) or b""
        while len(data) < wanted:  # a raw file may return less than asked for
            more = self._file.read(wanted - len(data))
            if not more:
                break
            data += more
        self._buffer = data
        self._base = self.pos
        at_end = self.pos + len(data) >= self.size
        self._limit = len(data) - 1 if at_end else len(data) - _LONGEST_VARINT

    def is_late(self) -> bool:
        """Returns whether the time limit has passed."""
        return self._deadline is not None and monotonic() > self._deadline


def signed(value: int) -> int:
    """Returns a varint as the int64 that it encodes."""
    return value - (1 << 64) if value >> 63 else value


def float32(bits: int) -> float:
    """Returns a FIXED32 field as the float that it encodes."""
    value: float = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
    return value


def open_reader(path: str | os.PathLike[str], deadline: float | None = None) -> Reader:
    """Opens a file for reading its structure."""
    name = os.fspath(path)
    try:
        found = os.stat(path)  # noqa: PTH116  # pathlib takes 2 ms to import
        regular = stat.S_ISREG(found.st_mode)  # a FIFO or a device would block or never end
        file = FileIO(path) if regular else None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CostError(name, f"cannot be opened: {reason}", expected="an ONNX file") from error
    if file is None:
        raise CostError(name, "is not a regular file", expected="an ONNX file")
    return Reader(file, name, found.st_size, deadline)


# Formats that models come in: without the name of one a user would look for damage in a good file.
_NOT_ONNX: Final = (
    (0, b"version https://git-lfs", "is a Git LFS pointer, the model itself was not fetched"),
    (0, b"PK\x03\x04", "is a ZIP archive"),  # PyTorch's own, too
    (0, b"GGUF", "is a GGUF file"),
    (0, b"\x89HDF", "is an HDF5 file"),
    (0, b"\x80\x02", "is a Python pickle"),
    (0, b"\x80\x04", "is a Python pickle"),
    (0, b"\x1f\x8b", "is gzip-compressed"),
    (4, b"ORTM", "is in onnxruntime's ORT format"),
    (4, b"TFL3", "is a TensorFlow Lite model"),
    (8, b'{"', "is a safetensors file"),
)

_LOOKED_AT: Final = 64  # Bytes from the start of a file
_SHORTEST_TEXT: Final = 4  # Bytes; a shorter file may look like text by chance


def no_model(reader: Reader, error: CostError) -> CostError:
    """The error for a file in which no graph was reached."""
    if reader.size == 0:
        return CostError(reader.source, "is empty", expected=MODEL)
    reader.pos = 0
    start = reader.take(min(reader.size, _LOOKED_AT))
    for at, magic, what in _NOT_ONNX:
        if start.startswith(magic, at):
            return CostError(reader.source, what, expected=MODEL)
    text = start.decode("utf-8", "ignore")  # its last letter may be cut
    if (
        len(start) >= _SHORTEST_TEXT
        and len(start) - len(text.encode()) < 4
        and all(letter.isprintable() or letter.isspace() for letter in text)
    ):
        return CostError(reader.source, "is a text file", expected=MODEL)
    problem = f"is not an ONNX model, or only a part of one: {error.problem}"
    expected = error.expected or MODEL
    return CostError(reader.source, problem, expected=expected, offset=error.offset)
