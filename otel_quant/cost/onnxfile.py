"""Reads the structure of an ONNX file: everything but the weights.

Field numbers are those of ``onnx.proto``. What this file bounds, it bounds because a file
may be hostile: depth of nested graphs, length of names, number of values kept.
"""

from __future__ import annotations

import os
import struct
from io import BytesIO
from math import prod
from typing import Final

from otel_quant.cost import elements
from otel_quant.cost.errors import CostError, printable
from otel_quant.cost.ir import (
    Attribute,
    Dim,
    Elided,
    External,
    Function,
    Graph,
    Model,
    Node,
    Reference,
    Span,
    SparseTensor,
    Tensor,
    Type,
    ValueInfo,
)
from otel_quant.cost.wire import FIXED32, LENGTH, VARINT, Reader, open_reader, signed

MAX_GRAPH_DEPTH: Final = 32
"""Graphs within graphs (If in Loop in Scan ...); real models stay below five."""

MAX_TYPE_DEPTH: Final = 16
"""Types within types (sequence of optional of ...)."""

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

INT_VALUES: Final = 2048
"""Elements of an integer constant that is kept for shape arithmetic."""

FLOAT_VALUES: Final = 64
"""Elements of a float constant that is kept: scales of a Resize, exponents, scalars."""

_NOT_ONNX: Final = (
    (b"PK\x03\x04", "is a ZIP archive"),
    (b"GGUF", "is a GGUF file"),
    (b"\x89HDF", "is an HDF5 file"),
    (b"\x80\x02", "is a Python pickle"),
    (b"\x80\x04", "is a Python pickle"),
    (b"\x1f\x8b", "is gzip-compressed"),
    (b"version https://git-lfs", "is a Git LFS pointer, the model itself was not fetched"),
    (b"<", "is a text file"),
    (b"{", "is a text file"),
)


def read_model(source: str | os.PathLike[str] | bytes, deadline: float | None = None) -> Model:
    """Reads a model's structure.

    Args:
        source: A path, or the bytes of a ModelProto.
        deadline: ``time.monotonic()`` at which reading gives up, or None.

    Raises:
        CostError: It is no ONNX model, or a damaged one, or exceeds a bound of this module.
    """
    if isinstance(source, bytes):
        reader = Reader(BytesIO(source), "<bytes>", len(source), deadline)
    else:
        reader = open_reader(source, deadline)
    try:
        return StructureReader(reader).model()
    except OSError as error:
        raise reader.error(f"cannot be read: {error.strerror}") from error
    finally:
        reader.close()


