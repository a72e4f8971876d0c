"""Reads the structure of an ONNX file: everything but the weights.

Field numbers are as in ``onnx.proto``. A file may be hostile: a few bytes of it can make many
objects, so that depth is bounded, and what is kept of one file is counted, whatever message it
comes from. Elements of a tensor are read where they are shapes, axes, scales or exponents.
"""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from itertools import chain
from math import prod
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeAlias

from otel_quant.cost import dtypes, structure, wire
from otel_quant.cost.structure import Attribute, CostError, Dim, Elided, Tensor, Type, printable
from otel_quant.cost.wire import FIXED32, LENGTH, MODEL, VARINT, Field, Reader, float32, signed

_MAX_NAME: Final = 1 << 16  # Bytes of a name
_MAX_RANK: Final = 64  # Dimensions of a tensor

_MAX_KEPT: Final = 512 << 20
"""Bytes of memory, roughly, that names, records and numbers of one file may take; the largest graph
seen takes a tenth."""

_RECORD, _NUMBER = 300, 40  # Bytes of memory, roughly, of a record and of a number in a list

_MAX_LIST: Final = 1 << 16
"""Elements of a list attribute that are kept, and bytes of a string attribute."""

_MAX_GRAPH_DEPTH: Final = 32
"""Graphs within graphs (If in Loop in Scan ...); real models stay below five."""

_INT_VALUES: Final = 2048  # Elements of an integer constant that is kept for shape arithmetic

_FLOAT_VALUES: Final = 64
"""Elements of a float constant that is kept: scales of a Resize, exponents, scalars."""

_INTEGER_PAYLOADS: Final = frozenset({5, 7, 11})
_FLOAT_PAYLOADS: Final = {4: dtypes.FLOAT, 10: dtypes.DOUBLE}
_PAYLOADS: Final = _INTEGER_PAYLOADS | {*_FLOAT_PAYLOADS, 9}
"""Fields of a TensorProto that hold elements, but for texts; 9 as they are in memory."""

_OUTSIDE: Final = 1  # Location of the elements of a TensorProto that are in another file

_TYPE_KINDS: Final[dict[int, structure.Kind]] = {4: "sequence", 5: "map", 9: "optional"}
"""Fields of a TypeProto, but for tensors."""

_NO_TYPE: Final = Type()
_LIST_TYPES: Final = frozenset({6, 7, 8, 9, 10, 12, 14})
_NO_ATTRIBUTES: Final[Mapping[str, Attribute]] = MappingProxyType({})
_DEFAULTS: Final[dict[int, Attribute]] = {1: 0.0, 2: 0, 3: b""}
"""An attribute whose value is the default of its field may be written without it."""


def read_model(source: object, deadline: float | None = None) -> structure.Model:
    """Reads the structure of a model: a path, bytes, or an ``onnx.ModelProto``."""
    size = 0
    if isinstance(source, str | os.PathLike):
        reader = wire.open_reader(source, deadline)
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


_BIG: Final = 1 << 16  # Bytes from which an initializer is not serialized with its payload


def _without_weights(proto: Any) -> tuple[bytes, int]:
    """Returns an ``onnx.ModelProto`` without its weights as bytes, and the bytes that it takes whole.

    It brings its own methods. Piece by piece, so that a model of several gigabytes is neither copied
    nor has to fit into one protobuf message (two gigabytes at most).
    """
    if not (hasattr(proto, "graph") and hasattr(proto, "SerializeToString")):
        expected = "a path, bytes or an onnx.ModelProto"
        raise CostError(f"<{type(proto).__name__}>", "is not a model", expected=expected)
    light = type(proto)()
    light.ir_version, light.producer_name = proto.ir_version, proto.producer_name
    light.opset_import.extend(proto.opset_import)
    light.functions.extend(proto.functions)
    for name in ("node", "input", "output", "value_info"):
        getattr(light.graph, name).extend(getattr(proto.graph, name))
    sizes = [each.ByteSize() for each in proto.graph.initializer]
    for tensor, size in zip(proto.graph.initializer, sizes, strict=True):
        if size < _BIG:
            light.graph.initializer.append(tensor)
            continue
        kept = light.graph.initializer.add()
        kept.name, kept.data_type = tensor.name, tensor.data_type
        kept.data_location = tensor.data_location
        kept.dims.extend(tensor.dims)
        kept.external_data.extend(tensor.external_data)
    data = light.SerializeToString()
    return data, len(data) + sum(size for size in sizes if size >= _BIG)


