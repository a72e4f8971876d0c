"""Reads the structure of an ONNX file: everything but the weights.

Field numbers are as in ``onnx.proto``. A file may be hostile: a few bytes of it can make many
objects, so that depth is bounded, and what is kept of one file is counted, whatever message it
comes from. Elements of a tensor are read where they are shapes, axes, scales or exponents.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from io import BytesIO
from math import prod
from types import MappingProxyType
from typing import Any, Final

from otel_quant.cost import dtypes
from otel_quant.cost.structure import (
    Attribute,
    CostError,
    Dim,
    Elided,
    External,
    Function,
    Graph,
    Kind,
    Model,
    Node,
    Reference,
    Span,
    Tensor,
    Type,
    ValueInfo,
    printable,
)
from otel_quant.cost.wire import (
    FIXED32,
    LENGTH,
    MODEL,
    VARINT,
    Reader,
    float32,
    no_model,
    open_reader,
    signed,
)

_MAX_NAME: Final = 1 << 16
"""Bytes of a name."""

_MAX_RANK: Final = 64
"""Dimensions of a tensor."""

_MAX_KEPT: Final = 512 << 20
"""Bytes of memory, roughly, that names, records and numbers of one file may take; the largest graph
seen takes a tenth."""

_RECORD, _NUMBER = 300, 40
"""Bytes of memory, roughly, of a record and of a number in a list."""

_MAX_LIST: Final = 1 << 16
"""Elements of a list attribute that are kept, and bytes of a string attribute."""

_MAX_GRAPH_DEPTH: Final = 32
"""Graphs within graphs (If in Loop in Scan ...); real models stay below five."""

_INT_VALUES: Final = 2048
"""Elements of an integer constant that is kept for shape arithmetic."""

_FLOAT_VALUES: Final = 64
"""Elements of a float constant that is kept: scales of a Resize, exponents, scalars."""

_PAYLOADS: Final = frozenset({4, 5, 6, 7, 9, 10, 11})
"""Fields of a TensorProto that hold elements."""

_TYPE_KINDS: Final[dict[int, Kind]] = {
    1: "tensor", 4: "sequence", 5: "map", 9: "optional"
}  # fmt: skip
"""Fields of a TypeProto."""

_LIST_TYPES: Final = frozenset({6, 7, 8, 9, 10, 12, 14})
_NO_ATTRIBUTES: Final[Mapping[str, Attribute]] = MappingProxyType({})
_DEFAULTS: Final[dict[int, Attribute]] = {1: 0.0, 2: 0, 3: b""}
"""An attribute whose value is the default of its field may be written without it."""


def read_model(source: object, deadline: float | None = None) -> Model:
    """Reads the structure of a model: a path, bytes, or an ``onnx.ModelProto``."""
    size = 0
    if isinstance(source, str | os.PathLike):
        reader = open_reader(source, deadline)
    elif isinstance(source, bytes | bytearray | memoryview):
        reader = Reader(BytesIO(source), "<bytes>", len(source), deadline)
    else:
        data, size = _without_weights(source)
        reader = Reader(BytesIO(data), "<ModelProto>", len(data), deadline)
    try:
        model = _ModelReader(reader).model()
    except OSError as error:
        raise reader.error(f"cannot be read: {error.strerror}") from error
    finally:
        reader.close()
    return model._replace(size=size) if size else model


_BIG: Final = 1 << 16
"""Bytes from which an initializer is not serialized with its payload."""


def _without_weights(proto: Any) -> tuple[bytes, int]:
    """Returns an ``onnx.ModelProto`` without its weights as bytes, and the bytes that it takes whole.

    It brings its own methods. Piece by piece, so that a model of several gigabytes is neither copied
    nor has to fit into one protobuf message (two gigabytes at most).
    """
    if not (hasattr(proto, "graph") and hasattr(proto, "SerializeToString")):
        raise CostError(
            f"<{type(proto).__name__}>",
            "is not a model",
            expected="a path, bytes or an onnx.ModelProto",
        )
    light = type(proto)()
    light.ir_version, light.producer_name = proto.ir_version, proto.producer_name
    light.opset_import.extend(proto.opset_import)
    light.functions.extend(proto.functions)
    for name in ("node", "input", "output", "value_info"):
        getattr(light.graph, name).extend(getattr(proto.graph, name))
    for tensor in proto.graph.initializer:
        if tensor.ByteSize() < _BIG:
            light.graph.initializer.append(tensor)
            continue
        kept = light.graph.initializer.add()
        kept.name, kept.data_type = tensor.name, tensor.data_type
        kept.data_location = tensor.data_location
        kept.dims.extend(tensor.dims)
        kept.external_data.extend(tensor.external_data)
    return light.SerializeToString(), proto.ByteSize()


class _ModelReader:
    """Turns the fields of a :class:`Reader` into the structure of :mod:`otel_quant.cost.structure`.

    Every method reads one field or message that ends at the position given, and leaves the
    reader there or before it.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept = 0
        self._names: dict[bytes, str] = {}
        self._depth = 0
        self._graph_reached = False

    def model(self) -> Model:
        """Reads a ModelProto that fills the file."""
        reader = self._reader
        messages = {7: self._graph, 8: self._opset, 25: self._function}
        try:
            found = self._collected(reader.size, messages)
            if not found[7]:
                raise CostError(reader.source, "it has no graph", expected=MODEL)
        except CostError as error:
            if self._graph_reached or reader.is_late():
                raise
            raise no_model(reader, error) from error
        functions = {(each.domain, each.name, each.overload): each for each in found[25]}
        return Model(reader.source, found[7][-1], functions, dict(found[8]), reader.size)

    def _collected(
        self, end: int, messages: Mapping[int, Callable[[int], Any]], names: Collection[int] = ()
    ) -> dict[int, list[Any]]:
        """Reads some fields of a message, those that are messages by the methods given."""
        found: dict[int, list[Any]] = {number: [] for number in (*messages, *names)}
        for number, kind, value in self._reader.fields(end):
            read = messages.get(number)
            if read is not None:
                found[number].append(read(self._stop(number, kind, value)))
            elif number in found:
                found[number].append(self._name(number, kind, value))
        return found

    def _graph(self, end: int) -> Graph:
        self._graph_reached = True
        self._depth += 1
        if self._depth > _MAX_GRAPH_DEPTH:
            raise self._too_many(
                f"graphs nested more than {_MAX_GRAPH_DEPTH} deep", _MAX_GRAPH_DEPTH
            )
        info, tensor = self._value_info, self._tensor
        messages = {1: self._node, 5: tensor, 11: info, 12: info, 13: info}
        found = self._collected(end, messages)
        self._depth -= 1
        nodes, inputs, outputs, infos = (tuple(found[number]) for number in (1, 11, 12, 13))
        return Graph(nodes, inputs, outputs, infos, tuple(found[5]))

    def _node(self, end: int) -> Node:
        self._keep(_RECORD)
        name = op_type = domain = overload = ""
        inputs: list[str] = []
        outputs: list[str] = []
        attributes: dict[str, Attribute] = {}
        for number, kind, value in self._reader.fields(end):
            if number == 1:
                inputs.append(self._name(number, kind, value))
            elif number == 2:
                outputs.append(self._name(number, kind, value))
            elif number == 4:
                op_type = self._name(number, kind, value)
            elif number == 5:
                key, attribute = self._attribute(self._stop(number, kind, value))
                attributes[key] = attribute
            elif number == 3:
                name = self._name(number, kind, value, recurs=False)
            elif number == 7:
                domain = self._name(number, kind, value)
            elif number == 8:
                overload = self._name(number, kind, value)
        self._keep(8 * (len(inputs) + len(outputs)))
        return Node(
            name,
            op_type,
            _domain(domain),
            tuple(inputs),
            tuple(outputs),
            attributes or _NO_ATTRIBUTES,
            overload,
        )

    def _attribute(self, end: int) -> tuple[str, Attribute]:
        """Reads an AttributeProto; returns its name and value."""
        self._keep(_RECORD)
        messages: Mapping[int, Callable[[int], Attribute]] = {5: self._tensor, 6: self._graph}
        name = reference = ""
        declared = count = 0
        single: Attribute | None = None
        many: list[Any] = []
        for number, kind, value in self._reader.fields(end):
            if number == 1:
                name = self._name(number, kind, value)
            elif number in (2, 3):
                self._want(number, kind, VARINT if number == 3 else FIXED32)
                single = signed(value) if number == 3 else float32(value)
            elif number == 20:
                declared = value
            elif number == 21:
                reference = self._name(number, kind, value)
            elif number in (7, 8):
                count += self._numbers(number, kind, value, many)
            elif number == 9:
                self._want(number, kind, LENGTH)
                count += 1
                if count <= _MAX_LIST:
                    many.append(self._text(value))
            elif number == 4:
                self._want(number, kind, LENGTH)
                single = self._text(value)
            elif number in messages:
                single = messages[number](self._stop(number, kind, value))
        if reference:
            return name, Reference(reference)
        if single is not None and declared not in _LIST_TYPES:
            return name, single
        if count > _MAX_LIST:
            return name, Elided(count)
        if many or declared in _LIST_TYPES:
            return name, tuple(many)
        return name, _DEFAULTS.get(declared, 0)

    def _text(self, length: int) -> bytes | Elided:
        if length > _MAX_LIST:
            return Elided(length)
        self._keep(_NUMBER + length)
        return self._reader.take(length)

    def _function(self, end: int) -> Function:
        messages = {7: self._node, 9: self._opset, 11: self._attribute}
        found = self._collected(end, messages, names=(1, 4, 5, 10, 13))
        name, domain, overload = ((found[number] or [""])[-1] for number in (1, 10, 13))
        inputs, outputs, nodes = (tuple(found[number]) for number in (4, 5, 7))
        attributes, opsets = dict(found[11]), dict(found[9])
        return Function(name, _domain(domain), overload, inputs, outputs, nodes, attributes, opsets)

    def _opset(self, end: int) -> tuple[str, int]:
        domain = ""
        version = 0
        for number, kind, value in self._reader.fields(end):
            if number == 1:
                domain = self._name(number, kind, value)
            elif number == 2:
                self._want(number, kind, VARINT)
                version = signed(value)
        return _domain(domain), version

    def _value_info(self, end: int) -> ValueInfo:
        """Reads a ValueInfoProto."""
        self._keep(_RECORD)
        found = self._collected(end, {2: self._type}, names=(1,))
        return ValueInfo((found[1] or [""])[-1], (found[2] or [Type()])[-1])

    def _type(self, end: int) -> Type:
        """Reads a TypeProto; of sequences, optionals and maps not what they hold."""
        reader = self._reader
        result = Type()
        for number, kind, value in reader.fields(end):
            if number not in _TYPE_KINDS:
                continue
            dtype, shape = 0, None
            if _TYPE_KINDS[number] == "tensor":
                for inner, inner_kind, content in reader.fields(self._stop(number, kind, value)):
                    if inner == 1:
                        self._want(inner, inner_kind, VARINT)
                        dtype = content
                    elif inner == 2:
                        shape = self._shape(self._stop(inner, inner_kind, content))
            result = Type(_TYPE_KINDS[number], dtype, shape)
        return result

    def _shape(self, end: int) -> tuple[Dim, ...]:
        reader = self._reader
        dims: list[Dim] = []
        for number, kind, value in reader.fields(end):
            if number != 1:
                continue
            dim: Dim = None
            for inner, inner_kind, content in reader.fields(self._stop(number, kind, value)):
                if inner == 1 and inner_kind == VARINT:
                    dim = signed(content)
                elif inner == 2:
                    dim = self._name(inner, inner_kind, content) or None
            dims.append(dim)
            self._keep(_NUMBER)
            self._check_rank(len(dims))
        return tuple(dims)

    def _tensor(self, end: int) -> Tensor:
        """Reads a TensorProto; keeps its values if they are few."""
        reader = self._reader
        self._keep(_RECORD)
        name = ""
        dtype = 0
        dims: list[int] = []
        spans: list[Span] = []
        packed = True
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
                if kind != LENGTH:
                    packed = False
                elif number != 6:
                    spans.append(Span(number, reader.pos, value))
            elif number == 13:
                entry = self._collected(self._stop(number, kind, value), {}, names=(1, 2))
                entries["".join(entry[1][-1:])] = "".join(entry[2][-1:])
            elif number == 14:
                outside = value == 1
        for dim in dims:
            if dim < 0:
                raise reader.error(
                    f"tensor {printable(name)} has a dimension {dim}", "a length of 0 or more"
                )
        count = prod(dims)
        external = self._external(name, entries) if outside else None
        stored = dtypes.stored_bytes(dtype, count)
        if external is not None and external.length:  # 0 is as good as none to onnxruntime
            # A length beyond what the shape needs is not believed.
            stored = external.length if stored is None else min(stored, external.length)
        if stored is None:
            stored = sum(span.length for span in spans)
        values = None
        if not outside and count <= _INT_VALUES and packed:
            values = self._values(dtype, count, spans)
        kept = tuple(spans) if packed else ()
        return Tensor(name, dtype, tuple(dims), stored, values, kept, external)

    def _values(self, dtype: int, count: int, spans: list[Span]) -> tuple[int | float, ...] | None:
        if dtype in dtypes.FLOATS and count > _FLOAT_VALUES:
            return None
        if count == 0:
            return ()
        if len(spans) != 1:
            return None
        field, offset, length = spans[0]
        reader = self._reader
        before = reader.pos
        reader.pos = offset
        found: tuple[int | float, ...] | None = None
        try:
            if field == 9 and length <= 8 * _INT_VALUES:
                found = _decode_raw(dtype, count, reader.take(length))
            elif field in (5, 7, 11) and length <= 10 * _INT_VALUES:
                found = _decode_ints(dtype, self._packed(length))
            elif field == 4 and length == 4 * count:
                found = struct.unpack(f"<{count}f", reader.take(length))
            elif field == 10 and length == 8 * count:
                found = struct.unpack(f"<{count}d", reader.take(length))
        finally:
            reader.pos = before
        self._keep(_NUMBER * len(found or ()))
        return found if found is not None and len(found) == count else None

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

    def _numbers(self, number: int, kind: int, value: int, into: list[int | float]) -> int:
        """Reads one element of a repeated number, or all where they are packed.

        Returns how many there are; where they are too many to keep, none is read.
        """
        integers = number == 8
        if kind != LENGTH:
            self._want(number, kind, VARINT if integers else FIXED32)
            self._keep(_NUMBER)
            into.append(signed(value) if integers else float32(value))
            return 1
        count = value if integers else value // 4
        if count > _MAX_LIST:
            return count
        if integers:
            found: Sequence[int | float] = self._packed(value)
        else:
            self._keep(_NUMBER * count)
            found = struct.unpack(f"<{count}f", self._reader.take(4 * count))
        into += found
        return len(found)

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
            self._check_rank(value // 10)  # the least that so many bytes can hold
            dims.extend(self._packed(value))
        else:
            self._want(1, kind, VARINT)
            self._keep(_NUMBER)
            dims.append(signed(value))
        self._check_rank(len(dims))

    def _check_rank(self, rank: int) -> None:
        if rank > _MAX_RANK:
            raise self._too_many(f"a tensor of more than {_MAX_RANK} dimensions", _MAX_RANK)

    def _too_many(self, problem: str, most: int) -> CostError:
        return self._reader.error(problem, f"at most {most:,}")

    def _want(self, number: int, kind: int, expected: int) -> None:
        if kind != expected:
            raise self._reader.error(
                f"field {number} has wire type {kind} instead of {expected}", MODEL
            )

    def _stop(self, number: int, kind: int, length: int) -> int:
        """Where a message ends that begins here."""
        if kind != LENGTH:
            self._want(number, kind, LENGTH)
        return self._reader.pos + length

    def _name(self, number: int, kind: int, length: int, *, recurs: bool = True) -> str:
        """Reads a string; equal ones are one object, since names recur as inputs, but for nodes'."""
        if kind != LENGTH:
            self._want(number, kind, LENGTH)
        if length > _MAX_NAME:
            raise self._too_many(f"a name of {length:,} bytes", _MAX_NAME)
        raw = self._reader.take(length)
        text = self._names.get(raw) if recurs else None
        if text is None:
            text = raw.decode("utf-8", "backslashreplace")
            self._keep(_RECORD + 2 * length)
            if recurs:
                self._names[raw] = text
        return text

    def _keep(self, size: int) -> None:
        self._kept += size
        if self._kept > _MAX_KEPT:
            problem = f"names, lists and small constants of more than {_MAX_KEPT:,} bytes"
            raise self._too_many(problem, _MAX_KEPT)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _decode_raw(dtype: int, count: int, data: bytes) -> tuple[int | float, ...] | None:
    if dtype == dtypes.BFLOAT16 and len(data) == 2 * count:
        return tuple(float32(half << 16) for half in struct.unpack(f"<{count}H", data))
    letter = dtypes.LETTERS.get(dtype)
    if letter is None or len(data) != struct.calcsize(f"<{count}{letter}"):
        return None
    return struct.unpack(f"<{count}{letter}", data)


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
