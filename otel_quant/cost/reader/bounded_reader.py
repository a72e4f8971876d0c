"""Reads what every ONNX message is made of, names, numbers and lists, within bounds.

A file may be hostile: a few bytes of it can make many objects. What is kept of one file
is therefore counted, whatever message it comes from.
"""

from __future__ import annotations

import struct
from typing import Final

from otel_quant.cost.reader.wire import FIXED32, LENGTH, VARINT, Reader, float32, signed
from otel_quant.cost.structure import Elided

MAX_NAME: Final = 1 << 16
"""Bytes of a name."""

MAX_RANK: Final = 64
"""Dimensions of a tensor."""

MAX_RECORDS: Final = 2_000_000
"""Nodes, tensors, attributes and declared values kept from one file."""

MAX_KEPT: Final = 512 << 20
"""Bytes of memory, roughly, that all of them may take; the largest graph seen takes a tenth."""

_RECORD, _NUMBER = 300, 40
"""Bytes of memory, roughly, of a record and of a number in a list."""

MAX_LIST: Final = 1 << 16
"""Elements of a list attribute that are kept."""

MAX_STRING: Final = 1 << 16
"""Bytes of a string attribute that are kept."""


class BoundedReader:
    """The readers of messages are made on top of it, and count together what they keep.

    Every method reads one field or message that ends at the position given, and leaves the
    reader there or before it.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._records = 0
        self._kept = 0
        self._names: dict[bytes, str] = {}

    def _want(self, number: int, kind: int, expected: int) -> None:
        if kind != expected:
            raise self._reader.error(
                f"field {number} has wire type {kind} instead of {expected}", "an ONNX ModelProto"
            )

    def _name(self, number: int, kind: int, length: int) -> str:
        if kind != LENGTH:
            self._want(number, kind, LENGTH)
        return self._text(length)

    def _own_name(self, number: int, kind: int, length: int) -> str:
        """Reads a name that hardly ever recurs."""
        if kind != LENGTH:
            self._want(number, kind, LENGTH)
        if length > MAX_NAME:
            raise self._reader.error(f"a name of {length:,} bytes", f"at most {MAX_NAME:,}")
        self._keep(_RECORD + 2 * length)
        return self._reader.take(length).decode("utf-8", "backslashreplace")

    def _text(self, length: int) -> str:
        """Reads a string; equal ones are one object, since names recur as inputs."""
        if length > MAX_NAME:
            raise self._reader.error(f"a name of {length:,} bytes", f"at most {MAX_NAME:,}")
        raw = self._reader.take(length)
        text = self._names.get(raw)
        if text is None:
            text = self._names[raw] = raw.decode("utf-8", "backslashreplace")
            self._keep(_RECORD + 2 * length)
            if len(self._names) > MAX_RECORDS:
                raise self._reader.error(
                    f"more than {MAX_RECORDS:,} names", f"at most {MAX_RECORDS:,}"
                )
        return text

    def _bytes(self, length: int) -> bytes:
        self._keep(_NUMBER + length)
        return self._reader.take(length)

    def _numbers(self, number: int, kind: int, value: int) -> list[int] | list[float] | Elided:
        """One element of a repeated number, or all of them where they are packed."""
        reader = self._reader
        integers = number == 8
        if kind != LENGTH:
            self._want(number, kind, VARINT if integers else FIXED32)
            self._keep_numbers(1)
            return [signed(value)] if integers else [float32(value)]
        if not integers:
            if value > 4 * MAX_LIST:
                return Elided(value // 4)
            self._keep_numbers(value // 4)
            return list(struct.unpack(f"<{value // 4}f", reader.take(value - value % 4)))
        if value > MAX_LIST:
            return Elided(value)
        return self._packed(value)

    def _packed(self, length: int) -> list[int]:
        reader = self._reader
        end = reader.pos + length
        found: list[int] = []
        while reader.pos < end:
            found.append(signed(reader.varint()))
        self._keep_numbers(len(found))
        return found

    def _dims(self, kind: int, value: int, dims: list[int]) -> None:
        if kind == LENGTH:
            if value > MAX_RANK * 10:
                raise self._reader.error(
                    f"a tensor of more than {MAX_RANK} dimensions", f"at most {MAX_RANK}"
                )
            dims.extend(self._packed(value))
        else:
            self._want(1, kind, VARINT)
            self._keep_numbers(1)
            dims.append(signed(value))
        if len(dims) > MAX_RANK:
            raise self._reader.error(
                f"a tensor of more than {MAX_RANK} dimensions", f"at most {MAX_RANK}"
            )

    def _count(self) -> None:
        self._records += 1
        if self._records > MAX_RECORDS:
            raise self._reader.error(
                f"more than {MAX_RECORDS:,} nodes, tensors and attributes",
                f"at most {MAX_RECORDS:,}",
            )
        self._keep(_RECORD)

    def _keep(self, size: int) -> None:
        self._kept += size
        if self._kept > MAX_KEPT:
            raise self._reader.error(
                f"names, lists and small constants of more than {MAX_KEPT:,} bytes",
                f"at most {MAX_KEPT:,}",
            )

    def _keep_numbers(self, count: int) -> None:
        self._keep(_NUMBER * count)