_Read: TypeAlias = Callable[["_ModelReader", Field], Any]

_Fields: TypeAlias = Mapping[int, tuple[str, _Read, bool]]
"""Of a message, by number: the fields' names in ``onnx.proto``, one name for those that exclude each other, what reads
them, and whether they may be there several times. Of others the last one counts."""

_Message: TypeAlias = defaultdict[str, Any]
"""The fields of a message by name; a list of those that may be there several times."""


class _ModelReader:
    """Turns the fields of a :class:`Reader` into the structure of :mod:`otel_quant.cost.structure`.

    What the tables name reads one field, and leaves the reader at its end or before it.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept = 0
        self._names: dict[bytes, str] = {}
        self._depth = 0
        self._graph_reached = False

    def model(self) -> structure.Model:
        """Reads a ModelProto that fills the file."""
        reader = self._reader
        try:
            found = self._message((0, LENGTH, reader.size), _MODEL)
            if "graph" not in found:
                raise CostError(reader.source, "it has no graph", expected=MODEL)
        except CostError as error:
            if self._graph_reached or reader.is_late():
                raise
            raise wire.no_model(reader, error) from error
        functions = {(each.domain, each.name, each.overload): each for each in found["functions"]}
        opsets = dict(found["opset_import"])
        producer = found.get("producer_name", "")
        return structure.Model(
            reader.source, found["graph"], functions, opsets, reader.size, producer
        )

    def _message(self, field: Field, fields: _Fields) -> _Message:
        """Reads those fields of a message that its table has."""
        found: _Message = defaultdict(list)
        for inner in self._reader.fields(self._stop(field)):
            known = fields.get(inner[0])
            if known is not None:
                name, read, several = known
                if several:
                    found[name].append(read(self, inner))
                else:
                    found[name] = read(self, inner)
        return found

    def _graph(self, field: Field) -> structure.Graph:
        self._want(field, LENGTH)
        self._graph_reached = True
        self._depth += 1
        if self._depth > _MAX_GRAPH_DEPTH:
            problem = f"graphs nested more than {_MAX_GRAPH_DEPTH} deep"
            raise self._too_many(problem, _MAX_GRAPH_DEPTH)
        found = self._message(field, _GRAPH)
        self._depth -= 1
        parts = ("node", "input", "output", "value_info", "initializer")
        return structure.Graph(*(tuple(found[name]) for name in parts))

    def _node(self, field: Field) -> structure.GraphNode:
        found: dict[str, str] = {}
        inputs: list[str] = []
        outputs: list[str] = []
        attributes: dict[str, Attribute] = {}
        for inner in self._reader.fields(self._stop(field)):
            number = inner[0]
            if number == 1:
                inputs.append(self._name(inner))
            elif number == 2:
                outputs.append(self._name(inner))
            elif number == 5:
                name, attributes[name] = self._attribute(inner)
            elif number in _NODE:
                name, read, _ = _NODE[number]
                found[name] = read(self, inner)
        self._keep(_RECORD + 8 * (len(inputs) + len(outputs)))
        kind = found.get("name", ""), found.get("op_type", ""), _domain(found)
        held = tuple(inputs), tuple(outputs), attributes or _NO_ATTRIBUTES
        return structure.GraphNode(*kind, *held, found.get("overload", ""))

    def _attribute(self, field: Field) -> tuple[str, Attribute]:
        """Reads an AttributeProto; returns its name and value."""
        self._keep(_RECORD)
        found = self._message(field, _ATTRIBUTE)
        name, declared = found.get("name", ""), found.get("type", 0)
        if found.get("ref_attr_name"):
            return name, structure.Reference(found["ref_attr_name"])
        if "value" in found and declared not in _LIST_TYPES:
            return name, found["value"]
        parts = found["list"]
        count = sum(part.length if isinstance(part, Elided) else len(part) for part in parts)
        if count > _MAX_LIST:
            return name, Elided(count)
        items = tuple(chain.from_iterable(parts))
        if items or declared in _LIST_TYPES:
            return name, items
        return name, _DEFAULTS.get(declared, 0)

    def _raw(self, field: Field) -> int:
        return field[2]

    def _float(self, field: Field) -> float:
        self._want(field, FIXED32)
        return float32(field[2])

    def _integer(self, field: Field) -> int:
        _, kind, value = field
        if kind != VARINT:
            self._want(field, VARINT)
        return signed(value)

    def _text(self, field: Field) -> bytes | Elided:
        self._want(field, LENGTH)
        length = field[2]
        if length > _MAX_LIST:
            return Elided(length)
        self._keep(_NUMBER + length)
        return self._reader.take(length)

    def _texts(self, field: Field) -> Sequence[bytes | Elided]:
        return (self._text(field),)

    def _floats(self, field: Field) -> Sequence[float] | Elided:
        """Reads one element of a list, or all where they are packed; none where they are too many to keep."""
        _, kind, length = field
        if kind != LENGTH:
            self._keep(_NUMBER)
            return (self._float(field),)
        count = length // 4
        if count > _MAX_LIST:
            return Elided(count)
        self._keep(_NUMBER * count)
        return struct.unpack(f"<{count}f", self._reader.take(4 * count))

    def _integers(self, field: Field) -> Sequence[int] | Elided:
        """Reads one element of a list, or all where they are packed; none where they are too many to keep."""
        _, kind, length = field
        if kind != LENGTH:
            self._keep(_NUMBER)
            return (self._integer(field),)
        return Elided(length) if length > _MAX_LIST else self._packed(length)

    def _packed(self, length: int) -> list[int]:
        reader = self._reader
        end = reader.pos + length
        found: list[int] = []
        while reader.pos < end:
            found.append(signed(reader.varint()))
        self._keep(_NUMBER * len(found))
        return found

    def _function(self, field: Field) -> structure.Function:
        found = self._message(field, _FUNCTION)
        title = found.get("name", ""), _domain(found), found.get("overload", "")
        inputs, outputs, nodes = (tuple(found[part]) for part in ("input", "output", "node"))
        defaults, opsets = dict(found["attribute_proto"]), dict(found["opset_import"])
        return structure.Function(*title, inputs, outputs, nodes, defaults, opsets)

    def _opset(self, field: Field) -> tuple[str, int]:
        found = self._message(field, _OPSET)
        return _domain(found), found.get("version", 0)

    def _value_info(self, field: Field) -> structure.ValueInfo:
        self._keep(_RECORD)
        found = self._message(field, _INFO)
        return structure.ValueInfo(found.get("name", ""), found.get("type", _NO_TYPE))

    def _type(self, field: Field) -> Type:
        """Reads a TypeProto; of sequences, optionals and maps not what they hold."""
        found: Type = self._message(field, _TYPE).get("value", _NO_TYPE)
        return found

    def _opaque_type(self, field: Field) -> Type:
        return Type(_TYPE_KINDS[field[0]])

    def _tensor_type(self, field: Field) -> Type:
        found = self._message(field, _TENSOR_TYPE)
        return Type("tensor", found.get("elem_type", 0), found.get("shape"))

    def _shape(self, field: Field) -> tuple[Dim, ...]:
        dims = tuple(self._message(field, _SHAPE)["dim"])
        self._check_rank(len(dims))
        return dims

    def _dim(self, field: Field) -> Dim:
        dim: Dim = None
        for inner in self._reader.fields(self._stop(field)):
            number, kind, value = inner
            if number == 1 and kind == VARINT:
                dim = signed(value)
            elif number == 2:
                dim = self._name(inner) or None
        self._keep(_NUMBER)
        return dim

    def _tensor(self, field: Field) -> Tensor:
        """Reads a TensorProto; keeps its values if they are few."""
        self._keep(_RECORD)
        found = self._message(field, _TENSOR)
        name, dtype = found.get("name", ""), found.get("data_type", 0)
        dims = tuple(chain.from_iterable(found["dims"]))
        self._check_rank(len(dims))
        for dim in dims:
            if dim < 0:
                problem = f"tensor {printable(name)} has a dimension {dim}"
                raise self._reader.error(problem, "a length of 0 or more")
        spans = tuple(found["payload"])
        if None in spans:
            spans = ()
        external, values = None, None
        if found.get("data_location", 0) == _OUTSIDE:
            external = self._external(name, dict(found["external_data"]))
        else:
            values = self._values(dtype, prod(dims), spans)
        # A length beyond what the shape needs is not believed; 0 is as good as none to onnxruntime.
        declared = (external.length if external else 0) or None
        sizes = [dtypes.stored_bytes(dtype, prod(dims)), declared]
        payload = sum(span.length for span in spans)
        stored = min((size for size in sizes if size is not None), default=payload)
        return Tensor(name, dtype, dims, stored, values, spans, external)

    def _dims(self, field: Field) -> Sequence[int]:
        """Reads one length, or all where they are packed."""
        _, kind, value = field
        if kind == LENGTH:
            self._check_rank(value // 10)  # the least that so many bytes can hold
            return self._packed(value)
        self._keep(_NUMBER)
        return (self._integer(field),)

    def _payload(self, field: Field) -> structure.Span | None:
        """Where elements lie; None where they are not packed."""
        number, kind, length = field
        return structure.Span(number, self._reader.pos, length) if kind == LENGTH else None

    def _entry(self, field: Field) -> tuple[str, str]:
        found = self._message(field, _ENTRY)
        return found.get("key", ""), found.get("value", "")

    def _values(
        self, dtype: int, count: int, spans: Sequence[structure.Span]
    ) -> tuple[int | float, ...] | None:
        """The elements of a tensor that may be a shape, a list of axes or a scale."""
        if count > (_FLOAT_VALUES if dtype in dtypes.FLOATS else _INT_VALUES):
            return None
        if count == 0 or len(spans) != 1:
            return None if count else ()
        field, self._reader.pos, length = spans[0]
        found: tuple[int | float, ...] | None = None
        if field in _INTEGER_PAYLOADS and length <= 10 * _INT_VALUES:
            decode, numbers = _FROM_INTEGERS.get(dtype), self._packed(length)
            found = decode and tuple(map(decode, numbers))
        elif field not in _INTEGER_PAYLOADS and length <= 8 * _INT_VALUES:
            stored_as = _FLOAT_PAYLOADS.get(field, dtype)
            found = _decode_raw(stored_as, count, self._reader.take(length))
        self._keep(_NUMBER * len(found or ()))
        return found if found is not None and len(found) == count else None

    def _external(self, name: str, entries: Mapping[str, str]) -> structure.External:
        numbers: dict[str, int] = {}
        for key in ("offset", "length"):
            text = entries.get(key, "0")
            if not (text.isascii() and text.isdigit() and len(text) < 20):
                problem = f"tensor {printable(name)} has external {key} {printable(text)!r}"
                raise self._reader.error(problem, "a number of bytes")
            numbers[key] = int(text)
        length = numbers["length"] if "length" in entries else None
        return structure.External(entries.get("location", ""), numbers["offset"], length)

    def _check_rank(self, rank: int) -> None:
        if rank > _MAX_RANK:
            raise self._too_many(f"a tensor of more than {_MAX_RANK} dimensions", _MAX_RANK)

    def _too_many(self, problem: str, most: int) -> CostError:
        return self._reader.error(problem, f"at most {most:,}")

    def _want(self, field: Field, expected: int) -> None:
        number, kind, _ = field
        if kind != expected:
            problem = f"field {number} has wire type {kind} instead of {expected}"
            raise self._reader.error(problem, MODEL)

    def _stop(self, field: Field) -> int:
        """Where a message ends that begins here."""
        if field[1] != LENGTH:
            self._want(field, LENGTH)
        return self._reader.pos + field[2]

    def _name(self, field: Field) -> str:
        """Reads a string; equal ones are one object, since names recur as inputs."""
        _, kind, length = field
        if kind != LENGTH or length > _MAX_NAME:
            self._refuse_name(field)
        raw = self._reader.take(length)
        text = self._names.get(raw)
        if text is None:
            text = self._names[raw] = self._decoded(raw)
        return text

    def _node_name(self, field: Field) -> str:
        """Reads a string that does not recur."""
        _, kind, length = field
        if kind != LENGTH or length > _MAX_NAME:
            self._refuse_name(field)
        return self._decoded(self._reader.take(length))

    def _refuse_name(self, field: Field) -> NoReturn:
        self._want(field, LENGTH)
        raise self._too_many(f"a name of {field[2]:,} bytes", _MAX_NAME)

    def _decoded(self, raw: bytes) -> str:
        self._keep(_RECORD + 2 * len(raw))
        return raw.decode("utf-8", "backslashreplace")

    def _keep(self, size: int) -> None:
        self._kept += size
        if self._kept > _MAX_KEPT:
            problem = f"names, lists and small constants of more than {_MAX_KEPT:,} bytes"
            raise self._too_many(problem, _MAX_KEPT)


_ONE, _MANY = False, True
_of = _ModelReader

_MODEL: Final[_Fields] = {
    2: ("producer_name", _of._name, _ONE), 7: ("graph", _of._graph, _ONE), 8: ("opset_import", _of._opset, _MANY), 25: ("functions", _of._function, _MANY),
}  # fmt: skip
_GRAPH: Final[_Fields] = {
    1: ("node", _of._node, _MANY), 5: ("initializer", _of._tensor, _MANY), 11: ("input", _of._value_info, _MANY),
    12: ("output", _of._value_info, _MANY), 13: ("value_info", _of._value_info, _MANY),
}  # fmt: skip
_NODE: Final[_Fields] = {
    3: ("name", _of._node_name, _ONE), 4: ("op_type", _of._name, _ONE), 7: ("domain", _of._name, _ONE),
    8: ("overload", _of._name, _ONE),
}  # fmt: skip
_ATTRIBUTE: Final[_Fields] = {
    1: ("name", _of._name, _ONE), 20: ("type", _of._raw, _ONE), 21: ("ref_attr_name", _of._name, _ONE),
    2: ("value", _of._float, _ONE), 3: ("value", _of._integer, _ONE), 4: ("value", _of._text, _ONE),
    5: ("value", _of._tensor, _ONE), 6: ("value", _of._graph, _ONE),
    7: ("list", _of._floats, _MANY), 8: ("list", _of._integers, _MANY), 9: ("list", _of._texts, _MANY),
}  # fmt: skip
_FUNCTION: Final[_Fields] = {
    1: ("name", _of._name, _ONE), 10: ("domain", _of._name, _ONE), 13: ("overload", _of._name, _ONE),
    4: ("input", _of._name, _MANY), 5: ("output", _of._name, _MANY), 7: ("node", _of._node, _MANY),
    9: ("opset_import", _of._opset, _MANY), 11: ("attribute_proto", _of._attribute, _MANY),
}  # fmt: skip
_OPSET: Final[_Fields] = {1: ("domain", _of._name, _ONE), 2: ("version", _of._integer, _ONE)}
_INFO: Final[_Fields] = {1: ("name", _of._name, _ONE), 2: ("type", _of._type, _ONE)}
_TYPE: Final[_Fields] = {
    1: ("value", _of._tensor_type, _ONE), **dict.fromkeys(_TYPE_KINDS, ("value", _of._opaque_type, _ONE)),
}  # fmt: skip
_TENSOR_TYPE: Final[_Fields] = {
    1: ("elem_type", _of._integer, _ONE), 2: ("shape", _of._shape, _ONE),
}  # fmt: skip
_SHAPE: Final[_Fields] = {1: ("dim", _of._dim, _MANY)}
_TENSOR: Final[_Fields] = {
    2: ("data_type", _of._integer, _ONE), 8: ("name", _of._name, _ONE), 14: ("data_location", _of._raw, _ONE),
    1: ("dims", _of._dims, _MANY), 13: ("external_data", _of._entry, _MANY),
    **dict.fromkeys(_PAYLOADS, ("payload", _of._payload, _MANY)),
}  # fmt: skip
_ENTRY: Final[_Fields] = {1: ("key", _of._name, _ONE), 2: ("value", _of._name, _ONE)}


def _domain(found: Mapping[str, Any]) -> str:
    name: str = found.get("domain", "")
    return "" if name == "ai.onnx" else name


def _decode_raw(dtype: int, count: int, data: bytes) -> tuple[int | float, ...] | None:
    if dtype == dtypes.BFLOAT16 and len(data) == 2 * count:
        return tuple(float32(half << 16) for half in struct.unpack(f"<{count}H", data))
    letter = dtypes.LETTERS.get(dtype)
    if letter is None or len(data) != struct.calcsize(f"<{count}{letter}"):
        return None
    return struct.unpack(f"<{count}{letter}", data)


_FROM_INTEGERS: Final[dict[int, Callable[[int], int | float]]] = {
    **dict.fromkeys(dtypes.INTEGERS | {dtypes.BOOL}, int),
    **dict.fromkeys((dtypes.UINT32, dtypes.UINT64), lambda value: value & 0xFFFFFFFFFFFFFFFF),
    dtypes.FLOAT16: lambda bits: struct.unpack("<e", (bits & 0xFFFF).to_bytes(2, "little"))[0],
    dtypes.BFLOAT16: lambda bits: float32((bits & 0xFFFF) << 16),
}
"""What ``int32_data``, ``int64_data`` or ``uint64_data`` hold of each type."""
