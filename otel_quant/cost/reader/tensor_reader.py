"""Reads tensors: type, shape and place, and the elements of those that are few.

Elements are read where they are shapes, axes, scales or exponents.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.errors import printable
from otel_quant.cost.reader.bounded_reader import BoundedReader
from otel_quant.cost.reader.wire import LENGTH, VARINT, float32
from otel_quant.cost.structure import External, Span, SparseTensor, Tensor

INT_VALUES: Final = 2048
"""Elements of an integer constant that is kept for shape arithmetic."""

FLOAT_VALUES: Final = 64
"""Elements of a float constant that is kept: scales of a Resize, exponents, scalars."""

_PAYLOADS: Final = frozenset({4, 5, 6, 7, 9, 10, 11})
"""Fields of a TensorProto that hold elements."""


class TensorReader(BoundedReader):
    """Reads TensorProto and SparseTensorProto."""

    def tensor(self, end: int) -> Tensor:
        """Reads a TensorProto; keeps its values if they are few."""
        reader = self._reader
        self._count()
        name = ""
        dtype = 0
        dims: list[int] = []
        spans: list[Span] = []
        unpacked = 0
        outside = False
        entries: dict[str, str] = {}
        for number, kind, value in reader.fields(end):
            if number == 1:
                self._dims(kind, value, dims)
            elif number == 2:
                self._want(number, kind, VARINT)
                dtype = value
            elif number == 8:
                name = self._name(number, kind, value)
            elif number in _PAYLOADS:
                if kind == LENGTH:
                    if number != 6:
                        spans.append(Span(number, reader.pos, value))
                else:
                    unpacked += 1
            elif number == 13:
                self._want(number, kind, LENGTH)
                key, entry = self._entry(reader.pos + value)
                entries[key] = entry
            elif number == 14:
                outside = value == 1
        for dim in dims:
            if dim < 0:
                raise reader.error(
                    f"tensor {printable(name)} has a dimension {dim}", "a length of 0 or more"
                )
        shape = tuple(dims)
        count = prod(shape)
        external = self._external(name, entries) if outside else None
        stored = dtypes.stored_bytes(dtype, count)
        if external is not None and external.length:  # 0 is as good as none to onnxruntime
            # A length beyond what the shape needs is not believed.
            stored = external.length if stored is None else min(stored, external.length)
        if stored is None:
            stored = sum(span.length for span in spans)
        kept = tuple(spans) if not unpacked else ()
        values = None
        if not outside and count <= INT_VALUES and not unpacked:
            values = self._values(dtype, count, kept)
        return Tensor(name, dtype, shape, stored, values, kept, external)

    def sparse_tensor(self, end: int) -> SparseTensor:
        """Reads a SparseTensorProto."""
        reader = self._reader
        empty = Tensor("", 0, (0,), 0)
        values = indices = empty
        dims: list[int] = []
        for number, kind, value in reader.fields(end):
            if number == 1:
                self._want(number, kind, LENGTH)
                values = self.tensor(reader.pos + value)
            elif number == 2:
                self._want(number, kind, LENGTH)
                indices = self.tensor(reader.pos + value)
            elif number == 3:
                self._dims(kind, value, dims)
        return SparseTensor(tuple(dims), values, indices)

    def _values(
        self, dtype: int, count: int, spans: tuple[Span, ...]
    ) -> tuple[int | float, ...] | None:
        if dtype in dtypes.FLOATS and count > FLOAT_VALUES:
            return None
        if count == 0:
            return ()
        if len(spans) != 1:
            return None
        span = spans[0]
        reader = self._reader
        before = reader.pos
        reader.pos = span.offset
        try:
            if span.field == 9:
                found = (
                    _decode_raw(dtype, count, reader.take(span.length))
                    if (span.length <= 8 * INT_VALUES)
                    else None
                )
            elif span.field in (5, 7, 11) and span.length <= 10 * INT_VALUES:
                found = _decode_ints(dtype, self._packed(span.length))
            elif span.field == 4 and span.length == 4 * count:
                found = struct.unpack(f"<{count}f", reader.take(span.length))
            elif span.field == 10 and span.length == 8 * count:
                found = struct.unpack(f"<{count}d", reader.take(span.length))
            else:
                found = None
        finally:
            reader.pos = before
        self._keep_numbers(len(found or ()))
        return found if found is not None and len(found) == count else None

    def _entry(self, end: int) -> tuple[str, str]:
        key = entry = ""
        for number, kind, value in self._reader.fields(end):
            if number == 1:
                key = self._name(number, kind, value)
            elif number == 2:
                entry = self._name(number, kind, value)
        return key, entry

    def _external(self, name: str, entries: dict[str, str]) -> External:
        found: dict[str, int] = {}
        for key in ("offset", "length"):
            text = entries.get(key)
            if text is None:
                continue
            if not (text.isascii() and text.isdigit() and len(text) < 20):
                raise self._reader.error(
                    f"tensor {printable(name)} has external {key} {printable(text)!r}",
                    "a number of bytes",
                )
            found[key] = int(text)
        return External(entries.get("location", ""), found.get("offset", 0), found.get("length"))


_RAW_FORMATS: Final = {
    dtypes.FLOAT: "f",
    dtypes.UINT8: "B",
    dtypes.INT8: "b",
    dtypes.UINT16: "H",
    dtypes.INT16: "h",
    dtypes.INT32: "i",
    dtypes.INT64: "q",
    dtypes.BOOL: "?",
    dtypes.FLOAT16: "e",
    dtypes.DOUBLE: "d",
    dtypes.UINT32: "I",
    dtypes.UINT64: "Q",
}


def _decode_raw(dtype: int, count: int, data: bytes) -> tuple[int | float, ...] | None:
    if dtype == dtypes.BFLOAT16 and len(data) == 2 * count:
        return tuple(float32(half << 16) for half in struct.unpack(f"<{count}H", data))
    code = _RAW_FORMATS.get(dtype)
    if code is None or len(data) != struct.calcsize(f"<{count}{code}"):
        return None
    return struct.unpack(f"<{count}{code}", data)


def _decode_ints(dtype: int, raw: list[int]) -> tuple[int | float, ...] | None:
    """Values of ``int32_data``, ``int64_data`` or ``uint64_data``."""
    if dtype == dtypes.FLOAT16:
        return tuple(struct.unpack("<e", (v & 0xFFFF).to_bytes(2, "little"))[0] for v in raw)
    if dtype == dtypes.BFLOAT16:
        return tuple(float32((v & 0xFFFF) << 16) for v in raw)
    if dtype in (dtypes.UINT32, dtypes.UINT64):
        return tuple(v & 0xFFFFFFFFFFFFFFFF for v in raw)
    if dtype in dtypes.INTEGERS or dtype == dtypes.BOOL:
        return tuple(raw)
    return None
