"""An ONNX model's structure as read from a file: names, types, shapes and small constants.

Weights are not here, only where they lie. Everything is immutable, so that one graph can
be walked several times (both branches of an If, each call of a local function). Records are
not compared, only their identity is. What is never an attribute's value is a ``NamedTuple``, here
and in other modules: such a class is made in a third of a dataclass's time, and a command makes
forty of them before it does anything. Of the others the methods to compare are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

Dim: TypeAlias = int | str | None
"""A declared dimension: its length, the name of a symbol, or nothing at all."""


class Span(NamedTuple):
    """A run of bytes in the model's file.

    Attributes:
        field: Number of the TensorProto field that it is the content of.
        offset: Where it starts, in bytes from the start of the file.
        length: Its length in bytes.
    """

    field: int
    offset: int
    length: int


class External(NamedTuple):
    """Where a tensor's bytes lie outside the model's file, as the model declares.

    Attributes:
        location: Path relative to the model's folder; not checked here.
        offset: Start in bytes.
        length: Length in bytes, or None if it is the file's rest.
    """

    location: str
    offset: int
    length: int | None


class Tensor(NamedTuple):
    """A constant: an initializer or a Constant node's value.

    Attributes:
        name: The initializer's name; may be empty for an attribute.
        dtype: Element type code.
        dims: Shape.
        stored: Bytes that it takes where it is stored, as the shape says (external data: as
            declared, where that is less); sub-byte types are packed.
        values: The elements, flat, if they are few enough to be a shape, an axis list or a
            scalar; None for weights.
        spans: Where the payload lies in the model's file; empty for external data.
        external: Where it lies elsewhere, or None.
    """

    name: str
    dtype: int
    dims: tuple[int, ...]
    stored: int
    values: tuple[int | float, ...] | None = None
    spans: tuple[Span, ...] = ()
    external: External | None = None

    @property
    def elements(self) -> int:
        """Number of elements; 1 for rank 0."""
        return prod(self.dims)


class SparseTensor(NamedTuple):
    """A sparse constant: its dense shape and the two tensors that hold it.

    Attributes:
        dims: Dense shape.
        values: The elements that are not zero; its name is the initializer's.
        indices: Their positions.
    """

    dims: tuple[int, ...]
    values: Tensor
    indices: Tensor


class Elided(NamedTuple):
    """An attribute too long to keep.

    Attributes:
        length: Elements or bytes that it has.
    """

    length: int


class Reference(NamedTuple):
    """An attribute of a node in a local function that takes the caller's value.

    Attributes:
        name: The caller's attribute.
    """

    name: str


Kind: TypeAlias = Literal["tensor", "sparse", "sequence", "optional", "map", "unknown"]


class Type(NamedTuple):
    """A declared type.

    Attributes:
        kind: What it is a type of.
        dtype: Element type code of a tensor.
        shape: Declared dimensions of a tensor; None if not even the rank is declared.
        element: What a sequence or an optional holds.
    """

    kind: Kind = "unknown"
    dtype: int = 0
    shape: tuple[Dim, ...] | None = None
    element: Type | None = None


class ValueInfo(NamedTuple):
    """A name and its declared type."""

    name: str
    type: Type


class Node(NamedTuple):
    """One operation.

    Attributes:
        name: As in the file; may be empty, and need not be unique.
        op_type: Operator or local function.
        domain: Operator set; ``ai.onnx`` is written as the empty string.
        inputs: Names; an empty one is an optional input left out.
        outputs: Names; an empty one is an output that is not used.
        attributes: By name.
        overload: Which local function of that name.
    """

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    overload: str = ""


class Graph(NamedTuple):
    """A graph: the model's, or the body of a control-flow node."""

    name: str = ""
    nodes: tuple[Node, ...] = ()
    inputs: tuple[ValueInfo, ...] = ()
    outputs: tuple[ValueInfo, ...] = ()
    value_info: tuple[ValueInfo, ...] = ()
    initializers: tuple[Tensor, ...] = ()
    sparse_initializers: tuple[SparseTensor, ...] = ()


class Function(NamedTuple):
    """A local function: nodes with named inputs, outputs and attributes.

    Attributes:
        defaults: Attributes that a call may leave out, with the value they then have.
        opsets: Operator set versions by domain.
    """

    name: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    defaults: Mapping[str, Attribute]
    opsets: Mapping[str, int]


class Model(NamedTuple):
    """A model's structure.

    Attributes:
        source: Path as given, or ``<bytes>`` or ``<ModelProto>``.
        graph: The main graph.
        functions: Local functions by (domain, name, overload).
        opsets: Operator set versions by domain.
        producer: Name of the program that wrote it.
        size: Bytes of the model's file, without external data.
    """

    source: str
    graph: Graph
    functions: Mapping[tuple[str, str, str], Function] = MappingProxyType({})
    opsets: Mapping[str, int] = MappingProxyType({})
    producer: str = ""
    size: int = 0


Attribute: TypeAlias = (
    int
    | float
    | bytes
    | Tensor
    | SparseTensor
    | Graph
    | Type
    | Elided
    | Reference
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[bytes, ...]
    | tuple[Tensor, ...]
    | tuple[Graph, ...]
    | tuple[Type, ...]
)
