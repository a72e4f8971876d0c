"""Reads declared values: types, and shapes whose lengths may have names."""

from __future__ import annotations

from typing import Final

from otel_quant.cost.reader.bounded_reader import MAX_RANK, BoundedReader
from otel_quant.cost.reader.wire import LENGTH, VARINT, signed
from otel_quant.cost.structure import Dim, Kind, Type, ValueInfo

MAX_TYPE_DEPTH: Final = 16
"""Types within types (sequence of optional of ...)."""

_TYPE_KINDS: Final[dict[int, Kind]] = {
    1: "tensor",
    4: "sequence",
    5: "map",
    8: "sparse",
    9: "optional",
}
"""Fields of a TypeProto."""


class TypeReader(BoundedReader):
    """Reads ValueInfoProto and TypeProto."""

    def value_info(self, end: int) -> ValueInfo:
        """Reads a ValueInfoProto."""
        reader = self._reader
        self._count()
        name = ""
        declared = Type()
        for number, kind, value in reader.fields(end):
            if number == 1:
                name = self._name(number, kind, value)
            elif number == 2:
                self._want(number, kind, LENGTH)
                declared = self.type(reader.pos + value)
        return ValueInfo(name, declared)

    def type(self, end: int, depth: int = 0) -> Type:
        """Reads a TypeProto."""
        reader = self._reader
        if depth > MAX_TYPE_DEPTH:
            raise reader.error(
                f"types nested more than {MAX_TYPE_DEPTH} deep", f"at most {MAX_TYPE_DEPTH}"
            )
        result = Type()
        for number, kind, value in reader.fields(end):
            if number not in _TYPE_KINDS:
                continue
            self._want(number, kind, LENGTH)
            what = _TYPE_KINDS[number]
            stop = reader.pos + value
            if what in ("tensor", "sparse"):
                result = self._tensor_type(stop, what)
            elif what == "map":
                result = Type("map")
            else:
                element = Type()
                for inner, inner_kind, length in reader.fields(stop):
                    if inner == 1:
                        self._want(inner, inner_kind, LENGTH)
                        element = self.type(reader.pos + length, depth + 1)
                result = Type(what, element=element)
        return result

    def _tensor_type(self, end: int, kind: Kind) -> Type:
        reader = self._reader
        dtype = 0
        shape: tuple[Dim, ...] | None = None
        for number, wire_kind, value in reader.fields(end):
            if number == 1:
                self._want(number, wire_kind, VARINT)
                dtype = value
            elif number == 2:
                self._want(number, wire_kind, LENGTH)
                shape = self._shape(reader.pos + value)
        return Type(kind, dtype, shape)

    def _shape(self, end: int) -> tuple[Dim, ...]:
        reader = self._reader
        dims: list[Dim] = []
        for number, kind, value in reader.fields(end):
            if number != 1:
                continue
            self._want(number, kind, LENGTH)
            dim: Dim = None
            for inner, inner_kind, content in reader.fields(reader.pos + value):
                if inner == 1 and inner_kind == VARINT:
                    dim = signed(content)
                elif inner == 2:
                    dim = self._name(inner, inner_kind, content) or None
            dims.append(dim)
            self._keep_numbers(1)
            if len(dims) > MAX_RANK:
                raise reader.error(
                    f"a tensor of more than {MAX_RANK} dimensions", f"at most {MAX_RANK}"
                )
        return tuple(dims)
