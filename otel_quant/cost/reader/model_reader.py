"""Reads the structure of an ONNX file: everything but the weights.

Field numbers are those of ``onnx.proto``. Depth is bounded here, since a file may be
hostile; what is kept of it in :mod:`otel_quant.cost.reader.bounded_reader`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import BytesIO
from types import MappingProxyType
from typing import Final

from otel_quant.cost.errors import CostError
from otel_quant.cost.reader.bounded_reader import MAX_LIST, MAX_STRING
from otel_quant.cost.reader.other_formats import no_model, refuse_other_formats
from otel_quant.cost.reader.tensor_reader import TensorReader
from otel_quant.cost.reader.type_reader import TypeReader
from otel_quant.cost.reader.wire import (
    FIXED32,
    LENGTH,
    VARINT,
    Reader,
    float32,
    open_reader,
    signed,
)
from otel_quant.cost.structure import (
    Attribute,
    Elided,
    Function,
    Graph,
    Model,
    Node,
    Reference,
    SparseTensor,
    Tensor,
    ValueInfo,
)

MAX_GRAPH_DEPTH: Final = 32
"""Graphs within graphs (If in Loop in Scan ...); real models stay below five."""

_ELEMENT_OF: Final = {9: 4, 10: 5, 11: 6, 15: 14, 23: 22}
_LIST_TYPES: Final = frozenset({6, 7, 8, 9, 10, 12, 14})
_NO_ATTRIBUTES: Final[Mapping[str, Attribute]] = MappingProxyType({})
_DEFAULTS: Final[dict[int, Attribute]] = {1: 0.0, 2: 0, 3: b""}
"""An attribute whose value is the default of its field may be written without it."""


def read_model(source: str | os.PathLike[str] | bytes, deadline: float | None = None) -> Model:
    """Reads a model's structure."""
    if isinstance(source, bytes):
        reader = Reader(BytesIO(source), "<bytes>", len(source), deadline)
    else:
        reader = open_reader(source, deadline)
    try:
        return ModelReader(reader).model()
    except OSError as error:
        raise reader.error(f"cannot be read: {error.strerror}") from error
    finally:
        reader.close()


class ModelReader(TensorReader, TypeReader):
    """Turns the fields of a :class:`Reader` into the structure of :mod:`otel_quant.cost.structure`.

    Every method reads one message that ends at the position given, and leaves the reader
    there or before it.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._depth = 0
        self._graph_reached = False

    def model(self) -> Model:
        """Reads a ModelProto that is the whole file."""
        reader = self._reader
        refuse_other_formats(reader)
        try:
            return self._model()
        except CostError as error:
            if self._graph_reached or reader.is_late():
                raise
            raise no_model(reader, error) from error

    def _model(self) -> Model:
        reader = self._reader
        graph: Graph | None = None
        functions: dict[tuple[str, str, str], Function] = {}
        opsets: dict[str, int] = {}
        producer = ""
        for number, kind, value in reader.fields(reader.size):
            if number == 7:
                self._want(number, kind, LENGTH)
                self._graph_reached = True
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
            raise CostError(reader.source, "it has no graph", expected="an ONNX ModelProto")
        return Model(reader.source, graph, functions, opsets, producer, reader.size)

    def graph(self, end: int) -> Graph:
        """Reads a GraphProto."""
        reader = self._reader
        self._depth += 1
        if self._depth > MAX_GRAPH_DEPTH:
            raise reader.error(
                f"graphs nested more than {MAX_GRAPH_DEPTH} deep", f"at most {MAX_GRAPH_DEPTH}"
            )
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
                name = self._own_name(number, kind, value)
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
            attributes or _NO_ATTRIBUTES,
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
                single = float32(value)
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