class StructureReader:
    """Turns the fields of a :class:`Reader` into the structure of :mod:`otel_quant.cost.ir`.

    Every method reads one message that ends at the position given, and leaves the reader
    there or before it.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._depth = 0
        self._records = 0
        self._kept = 0
        self._names: dict[bytes, str] = {}

    def model(self) -> Model:
        """Reads a ModelProto that is the whole file."""
        reader = self._reader
        self._refuse_other_formats()
        graph: Graph | None = None
        functions: dict[tuple[str, str, str], Function] = {}
        opsets: dict[str, int] = {}
        producer = ""
        for number, kind, value in reader.fields(reader.size):
            if number == 7:
                self._want(number, kind, LENGTH)
                graph = self.graph(reader.pos + value)
            elif number == 8:
                self._want(number, kind, LENGTH)
                self._opset(reader.pos + value, opsets)
            elif number == 2:
                self._want(number, kind, LENGTH)
                producer = self._text(value)
            elif number == 25:
                self._want(number, kind, LENGTH)
                function = self.function(reader.pos + value)
                functions[function.domain, function.name, function.overload] = function
        if graph is None:
            raise CostError(reader.source, "holds no graph", expected="an ONNX ModelProto")
        return Model(reader.source, graph, functions, opsets, producer, reader.size)

    def graph(self, end: int) -> Graph:
        """Reads a GraphProto."""
        reader = self._reader
        self._depth += 1
        if self._depth > MAX_GRAPH_DEPTH:
            raise reader.error(f"graphs nested more than {MAX_GRAPH_DEPTH} deep", "a real model")
        name = ""
        nodes: list[Node] = []
        inputs: list[ValueInfo] = []
        outputs: list[ValueInfo] = []
        known: list[ValueInfo] = []
        initializers: list[Tensor] = []
        sparse: list[SparseTensor] = []
        for number, kind, value in reader.fields(end):
            if number > 15:
                continue
            self._want(number, kind, LENGTH)
            stop = reader.pos + value
            if number == 1:
                nodes.append(self.node(stop))
            elif number == 5:
                initializers.append(self.tensor(stop))
            elif number == 13:
                known.append(self.value_info(stop))
            elif number == 11:
                inputs.append(self.value_info(stop))
            elif number == 12:
                outputs.append(self.value_info(stop))
            elif number == 15:
                sparse.append(self.sparse_tensor(stop))
            elif number == 2:
                name = self._text(value)
        self._depth -= 1
        return Graph(
            name,
            tuple(nodes),
            tuple(inputs),
            tuple(outputs),
            tuple(known),
            tuple(initializers),
            tuple(sparse),
        )

    def node(self, end: int) -> Node:
        """Reads a NodeProto."""
        reader = self._reader
        self._count()
        name = op_type = domain = overload = ""
        inputs: list[str] = []
        outputs: list[str] = []
        attributes: dict[str, Attribute] = {}
        for number, kind, value in reader.fields(end):
            if number == 1:
                inputs.append(self._name(number, kind, value))
            elif number == 2:
                outputs.append(self._name(number, kind, value))
            elif number == 4:
                op_type = self._name(number, kind, value)
            elif number == 5:
                self._want(number, kind, LENGTH)
                key, attribute = self.attribute(reader.pos + value)
                attributes[key] = attribute
            elif number == 3:
                name = self._name(number, kind, value)
            elif number == 7:
                domain = self._name(number, kind, value)
            elif number == 8:
                overload = self._name(number, kind, value)
        self._keep(8 * (len(inputs) + len(outputs)))
        return Node(
            name,
            op_type,
            "" if domain == "ai.onnx" else domain,
            tuple(inputs),
            tuple(outputs),
            attributes,
            overload,
        )

    def attribute(self, end: int) -> tuple[str, Attribute]:
        """Reads an AttributeProto; returns its name and value."""
        reader = self._reader
        self._count()
        name = reference = ""
        declared = 0
        single: Attribute | None = None
        many: list[Attribute] = []
        count = 0
        for number, kind, value in reader.fields(end):
            if number == 1:
                name = self._name(number, kind, value)
            elif number == 3:
                self._want(number, kind, VARINT)
                single = signed(value)
            elif number == 2:
                self._want(number, kind, FIXED32)
                single = _float(value)
            elif number == 20:
                declared = value
            elif number == 21:
                reference = self._name(number, kind, value)
            elif number in (8, 7):
                numbers = self._numbers(number, kind, value)
                count += len(numbers) if not isinstance(numbers, Elided) else numbers.length
                if isinstance(numbers, Elided) or count > MAX_LIST:
                    many = []
                else:
                    many.extend(numbers)
            elif number in (4, 5, 6, 14, 22):
                self._want(number, kind, LENGTH)
                single = self._message(number, reader.pos + value, value)
            elif number in (9, 10, 11, 15, 23):
                self._want(number, kind, LENGTH)
                count += 1
                if count <= MAX_LIST:
                    many.append(self._message(_ELEMENT_OF[number], reader.pos + value, value))
        if reference:
            return name, Reference(reference)
        if single is not None and declared not in _LIST_TYPES:
            return name, single
        if count > MAX_LIST:
            return name, Elided(count)
        if many or declared in _LIST_TYPES:
            return name, tuple(many)  # type: ignore[return-value]  # one kind per attribute
        return name, _DEFAULTS.get(declared, 0)

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
        stored = elements.stored_bytes(dtype, count)
        if external is not None and external.length is not None:
            stored = external.length
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
            raise reader.error(f"types nested more than {MAX_TYPE_DEPTH} deep", "a real model")
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

    def function(self, end: int) -> Function:
        """Reads a FunctionProto."""
        reader = self._reader
        name = domain = overload = ""
        inputs: list[str] = []
        outputs: list[str] = []
        nodes: list[Node] = []
        defaults: dict[str, Attribute] = {}
        opsets: dict[str, int] = {}
        for number, kind, value in reader.fields(end):
            if number == 7:
                self._want(number, kind, LENGTH)
                nodes.append(self.node(reader.pos + value))
            elif number == 4:
                inputs.append(self._name(number, kind, value))
            elif number == 5:
                outputs.append(self._name(number, kind, value))
            elif number == 1:
                name = self._name(number, kind, value)
            elif number == 10:
                domain = self._name(number, kind, value)
            elif number == 13:
                overload = self._name(number, kind, value)
            elif number == 9:
                self._want(number, kind, LENGTH)
                self._opset(reader.pos + value, opsets)
            elif number == 11:
                self._want(number, kind, LENGTH)
                key, attribute = self.attribute(reader.pos + value)
                defaults[key] = attribute
        return Function(
            name,
            "" if domain == "ai.onnx" else domain,
            overload,
            tuple(inputs),
            tuple(outputs),
            tuple(nodes),
            defaults,
            opsets,
        )

    def _message(self, number: int, end: int, length: int) -> Attribute:
        if number == 4:
            return self._bytes(length) if length <= MAX_STRING else Elided(length)
        if number == 5:
            return self.tensor(end)
        if number == 6:
            return self.graph(end)
        return self.type(end) if number == 14 else self.sparse_tensor(end)

    def _numbers(self, number: int, kind: int, value: int) -> list[int] | list[float] | Elided:
        """One element of a repeated number, or all of them where they are packed."""
        reader = self._reader
        integers = number == 8
        if kind != LENGTH:
            self._want(number, kind, VARINT if integers else FIXED32)
            self._keep(_NUMBER)
            return [signed(value)] if integers else [_float(value)]
        if not integers:
            if value > 4 * MAX_LIST:
                return Elided(value // 4)
            self._keep(_NUMBER * (value // 4))
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
        self._keep(_NUMBER * len(found))
        return found

    def _dims(self, kind: int, value: int, dims: list[int]) -> None:
        if kind == LENGTH:
            if value > MAX_RANK * 10:
                raise self._reader.error(f"a tensor of more than {MAX_RANK} dimensions", "a shape")
            dims.extend(self._packed(value))
        else:
            self._want(1, kind, VARINT)
            self._keep(_NUMBER)
            dims.append(signed(value))
        if len(dims) > MAX_RANK:
            raise self._reader.error(f"a tensor of more than {MAX_RANK} dimensions", "a shape")

    def _values(
        self, dtype: int, count: int, spans: tuple[Span, ...]
    ) -> tuple[int | float, ...] | None:
        if dtype in elements.FLOATS and count > FLOAT_VALUES:
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
        self._keep(_NUMBER * len(found or ()))
        return found if found is not None and len(found) == count else None

    def _tensor_type(self, end: int, kind: str) -> Type:
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
            self._keep(_NUMBER)
            if len(dims) > MAX_RANK:
                raise reader.error(f"a tensor of more than {MAX_RANK} dimensions", "a shape")
        return tuple(dims)

    def _opset(self, end: int, opsets: dict[str, int]) -> None:
        domain = ""
        version = 0
        for number, kind, value in self._reader.fields(end):
            if number == 1:
                domain = self._name(number, kind, value)
            elif number == 2:
                self._want(number, kind, VARINT)
                version = signed(value)
        opsets["" if domain == "ai.onnx" else domain] = version

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

    def _want(self, number: int, kind: int, expected: int) -> None:
        if kind != expected:
            raise self._reader.error(
                f"field {number} has wire type {kind} instead of {expected}", "an ONNX ModelProto"
            )

    def _name(self, number: int, kind: int, length: int) -> str:
        if kind != LENGTH:
            self._want(number, kind, LENGTH)
        return self._text(length)

    def _text(self, length: int) -> str:
        """Reads a string; equal ones are one object, since names recur as inputs."""
        if length > MAX_NAME:
            raise self._reader.error(f"a name of {length} bytes", f"at most {MAX_NAME}")
        raw = self._reader.take(length)
        text = self._names.get(raw)
        if text is None:
            text = self._names[raw] = raw.decode("utf-8", "backslashreplace")
            self._keep(_RECORD + 2 * length)
            if len(self._names) > MAX_RECORDS:
                raise self._reader.error(f"more than {MAX_RECORDS} names", "a real model")
        return text

    def _bytes(self, length: int) -> bytes:
        self._keep(_NUMBER + length)
        return self._reader.take(length)

    def _count(self) -> None:
        self._records += 1
        if self._records > MAX_RECORDS:
            raise self._reader.error(
                f"more than {MAX_RECORDS} nodes, tensors and attributes", "a real model"
            )
        self._keep(_RECORD)

    def _keep(self, size: int) -> None:
        self._kept += size
        if self._kept > MAX_KEPT:
            raise self._reader.error(
                f"names, lists and small constants of more than {MAX_KEPT} bytes", "a real model"
            )

    def _refuse_other_formats(self) -> None:
        reader = self._reader
        if reader.size == 0:
            raise CostError(reader.source, "is empty", expected="an ONNX ModelProto")
        start = reader.take(min(reader.size, 32))
        reader.pos = 0
        for magic, what in _NOT_ONNX:
            if start.startswith(magic):
                raise CostError(reader.source, what, expected="an ONNX ModelProto")
        if start[4:8] == b"ORTM":
            raise CostError(
                reader.source, "is in onnxruntime's ORT format", expected="an ONNX ModelProto"
            )


_TYPE_KINDS: Final = {1: "tensor", 4: "sequence", 5: "map", 8: "sparse", 9: "optional"}
_PAYLOADS: Final = frozenset({4, 5, 6, 7, 9, 10, 11})
_ELEMENT_OF: Final = {9: 4, 10: 5, 11: 6, 15: 14, 23: 22}
_LIST_TYPES: Final = frozenset({6, 7, 8, 9, 10, 12, 14})
_DEFAULTS: Final[dict[int, Attribute]] = {1: 0.0, 2: 0, 3: b""}
"""An attribute whose value is the default of its field may be written without it."""

_RAW_FORMATS: Final = {
    elements.FLOAT: "f",
    elements.UINT8: "B",
    elements.INT8: "b",
    elements.UINT16: "H",
    elements.INT16: "h",
    elements.INT32: "i",
    elements.INT64: "q",
    elements.BOOL: "?",
    elements.FLOAT16: "e",
    elements.DOUBLE: "d",
    elements.UINT32: "I",
    elements.UINT64: "Q",
}


def _float(bits: int) -> float:
    value: float = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
    return value


def _decode_raw(dtype: int, count: int, data: bytes) -> tuple[int | float, ...] | None:
    if dtype == elements.BFLOAT16 and len(data) == 2 * count:
        return tuple(_float(half << 16) for half in struct.unpack(f"<{count}H", data))
    code = _RAW_FORMATS.get(dtype)
    if code is None or len(data) != struct.calcsize(f"<{count}{code}"):
        return None
    return struct.unpack(f"<{count}{code}", data)


def _decode_ints(dtype: int, raw: list[int]) -> tuple[int | float, ...] | None:
    """Values of ``int32_data``, ``int64_data`` or ``uint64_data``."""
    if dtype == elements.FLOAT16:
        return tuple(struct.unpack("<e", (v & 0xFFFF).to_bytes(2, "little"))[0] for v in raw)
    if dtype == elements.BFLOAT16:
        return tuple(_float((v & 0xFFFF) << 16) for v in raw)
    if dtype in (elements.UINT32, elements.UINT64):
        return tuple(v & 0xFFFFFFFFFFFFFFFF for v in raw)
    if dtype in elements.INTEGERS or dtype == elements.BOOL:
        return tuple(raw)
    return None
